//! `portcullis what-can`: everything that one user may do.

use std::collections::BTreeSet;
use std::fmt::Display;

use serde::Serialize;

use super::access::{NamespaceArguments, ViaReport, deny_lines, limits_in_words, object_and_rule};
use super::at::At;
use super::output::{self, Format};
use super::policy_files::{PolicyFiles, PolicyPurpose};
use super::table::TextTable;
use super::{CommandResult, Error};
use crate::engine::authorization::{
    AllowedShare, OpenRequest, OpenResource, OpenTarget, Permission, PolicySet, Within,
};
use crate::engine::{Time, User};
use crate::manifest::built_in_resources;

/// List everything that a user may do, rule by rule.
///
/// RBAC and AuthorizationPolicies together. A rule of which Deny policies leave nothing is not
/// listed. Nothing is added to the user, so name all groups, including `system:authenticated`.
#[derive(Debug, clap::Args)]
pub(super) struct WhatCan {
    /// The user's name; a service account is `system:serviceaccount:NAMESPACE:NAME`.
    #[arg(long, required_unless_present = "groups")]
    user: Option<String>,
    /// A group of the user; repeat for each.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    place: NamespaceArguments,
    #[command(flatten)]
    files: PolicyFiles,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Serialize)]
struct WhatCanReport<'a> {
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

/// The verbs of the matrix.
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

// === impl WhatCan ===

impl WhatCan {
    pub(super) fn run(self, format: Format) -> Result<CommandResult, Error> {
        let loaded = self.files.load(PolicyPurpose::Authorization)?;
        let set = loaded.policies.for_cluster(&self.files.cluster);
        let user = User {
            name: self.user.unwrap_or_default().into(),
            groups: self.groups.into_iter().map(Into::into).collect(),
            ..User::default()
        };
        let (within, now) = (self.place.within(loaded.namespace.as_deref()), self.at.time());
        let found = set.what_can(&user, &within, now);
        let report = WhatCanReport {
            rules: found.iter().map(RuleReport::from).collect(),
        };
        let masters = user.groups.iter().any(|group| group == "system:masters");
        if masters && format != Format::Json {
            output::complain("warning: an API server allows `system:masters` everything, without asking");
        }
        if format == Format::Wide {
            let matrix = matrix(set, &user, &found, (&within, now));
            output::print(Format::Text, matrix, &report)?;
        } else {
            output::print(format, in_words(&found, set), &report)?;
        }
        Ok(CommandResult::Success)
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

fn in_words(found: &[Permission], set: &PolicySet) -> String {
    if found.is_empty() {
        return "nothing\n".to_owned();
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
    format!("{table}{}", deny_lines(denied, set))
}

/// `pods`, `deployments.apps`, `*.*`, `/metrics`.
fn targets(permission: &Permission) -> Vec<String> {
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

/// `deployments.apps/scale`, as `--resource` takes it.
fn with_group(resource: &str, group: &str) -> String {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{resource}{dot}{group}{slash}{subresource}")
}

/// For each resource whether the user has each verb: those that Kubernetes serves, and those
/// that the user's rules name.
fn matrix(set: &PolicySet, user: &User<'_>, found: &[Permission], at: (&Within, Time)) -> impl Display {
    let mut resources: BTreeSet<(String, String)> = built_in_resources()
        .map(|(group, resource)| (group.to_owned(), resource.to_owned()))
        .collect();
    for permission in found {
        for group in permission.api_groups.iter().filter(|group| *group != "*") {
            let named = permission
                .resources
                .iter()
                .filter(|resource| !resource.contains('*'));
            resources.extend(named.map(|resource| (group.clone(), resource.clone())));
        }
    }
    let mut heading = vec!["RESOURCE"];
    heading.extend(VERBS);
    let mut table = TextTable::new(&heading);
    for (group, resource) in &resources {
        let cells: Vec<AllowedShare> = VERBS
            .iter()
            .map(|verb| allowance(set, user, (verb, group, resource), at))
            .collect();
        if cells.iter().any(|cell| *cell != AllowedShare::None) {
            let words = cells.into_iter().map(|cell| in_a_word(cell).to_owned());
            table.row(
                std::iter::once(with_group(resource, group))
                    .chain(words)
                    .collect(),
            );
        }
    }
    table
}

fn allowance(
    set: &PolicySet,
    user: &User<'_>,
    (verb, group, resource): (&str, &str, &str),
    (within, now): (&Within, Time),
) -> AllowedShare {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let request = OpenRequest {
        verb: verb.to_owned(),
        target: OpenTarget::Resource(OpenResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: None,
            within: within.clone(),
        }),
    };
    set.allowance(user, &request, now)
}

const fn in_a_word(allowance: AllowedShare) -> &'static str {
    match allowance {
        AllowedShare::Full => "yes",
        AllowedShare::Partial => "some",
        AllowedShare::None => "-",
    }
}
