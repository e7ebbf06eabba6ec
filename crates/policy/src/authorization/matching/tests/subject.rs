use super::super::*;

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
