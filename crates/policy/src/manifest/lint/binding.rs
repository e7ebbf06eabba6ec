//! RBAC: rules that match nothing, bindings to missing roles, and bindings that grant too much.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::super::report::Lint;
use super::impersonation::{Impersonation, impersonations};
use super::known::{danger, is_everybody};
use super::{known, labels, policy};
use crate::authorization::authorizer::Authorizer;
use crate::authorization::rbac::{RoleResolver, aggregate};
use crate::authorization::{Binding, MASTERS, NeverDeny, Role, RoleKind, Subject, SubjectKind};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};
use crate::manifest::source::Options;
use crate::manifest::source_objects::SourceObjects;
use crate::manifest::validated::{Content, ManifestObject};
use portcullis_cel::Version;

/// The role of administrators.
const CLUSTER_ADMIN: &str = "cluster-admin";

/// The aggregated roles of each cluster; under `None` those for every cluster.
pub(crate) struct RolesByCluster<'o>(BTreeMap<Option<&'o str>, Vec<Arc<Role>>>);

/// What the roles of each cluster grant, by reference.
pub(crate) struct RoleGrants<'r> {
    clusters: BTreeMap<Option<&'r str>, ClusterGrants<'r>>,
    impersonations: Vec<Impersonation>,
    /// The Kubernetes version whose default roles bindings may name.
    version: Version,
}

/// The roles of a cluster, and what each grants.
type ClusterGrants<'r> = (RoleResolver<'r, Arc<Role>>, Vec<RoleGrant>);

/// What a role grants that is worth a warning.
struct RoleGrant {
    danger: Option<String>,
    /// Indices into [`RoleGrants::impersonations`].
    impersonations: Vec<usize>,
    /// Whether it allows changing labels of Namespaces.
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
    pub(crate) fn new(roles: &'r RolesByCluster<'_>, options: &Options) -> Self {
        let impersonations = impersonations(&options.never_deny);
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
            version: options.cel_version,
        }
    }

    /// What `binding` grants. A binding for every cluster may refer to a role of some cluster.
    fn of(&self, binding: &Binding, cluster: Option<&'r str>) -> Option<&RoleGrant> {
        self.within(cluster, binding).or_else(|| {
            let mut others = self.clusters.keys().filter(|_| cluster.is_none());
            others.find_map(|other| self.within(*other, binding))
        })
    }

    /// Whether `binding` allows its subjects to change labels of Namespaces.
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
            labels_namespaces: labels::can_change_namespace_labels(&role.rules),
        }
    }
}

// === bindings ===

pub(crate) fn lint_binding<'r>(
    binding: &Binding,
    cluster: Option<&'r str>,
    grants: &RoleGrants<'r>,
    lint: &mut Lint<'_>,
) -> Option<BuiltinRef> {
    let Some(grant) = grants.of(binding, cluster) else {
        let path = FieldPath::root().field("roleRef").field("name");
        let role = &binding.role;
        if role.kind == RoleKind::ClusterRole && known::has_cluster_role(grants.version, &role.name) {
            return Some(BuiltinRef {
                role: role.name.clone(),
                place: lint.place(path),
            });
        }
        let (kind, name) = (&binding.role.kind, &binding.role.name);
        let message =
            format!("there is no manifest of the {kind} `{name}`, so this binding grants nothing: add it");
        lint.warn(FaultKind::NotFound, &path, message);
        return None;
    };
    dangerous_grant(binding, grant, lint);
    impersonation(binding, grant, &grants.impersonations, lint);
    None
}

/// A reference of a binding to a default ClusterRole of Kubernetes that no manifest has.
pub(crate) struct BuiltinRef {
    role: String,
    /// The place of the reference.
    place: Place,
}

