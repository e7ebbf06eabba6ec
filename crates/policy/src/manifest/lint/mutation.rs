//! Warnings about MutatingAdmissionPolicies that can only fail.

use super::Lint;
use crate::engine::admission::apply::Schemas;
use crate::engine::admission::mutating::Mutation;
use crate::engine::admission::{GroupVersionKind, MutatingPolicy};
use crate::field::FieldPath;

/// Subresources whose objects are of another kind than the resource's own.
const SUBRESOURCES: [(&str, &str, &str, &str); 9] = [
    ("scale", "autoscaling", "v1", "Scale"),
    ("eviction", "policy", "v1", "Eviction"),
    ("binding", "", "v1", "Binding"),
    ("token", "authentication.k8s.io", "v1", "TokenRequest"),
    ("exec", "", "v1", "PodExecOptions"),
    ("attach", "", "v1", "PodAttachOptions"),
    ("portforward", "", "v1", "PodPortForwardOptions"),
    ("log", "", "v1", "PodLogOptions"),
    ("proxy", "", "v1", "PodProxyOptions"),
];

/// Warns of each subresource among the rules to whose kind no configuration can be applied.
pub(crate) fn lint(policy: &MutatingPolicy, lint: &mut Lint<'_>) {
    let applies = |mutation: &Mutation| matches!(mutation, Mutation::ApplyConfiguration(_));
    if !policy.mutations.iter().any(applies) {
        return;
    }
    let path = FieldPath::root().field("spec").field("matchConstraints");
    let path = path.field("resourceRules");
    for (index, rule) in policy.applicability.constraints.rules.iter().enumerate() {
        for (place, resource) in rule.resources.iter().enumerate() {
            if let Some(kind) = kind_without_schema(resource) {
                let message = format!(
                    "`{resource}` is of kind `{kind}`, to which `ApplyConfiguration` cannot be applied, and the \
                     mutation fails: write a `JSONPatch`, or leave it out"
                );
                lint.suspicious(&path.index(index).field("resources").index(place), message);
            }
        }
    }
}

fn kind_without_schema(resource: &str) -> Option<&'static str> {
    let (_, subresource) = resource.split_once('/')?;
    let (_, group, version, kind) = SUBRESOURCES.into_iter().find(|(name, ..)| *name == subresource)?;
    let of = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
    };
    Schemas::builtin().know(&of).is_err().then_some(kind)
}
