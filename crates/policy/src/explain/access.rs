//! What `who-can` and `what-can` share: how they name what they found.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::Lines;
use super::authorization::object;
use crate::authorization::{AuthorizationPolicy, PolicySet, Via};

/// An object and its rule, for programs.
#[derive(Debug, Serialize)]
pub struct ViaReport<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    rule: usize,
}

// === impl ViaReport ===

impl<'a> From<&'a Via> for ViaReport<'a> {
    fn from(via: &'a Via) -> Self {
        Self {
            kind: via.kind.as_str(),
            namespace: &via.namespace,
            name: &via.name,
            rule: via.rule,
        }
    }
}

/// `Kind/name, rule 0`.
pub fn object_and_rule(via: &Via) -> String {
    format!(
        "{}, rule {}",
        object(via.kind, &via.namespace, &via.name),
        via.rule
    )
}

/// On one line, whatever is in it.
pub fn limits_in_words(limits: &[String]) -> String {
    let words = limits
        .iter()
        .flat_map(|limit| limit.split_whitespace().chain([";"]));
    let text = words.collect::<Vec<_>>().join(" ").replace(" ;", ";");
    text.trim_end_matches(';').to_owned()
}

/// What a Deny policy is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyNote {
    pub name: String,
    /// Within which it denies, such as its time; empty where it always does.
    pub limits: String,
    pub reason: String,
}

/// What the Deny policies of these names are about.
pub fn deny_notes<'a>(names: impl Iterator<Item = &'a Arc<str>>, set: &PolicySet) -> Vec<DenyNote> {
    let names: BTreeSet<&str> = names.map(AsRef::as_ref).collect();
    let policies = set.authorization_policies();
    let named = policies.filter(|policy| names.contains(policy.name.as_str()));
    let note = |policy: &AuthorizationPolicy| DenyNote {
        name: policy.name.clone(),
        limits: limits_in_words(&policy.limits()),
        reason: policy.reason.clone(),
    };
    named.map(note).collect()
}

/// What the Deny policies of a table are about, below an empty line; nothing where it names none.
pub fn deny_lines<'a>(names: impl Iterator<Item = &'a Arc<str>>, set: &PolicySet) -> Lines {
    let mut lines = Lines::new();
    for (position, policy) in deny_notes(names, set).into_iter().enumerate() {
        if position == 0 {
            lines.line("");
        }
        let reason = match policy.reason.as_str() {
            "" => "no reason given",
            reason => reason,
        };
        let limits = match policy.limits.as_str() {
            "" => String::new(),
            limits => format!(" ({limits})"),
        };
        lines.line(format_args!(
            "AuthorizationPolicy/{} denies{limits}: {reason}",
            policy.name
        ));
    }
    lines
}
