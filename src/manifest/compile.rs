//! Compiles validated manifests to the engine's objects.

use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::authorization_policy::Checked;
use super::report::Report;
use super::v1alpha1;
use crate::engine::authorization::{
    AuthorizationPolicy, Binding, Effect, FailurePolicy, Mode, NonResourceRule, ResourceRule, Role, RoleRef,
    Rule, Subject, SubjectKind,
};
use crate::engine::{LabelExpression, LabelSelector, LabelSelectorFault, Operator, Requirement, Selectors};
use crate::field::{FaultKind, FieldPath};

// === RBAC ===

/// A Role.
pub(super) fn role(role: rbac::Role) -> Role {
    of_rules(role.metadata, role.rules, None)
}

/// A ClusterRole. Validation has refused selectors that do not compile; should
/// the two ever differ, that is a fault.
pub(super) fn cluster_role(role: rbac::ClusterRole, report: &mut Report<'_>) -> Option<Role> {
    let selectors = role
        .aggregation_rule
        .map(|rule| rule.cluster_role_selectors.unwrap_or_default());
    let selectors = selectors.map(|selectors| label_selectors(selectors, report));
    report
        .is_valid()
        .then(|| of_rules(role.metadata, role.rules, selectors))
}

fn of_rules(
    metadata: meta::ObjectMeta,
    rules: Option<Vec<rbac::PolicyRule>>,
    aggregation: Option<Vec<LabelSelector>>,
) -> Role {
    Role {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        rules: rules.unwrap_or_default().into_iter().map(rule).collect(),
        aggregation,
    }
}

fn rule(rule: rbac::PolicyRule) -> Rule {
    Rule {
        verbs: rule.verbs,
        api_groups: rule.api_groups.unwrap_or_default(),
        resources: rule.resources.unwrap_or_default(),
        resource_names: rule.resource_names.unwrap_or_default(),
        non_resource_urls: rule.non_resource_urls.unwrap_or_default(),
    }
}

/// A RoleBinding or ClusterRoleBinding.
pub(super) fn binding(
    metadata: meta::ObjectMeta,
    role: rbac::RoleRef,
    subjects: Option<Vec<rbac::Subject>>,
) -> Binding {
    Binding {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        role: RoleRef {
            kind: role.kind,
            name: role.name,
        },
        subjects: subjects
            .unwrap_or_default()
            .into_iter()
            .map(rbac_subject)
            .collect(),
    }
}

fn rbac_subject(subject: rbac::Subject) -> Subject {
    Subject {
        kind: SubjectKind::from(subject.kind.as_str()),
        name: subject.name,
        namespace: subject.namespace.unwrap_or_default(),
    }
}

fn label_selectors(selectors: Vec<meta::LabelSelector>, report: &mut Report<'_>) -> Vec<LabelSelector> {
    let path = FieldPath::root()
        .field("aggregationRule")
        .field("clusterRoleSelectors");
    let mut compiled = Vec::with_capacity(selectors.len());
    for (index, selector) in selectors.into_iter().enumerate() {
        match label_selector(selector) {
            Ok(selector) => compiled.push(selector),
            Err(fault) => report.fault(FaultKind::Invalid, &path.index(index), fault.to_string()),
        }
    }
    compiled
}

/// The selector in the form that the engine matches.
pub(super) fn label_selector(selector: meta::LabelSelector) -> Result<LabelSelector, LabelSelectorFault> {
    let expressions: Vec<_> = selector
        .match_expressions
        .unwrap_or_default()
        .into_iter()
        .map(|one| LabelExpression {
            key: one.key,
            operator: one.operator,
            values: one.values.unwrap_or_default(),
        })
        .collect();
    LabelSelector::compile(&selector.match_labels.unwrap_or_default(), &expressions)
}

// === AuthorizationPolicy ===

/// The policy, with what was made of it during validation.
pub(super) fn policy(policy: v1alpha1::AuthorizationPolicy, checked: Checked) -> AuthorizationPolicy {
    let spec = policy.spec;
    let effect = if spec.effect == "Allow" {
        Effect::Allow
    } else {
        Effect::Deny
    };
    AuthorizationPolicy {
        name: policy.metadata.name.unwrap_or_default(),
        effect,
        mode: if spec.mode == "Shadow" {
            Mode::Shadow
        } else {
            Mode::Enforce
        },
        subjects: spec.subjects.into_iter().map(subject).collect(),
        exclude_subjects: spec.exclude_subjects.into_iter().map(subject).collect(),
        resource_rules: spec
            .resource_rules
            .into_iter()
            .map(|rule| resource_rule(rule, effect))
            .collect(),
        non_resource_rules: spec
            .non_resource_rules
            .into_iter()
            .map(|rule| NonResourceRule {
                verbs: rule.verbs,
                paths: rule.paths,
            })
            .collect(),
        conditions: checked.conditions,
        validity: checked.validity,
        failure_policy: match spec.failure_policy.as_str() {
            "NoOpinion" => FailurePolicy::NoOpinion,
            _ => FailurePolicy::Deny,
        },
        reason: spec.reason,
    }
}

pub(super) fn subject(subject: v1alpha1::Subject) -> Subject {
    Subject {
        kind: SubjectKind::from(subject.kind.as_str()),
        name: subject.name,
        namespace: subject.namespace,
    }
}

fn resource_rule(rule: v1alpha1::ResourceRule, effect: Effect) -> ResourceRule {
    let narrowing = match effect {
        Effect::Allow => rule.selectors,
        Effect::Deny => rule.unless_selectors,
    };
    ResourceRule {
        verbs: rule.verbs,
        api_groups: rule.api_groups,
        resources: rule.resources,
        namespaces: rule.namespaces,
        // Validation has compiled it.
        namespace_selector: rule.namespace_selector.and_then(|one| label_selector(one).ok()),
        names: rule.names,
        selectors: Selectors {
            field: narrowing.field.into_iter().map(requirement).collect(),
            label: narrowing.label.into_iter().map(requirement).collect(),
        },
    }
}

fn requirement(requirement: v1alpha1::Requirement) -> Requirement<'static> {
    Requirement {
        key: requirement.key.into(),
        operator: match requirement.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown(requirement.operator.into()),
        },
        values: requirement.values.into_iter().map(Into::into).collect(),
    }
}
