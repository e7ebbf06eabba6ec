//! Reports of `who-can` and `what-can`: everybody who may do something, and everything that one
//! user may do.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::authorization::object;
use super::request::{split_resource, with_group};
use super::{Lines, TextTable};
use crate::authorization::rbac::PathPattern;
use crate::authorization::{
    AllowedShare, AuthorizationPolicy, Effect, Grantee, OpenRequest, OpenResource, OpenTarget, Permission,
    PolicySet, SubjectKind, Via, Within,
};
use crate::manifest::{built_in_resources, odd_request};
use crate::model::{Deadline, ResourceAttributes, Target, Time, User};

/// The question who may make a request.
#[derive(Debug, Clone)]
pub struct WhoCanQuestion {
    pub request: OpenRequest,
}

/// Why the arguments are not a valid question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// A path has no name and is in no namespace.
    #[error("a path cannot be combined with a name and a namespace")]
    PathInPlace,
    /// The verb or the resource is missing.
    #[error("name a verb and a resource, such as `get` and `pods`, or a verb and a path")]
    Incomplete,
}

/// The subjects who may make the request, sorted by kind and name.
#[derive(Debug)]
pub struct WhoCanAnswer(pub Vec<Grantee>);

/// The report as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhoCanReport<'a> {
    subjects: Vec<SubjectReport<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SubjectReport<'a> {
    kind: &'static str,
    name: &'a str,
    namespace: &'a str,
    pattern: bool,
    via: Vec<ViaWithLimits<'a>>,
    denied_by: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ViaWithLimits<'a> {
    #[serde(flatten)]
    via: SourceReport<'a>,
    limits: &'a [String],
}

// === impl WhoCanQuestion ===

impl WhoCanQuestion {
    /// Creates the question who may `verb` the `target`. The target is a path, or
    /// `RESOURCE[.GROUP][/SUBRESOURCE]` with any name or the given one, in the given place or the
    /// namespace `default`.
    ///
    /// # Errors
    ///
    /// The verb or resource is missing, or an argument cannot be combined with a path.
    pub fn new(
        verb: &str,
        target: &str,
        name: Option<&str>,
        place: Option<Within>,
    ) -> Result<Self, QuestionError> {
        let verb = verb.to_owned();
        if target.starts_with('/') {
            if name.is_some() || place.is_some() {
                return Err(QuestionError::PathInPlace);
            }
            if verb.is_empty() {
                return Err(QuestionError::Incomplete);
            }
            let target = OpenTarget::Path(target.to_owned());
            let request = OpenRequest { verb, target };
            return Ok(Self { request });
        }
        let (group, resource, subresource) = split_resource(target);
        if verb.is_empty() || resource.is_empty() {
            return Err(QuestionError::Incomplete);
        }
        let target = OpenTarget::Resource(OpenResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.filter(|name| !name.is_empty()).map(str::to_owned),
            within: place.unwrap_or_else(|| Within::Namespace("default".to_owned())),
        });
        let request = OpenRequest { verb, target };
        Ok(Self { request })
    }

    /// Answers the question as of `now`; `None` if the deadline passes, or the answer is too long
    /// to be readable.
    pub fn answer(&self, set: &PolicySet, now: Time, deadline: Deadline<'_>) -> Option<WhoCanAnswer> {
        set.who_can(&self.request, now, deadline).map(WhoCanAnswer)
    }

    /// The resource of the question, if it is known to be cluster-scoped.
    pub fn in_no_namespace(&self, set: &PolicySet) -> Option<&str> {
        match &self.request.target {
            OpenTarget::Resource(asked) if set.cluster_scoped().contains(&asked.group, &asked.resource) => {
                Some(&asked.resource)
            }
            OpenTarget::Resource(_) | OpenTarget::Path(_) => None,
        }
    }

    /// Suggestions for an unknown verb, group or resource.
    pub fn hints(&self, set: &PolicySet) -> Vec<String> {
        let verb = self.request.verb.clone().into();
        let target = match &self.request.target {
            OpenTarget::Path(path) => Target::NonResource {
                path: path.clone().into(),
                verb,
            },
            OpenTarget::Resource(asked) => Target::Resource(Box::new(ResourceAttributes {
                verb,
                group: asked.group.clone().into(),
                resource: asked.resource.clone().into(),
                subresource: asked.subresource.clone().into(),
                ..ResourceAttributes::default()
            })),
        };
        odd_request(&target, set)
    }
}

// === impl WhoCanAnswer ===

