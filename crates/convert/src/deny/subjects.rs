//! Converts subjects to conditions on `request.userInfo`, and writes CEL literals and operators.

use portcullis_policy::authorization::{
    AuthorizationPolicy, NeverDeny, ServiceAccount, Subject, SubjectKind,
};

const USER: &str = "request.userInfo.username";

/// A group that protects its members only if their user names begin with `system:node:` too
/// (`neverDeny`).
const NODES: &str = "system:nodes";

/// The condition that the user is one of `subjects`; `None` if these are all users.
pub(crate) fn is_subject(subjects: &[Subject]) -> Option<String> {
    let is_everybody = |subject: &Subject| subject.kind != SubjectKind::ServiceAccount && subject.name == "*";
    (!subjects.iter().any(is_everybody)).then(|| any(&alternatives(subjects)))
}

/// The condition that the user is none of `subjects`; `None` if there are none.
pub(crate) fn is_not_subject(subjects: &[Subject]) -> Option<String> {
    match is_subject(subjects) {
        _ if subjects.is_empty() => None,
        Some(among) => Some(format!("!({among})")),
        None => Some("false".to_owned()),
    }
}

/// The condition that no exemption from a Deny applies to the user: the API server does not ask
/// about `system:masters`, and `neverDeny` protects others.
pub(crate) fn is_not_exempt(policy: &AuthorizationPolicy, never_deny: &NeverDeny) -> String {
    let mut groups: Vec<&str> = vec!["system:masters"];
    let mut nodes = None;
    let mut users: Vec<String> = Vec::new();
    if may_be_protected(policy, never_deny) {
        for group in &never_deny.groups {
            match group.as_str() {
                NODES => {
                    let member = group_condition(&is_one_of("group", &[NODES]));
                    nodes = Some(format!("{USER}.startsWith('system:node:') && {member}"));
                }
                group => groups.push(group),
            }
        }
        users.extend(never_deny.users.iter().cloned());
        users.extend(never_deny.service_accounts.iter().map(ServiceAccount::user_name));
    }
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let mut alternatives = vec![group_condition(&is_one_of("group", &groups))];
    alternatives.extend(nodes);
    if !users.is_empty() {
        alternatives.push(is_one_of(USER, &users));
    }
    format!("!({})", any(&alternatives))
}

/// Whether the policy may apply to a subject of `never_deny`. That is not so if it names all its
/// users and none of them is one.
fn may_be_protected(policy: &AuthorizationPolicy, never_deny: &NeverDeny) -> bool {
    let only_nodes = never_deny.groups.iter().all(|group| group == NODES);
    let is_named = |subject: &Subject| match subject.kind {
        SubjectKind::ServiceAccount => true,
        SubjectKind::User => !subject.name.ends_with('*') && !subject.name.starts_with("system:node:"),
        SubjectKind::Group => false,
    };
    let is_clear = |subject: &Subject| is_named(subject) && !never_deny.covers_subject(subject);
    !(only_nodes && policy.subjects.iter().all(is_clear))
}

/// One condition for exact users, one for groups, and one for each prefix of users.
fn alternatives(subjects: &[Subject]) -> Vec<String> {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    let (mut user_prefixes, mut group_prefixes) = (Vec::new(), Vec::new());
    for subject in subjects {
        match (subject.kind, subject.name.strip_suffix('*')) {
            (SubjectKind::ServiceAccount, _) => {
                users.push(ServiceAccount::new(&subject.namespace, &subject.name).user_name());
            }
            (SubjectKind::User, None) => users.push(subject.name.clone()),
            (SubjectKind::User, Some(prefix)) => user_prefixes.push(prefix),
            (SubjectKind::Group, None) => groups.push(subject.name.as_str()),
            (SubjectKind::Group, Some(prefix)) => group_prefixes.push(prefix),
        }
    }
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let mut alternatives = Vec::new();
    if !users.is_empty() {
        alternatives.push(is_one_of(USER, &users));
    }
    alternatives.extend(user_prefixes.iter().map(|prefix| starts_with(USER, prefix)));
    let mut of_group = Vec::new();
    if !groups.is_empty() {
        of_group.push(is_one_of("group", &groups));
    }
    of_group.extend(group_prefixes.iter().map(|prefix| starts_with("group", prefix)));
    if !of_group.is_empty() {
        alternatives.push(group_condition(&any(&of_group)));
    }
    alternatives
}

fn starts_with(value: &str, prefix: &str) -> String {
    format!("{value}.startsWith({})", text(prefix))
}

/// The condition that `condition` holds for a group of the user.
fn group_condition(condition: &str) -> String {
    format!("has(request.userInfo.groups) && request.userInfo.groups.exists(group, {condition})")
}

// Writes CEL.

/// A CEL string literal in single quotes.
pub(crate) fn text(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('\'');
    for character in value.chars() {
        match character {
            '\'' => quoted.push_str("\\'"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            character if character.is_control() => {
                quoted.push_str(&format!("\\U{:08x}", u32::from(character)));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('\'');
    quoted
}

/// A CEL list of string literals.
pub(crate) fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> String {
    let values: Vec<String> = values.into_iter().map(text).collect();
    format!("[{}]", values.join(", "))
}

/// The condition that `value` is one of `values`: `value == 'a'`, `value in ['a', 'b']`.
pub(crate) fn is_one_of(value: &str, values: &[&str]) -> String {
    match values {
        [one] => format!("{value} == {}", text(one)),
        several => format!("{value} in {}", texts(several.iter().copied())),
    }
}

/// The disjunction of conditions, none of which has `||` or `? :` outside parentheses.
pub(crate) fn any(alternatives: &[String]) -> String {
    match alternatives {
        [] => "false".to_owned(),
        several => several.join(" || "),
    }
}

/// The expression in parentheses.
pub(crate) fn parenthesized(expression: &str) -> String {
    format!("({expression})")
}
