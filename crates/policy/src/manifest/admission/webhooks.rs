//! ValidatingWebhookConfiguration and MutatingWebhookConfiguration: defaults,
//! validation, and the engine's form.
//!
//! `validateValidatingWebhook`, `validateMutatingWebhook` and
//! `validateAdmissionReviewVersions` of
//! `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes; its
//! `v1/defaults.go` and `v1beta1/defaults.go`.

mod client;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::super::names;
use super::super::report::Report;
use super::rules::{MATCH_POLICIES, compile_rule, compile_selector, match_policy, one_of};
use super::{policy, rules};
use crate::document::Document;
use crate::engine::admission::matching::{Constraints, NoRules};
use crate::engine::admission::webhook::{ReviewVersion, SideEffects, WebhookConfiguration};
use crate::engine::admission::{FailurePolicy, Reinvocation, webhook};
use crate::field::{FaultKind, Faults, FieldPath};
use crate::manifest::report::ObjectCompilation;

pub(crate) use client::{WrittenClientConfig, WrittenService, WrittenWebhook};

const REINVOCATIONS: [&str; 2] = ["IfNeeded", "Never"];

/// Which of the two kinds a configuration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigurationKind {
    Validating,
    Mutating,
}

/// One version of the API: what it is to say nothing, and what may be said.
#[derive(Debug)]
pub(crate) struct Dialect {
    failure_policy: &'static str,
    match_policy: &'static str,
    timeout_seconds: i32,
    /// None: it must be said.
    side_effects: Option<&'static str>,
    all_side_effects: &'static [&'static str],
    /// Empty: they must be said.
    versions: &'static [&'static str],
    /// The versions of reviews in which a webhook can be asked.
    spoken: &'static [(&'static str, ReviewVersion)],
}

const V1: Dialect = Dialect {
    failure_policy: "Fail",
    match_policy: "Equivalent",
    timeout_seconds: 10,
    side_effects: None,
    all_side_effects: &["None", "NoneOnDryRun"],
    versions: &[],
    spoken: &[("v1", ReviewVersion::V1), ("v1beta1", ReviewVersion::V1beta1)],
};

const V1BETA1: Dialect = Dialect {
    failure_policy: "Ignore",
    match_policy: "Exact",
    timeout_seconds: 30,
    side_effects: Some("Unknown"),
    all_side_effects: &["None", "NoneOnDryRun", "Some", "Unknown"],
    versions: &["v1beta1"],
    ..V1
};

/// Hooks of legacy kinds, whose reviews do not say whether it is a dry run.
pub(crate) const V1ALPHA1: Dialect = Dialect {
    versions: &["v1alpha1"],
    spoken: &[("v1alpha1", ReviewVersion::V1alpha1)],
    ..V1BETA1
};

/// Reads the configuration; `None` if anything is wrong with it.
pub(crate) fn read(
    document: &Document,
    kind: ConfigurationKind,
    compilation: &ObjectCompilation<'_>,
    faults: &mut Faults,
) -> Option<WebhookConfiguration> {
    let configuration: client::Configuration = document.decode(faults)?;
    let dialect = match document.text("apiVersion") {
        Some("admissionregistration.k8s.io/v1beta1") => V1BETA1,
        _ => V1,
    };
    let mut report = Report::new(document, faults).compiling(compilation);
    let report = &mut report;
    let metadata = configuration.metadata;
    names::validate_cluster_scoped(&metadata, report);
    let name = metadata.name.unwrap_or_default();
    let path = FieldPath::root().field("webhooks");
    if kind == ConfigurationKind::Validating {
        refuse_reinvocation(&configuration.webhooks, &path, report);
    }
    let webhooks = read_webhooks(&name, configuration.webhooks, &dialect, &path, report);
    let configuration = WebhookConfiguration {
        name,
        is_static: false,
        webhooks,
    };
    report.is_valid().then_some(configuration)
}

/// Validating webhooks have no such field.
fn refuse_reinvocation(webhooks: &[WrittenWebhook], path: &FieldPath, report: &mut Report<'_>) {
    for (index, webhook) in webhooks.iter().enumerate() {
        if webhook.reinvocation_policy.is_some() {
            let path = path.index(index).field("reinvocationPolicy");
            report.fault(
                FaultKind::NotSupported,
                &path,
                "unknown field `reinvocationPolicy`",
            );
        }
    }
}

