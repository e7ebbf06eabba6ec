//! Everything that one user may do.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::authorization::object;
use super::request::with_group;
use super::{Lines, TextTable};
use crate::authorization::rbac::PathPattern;
use crate::authorization::{
    AllowedShare, AuthorizationPolicy, Effect, OpenRequest, OpenResource, OpenTarget, Permission, PolicySet,
    Via, Within,
};
use crate::manifest::built_in_resources;
use crate::model::{Deadline, Time, User};

/// What may this user do there?
#[derive(Debug, Clone)]
pub struct WhatCanQuestion {
    pub user: User<'static>,
    pub within: Within,
}

/// What the user may do, rule by rule.
#[derive(Debug)]
pub struct WhatCanAnswer(pub Vec<Permission>);

/// The same as JSON.
#[derive(Debug, Serialize)]
pub struct WhatCanReport<'a> {
    rules: Vec<RuleReport<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleReport<'a> {
    verbs: &'a [String],
    api_groups: &'a [String],
    resources: &'a [String],
    names: &'a [String],
    paths: &'a [String],
    namespace: &'a str,
    via: ViaReport<'a>,
    limits: &'a [String],
    denied_by: Vec<&'a str>,
}

/// For each resource whether the user has each verb.
#[derive(Debug, Default)]
pub struct AccessMatrix {
    /// Resources of which the user may do something, in order, as `--resource` takes them, with a
    /// share for each of [`VERBS`].
    pub rows: Vec<(String, Vec<AllowedShare>)>,
}

/// The verbs of the matrix.
pub const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// The most resources of a matrix.
const MAX_MATRIX_ROWS: usize = 10_000;

// === impl WhatCanQuestion ===

impl WhatCanQuestion {
    /// Everything that the user may do, at `now`; `None` where it takes longer than until
    /// `deadline`, or the answer is too long for anybody to read.
    pub fn answer(&self, set: &PolicySet, now: Time, deadline: Deadline<'_>) -> Option<WhatCanAnswer> {
        let permissions = set.what_can(&self.user, &self.within, now, deadline);
        permissions.map(WhatCanAnswer)
    }

    /// Whether an API server allows the user everything, without asking.
    pub fn is_never_asked(&self) -> bool {
        self.user.groups.iter().any(|group| group == "system:masters")
    }

    /// For each resource whether the user has each verb: those that Kubernetes serves, and those
    /// that the user's rules name; `None` where it takes longer than until `deadline`, or there are
    /// more than 10,000.
    pub fn matrix(
        &self,
        set: &PolicySet,
        answer: &WhatCanAnswer,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Option<AccessMatrix> {
        let mut resources: BTreeSet<(String, String)> = built_in_resources()
            .map(|(group, resource)| (group.to_owned(), resource.to_owned()))
            .collect();
        for permission in &answer.0 {
            for group in permission.api_groups.iter().filter(|group| *group != "*") {
                let named = permission
                    .resources
                    .iter()
                    .filter(|resource| !resource.contains('*'));
                for resource in named {
                    resources.insert((group.clone(), resource.clone()));
                    if resources.len() > MAX_MATRIX_ROWS {
                        return None;
                    }
                }
                if deadline.has_passed() {
                    return None;
                }
            }
        }
        let mut matrix = AccessMatrix::default();
        for (group, resource) in &resources {
            if deadline.has_passed() {
                return None;
            }
            let shares: Vec<AllowedShare> = VERBS
                .iter()
                .map(|verb| self.share(set, (verb, group, resource), now))
                .collect();
            if shares.iter().any(|share| *share != AllowedShare::None) {
                matrix.rows.push((with_group(resource, group), shares));
            }
        }
        Some(matrix)
    }

    fn share(&self, set: &PolicySet, (verb, group, resource): (&str, &str, &str), now: Time) -> AllowedShare {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let request = OpenRequest {
            verb: verb.to_owned(),
            target: OpenTarget::Resource(OpenResource {
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                name: None,
                within: self.within.clone(),
            }),
        };
        set.allowance(&self.user, &request, now)
    }
}

// === impl WhatCanAnswer ===

impl WhatCanAnswer {
    /// For programs.
    pub fn report(&self) -> WhatCanReport<'_> {
        WhatCanReport {
            rules: self.0.iter().map(RuleReport::from).collect(),
        }
    }

    /// For people.
    pub fn in_words(&self, set: &PolicySet) -> Lines {
        in_words(&self.0, set)
    }
}

// === impl AccessMatrix ===

impl AccessMatrix {
    /// For people.
    pub fn in_words(&self) -> Lines {
        let mut heading = vec!["RESOURCE"];
        heading.extend(VERBS);
        let mut table = TextTable::new(&heading);
        for (resource, shares) in &self.rows {
            let words = shares.iter().map(|share| in_a_word(*share).to_owned());
            table.row(std::iter::once(resource.clone()).chain(words).collect());
        }
        table.in_words()
    }
}

