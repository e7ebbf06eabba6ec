//! Warnings about manifests that are valid, but dangerous or probably mistakes.
//!
//! Each warning is precise, and says what to write instead. The modules:
//!
//! - `policy`: AuthorizationPolicies; `lockout`: Denies and Limits that lock out everybody, and
//!   those for subjects that an API server never asks about; `unreachable`: rules that others
//!   cover; `impersonation`
//! - `binding`: RBAC roles and bindings
//! - `admission`: admission policies with their bindings, parameters and exceptions; `types`:
//!   expressions that cannot work; `labels`: selectors of namespaces, and misspelled verbs, groups
//!   and resources; `excluded_namespaces`: rules for objects that are never sent for review
//! - `webhook`: webhook configurations
//! - `known`: the groups, resources, verbs and default roles of Kubernetes

mod admission;
mod binding;
mod impersonation;
pub(crate) mod known;
mod labels;
mod left_out;
pub(crate) mod lockout;
mod policy;
mod types;
mod unreachable;
mod webhook;

use std::sync::Arc;

use super::admission::AdmissionObject;
use super::report::Lint;
use super::source::Options;
use super::source_objects::SourceObjects;
use super::validated::{Content, ManifestObject};
use crate::admission::exceptions::Exception;
use crate::admission::{AdmissionSet, Applicability};
use crate::authorization::{AuthorizationPolicy, PolicySet};
use crate::field::{Fault, Faults, FieldPath};
use crate::model::Time;
use left_out::RuleOwner;

pub use known::{built_in_resource, built_in_resources, is_namespaced, kind_of};
pub use labels::odd_request;
pub use lockout::is_never_asked_about;

pub(crate) use binding::SourceLint;

/// Lints all objects of `sources`, each of which is valid.
pub(crate) fn lint(
    sources: &[Arc<SourceObjects>],
    options: &Options,
    earlier: Option<&SourceLint>,
    faults: &mut Faults,
) -> SourceLint {
    let others: Vec<&ManifestObject> = sources.iter().flat_map(|source| source.others()).collect();
    let findings = SourceLint::new(sources, options, earlier);
    let around = LintContext {
        options,
        namespaces: webhook::KnownNamespaces::new(&others),
        denies: unreachable::Denies::new(others.iter().filter_map(|object| match &object.content {
            Content::Policy(policy) => Some((&**policy, object.cluster.as_deref())),
            _ => None,
        })),
        known: admission::KnownTargets::new(&others),
        labellers: labels::NamespaceLabelEditors::new(&others, findings.labellers()),
        administrators: lockout::Administrators::new(findings.administrators()),
    };
    for (source, found) in sources.iter().zip(findings.found()) {
        let mut found = found.warnings.iter().peekable();
        for (place, object) in source.others_in_place() {
            while let Some((_, warnings)) = found.next_if(|(at, _)| *at <= place) {
                faults.extend(warnings.iter().cloned());
            }
            around.lint(object, faults);
        }
        faults.extend(found.flat_map(|(_, warnings)| warnings.iter().cloned()));
    }
    binding::lint_builtin_roles(&findings, options, faults);
    admission::lint(&others, faults);
    admission::lint_parameters(&others, faults);
    labels::lint_unknown_namespaces(&others, options, faults);
    findings
}

/// What the warnings about one object depend on, except the object itself.
struct LintContext<'o> {
    options: &'o Options,
    namespaces: webhook::KnownNamespaces<'o>,
    denies: unreachable::Denies<'o>,
    known: admission::KnownTargets,
    labellers: labels::NamespaceLabelEditors<'o>,
    administrators: lockout::Administrators<'o>,
}

