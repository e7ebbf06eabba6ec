//! Matches a subject of a policy with the user of a request.

use crate::authorization::rbac::subject_applies;
use crate::authorization::{Subject, SubjectKind};
use crate::engine::User;

/// Whether `subject` is `user`. A `*` at the end of a User's or Group's name
/// makes it a prefix; alone it is everybody, those without groups too.
#[must_use]
pub fn subject_matches(subject: &Subject, user: &User<'_>) -> bool {
    let matches = |name: &str| match subject.name.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == subject.name,
    };
    match subject.kind {
        SubjectKind::User => matches(&user.name),
        SubjectKind::Group => subject.name == "*" || user.groups.iter().any(|group| matches(group)),
        SubjectKind::ServiceAccount => subject_applies(subject, user, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_matched_as_the_index_of_policies_finds_them() {
        let user = User {
            name: "system:serviceaccount:a:s".into(),
            groups: vec!["team-a".into(), "dev".into()],
            ..User::default()
        };
        for (subject, matches) in [
            (Subject::user("system:serviceaccount:a:s"), true),
            (Subject::user("system:serviceaccount:*"), true),
            (Subject::user("*"), true),
            (Subject::user("system"), false),
            (Subject::group("dev"), true),
            (Subject::group("team-*"), true),
            (Subject::group("ops*"), false),
            (Subject::service_account("a", "s"), true),
            (Subject::service_account("b", "s"), false),
            (Subject::service_account("", "s"), false),
        ] {
            assert_eq!(subject_matches(&subject, &user), matches, "{subject:?}");
        }
        let nobody = User::default();
        assert!(subject_matches(&Subject::group("*"), &nobody));
    }
}