// === impl RuleReport ===

impl<'a> From<&'a Permission> for RuleReport<'a> {
    fn from(permission: &'a Permission) -> Self {
        let Permission {
            verbs,
            api_groups,
            resources,
            names,
            paths,
            via,
            denied_by,
        } = permission;
        Self {
            verbs,
            api_groups,
            resources,
            names,
            paths,
            namespace: &via.namespace,
            via: via.into(),
            limits: &via.limits,
            denied_by: denied_by.iter().map(AsRef::as_ref).collect(),
        }
    }
}

fn in_words(found: &[Permission], set: &PolicySet) -> Lines {
    if found.is_empty() {
        return Lines::from_iter(["nothing"]);
    }
    let mut table = TextTable::new(&[
        "VERBS",
        "RESOURCES OR PATHS",
        "NAMESPACE",
        "VIA",
        "LIMITS",
        "DENIED BY",
    ]);
    for permission in found {
        let mut limits = permission.via.limits.clone();
        if !permission.names.is_empty() {
            limits.insert(0, format!("names: {}", permission.names.join(", ")));
        }
        let namespace = match permission.via.namespace.as_str() {
            "" => "*",
            namespace => namespace,
        };
        table.row(vec![
            permission.verbs.join(","),
            targets(permission).join(","),
            namespace.to_owned(),
            object_and_rule(&permission.via),
            limits_in_words(&limits),
            permission.denied_by.join(", "),
        ]);
    }
    let denied = found.iter().flat_map(|permission| &permission.denied_by);
    let mut lines = table.folded().in_words();
    lines.append(&deny_lines(denied, set));
    lines
}

/// `pods`, `deployments.apps`, `*.*`, `/metrics`.
pub fn targets(permission: &Permission) -> Vec<String> {
    let mut targets = Vec::new();
    for group in &permission.api_groups {
        targets.extend(
            permission
                .resources
                .iter()
                .map(|resource| with_group(resource, group)),
        );
    }
    targets.extend(permission.paths.iter().cloned());
    targets
}

/// `yes`, `some` or `-`.
pub const fn in_a_word(share: AllowedShare) -> &'static str {
    match share {
        AllowedShare::Full => "yes",
        AllowedShare::Partial => "some",
        AllowedShare::None => "-",
    }
}

// What `who-can` and `what-can` share: how they name what they found.

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

/// What a Deny or Limit is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyNote {
    pub name: String,
    /// Of a Limit, the requests that it lets be: ` all but get pods`; empty of a Deny.
    pub all_but: String,
    /// Within which it denies, such as its time; empty where it always does.
    pub limits: String,
    pub reason: String,
}

/// What the Denies and Limits of these names are about.
pub fn deny_notes<'a>(names: impl Iterator<Item = &'a Arc<str>>, set: &PolicySet) -> Vec<DenyNote> {
    let names: BTreeSet<&str> = names.map(AsRef::as_ref).collect();
    let policies = set.authorization_policies();
    let named = policies.filter(|policy| names.contains(policy.name.as_str()));
    let note = |policy: &AuthorizationPolicy| DenyNote {
        name: policy.name.clone(),
        all_but: all_but(policy),
        limits: limits_in_words(&match policy.effect {
            Effect::Limit => policy.limits_of_all_rules(),
            Effect::Allow | Effect::Deny => policy.limits(),
        }),
        reason: policy.reason.clone(),
    };
    named.map(note).collect()
}

/// What the rules of a Limit hold.
fn all_but(policy: &AuthorizationPolicy) -> String {
    if policy.effect != Effect::Limit {
        return String::new();
    }
    let resources = policy.resource_rules.iter().map(|rule| {
        let resources: Vec<String> = rule.resources.iter().map(ToString::to_string).collect();
        let groups = rule.api_groups.as_slice();
        let groups = match groups.iter().all(String::is_empty) {
            true => String::new(),
            false => format!(" of {}", groups.join(",")),
        };
        let limits = limits_in_words(&AuthorizationPolicy::limits_of_rule(policy.effect, rule));
        let limits = match limits.as_str() {
            "" => limits,
            limits => format!(" ({limits})"),
        };
        let verbs = rule.verbs.as_slice().join(",");
        format!("{verbs} {}{groups}{limits}", resources.join(","))
    });
    let paths = policy.non_resource_rules.iter().map(|rule| {
        let paths: Vec<String> = rule.paths.iter().map(PathPattern::to_string).collect();
        format!("{} {}", rule.verbs.as_slice().join(","), paths.join(","))
    });
    let rules: Vec<String> = resources.chain(paths).collect();
    format!(" all but {}", rules.join("; "))
}

/// What the Denies and Limits of a table are about, below an empty line; nothing where it names none.
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
            "AuthorizationPolicy/{} denies{}{limits}: {reason}",
            policy.name, policy.all_but
        ));
    }
    lines
}