/// Reads the webhooks at `path` of the configuration `name`.
pub(crate) fn read_webhooks(
    name: &str,
    written: Vec<WrittenWebhook>,
    dialect: &Dialect,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Vec<Arc<webhook::Webhook>> {
    let mut seen = BTreeSet::new();
    let mut webhooks = Vec::with_capacity(written.len());
    for (index, written) in written.into_iter().enumerate() {
        let path = path.index(index);
        let webhook = read_webhook(name, &written, dialect, &path, report);
        if !written.name.is_empty() && !seen.insert(written.name.clone()) {
            let message = format!("`{}`", written.name);
            report.fault(FaultKind::Duplicate, &path.field("name"), message);
        }
        webhooks.extend(webhook.map(Arc::new));
    }
    webhooks
}

/// Reads one webhook, in the order in which the API server reports faults.
fn read_webhook(
    configuration: &str,
    written: &WrittenWebhook,
    dialect: &Dialect,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<webhook::Webhook> {
    validate_name(&written.name, &path.field("name"), report);
    for (index, rule) in written.rules.iter().enumerate() {
        rules::validate(rule.into(), &path.field("rules").index(index), report);
    }
    let failure_policy = read_failure_policy(written, dialect, path, report);
    let match_policy_text = written.match_policy.as_deref().unwrap_or(dialect.match_policy);
    one_of(
        match_policy_text,
        &MATCH_POLICIES,
        &path.field("matchPolicy"),
        report,
    );
    let side_effects = read_side_effects(written, dialect, &path.field("sideEffects"), report);
    let timeout = read_timeout(written, dialect, &path.field("timeoutSeconds"), report);
    for (selector, field) in [
        (&written.namespace_selector, "namespaceSelector"),
        (&written.object_selector, "objectSelector"),
    ] {
        if let Some(selector) = selector {
            names::validate_selector(selector, &path.field(field), report);
        }
    }
    let reinvocation = read_reinvocation(written, &path.field("reinvocationPolicy"), report);
    let client = client::read(&written.client_config, &path.field("clientConfig"), report);
    let match_conditions = policy::conditions(
        written.match_conditions.as_deref(),
        &path.field("matchConditions"),
        false,
        report,
    );
    let version = read_versions(written, dialect, &path.field("admissionReviewVersions"), report);
    let constraints = compile_constraints(written, match_policy_text, path, report);
    Some(webhook::Webhook {
        configuration: configuration.to_owned(),
        name: written.name.clone(),
        client: client?,
        constraints,
        match_conditions,
        failure_policy,
        timeout,
        side_effects,
        version,
        reinvocation,
    })
}

/// `IsFullyQualifiedName`.
pub(crate) fn validate_name(name: &str, path: &FieldPath, report: &mut Report<'_>) {
    if name.is_empty() {
        report.required(path, "a domain of at least three parts, such as `a.example.com`");
    } else if let Err(rule) = names::dns_subdomain(name) {
        report.invalid(path, name, rule);
    } else if name.split('.').count() < 3 {
        let rule = "must be a domain of at least three parts, such as `a.example.com`";
        report.invalid(path, name, rule);
    }
}

fn read_failure_policy(
    written: &WrittenWebhook,
    dialect: &Dialect,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> FailurePolicy {
    let text = written
        .failure_policy
        .as_deref()
        .unwrap_or(dialect.failure_policy);
    policy::failure_policy(Some(text), &path.field("failurePolicy"), report)
}

fn read_side_effects(
    written: &WrittenWebhook,
    dialect: &Dialect,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<SideEffects> {
    let Some(text) = written.side_effects.as_deref().or(dialect.side_effects) else {
        let all = dialect.all_side_effects.join("` or `");
        report.required(path, format!("`{all}`"));
        return None;
    };
    one_of(text, dialect.all_side_effects, path, report);
    match text {
        "None" => Some(SideEffects::None),
        "NoneOnDryRun" => Some(SideEffects::NoneOnDryRun),
        "Some" => Some(SideEffects::Some),
        _ => Some(SideEffects::Unknown),
    }
}

fn read_timeout(
    written: &WrittenWebhook,
    dialect: &Dialect,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Duration {
    let seconds = written.timeout_seconds.unwrap_or(dialect.timeout_seconds);
    if !(1..=30).contains(&seconds) {
        let message = format!("`{seconds}`: the timeout must be between 1 and 30 seconds");
        report.fault(FaultKind::Invalid, path, message);
    }
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn read_reinvocation(written: &WrittenWebhook, path: &FieldPath, report: &mut Report<'_>) -> Reinvocation {
    let text = written.reinvocation_policy.as_deref().unwrap_or("Never");
    one_of(text, &REINVOCATIONS, path, report);
    if text == "IfNeeded" {
        Reinvocation::IfNeeded
    } else {
        Reinvocation::Never
    }
}

/// Checks `admissionReviewVersions`; the first that is spoken here.
fn read_versions(
    written: &WrittenWebhook,
    dialect: &Dialect,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<ReviewVersion> {
    let defaults = dialect.versions.iter().map(|version| (*version).to_owned());
    let versions = match written.admission_review_versions.as_slice() {
        [] => defaults.collect(),
        versions => versions.to_vec(),
    };
    let known = dialect
        .spoken
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect::<Vec<_>>();
    let known = known.join(", ");
    if versions.is_empty() {
        report.required(path, format!("at least one of {known}"));
        return None;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        if seen.insert(version) {
            report.syntax(&path, version, names::dns_1035_label(version));
        } else {
            report.invalid(&path, version, "duplicate version");
        }
    }
    let spoken = |version: &String| dialect.spoken.iter().find(|(name, _)| name == version);
    let first = versions.iter().find_map(spoken).map(|(_, version)| *version);
    if first.is_none() {
        let message = format!("must include at least one of {known}");
        report.fault(FaultKind::Invalid, path, message);
    }
    first
}

fn compile_constraints(
    written: &WrittenWebhook,
    policy: &str,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Constraints {
    Constraints {
        namespace_selector: compile_selector(
            written.namespace_selector.as_ref(),
            &path.field("namespaceSelector"),
            report,
        ),
        object_selector: compile_selector(
            written.object_selector.as_ref(),
            &path.field("objectSelector"),
            report,
        ),
        rules: written
            .rules
            .iter()
            .map(|rule| compile_rule(rule.into()))
            .collect(),
        no_rules: NoRules::Nothing,
        exclude_rules: Vec::new(),
        match_policy: match_policy(Some(policy)),
    }
}
