//! What `who-can` and `what-can` share: where they ask, and how they name what they found.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::explain::object;
use crate::engine::authorization::{PolicySet, Via, Within};

/// `-n` and `-A`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct NamespaceArguments {
    /// The namespace [default: that of the context, or else `default`]
    #[arg(short, long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// In any namespace, or in none.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

/// An object and its rule, for programs.
#[derive(Debug, Serialize)]
pub(super) struct ViaReport<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    rule: usize,
}

// === impl NamespaceArguments ===

impl NamespaceArguments {
    /// `default` is the namespace where none is named, such as that of a context.
    pub(super) fn within(&self, default: Option<&str>) -> Within {
        if self.all_namespaces {
            return Within::AnyNamespace;
        }
        let named = self
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        Within::Namespace(named.or(default).unwrap_or("default").to_owned())
    }

    /// Whether it was said on the command line.
    pub(super) const fn is_named(&self) -> bool {
        self.namespace.is_some() || self.all_namespaces
    }
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
pub(super) fn object_and_rule(via: &Via) -> String {
    format!(
        "{}, rule {}",
        object(via.kind, &via.namespace, &via.name),
        via.rule
    )
}

/// On one line, whatever is in it.
pub(super) fn limits_in_words(limits: &[String]) -> String {
    let words = limits
        .iter()
        .flat_map(|limit| limit.split_whitespace().chain([";"]));
    let text = words.collect::<Vec<_>>().join(" ").replace(" ;", ";");
    text.trim_end_matches(';').to_owned()
}

/// What the Deny policies of a table are about; empty where it names none.
pub(super) fn deny_lines<'a>(names: impl Iterator<Item = &'a Arc<str>>, set: &PolicySet) -> String {
    let names: BTreeSet<&str> = names.map(AsRef::as_ref).collect();
    let mut text = String::new();
    for policy in set
        .authorization_policies()
        .filter(|policy| names.contains(policy.name.as_str()))
    {
        let limits = limits_in_words(&policy.limits());
        let reason = if policy.reason.is_empty() {
            "no reason given"
        } else {
            &policy.reason
        };
        let limits = if limits.is_empty() {
            limits
        } else {
            format!(" ({limits})")
        };
        text.push_str(&format!(
            "\nAuthorizationPolicy/{} denies{limits}: {reason}",
            policy.name
        ));
    }
    if text.is_empty() { text } else { text + "\n" }
}