impl WhoCanAnswer {
    /// The report as JSON.
    pub fn report(&self) -> WhoCanReport<'_> {
        WhoCanReport {
            subjects: self.0.iter().map(SubjectReport::from).collect(),
        }
    }

    /// The report as text.
    pub fn in_words(&self, set: &PolicySet) -> Lines {
        let found = &self.0;
        let mut table = TextTable::new(&["KIND", "NAME", "VIA", "LIMITS", "DENIED BY"]);
        for grantee in found {
            let subject = &grantee.subject;
            let name = match subject.kind {
                SubjectKind::ServiceAccount => format!("{}/{}", subject.namespace, subject.name),
                SubjectKind::User | SubjectKind::Group => subject.name.clone(),
            };
            let denied_by = grantee.denied_by.join(", ");
            let row = |via: String, limits: String| {
                vec![
                    subject.kind.to_string(),
                    name.clone(),
                    via,
                    limits,
                    denied_by.clone(),
                ]
            };
            if grantee.via.is_empty() {
                table.row(row(
                    "the API server, without calling a webhook".to_owned(),
                    String::new(),
                ));
            }
            for via in &grantee.via {
                table.row(row(object_and_rule(via), limits_in_words(&via.limits)));
            }
        }
        let denied = found.iter().flat_map(|grantee| &grantee.denied_by);
        let mut lines = table.folded().in_words();
        lines.append(&deny_lines(denied, set));
        lines
    }
}

// === impl SubjectReport ===

impl<'a> From<&'a Grantee> for SubjectReport<'a> {
    fn from(grantee: &'a Grantee) -> Self {
        Self {
            kind: grantee.subject.kind.as_str(),
            name: &grantee.subject.name,
            namespace: &grantee.subject.namespace,
            pattern: grantee.is_pattern,
            via: grantee
                .via
                .iter()
                .map(|via| ViaWithLimits {
                    via: via.into(),
                    limits: &via.limits,
                })
                .collect(),
            denied_by: grantee.denied_by.iter().map(AsRef::as_ref).collect(),
        }
    }
}

// What one user may do.

/// The question what a user may do.
#[derive(Debug, Clone)]
pub struct WhatCanQuestion {
    pub user: User<'static>,
    pub within: Within,
}

/// The permissions of the user, rule by rule.
#[derive(Debug)]
pub struct WhatCanAnswer(pub Vec<Permission>);

/// The report as JSON.
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
    via: SourceReport<'a>,
    limits: &'a [String],
    denied_by: Vec<&'a str>,
}

/// A table of resources and verbs, with what the user may do.
#[derive(Debug, Default)]
pub struct AccessMatrix {
    /// The resources, in order, in the form of `--resource`, with a share for each of [`VERBS`].
    /// Resources without any are left out.
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
    /// Answers the question as of `now`; `None` if the deadline passes, or the answer is too long
    /// to be readable.
    pub fn answer(&self, set: &PolicySet, now: Time, deadline: Deadline<'_>) -> Option<WhatCanAnswer> {
        let permissions = set.what_can(&self.user, &self.within, now, deadline);
        permissions.map(WhatCanAnswer)
    }

    /// Whether an API server allows the user everything without calling an authorization webhook.
    pub fn is_never_asked(&self) -> bool {
        self.user.groups.iter().any(|group| group == "system:masters")
    }

    /// Returns the table of resources and verbs, with the built-in resources and those that the
    /// user's rules name. `None` if the deadline passes, or there are more than 10,000 resources.
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
    /// The report as JSON.
    pub fn report(&self) -> WhatCanReport<'_> {
        WhatCanReport {
            rules: self.0.iter().map(RuleReport::from).collect(),
        }
    }

    /// The report as text.
    pub fn in_words(&self, set: &PolicySet) -> Lines {
        let found = &self.0;
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
}

// === impl AccessMatrix ===

impl AccessMatrix {
    /// The report as text.
    pub fn in_words(&self) -> Lines {
        let mut heading = vec!["RESOURCE"];
        heading.extend(VERBS);
        let mut table = TextTable::new(&heading);
        for (resource, shares) in &self.rows {
            let words = shares.iter().map(|share| share_word(*share).to_owned());
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
pub const fn share_word(share: AllowedShare) -> &'static str {
    match share {
        AllowedShare::Full => "yes",
        AllowedShare::Partial => "some",
        AllowedShare::None => "-",
    }
}

// Names of objects and policies, for `who-can` and `what-can`.

/// An object and its rule, as JSON.
#[derive(Debug, Serialize)]
pub struct SourceReport<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    rule: usize,
}

// === impl SourceReport ===

impl<'a> From<&'a Via> for SourceReport<'a> {
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

/// Joins the limits on one line.
pub fn limits_in_words(limits: &[String]) -> String {
    let words = limits
        .iter()
        .flat_map(|limit| limit.split_whitespace().chain([";"]));
    let text = words.collect::<Vec<_>>().join(" ").replace(" ;", ";");
    text.trim_end_matches(';').to_owned()
}

/// A note about a Deny or Limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyNote {
    pub name: String,
    /// For a Limit, the requests that it permits: ` all but get pods`; empty for a Deny.
    pub all_but: String,
    /// What limits the denial, such as a period of time; empty if it is unlimited.
    pub limits: String,
    pub reason: String,
}

/// Notes about the Denies and Limits of these names.
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

/// The requests that the rules of a Limit permit.
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

/// An empty line, and the notes about the Denies and Limits of a table; empty if there are none.
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
