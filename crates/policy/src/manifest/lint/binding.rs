//! RBAC: rules that match nothing, bindings to roles that are not there, and
//! bindings that grant too much.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::grants::{danger, is_everybody};
use super::impersonation::{Impersonation, impersonations};
use super::{Lint, labels};
use crate::authorization::rbac::{RoleResolver, aggregate};
use crate::authorization::{Binding, NeverDeny, Role, Subject, SubjectKind};
use crate::field::{FaultKind, FieldPath};
use crate::manifest::object::Content;
use crate::manifest::source_objects::SourceObjects;

/// The group that may do everything before any authorizer is asked.
const MASTERS: &str = "system:masters";

/// The roles of each cluster, aggregated; under `None` those that hold for every cluster.
pub(crate) struct RolesByCluster<'o>(BTreeMap<Option<&'o str>, Vec<Arc<Role>>>);

/// The same, to be found by reference, with what their rules grant.
pub(crate) struct RoleGrants<'r> {
    clusters: BTreeMap<Option<&'r str>, ClusterGrants<'r>>,
    impersonations: Vec<Impersonation>,
}

/// The roles of a cluster, and what each grants.
type ClusterGrants<'r> = (RoleResolver<'r, Arc<Role>>, Vec<RoleGrant>);

/// What binding a role grants that is worth a warning.
struct RoleGrant {
    danger: Option<String>,
    /// Indices into [`RoleGrants::impersonations`].
    impersonations: Vec<usize>,
    /// Whether it lets labels of Namespaces be changed.
    labels_namespaces: bool,
}

// === roles ===

pub(crate) fn lint_role(role: &Role, lint: &mut Lint<'_>) {
    for (index, rule) in role.rules.iter().enumerate() {
        let path = FieldPath::root().field("rules").index(index).field("resources");
        for (index, resource) in rule.resources.as_slice().iter().enumerate() {
            if let Some(parent) = resource.strip_suffix("/*") {
                let message = format!(
                    "RBAC does not support `{resource}`, so it matches nothing: write `*`, or each \
                     subresource as `{parent}/NAME`"
                );
                lint.suspicious(&path.index(index), message);
            }
        }
    }
}

impl<'o> RolesByCluster<'o> {
    pub(crate) fn new(sources: &'o [Arc<SourceObjects>]) -> Self {
        let mut clusters: BTreeMap<Option<&str>, Vec<Arc<Role>>> = BTreeMap::from([(None, Vec::new())]);
        for source in sources {
            let roles = clusters.entry(source.cluster()).or_default();
            roles.extend(source.others().filter_map(|object| match &object.content {
                Content::Role(role) => Some(Arc::clone(role)),
                _ => None,
            }));
        }
        let shared = clusters.get(&None).cloned().unwrap_or_default();
        for (cluster, roles) in &mut clusters {
            if cluster.is_some() {
                roles.extend(shared.iter().cloned());
            }
            aggregate(roles);
        }
        Self(clusters)
    }
}

impl<'r> RoleGrants<'r> {
    pub(crate) fn new(roles: &'r RolesByCluster<'_>, never_deny: &NeverDeny) -> Self {
        let impersonations = impersonations(never_deny);
        let clusters = roles.0.iter().map(|(cluster, roles)| {
            let grants = roles
                .iter()
                .map(|role| RoleGrant::of(role, &impersonations))
                .collect();
            (*cluster, (RoleResolver::new(roles), grants))
        });
        Self {
            clusters: clusters.collect(),
            impersonations,
        }
    }

    /// What `binding` grants. One for every cluster may mean a role of some cluster.
    fn of(&self, binding: &Binding, cluster: Option<&'r str>) -> Option<&RoleGrant> {
        self.within(cluster, binding).or_else(|| {
            let mut others = self.clusters.keys().filter(|_| cluster.is_none());
            others.find_map(|other| self.within(*other, binding))
        })
    }

    /// Whether `binding` lets its subjects change labels of Namespaces.
    pub(crate) fn labels_namespaces(&self, binding: &Binding, cluster: Option<&'r str>) -> bool {
        self.of(binding, cluster)
            .is_some_and(|grant| grant.labels_namespaces)
    }

    fn within(&self, cluster: Option<&'r str>, binding: &Binding) -> Option<&RoleGrant> {
        let (roles, grants) = self.clusters.get(&cluster)?;
        grants.get(roles.place(&binding.role, &binding.namespace).ok()?)
    }
}

impl RoleGrant {
    fn of(role: &Role, impersonations: &[Impersonation]) -> Self {
        let granted = |one: &Impersonation| role.rules.iter().any(|rule| one.is_granted_by(rule));
        Self {
            danger: role
                .rules
                .iter()
                .find_map(|rule| danger(&rule.verbs, &rule.api_groups, rule.resources.is_all())),
            impersonations: (0..impersonations.len())
                .filter(|index| impersonations.get(*index).is_some_and(granted))
                .collect(),
            labels_namespaces: labels::are_changed_by(&role.rules),
        }
    }
}

// === bindings ===

pub(crate) fn lint<'r>(
    binding: &Binding,
    cluster: Option<&'r str>,
    grants: &RoleGrants<'r>,
    lint: &mut Lint<'_>,
) {
    let Some(grant) = grants.of(binding, cluster) else {
        let (kind, name) = (&binding.role.kind, &binding.role.name);
        let message =
            format!("there is no manifest of the {kind} `{name}`, so this binding grants nothing: add it");
        lint.warn(
            FaultKind::NotFound,
            &FieldPath::root().field("roleRef").field("name"),
            message,
        );
        return;
    };
    dangerous_grant(binding, grant, lint);
    impersonation(binding, grant, &grants.impersonations, lint);
}

fn dangerous_grant(binding: &Binding, grant: &RoleGrant, lint: &mut Lint<'_>) {
    let Some(danger) = &grant.danger else { return };
    let everybody =
        |subject: &Subject| subject.name != "*" && is_everybody(subject.kind.as_str(), &subject.name);
    let subjects = binding.subjects.iter().enumerate();
    for (index, subject) in subjects.filter(|(_, subject)| everybody(subject)) {
        let message = format!(
            "the {} `{}` grants {danger} to the {} `{}`: grant it only to those who need it",
            binding.role.kind,
            binding.role.name,
            subject.kind.as_str(),
            subject.name
        );
        lint.suspicious(&FieldPath::root().field("subjects").index(index), message);
    }
}

fn impersonation(
    binding: &Binding,
    grant: &RoleGrant,
    impersonations: &[Impersonation],
    lint: &mut Lint<'_>,
) {
    let masters = |subject: &Subject| subject.kind == SubjectKind::Group && subject.name == MASTERS;
    if binding.subjects.iter().all(masters) {
        return;
    }
    let reaches =
        |one: &&Impersonation| binding.is_cluster_wide() || one.namespace() == binding.namespace.as_str();
    let granted = grant
        .impersonations
        .iter()
        .filter_map(|index| impersonations.get(*index))
        .find(reaches);
    if let Some(granted) = granted {
        let message = format!(
            "the {} `{}` grants the impersonation of {}, which bypasses every Deny: list other names \
             in the `resourceNames` of its rule, or remove this one from `authorization.neverDeny`",
            binding.role.kind, binding.role.name, granted.whom
        );
        lint.suspicious(&FieldPath::root().field("roleRef").field("name"), message);
    }
}
