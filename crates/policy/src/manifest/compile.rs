//! Compiles validated manifests to the types of the engine.
//!
//! Validation has already rejected unknown values. If one gets through nevertheless, compilation
//! reports an error, and neither drops the value nor substitutes another.

use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::report::Report;
use super::v1alpha1;
use crate::authorization::{
    AuthorizationPolicy, Binding, Condition, Effect, FailurePolicy, Mode, NonResourceRule, ObjectCondition,
    ResourceRule, Role, RoleKind, RoleRef, Rule, Subject, SubjectKind,
};
use crate::field::{FaultKind, FieldPath};
use crate::model::{
    LabelExpression, LabelSelector, LabelSelectorFault, Operator, Requirement, Selectors, Validity,
};

// === RBAC ===

/// A Role.
pub(crate) fn role(role: rbac::Role) -> Role {
    of_rules(role.metadata, role.rules, None)
}

/// A ClusterRole.
pub(crate) fn cluster_role(role: rbac::ClusterRole, report: &mut Report<'_>) -> Option<Role> {
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
        rules: rules
            .unwrap_or_default()
            .into_iter()
            .map(rule)
            .collect::<Vec<_>>()
            .into(),
        aggregation,
    }
}

fn rule(rule: rbac::PolicyRule) -> Rule {
    Rule {
        verbs: rule.verbs.into(),
        api_groups: rule.api_groups.unwrap_or_default().into(),
        resources: rule.resources.unwrap_or_default().into(),
        resource_names: rule.resource_names.unwrap_or_default(),
        non_resource_urls: patterns(rule.non_resource_urls.unwrap_or_default()),
    }
}

fn patterns<P: From<String>>(written: Vec<String>) -> Vec<P> {
    written.into_iter().map(P::from).collect()
}

/// A RoleBinding or ClusterRoleBinding.
pub(crate) fn binding(
    metadata: meta::ObjectMeta,
    role: rbac::RoleRef,
    subjects: Option<Vec<rbac::Subject>>,
    report: &mut Report<'_>,
) -> Option<Binding> {
    let root = FieldPath::root();
    let kind = known(
        &role.kind,
        RoleKind::parse(&role.kind),
        &root.field("roleRef").field("kind"),
        report,
    );
    let mut bound = Vec::new();
    for (index, subject) in subjects.unwrap_or_default().into_iter().enumerate() {
        let path = root.field("subjects").index(index);
        let namespace = subject.namespace.unwrap_or_default();
        bound.extend(subject_of(&subject.kind, subject.name, namespace, &path, report));
    }
    let role = RoleRef {
        kind: kind?,
        name: role.name,
    };
    report.is_valid().then(|| Binding {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        role,
        subjects: bound,
        until: None,
    })
}

