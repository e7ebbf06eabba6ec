//! Warnings about manifests that are valid, but dangerous or probably not what was meant.
//!
//! Each warning is precise, and says what to write instead. `policy` looks at
//! one AuthorizationPolicy at a time, `lockout` at Denies over everybody,
//! `unasked` at Denies that no API server asks about, `names`
//! at verbs, groups and resources, `unreachable` at rules that others cover,
//! `binding` at a binding with the role that it grants, `mutation` at one
//! MutatingAdmissionPolicy, `bound` at admission policies and their bindings,
//! `webhook` at one configuration of webhooks, `parameters` at what no policy reads,
//! `left_out` at what the API server never asks about, `excluded` at what nobody is shown,
//! `statics` at what is in files alone,
//! `impersonation` at who may be impersonated. `unknown_namespaces` at selectors
//! that ask for labels which nothing tells. `asked` looks at one request.

mod asked;
mod binding;
mod bindings;
mod bound;
mod exception;
mod excluded;
mod grants;
mod impersonation;
pub(crate) mod known;
mod labels;
mod left_out;
mod lockout;
mod mutation;
mod names;
mod parameters;
mod policy;
mod statics;
mod typed_parts;
mod types;
mod unasked;
mod unknown_namespaces;
mod unreachable;
mod validity;
mod webhook;

pub use asked::odd_request;
pub(crate) use bindings::BindingLint;
pub use known::{built_in_resource, built_in_resources, kind_of};
pub use unasked::is_never_asked_about;

use std::sync::Arc;

use super::Options;
use super::admission::AdmissionObject;
use super::kept::KeptDocument;
use super::object::{Content, ManifestObject};
use super::source_objects::SourceObjects;
use crate::authorization::{AuthorizationPolicy, PolicySet};
use crate::engine::Time;
use crate::engine::admission::exceptions::Exception;
use crate::engine::admission::{AdmissionSet, Applicability};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use excluded::RuleOwner;

/// Looks at all objects of `sources`, each of which is valid.
pub(crate) fn lint(
    sources: &[Arc<SourceObjects>],
    options: &Options,
    earlier: Option<&BindingLint>,
    faults: &mut Faults,
) -> BindingLint {
    let others: Vec<&ManifestObject> = sources.iter().flat_map(|source| source.others()).collect();
    let bindings = BindingLint::new(sources, options, earlier);
    let around = LintContext {
        options,
        namespaces: webhook::KnownNamespaces::new(&others),
        denies: unreachable::Denies::new(others.iter().filter_map(|object| match &object.content {
            Content::Policy(policy) => Some((&**policy, object.cluster.as_deref())),
            _ => None,
        })),
        known: exception::KnownTargets::new(&others),
        labellers: labels::Labellers::new(&others, bindings.labellers()),
    };
    for (source, found) in sources.iter().zip(bindings.found()) {
        let mut found = found.warnings.iter().peekable();
        for (place, object) in source.others_in_place() {
            while let Some((_, warnings)) = found.next_if(|(at, _)| *at < place) {
                faults.extend(warnings.iter().cloned());
            }
            around.lint(object, faults);
        }
        faults.extend(found.flat_map(|(_, warnings)| warnings.iter().cloned()));
    }
    bound::lint(&others, faults);
    parameters::lint(&others, faults);
    unknown_namespaces::lint(&others, options, faults);
    bindings
}

/// What the warnings about one object depend on beside it.
struct LintContext<'o> {
    options: &'o Options,
    namespaces: webhook::KnownNamespaces<'o>,
    denies: unreachable::Denies<'o>,
    known: exception::KnownTargets,
    labellers: labels::Labellers<'o>,
}

impl LintContext<'_> {
    fn lint(&self, object: &ManifestObject, faults: &mut Faults) {
        faults.extend(object.warnings.get_or_init(|| alone(object)).iter().cloned());
        let mut lint = Lint {
            document: &object.document,
            faults,
        };
        let cluster = object.cluster.as_deref();
        match &object.content {
            Content::Policy(policy) => self.lint_policy(policy, cluster, &mut lint),
            Content::Exception(exception) => {
                // What is watched is not known here.
                let is_watched = !self.options.watched.is_empty();
                let around = exception::Around {
                    has: &|name| is_watched || self.known.policies.contains(name),
                    has_namespaces: is_watched || self.known.has_namespaces,
                };
                exception::lint(exception, &around, self.options.now, &mut lint);
            }
            Content::Admission(
                AdmissionObject::ValidatingWebhooks(configuration)
                | AdmissionObject::MutatingWebhooks(configuration),
            ) => webhook::lint(configuration, cluster, &self.namespaces, &mut lint),
            _ => {}
        }
    }

    fn lint_policy(&self, policy: &AuthorizationPolicy, cluster: Option<&str>, lint: &mut Lint<'_>) {
        let never_deny = &self.options.never_deny;
        let spec = FieldPath::root().field("spec");
        policy::lint(policy, never_deny, lint);
        labels::lint(policy, cluster, &self.labellers, lint);
        validity::lint(&policy.validity, self.options.now, &spec, lint);
        lockout::lint(policy, never_deny, lint);
        unasked::lint(policy, &self.options.api_server_webhooks, lint);
        names::lint_policy(policy, lint);
        self.denies.lint(policy, cluster, lint);
    }
}

/// The warnings about `object` that depend on nothing beside it.
fn alone(object: &ManifestObject) -> Box<[Fault]> {
    let mut faults = Faults::new();
    let mut lint = Lint {
        document: &object.document,
        faults: &mut faults,
    };
    let path = FieldPath::root().field("spec").field("matchConstraints");
    let lint_admission = |applicability: &Applicability, version, lint: &mut Lint<'_>| {
        let rules = &applicability.constraints.rules;
        let rules_path = path.field("resourceRules");
        excluded::lint(
            rules,
            RuleOwner::Policy,
            applicability.is_static,
            &rules_path,
            lint,
        );
        names::lint_constraints(&applicability.constraints, &path, lint);
        types::lint(applicability, version, lint);
        typed_parts::lint(applicability, version, lint);
        left_out::lint(&applicability.constraints, &path, lint);
    };
    if let Content::Admission(admission) = &object.content {
        statics::lint(admission, &mut lint);
    }
    match &object.content {
        Content::Role(role) => {
            binding::lint_role(role, &mut lint);
            names::lint_role(role, &mut lint);
            unreachable::lint_role(role, &mut lint);
        }
        Content::Admission(AdmissionObject::MutatingPolicy(policy)) => {
            mutation::lint(policy, &mut lint);
            lint_admission(&policy.applicability, policy.environment.version(), &mut lint);
        }
        Content::Admission(AdmissionObject::ValidatingPolicy(policy)) => {
            lint_admission(&policy.applicability, policy.environment.version(), &mut lint);
        }
        _ => {}
    }
    faults.into_iter().collect()
}

/// Looks at a policy by itself, beside what is in force.
pub(crate) fn policy_alone(
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
pub(crate) fn exception_alone(
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
    document: &'a KeptDocument,
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