/// Warns once that bindings refer to default roles of Kubernetes, which a gateway with only these
/// manifests does not have. A watched cluster has them.
pub(crate) fn lint_builtin_roles(findings: &SourceLint, options: &Options, faults: &mut Faults) {
    let is_watched = |cluster: Option<&str>| match cluster {
        Some(cluster) => options.watched.contains(cluster),
        None => !options.watched.is_empty(),
    };
    let unwatched = findings
        .found
        .iter()
        .filter(|(source, _)| !is_watched(source.cluster()));
    let named: Vec<&BuiltinRef> = unwatched.flat_map(|(_, found)| &found.builtin).collect();
    let Some(first) = named.first() else { return };
    let roles: BTreeSet<String> = named.iter().map(|named| format!("`{}`", named.role)).collect();
    let bindings = match named.len() {
        1 => "this binding names a ClusterRole that Kubernetes creates".to_owned(),
        2 => "this binding and another name ClusterRoles that Kubernetes creates".to_owned(),
        number => format!(
            "this binding and {} others name ClusterRoles that Kubernetes creates",
            number - 1
        ),
    };
    let message = format!(
        "{bindings} by default and no manifest contains ({}): the API server's own RBAC grants \
        their permissions, the gateway does not. Let the gateway watch the cluster, or write these roles \
        with `portcullis init DIR --builtin-roles`",
        Vec::from_iter(roles).join(", ")
    );
    faults.push(Fault::warning(first.place.clone(), FaultKind::NotFound, message));
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

// The warnings about bindings and AuthorizationPolicies are kept from one load to the next if they
// depend only on roles and options, which rarely change: there may be very many.

/// The findings about the bindings and AuthorizationPolicies of each source.
pub(crate) struct SourceLint {
    basis: LintInputs,
    found: Vec<(Arc<SourceObjects>, Arc<SourceFindings>)>,
}

/// The findings about the bindings and AuthorizationPolicies of one source.
#[derive(Default)]
pub(crate) struct SourceFindings {
    /// By the index of the binding or policy in the source.
    pub(crate) warnings: Vec<(usize, Vec<Fault>)>,
    /// References to default roles of Kubernetes that no manifest has.
    builtin: Vec<BuiltinRef>,
    /// The subjects that may change labels of Namespaces.
    labellers: Vec<String>,
    /// The subjects of ClusterRoleBindings to `cluster-admin`.
    administrators: Vec<Subject>,
}

/// What the findings depend on, except the bindings and policies.
struct LintInputs {
    never_deny: NeverDeny,
    version: Version,
    /// The clusters of which it is known what `/validate` sees.
    reviewed: BTreeSet<String>,
    enforce_authorization: bool,
    api_server_webhooks: Vec<Authorizer>,
    clusters: BTreeSet<Option<String>>,
    /// Each with the only cluster that it applies to.
    roles: Vec<(Option<Arc<str>>, Arc<Role>)>,
}

// === impl SourceLint ===

impl SourceLint {
    /// Lints the bindings and AuthorizationPolicies of `sources`. Reuses the findings of `earlier` for
    /// sources that it contains, if the basis is the same.
    pub(crate) fn new(sources: &[Arc<SourceObjects>], options: &Options, earlier: Option<&Self>) -> Self {
        let basis = LintInputs::new(sources, options);
        let earlier = earlier.filter(|earlier| earlier.basis.is(&basis));
        let known: HashMap<*const SourceObjects, &Arc<SourceFindings>> = earlier
            .iter()
            .flat_map(|earlier| &earlier.found)
            .map(|(source, found)| (Arc::as_ptr(source), found))
            .collect();
        let roles = LazyCell::new(|| RolesByCluster::new(sources));
        let grants = LazyCell::new(|| RoleGrants::new(&roles, options));
        let find = |source: &Arc<SourceObjects>| match known.get(&Arc::as_ptr(source)) {
            Some(found) => Arc::clone(found),
            None => Arc::new(SourceFindings::new(source, options, || &grants)),
        };
        let found = sources.iter().map(|source| (Arc::clone(source), find(source)));
        Self {
            found: found.collect(),
            basis,
        }
    }

    /// The findings of each source, in order.
    pub(crate) fn found(&self) -> impl Iterator<Item = &SourceFindings> {
        self.found.iter().map(|(_, found)| &**found)
    }

    /// The subjects that bindings allow to change labels of Namespaces, each with its only cluster.
    pub(crate) fn labellers(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        self.found.iter().flat_map(|(source, found)| {
            let cluster = source.cluster();
            found.labellers.iter().map(move |who| (cluster, who.as_str()))
        })
    }

    /// The subjects that bindings make administrators, each with its only cluster.
    pub(crate) fn administrators(&self) -> impl Iterator<Item = (Option<&str>, &Subject)> {
        self.found.iter().flat_map(|(source, found)| {
            let cluster = source.cluster();
            found.administrators.iter().map(move |who| (cluster, who))
        })
    }
}

// === impl SourceFindings ===

impl SourceFindings {
    fn new<'r, 'g>(
        source: &'r SourceObjects,
        options: &Options,
        grants: impl Fn() -> &'g RoleGrants<'r>,
    ) -> Self
    where
        'r: 'g,
    {
        let mut found = Self::default();
        for (place, object) in source.objects().enumerate() {
            match &object.content {
                Content::Binding(binding) => {
                    found.lint_one((place, object), binding, source.cluster(), grants());
                }
                Content::Policy(policy) => {
                    let mut faults = Faults::new();
                    let mut lint = Lint::new(&object.document, &mut faults);
                    policy::lint_alone(policy, source.cluster(), options, &mut lint);
                    found.add_warnings(place, faults);
                }
                _ => {}
            }
        }
        found
    }

    fn add_warnings(&mut self, place: usize, faults: Faults) {
        if !faults.is_empty() {
            self.warnings.push((place, faults.into_iter().collect()));
        }
    }

    fn lint_one<'r>(
        &mut self,
        (place, object): (usize, &ManifestObject),
        binding: &Binding,
        cluster: Option<&'r str>,
        grants: &RoleGrants<'r>,
    ) {
        let mut faults = Faults::new();
        let mut lint = Lint::new(&object.document, &mut faults);
        self.builtin
            .extend(lint_binding(binding, cluster, grants, &mut lint));
        self.add_warnings(place, faults);
        if grants.labels_namespaces(binding, cluster) {
            self.labellers.extend(labels::names(&binding.subjects));
        }
        let is_cluster_admin =
            binding.role.kind == RoleKind::ClusterRole && binding.role.name == CLUSTER_ADMIN;
        if is_cluster_admin && binding.namespace.is_empty() {
            self.administrators.extend(binding.subjects.iter().cloned());
        }
    }
}

