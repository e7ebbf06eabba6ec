//! Verbs as operations of admission.

use std::collections::BTreeSet;

use portcullis_policy::admission::CONNECT_VERBS;
use portcullis_policy::authorization::ResourceRule;
use portcullis_policy::authorization::matching::{RequestedResource, ResourcePattern, Wildcard};
use portcullis_policy::model::groups::ADMISSION;

/// What admission policies never see, and the verbs that it knows
/// (`pkg/kubeapiserver/admission/exclusion` of Kubernetes, and `isExcludedFromAPIHooks` of its policy
/// plugins).
const UNSEEN: [(&str, &str, &[&str]); 10] = [
    ("authentication.k8s.io", "selfsubjectreviews", REVIEWED),
    ("authentication.k8s.io", "tokenreviews", REVIEWED),
    ("authorization.k8s.io", "localsubjectaccessreviews", REVIEWED),
    ("authorization.k8s.io", "selfsubjectaccessreviews", REVIEWED),
    ("authorization.k8s.io", "selfsubjectrulesreviews", REVIEWED),
    ("authorization.k8s.io", "subjectaccessreviews", REVIEWED),
    (ADMISSION, "validatingadmissionpolicies", STORED),
    (ADMISSION, "validatingadmissionpolicybindings", STORED),
    (ADMISSION, "mutatingadmissionpolicies", STORED),
    (ADMISSION, "mutatingadmissionpolicybindings", STORED),
];

const REVIEWED: &[&str] = &["create"];
const STORED: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

/// An operation of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConvertedOperation {
    Create,
    Update,
    Delete,
    Connect,
}

impl ConvertedOperation {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The operations for one of the rule's resources.
///
/// # Errors
///
/// The field of the rule that cannot be converted, and why.
pub(crate) fn of_resource(
    rule: &ResourceRule,
    pattern: &ResourcePattern,
) -> Result<BTreeSet<ConvertedOperation>, (&'static str, String)> {
    if let Some(unseen) = unseen(rule, pattern) {
        let reason = format!("`{pattern}` includes `{unseen}`, which admission policies never see");
        return Err(("resources", reason));
    }
    let connects: Vec<_> = CONNECT_VERBS
        .iter()
        .filter(|(resource, subresource, _)| {
            rule.api_groups.includes("") && includes(pattern, resource, subresource)
        })
        .collect();
    if let ([(_, _, verbs)], true) = (connects.as_slice(), is_one(pattern) && is_core_alone(rule)) {
        let missing: Vec<&str> = verbs
            .iter()
            .copied()
            .filter(|verb| !rule.verbs.includes(verb))
            .collect();
        if missing.is_empty() {
            return Ok(BTreeSet::from([ConvertedOperation::Connect]));
        }
        let reason = format!(
            "admission cannot tell by which verb somebody connects to `{pattern}`: name {}, too",
            listed(&missing)
        );
        return Err(("verbs", reason));
    }
    let connecting = connects
        .iter()
        .find(|(_, _, verbs)| verbs.iter().any(|verb| rule.verbs.includes(verb)));
    if let Some((resource, subresource, verbs)) = connecting {
        let reason = format!(
            "`{pattern}` includes `{resource}/{subresource}`, and admission cannot tell by which of the verbs \
             {} somebody connects to that: name the resources without it",
            listed(verbs)
        );
        return Err(("resources", reason));
    }
    of_verbs(rule)
}

fn of_verbs(rule: &ResourceRule) -> Result<BTreeSet<ConvertedOperation>, (&'static str, String)> {
    let mut operations = BTreeSet::new();
    for verb in rule.verbs.as_slice() {
        let operation = match verb.as_str() {
            "create" => ConvertedOperation::Create,
            "update" | "patch" => ConvertedOperation::Update,
            "delete" | "deletecollection" => ConvertedOperation::Delete,
            "*" => {
                let reason = "`*` includes reads, which pass no admission: name the verbs that write";
                return Err(("verbs", reason.to_owned()));
            }
            "get" | "list" | "watch" => {
                return Err(("verbs", format!("`{verb}` reads, and reads pass no admission")));
            }
            verb => {
                return Err((
                    "verbs",
                    format!("no request with the verb `{verb}` passes admission"),
                ));
            }
        };
        operations.insert(operation);
    }
    for (named, other) in [("update", "patch"), ("patch", "update")] {
        if rule.verbs.includes(named) && !rule.verbs.includes(other) {
            let reason = format!("admission cannot tell `{named}` from `{other}`: name both");
            return Err(("verbs", reason));
        }
    }
    Ok(operations)
}

fn unseen(rule: &ResourceRule, pattern: &ResourcePattern) -> Option<&'static str> {
    UNSEEN
        .iter()
        .find(|(group, resource, verbs)| {
            rule.api_groups.includes(group)
                && includes(pattern, resource, "")
                && verbs.iter().any(|verb| rule.verbs.includes(verb))
        })
        .map(|(_, resource, _)| *resource)
}

/// Whether `pattern` stands for this resource among others.
pub(crate) fn includes(pattern: &ResourcePattern, resource: &str, subresource: &str) -> bool {
    pattern.includes(&RequestedResource {
        resource,
        subresource: subresource.into(),
    })
}

const fn is_one(pattern: &ResourcePattern) -> bool {
    matches!(
        pattern,
        ResourcePattern::Subresource(Wildcard::Named(_), Wildcard::Named(_))
    )
}

fn is_core_alone(rule: &ResourceRule) -> bool {
    rule.api_groups.as_slice().iter().all(String::is_empty)
}

fn listed(verbs: &[&str]) -> String {
    let quoted: Vec<String> = verbs.iter().map(|verb| format!("`{verb}`")).collect();
    quoted.join(", ")
}
