//! Warnings about dangerous rights that a rule grants.

use super::known::CONSTRAINED;
use crate::authorization::rbac::WildcardSet;

/// Groups of which about everybody is a member.
const EVERYBODY: [&str; 4] = [
    "*",
    "system:authenticated",
    "system:unauthenticated",
    "system:serviceaccounts",
];

/// Verbs by which a user can come to have more rights than were given.
const ESCALATING: [&str; 3] = ["bind", "escalate", "impersonate"];

/// Whether a Group or User of this name is about everybody, or nobody in particular.
pub(crate) fn is_everybody(kind: &str, name: &str) -> bool {
    match kind {
        "Group" => EVERYBODY.contains(&name),
        "User" => matches!(name, "*" | "system:anonymous"),
        _ => false,
    }
}

/// Why it is dangerous to give such a rule to everybody.
pub(crate) fn danger(
    verbs: &WildcardSet,
    api_groups: &WildcardSet,
    has_every_resource: bool,
) -> Option<String> {
    if verbs.is_all() && api_groups.is_all() && has_every_resource {
        return Some("everything".to_owned());
    }
    let escalates = |verb: &&str| ESCALATING.contains(verb) || verb.starts_with(CONSTRAINED);
    let escalating = verbs.named().find(escalates);
    escalating.map(|verb| format!("`{verb}`, by which rights grow,"))
}