// === impl LintInputs ===

impl LintInputs {
    fn new(sources: &[Arc<SourceObjects>], options: &Options) -> Self {
        let roles = sources.iter().flat_map(|source| source.others());
        Self {
            never_deny: options.never_deny.clone(),
            version: options.cel_version,
            reviewed: options.reviewed.keys().cloned().collect(),
            enforce_authorization: options.enforce_authorization,
            api_server_webhooks: options.api_server_webhooks.clone(),
            clusters: sources
                .iter()
                .map(|source| source.cluster().map(str::to_owned))
                .collect(),
            roles: roles
                .filter_map(|object| match &object.content {
                    Content::Role(role) => Some((object.cluster.clone(), Arc::clone(role))),
                    _ => None,
                })
                .collect(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        let same = |((one_of, one), (other_of, other)): (&(_, Arc<Role>), &(_, Arc<Role>))| {
            one_of == other_of && Arc::ptr_eq(one, other)
        };
        self.never_deny == other.never_deny
            && self.version == other.version
            && self.reviewed == other.reviewed
            && self.enforce_authorization == other.enforce_authorization
            && self.api_server_webhooks == other.api_server_webhooks
            && self.clusters == other.clusters
            && self.roles.len() == other.roles.len()
            && self.roles.iter().zip(&other.roles).all(same)
    }
}
