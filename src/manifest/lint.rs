//! Warnings about manifests that are valid, but dangerous or probably not what was meant.
//!
//! Each warning is precise, and says what to write instead. `policy` looks at
//! one AuthorizationPolicy at a time, `lockout` at Denies over everybody,
//! `unasked` at Denies that no API server asks about, `names`
//! at verbs, groups and resources, `unreachable` at rules that others cover,
//! `binding` at a binding with the role that it grants, `mutation` at one
//! MutatingAdmissionPolicy, `bound` at admission policies and their bindings,
//! `webhook` at one configuration of webhooks, `parameters` at what no policy reads,
//! `left_out` at what the API server never asks about. `unknown_namespaces` at selectors
//! that ask for labels which nothing tells. `asked` looks at one request.

mod asked;
mod binding;
mod bound;
mod exception;
mod grants;
pub(super) mod known;
mod labels;
mod left_out;
mod lockout;
mod mutation;
mod names;
mod parameters;
mod policy;
mod types;
mod unasked;
mod unknown_namespaces;
mod unreachable;
mod validity;
mod webhook;

pub use asked::odd_request;
pub use known::{built_in_resource, built_in_resources};

use super::Options;
use super::admission::AdmissionObject;
use super::object::{Content, ManifestObject};
use crate::document::Document;
use crate::engine::Time;
use crate::engine::admission::AdmissionSet;
use crate::engine::admission::exceptions::Exception;
use crate::engine::authorization::{AuthorizationPolicy, PolicySet};
use crate::field::{Fault, FaultKind, Faults, FieldPath};

/// Looks at all `objects`, each of which is valid.
pub(super) fn lint(objects: &[ManifestObject], options: &Options, faults: &mut Faults) {
    let never_deny = &options.never_deny;
    let roles = binding::RolesByCluster::new(objects);
    let grants = binding::RoleGrants::new(&roles, never_deny);
    let namespaces = webhook::KnownNamespaces::new(objects);
    let denies = unreachable::Denies::new(objects.iter().filter_map(|object| match &object.content {
        Content::Policy(policy) => Some((&**policy, object.cluster.as_deref())),
        _ => None,
    }));
    let known = exception::KnownTargets::new(objects);
    let labellers = labels::Labellers::new(objects, &grants);
    let spec = FieldPath::root().field("spec");
    for object in objects {
        let mut lint = Lint {
            document: &object.document,
            faults,
        };
        match &object.content {
            Content::Policy(policy) => {
                policy::lint(policy, never_deny, &mut lint);
                labels::lint(policy, object.cluster.as_deref(), &labellers, &mut lint);
                validity::lint(&policy.validity, options.now, &spec, &mut lint);
                lockout::lint(policy, never_deny, &mut lint);
                unasked::lint(policy, &options.api_server_webhooks, &mut lint);
                names::lint_policy(policy, &mut lint);
                denies.lint(policy, object.cluster.as_deref(), &mut lint);
            }
            Content::Role(role) => {
                binding::lint_role(role, &mut lint);
                names::lint_role(role, &mut lint);
                unreachable::lint_role(role, &mut lint);
            }
            Content::Exception(exception) => {
                // What is watched is not known here.
                let is_watched = !options.watched.is_empty();
                let around = exception::Around {
                    has: &|name| is_watched || known.policies.contains(name),
                    has_namespaces: is_watched || known.has_namespaces,
                };
                exception::lint(exception, &around, options.now, &mut lint);
            }
            Content::Binding(binding) => {
                binding::lint(binding, object.cluster.as_deref(), &grants, &mut lint)
            }
            Content::Admission(
                AdmissionObject::ValidatingWebhooks(configuration)
                | AdmissionObject::MutatingWebhooks(configuration),
            ) => webhook::lint(configuration, object.cluster.as_deref(), &namespaces, &mut lint),
            Content::Admission(AdmissionObject::MutatingPolicy(policy)) => {
                mutation::lint(policy, &mut lint);
                let path = spec.field("matchConstraints");
                names::lint_constraints(&policy.applicability.constraints, &path, &mut lint);
                types::lint(&policy.applicability, &mut lint);
                left_out::lint(&policy.applicability.constraints, &path, &mut lint);
            }
            Content::Admission(AdmissionObject::ValidatingPolicy(policy)) => {
                let path = spec.field("matchConstraints");
                names::lint_constraints(&policy.applicability.constraints, &path, &mut lint);
                types::lint(&policy.applicability, &mut lint);
                left_out::lint(&policy.applicability.constraints, &path, &mut lint);
            }
            Content::Namespace(_) | Content::Admission(_) | Content::Parameter => {}
        }
    }
    bound::lint(objects, faults);
    parameters::lint(objects, faults);
    unknown_namespaces::lint(objects, options, faults);
}

/// Looks at a policy by itself, beside what is in force.
pub(super) fn policy_alone(
    object: &ManifestObject,
    written: &AuthorizationPolicy,
    set: &PolicySet,
    now: Time,
    faults: &mut Faults,
) {
    let mut lint = Lint {
        document: &object.document,
        faults,
    };
    policy::lint(written, set.never_deny(), &mut lint);
    lockout::lint(written, set.never_deny(), &mut lint);
    names::lint_policy(written, &mut lint);
    labels::lint(written, None, &labels::Labellers::of_set(set), &mut lint);
    validity::lint(
        &written.validity,
        Some(now),
        &FieldPath::root().field("spec"),
        &mut lint,
    );
}

/// The same of an exception.
pub(super) fn exception_alone(
    object: &ManifestObject,
    written: &Exception,
    (policies, admission): (&PolicySet, &AdmissionSet),
    now: Time,
    faults: &mut Faults,
) {
    let mut lint = Lint {
        document: &object.document,
        faults,
    };
    let around = exception::Around {
        has: &|name| admission.has_validating(name),
        has_namespaces: policies.knows_namespaces(),
    };
    exception::lint(written, &around, Some(now), &mut lint);
}

/// Collects the warnings about one object.
struct Lint<'a> {
    document: &'a Document,
    faults: &'a mut Faults,
}

impl Lint<'_> {
    fn suspicious(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.warn(FaultKind::Suspicious, path, message);
    }

    fn warn(&mut self, kind: FaultKind, path: &FieldPath, message: impl Into<String>) {
        self.faults
            .push(Fault::warning(self.document.place(path.clone()), kind, message));
    }
}

#[cfg(test)]
mod tests;
