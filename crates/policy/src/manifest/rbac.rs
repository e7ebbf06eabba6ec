//! RBAC objects: defaults and validation as in an API server.
//!
//! Follows `pkg/apis/rbac/validation/validation.go` and `pkg/apis/rbac/v1/defaults.go` of
//! Kubernetes. Version v1beta1 has the same fields and defaults as v1.

use k8s_openapi::api::rbac::v1::{
    AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use super::names;
use super::names::KindScope;
use super::report::Report;
use crate::field::{FaultKind, FieldPath};
use crate::model::groups;

/// The version in which RBAC objects are decoded.
pub(crate) const V1: &str = "rbac.authorization.k8s.io/v1";

/// Sets defaults, then validates.
pub(crate) trait Rbac {
    fn default_and_validate(&mut self, report: &mut Report<'_>);
}

impl Rbac for Role {
    fn default_and_validate(&mut self, report: &mut Report<'_>) {
        names::validate_metadata(&self.metadata, KindScope::Namespaced, names::path_segment, report);
        validate_rules(
            self.rules.as_deref().unwrap_or_default(),
            KindScope::Namespaced,
            report,
        );
    }
}

impl Rbac for ClusterRole {
    fn default_and_validate(&mut self, report: &mut Report<'_>) {
        names::validate_metadata(&self.metadata, KindScope::Cluster, names::path_segment, report);
        validate_rules(
            self.rules.as_deref().unwrap_or_default(),
            KindScope::Cluster,
            report,
        );
        if let Some(aggregation) = &self.aggregation_rule {
            validate_aggregation(aggregation, report);
        }
    }
}

impl Rbac for RoleBinding {
    fn default_and_validate(&mut self, report: &mut Report<'_>) {
        names::validate_metadata(&self.metadata, KindScope::Namespaced, names::path_segment, report);
        default_role_ref(&mut self.role_ref);
        validate_role_ref(&self.role_ref, &["Role", "ClusterRole"], report);
        let subjects = self.subjects.as_deref_mut().unwrap_or_default();
        default_and_validate_subjects(subjects, KindScope::Namespaced, report);
    }
}

impl Rbac for ClusterRoleBinding {
    fn default_and_validate(&mut self, report: &mut Report<'_>) {
        names::validate_metadata(&self.metadata, KindScope::Cluster, names::path_segment, report);
        default_role_ref(&mut self.role_ref);
        validate_role_ref(&self.role_ref, &["ClusterRole"], report);
        let subjects = self.subjects.as_deref_mut().unwrap_or_default();
        default_and_validate_subjects(subjects, KindScope::Cluster, report);
    }
}

// === rules ===

fn validate_rules(rules: &[PolicyRule], scope: KindScope, report: &mut Report<'_>) {
    let path = FieldPath::root().field("rules");
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(rule, scope, &path.index(index), report);
    }
}

fn validate_rule(rule: &PolicyRule, scope: KindScope, path: &FieldPath, report: &mut Report<'_>) {
    let given = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    if rule.verbs.is_empty() {
        report.required(&path.field("verbs"), "a rule needs at least one verb");
    }
    if given(&rule.non_resource_urls) {
        let path = path.field("nonResourceURLs");
        if scope == KindScope::Namespaced {
            let message = "a Role cannot grant non-resource URLs: use a ClusterRole and a ClusterRoleBinding";
            report.fault(FaultKind::Invalid, &path, message);
        }
        if given(&rule.api_groups) || given(&rule.resources) || given(&rule.resource_names) {
            let message = "a rule is for resources or for non-resource URLs: write two rules";
            report.fault(FaultKind::Invalid, &path, message);
        }
        return;
    }
    if !given(&rule.api_groups) {
        let message = "a rule for resources needs at least one API group; the core group is `\"\"`";
        report.required(&path.field("apiGroups"), message);
    }
    if !given(&rule.resources) {
        report.required(
            &path.field("resources"),
            "a rule for resources needs at least one resource",
        );
    }
}

fn validate_aggregation(aggregation: &AggregationRule, report: &mut Report<'_>) {
    let path = FieldPath::root()
        .field("aggregationRule")
        .field("clusterRoleSelectors");
    let selectors = aggregation.cluster_role_selectors.as_deref().unwrap_or_default();
    if selectors.is_empty() {
        report.required(&path, "an aggregation rule needs at least one selector");
    }
    for (index, one) in selectors.iter().enumerate() {
        names::validate_selector(one, &path.index(index), report);
    }
}

// === bindings ===

fn default_role_ref(role: &mut RoleRef) {
    let group = role.api_group.get_or_insert_default();
    if group.is_empty() {
        groups::RBAC.clone_into(group);
    }
}

fn validate_role_ref(role: &RoleRef, kinds: &[&str], report: &mut Report<'_>) {
    let path = FieldPath::root().field("roleRef");
    let group = role.api_group.as_deref().unwrap_or_default();
    if group != groups::RBAC {
        report.not_supported(&path.field("apiGroup"), group, &[groups::RBAC]);
    }
    if !kinds.contains(&role.kind.as_str()) {
        report.not_supported(&path.field("kind"), &role.kind, kinds);
    }
    match role.name.as_str() {
        "" => report.required(&path.field("name"), "a binding needs the name of a role"),
        name => report.syntax(&path.field("name"), name, names::path_segment(name)),
    }
}

fn default_and_validate_subjects(subjects: &mut [Subject], scope: KindScope, report: &mut Report<'_>) {
    let path = FieldPath::root().field("subjects");
    for (index, subject) in subjects.iter_mut().enumerate() {
        let group = subject.api_group.get_or_insert_default();
        if group.is_empty() && matches!(subject.kind.as_str(), "User" | "Group") {
            groups::RBAC.clone_into(group);
        }
        validate_subject(subject, scope, &path.index(index), report);
    }
}

fn validate_subject(subject: &Subject, scope: KindScope, path: &FieldPath, report: &mut Report<'_>) {
    if subject.name.is_empty() {
        report.required(&path.field("name"), "a subject needs a name");
    }
    let group = subject.api_group.as_deref().unwrap_or_default();
    match subject.kind.as_str() {
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                report.syntax(
                    &path.field("name"),
                    &subject.name,
                    names::dns_subdomain(&subject.name),
                );
            }
            if !group.is_empty() {
                report.not_supported(&path.field("apiGroup"), group, &[""]);
            }
            let namespace = subject.namespace.as_deref().unwrap_or_default();
            if scope == KindScope::Cluster && namespace.is_empty() {
                let message = "in a ClusterRoleBinding, a service account needs a namespace";
                report.required(&path.field("namespace"), message);
            }
        }
        "User" | "Group" if group != groups::RBAC => {
            report.not_supported(&path.field("apiGroup"), group, &[groups::RBAC])
        }
        "User" | "Group" => {}
        other => report.not_supported(&path.field("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}