fn subject_of(
    kind: &str,
    name: String,
    namespace: String,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<Subject> {
    let kind = known(kind, SubjectKind::parse(kind), &path.field("kind"), report)?;
    Some(Subject {
        kind,
        name,
        namespace,
    })
}

/// Returns the parsed value, or reports an error if `word` is not a known value.
fn known<T>(word: &str, meaning: Option<T>, path: &FieldPath, report: &mut Report<'_>) -> Option<T> {
    if meaning.is_none() {
        report.invalid(path, word, "has no meaning here");
    }
    meaning
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

/// Compiles a label selector.
pub(crate) fn label_selector(selector: meta::LabelSelector) -> Result<LabelSelector, LabelSelectorFault> {
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

/// The parts of a policy that validation has compiled.
pub(crate) struct CompiledParts {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) object_conditions: Vec<ObjectCondition>,
    pub(crate) validity: Validity,
}

/// Compiles a policy, with the parts that validation has compiled.
pub(crate) fn policy(
    policy: v1alpha1::AuthorizationPolicy,
    checked: CompiledParts,
    report: &mut Report<'_>,
) -> Option<AuthorizationPolicy> {
    let (spec, path) = (policy.spec, FieldPath::root().field("spec"));
    let effect = known(&spec.effect, effect(&spec.effect), &path.field("effect"), report);
    let mode = known(&spec.mode, mode(&spec.mode), &path.field("mode"), report);
    let failure_policy = failure_policy(&spec.failure_policy);
    let failure_policy = known(
        &spec.failure_policy,
        failure_policy,
        &path.field("failurePolicy"),
        report,
    );
    let exclude_subjects = subjects(spec.exclude_subjects, &path.field("excludeSubjects"), report);
    let subjects = subjects(spec.subjects, &path.field("subjects"), report);
    let (effect, mode, failure_policy) = (effect?, mode?, failure_policy?);
    let mut resource_rules = Vec::with_capacity(spec.resource_rules.len());
    for (index, rule) in spec.resource_rules.into_iter().enumerate() {
        let path = path.field("resourceRules").index(index);
        resource_rules.extend(resource_rule(rule, effect, &path, report));
    }
    report.is_valid().then(|| AuthorizationPolicy {
        name: policy.metadata.name.unwrap_or_default(),
        effect,
        mode,
        subjects,
        exclude_subjects,
        resource_rules,
        non_resource_rules: spec
            .non_resource_rules
            .into_iter()
            .map(|rule| NonResourceRule {
                verbs: rule.verbs.into(),
                paths: patterns(rule.paths),
            })
            .collect(),
        conditions: checked.conditions,
        object_conditions: checked.object_conditions,
        liftable: spec.liftable,
        validity: checked.validity,
        failure_policy,
        reason: spec.reason,
    })
}

fn effect(word: &str) -> Option<Effect> {
    match word {
        "Allow" => Some(Effect::Allow),
        "Deny" => Some(Effect::Deny),
        "Limit" => Some(Effect::Limit),
        _ => None,
    }
}

fn mode(word: &str) -> Option<Mode> {
    match word {
        "" | "Enforce" => Some(Mode::Enforce),
        "Shadow" => Some(Mode::Shadow),
        _ => None,
    }
}

fn failure_policy(word: &str) -> Option<FailurePolicy> {
    match word {
        "" | "Deny" => Some(FailurePolicy::Deny),
        "NoOpinion" => Some(FailurePolicy::NoOpinion),
        _ => None,
    }
}

/// Compiles the subjects of a policy or exception. An unknown kind is an error.
pub(crate) fn subjects(
    written: Vec<v1alpha1::Subject>,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Vec<Subject> {
    let mut subjects = Vec::with_capacity(written.len());
    for (index, subject) in written.into_iter().enumerate() {
        let (name, namespace) = (subject.name, subject.namespace);
        subjects.extend(subject_of(
            &subject.kind,
            name,
            namespace,
            &path.index(index),
            report,
        ));
    }
    subjects
}

/// Compiles a rule. An invalid namespaceSelector is an error, and then there is no rule: without
/// the selector it would apply to every namespace.
fn resource_rule(
    rule: v1alpha1::ResourceRule,
    effect: Effect,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<ResourceRule> {
    let narrowing = match effect {
        Effect::Allow | Effect::Limit => rule.selectors,
        Effect::Deny => rule.unless_selectors,
    };
    let namespace_selector = match rule.namespace_selector.map(label_selector).transpose() {
        Ok(selector) => selector,
        Err(fault) => {
            let path = path.field("namespaceSelector");
            report.fault(FaultKind::Invalid, &path, fault.to_string());
            return None;
        }
    };
    Some(ResourceRule {
        verbs: rule.verbs.into(),
        api_groups: rule.api_groups.into(),
        resources: patterns(rule.resources),
        namespaces: patterns(rule.namespaces),
        exclude_namespaces: patterns(rule.exclude_namespaces),
        namespace_selector,
        names: rule.names,
        selectors: Selectors {
            field: narrowing.field.into_iter().map(requirement).collect(),
            label: narrowing.label.into_iter().map(requirement).collect(),
        },
    })
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

#[cfg(test)]
mod tests;
