//! Actors, and the kinds of step: the questions that a step needs, and the targets that it gives;
//! and the extent to which something is allowed.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::authorization::access::SubjectScope;
use crate::authorization::{Role, RoleKind, ServiceAccount};

/// The ClusterRole that allows everything on every API server.
pub(crate) const CLUSTER_ADMIN: &str = "cluster-admin";

/// A set of the known namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Area {
    /// All of them, and requests without a namespace.
    Everywhere,
    /// These, by their index.
    In(Rc<BTreeSet<usize>>),
}

/// A set of names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Names {
    /// All names but these.
    Except(Rc<BTreeSet<String>>),
    /// Only this name.
    Only(String),
}

/// The extent to which something is allowed, or would be without Deny policies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extent {
    pub(crate) is_refuted: bool,
    /// Whether there are limits other than the namespace and name.
    pub(crate) is_limited: bool,
    pub(crate) names: Names,
    pub(crate) area: Area,
}

/// An identity that can take steps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Actor {
    /// A subject of a binding or policy.
    Subject(SubjectScope),
    /// The holder of a role, which the actor has bound itself. If the role is `cluster-admin`, the
    /// holder may do everything.
    Holder(HeldRole),
}

/// A role, and the namespaces in which it is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeldRole {
    /// The namespace of a Role; `None` for a ClusterRole.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// `None` if it is held through a ClusterRoleBinding.
    pub(crate) within: Option<Area>,
}

/// A kind of step.
#[derive(Debug)]
pub struct StepKind {
    /// The needs, which must all be allowed, each by one of its questions. The first names the
    /// step. Empty if the Node authorizer decides.
    pub(crate) needs: &'static [&'static [Question]],
    pub(crate) gives: StepTarget,
    /// A condition on which the policies have no influence; empty if there is none.
    pub(crate) limit: &'static str,
    /// The source that documents the step: a path in `kubernetes/kubernetes`, or a page.
    pub source: &'static str,
}

/// A question whether an actor may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) is_namespaced: bool,
    pub(crate) name: QuestionName,
}

/// The name in a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum QuestionName {
    /// No name: when an object is created, its name is only in the object.
    None,
    /// Any name.
    Any,
    /// The name of the target.
    Target,
    /// This name.
    Is(&'static str),
}

/// The targets of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StepTarget {
    /// The service accounts of the namespace.
    AccountsOfNamespace,
    /// This service account, of a controller that acts on objects in any namespace.
    Controller(&'static str, &'static str),
    /// This service account, of a controller that acts on objects in its own namespace.
    ControllerOfNamespace(&'static str, &'static str),
    /// The service account of this name, in the namespace.
    Account,
    /// All service accounts.
    AllAccounts,
    /// All service accounts, if the actor is a node.
    AccountsOnNode,
    /// The user of this name, unless it is a service account or a node.
    User,
    /// The members of the group of this name.
    Group,
    /// All users and groups, except for `system:masters`.
    UsersAndGroups,
    /// The members of `system:nodes`.
    Nodes,
    /// The members of `system:bootstrappers`, if the namespace is `kube-system`.
    Bootstrappers,
    /// A subject that may do everything.
    ClusterAdmin,
    /// A holder of the ClusterRole of this name, in the whole cluster.
    ClusterRole,
    /// A holder of the ClusterRole of this name, in the namespace.
    ClusterRoleInNamespace,
    /// A holder of the Role of this name, in the namespace.
    Role,
    /// A subject that may do everything, if a binding grants the ClusterRole of this name to the
    /// actor.
    WidenedClusterRole,
    /// A subject that may do everything in the namespace, if a binding grants the Role of this name
    /// to the actor.
    WidenedRole,
}

/// The step of a node, which RBAC does not decide.
pub(crate) const NODE_CREDENTIALS: &str = "node credentials";

/// Resources from which controllers create Pods.
const WORKLOAD_RESOURCES: [&str; 7] = [
    "replicationcontrollers",
    "deployments",
    "daemonsets",
    "statefulsets",
    "replicasets",
    "jobs",
    "cronjobs",
];

pub(crate) const fn ask(verb: &'static str, group: &'static str, resource: &'static str) -> Question {
    Question {
        verb,
        group,
        resource,
        subresource: "",
        is_namespaced: true,
        name: QuestionName::Any,
    }
}

pub(crate) const fn create(group: &'static str, resource: &'static str) -> Question {
    ask("create", group, resource).named(QuestionName::None)
}

pub(crate) const fn update(group: &'static str, resource: &'static str) -> Question {
    ask("update", group, resource)
}

pub(crate) const fn patch(group: &'static str, resource: &'static str) -> Question {
    ask("patch", group, resource)
}

impl Question {
    pub(crate) const fn named(self, name: QuestionName) -> Self {
        Self { name, ..self }
    }

    pub(crate) const fn of_target(self) -> Self {
        self.named(QuestionName::Target)
    }