impl LintContext<'_> {
    fn lint(&self, object: &ManifestObject, faults: &mut Faults) {
        // If no more warnings are kept, the object is not checked.
        if !faults.is_full() {
            faults.extend(object.warnings.get_or_init(|| alone(object)).iter().cloned());
        }
        let mut lint = Lint::new(&object.document, faults);
        let cluster = object.cluster.as_deref();
        match &object.content {
            Content::Policy(policy) => self.lint_policy(policy, cluster, &mut lint),
            Content::Exception(exception) => {
                // Watched objects are not known here.
                let is_watched = !self.options.watched.is_empty();
                let around = admission::Around {
                    has: &|name| is_watched || self.known.policies.contains(name),
                    has_namespaces: is_watched || self.known.has_namespaces,
                };
                admission::lint_exception(exception, &around, self.options.now, &mut lint);
            }
            Content::Admission(
                AdmissionObject::ValidatingWebhooks(configuration)
                | AdmissionObject::MutatingWebhooks(configuration),
            ) => webhook::lint(configuration, cluster, &self.namespaces, &mut lint),
            Content::AccessRequest(_) => {
                let message = "an AccessRequest in a file grants nothing: apply it to the API server, and have somebody \
                               else approve it";
                lint.suspicious(&FieldPath::root().field("kind"), message);
            }
            _ => {}
        }
    }

    /// What depends on other objects or on the time; the rest is [`policy::lint_alone`].
    fn lint_policy(&self, policy: &AuthorizationPolicy, cluster: Option<&str>, lint: &mut Lint<'_>) {
        let spec = FieldPath::root().field("spec");
        labels::lint(policy, cluster, &self.labellers, lint);
        policy::lint_validity(&policy.validity, self.options.now, &spec, lint);
        self.administrators
            .lint(policy, cluster, &self.options.never_deny, lint);
        self.denies.lint(policy, cluster, lint);
    }
}

/// The warnings about `object` that depend on nothing else.
fn alone(object: &ManifestObject) -> Box<[Fault]> {
    let mut faults = Faults::new();
    let mut lint = Lint::new(&object.document, &mut faults);
    let path = FieldPath::root().field("spec").field("matchConstraints");
    let lint_admission = |applicability: &Applicability, version, lint: &mut Lint<'_>| {
        let rules = &applicability.constraints.rules;
        let rules_path = path.field("resourceRules");
        left_out::lint_excluded(
            rules,
            RuleOwner::Policy,
            applicability.is_static,
            &rules_path,
            lint,
        );
        labels::lint_constraints(&applicability.constraints, &path, lint);
        types::lint(applicability, version, lint);
        types::lint_typed_parts(applicability, version, lint);
        left_out::lint(&applicability.constraints, &path, lint);
    };
    if let Content::Admission(admission) = &object.content {
        admission::lint_static(admission, &mut lint);
    }
    match &object.content {
        Content::Role(role) if known::is_builtin(role) => {}
        Content::Role(role) => {
            binding::lint_role(role, &mut lint);
            labels::lint_role(role, &mut lint);
            unreachable::lint_role(role, &mut lint);
        }
        Content::Admission(AdmissionObject::MutatingPolicy(policy)) => {
            admission::lint_mutation(policy, &mut lint);
            lint_admission(&policy.applicability, policy.environment.version(), &mut lint);
        }
        Content::Admission(AdmissionObject::ValidatingPolicy(policy)) => {
            lint_admission(&policy.applicability, policy.environment.version(), &mut lint);
        }
        _ => {}
    }
    faults.into_iter().collect()
}

/// Lints one policy, in the context of the policies in force.
pub(crate) fn policy_alone(
    object: &ManifestObject,
    written: &AuthorizationPolicy,
    set: &PolicySet,
    now: Time,
    faults: &mut Faults,
) {
    let mut lint = Lint::new(&object.document, faults);
    policy::lint(written, set.never_deny(), &mut lint);
    left_out::lint_object_conditions(written, set.reviewed().is_some(), &mut lint);
    lockout::lint(written, set.never_deny(), &mut lint);
    labels::lint_policy(written, &mut lint);
    labels::lint(
        written,
        None,
        &labels::NamespaceLabelEditors::of_set(set),
        &mut lint,
    );
    policy::lint_validity(
        &written.validity,
        Some(now),
        &FieldPath::root().field("spec"),
        &mut lint,
    );
}

/// Lints one exception, in the context of the policies in force.
pub(crate) fn exception_alone(
    object: &ManifestObject,
    written: &Exception,
    (policies, admission): (&PolicySet, &AdmissionSet),
    now: Time,
    faults: &mut Faults,
) {
    let mut lint = Lint::new(&object.document, faults);
    let around = admission::Around {
        has: &|name| admission.has_validating(name),
        has_namespaces: policies.knows_namespaces(),
    };
    admission::lint_exception(written, &around, Some(now), &mut lint);
}

#[cfg(test)]
mod tests;