    pub(crate) const fn of(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    pub(crate) const fn of_cluster(self) -> Self {
        Self {
            is_namespaced: false,
            ..self
        }
    }

    /// The resource, if writing it creates a new Pod.
    pub(crate) fn workload(&self) -> Option<&'static str> {
        let is_written = matches!(self.verb, "create" | "update" | "patch") && self.subresource.is_empty();
        let makes_pods = match self.resource {
            "pods" => self.verb == "create",
            resource => WORKLOAD_RESOURCES.contains(&resource),
        };
        (is_written && makes_pods).then_some(self.resource)
    }

    /// For example `create pods/exec`.
    pub(crate) fn describe(&self) -> String {
        let Self { verb, resource, .. } = self;
        match self.subresource {
            "" => format!("{verb} {resource}"),
            subresource => format!("{verb} {resource}/{subresource}"),
        }
    }
}

impl StepKind {
    pub(crate) const fn new(
        needs: &'static [&'static [Question]],
        gives: StepTarget,
        limit: &'static str,
        source: &'static str,
    ) -> Self {
        Self {
            needs,
            gives,
            limit,
            source,
        }
    }

    /// The names of the step, such as `create pods`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self.needs.first() {
            Some(questions) => questions.iter().map(Question::describe).collect(),
            None => vec![NODE_CREDENTIALS.to_owned()],
        }
    }
}

// === impl Area ===

impl Area {
    pub(crate) fn one(namespace: usize) -> Self {
        Self::In(Rc::new([namespace].into()))
    }

    pub(crate) fn contains(&self, namespace: usize) -> bool {
        match self {
            Self::Everywhere => true,
            Self::In(some) => some.contains(&namespace),
        }
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Everywhere, area) | (area, Self::Everywhere) => Some(area.clone()),
            (Self::In(some), Self::In(others)) => {
                let both: BTreeSet<usize> = some.intersection(others).copied().collect();
                (!both.is_empty()).then(|| Self::In(Rc::new(both)))
            }
        }
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everywhere, _) | (_, Self::Everywhere) => Self::Everywhere,
            (Self::In(some), Self::In(others)) => Self::In(Rc::new(some.union(others).copied().collect())),
        }
    }
}

// === impl Names ===

impl Names {
    pub(crate) fn all() -> Self {
        Self::Except(Rc::default())
    }

    pub(crate) fn all_but(name: &str) -> Self {
        Self::Except(Rc::new([name.to_owned()].into()))
    }

    pub(crate) fn include(&self, name: &str) -> bool {
        match self {
            Self::Except(others) => !others.contains(name),
            Self::Only(only) => only == name,
        }
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Except(some), Self::Except(others)) => {
                Some(Self::Except(Rc::new(some.union(others).cloned().collect())))
            }
            (Self::Only(name), names) | (names, Self::Only(name)) => {
                names.include(name).then(|| Self::Only(name.clone()))
            }
        }
    }
}

// === impl Actor ===

impl Actor {
    /// A subject to which API servers allow everything.
    pub(crate) fn cluster_admin() -> Self {
        Self::Holder(HeldRole::cluster_admin())
    }

    pub(crate) fn account(namespace: &str, name: &str) -> Self {
        let account = ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Self::Subject(SubjectScope::User(account.user_name()))
    }

    pub(crate) fn into_subject(self) -> Option<SubjectScope> {
        match self {
            Self::Subject(scope) => Some(scope),
            Self::Holder(_) => None,
        }
    }

    /// The users whom Deny policies are checked for: the holder of a role may be any authenticated
    /// user.
    pub(crate) fn scope(&self) -> SubjectScope {
        match self {
            Self::Subject(scope) => scope.clone(),
            Self::Holder(_) => SubjectScope::Group("system:authenticated".to_owned()),
        }
    }
}

// === impl Extent ===

impl Extent {
    /// The extent to which both are allowed.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        Some(Self {
            is_refuted: self.is_refuted || other.is_refuted,
            is_limited: self.is_limited || other.is_limited,
            names: self.names.and(&other.names)?,
            area: self.area.and(&other.area)?,
        })
    }
}

// === impl HeldRole ===

impl HeldRole {
    pub(crate) fn cluster_admin() -> Self {
        Self {
            namespace: None,
            name: CLUSTER_ADMIN.to_owned(),
            within: None,
        }
    }

    /// Whether this is `cluster-admin`, which allows everything on every API server.
    pub(crate) fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.name == CLUSTER_ADMIN
    }

    pub(crate) fn is(&self, role: &Role) -> bool {
        role.name == self.name && role.namespace == self.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) const fn kind(&self) -> RoleKind {
        match self.namespace {
            Some(_) => RoleKind::Role,
            None => RoleKind::ClusterRole,
        }
    }
}

// === impl StepTarget ===

impl StepTarget {
    /// Whether the name in the question is that of the target.
    pub(crate) const fn is_named(self) -> bool {
        matches!(self, Self::Account | Self::User | Self::Group)
    }
}
