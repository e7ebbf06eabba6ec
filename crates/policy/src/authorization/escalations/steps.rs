//! The kinds of step by which somebody gets at what another may do: what each needs, as questions
//! to the engine, and what it gives.

/// A kind of step.
#[derive(Debug)]
pub struct StepKind {
    /// All must be allowed, each by one of its questions. The first names the step. There is none
    /// where the Node authorizer decides.
    pub(crate) needs: &'static [&'static [Question]],
    pub(crate) gives: Gives,
    /// What else must be so, of which the policies say nothing; empty where nothing is.
    pub(crate) limit: &'static str,
    /// Where it is to be read that this is so: a path in `kubernetes/kubernetes`, or a page.
    pub source: &'static str,
}

/// A question about a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) is_namespaced: bool,
    pub(crate) name: AskedName,
}

/// The name in a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AskedName {
    /// None: of creation, the name is in the object.
    None,
    /// Any will do.
    Any,
    /// That of who is reached.
    Target,
    /// This.
    Is(&'static str),
}

/// Whom a step reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Gives {
    /// The service accounts of the namespace.
    AccountsOfNamespace,
    /// This service account, of a controller that does what is written in any namespace.
    Controller(&'static str, &'static str),
    /// That of one that does what is written in its own namespace.
    ControllerOfNamespace(&'static str, &'static str),
    /// The service account of the name, in the namespace.
    Account,
    /// All service accounts.
    AllAccounts,
    /// All service accounts, to a node alone.
    AccountsOnNode,
    /// The user of the name, where that is no service account and no node.
    User,
    /// The members of the group of the name.
    Group,
    /// All users and groups, but for `system:masters`.
    UsersAndGroups,
    /// The members of `system:nodes`.
    Nodes,
    /// The members of `system:bootstrappers`, where the namespace is `kube-system`.
    Bootstrappers,
    /// Who may everything.
    ClusterAdmin,
    /// Who has the ClusterRole of the name, everywhere.
    ClusterRole,
    /// Who has the ClusterRole of the name, in the namespace.
    ClusterRoleInNamespace,
    /// Who has the Role of the name and the namespace.
    Role,
    /// Who may everything where a binding gives the ClusterRole of the name to the actor.
    WidenedClusterRole,
    /// Who may everything in the namespace, where a binding gives the Role of the name.
    WidenedRole,
}

/// The step of a node, which asks nothing of RBAC.
pub(crate) const NODE_CREDENTIALS: &str = "node credentials";

/// Of which controllers make Pods.
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
        name: AskedName::Any,
    }
}

pub(crate) const fn create(group: &'static str, resource: &'static str) -> Question {
    ask("create", group, resource).named(AskedName::None)
}

pub(crate) const fn update(group: &'static str, resource: &'static str) -> Question {
    ask("update", group, resource)
}

pub(crate) const fn patch(group: &'static str, resource: &'static str) -> Question {
    ask("patch", group, resource)
}

impl Question {
    pub(crate) const fn named(self, name: AskedName) -> Self {
        Self { name, ..self }
    }

    pub(crate) const fn of_target(self) -> Self {
        self.named(AskedName::Target)
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

    /// The resource, where a new Pod is made of what is written.
    pub(crate) fn workload(&self) -> Option<&'static str> {
        let is_written = matches!(self.verb, "create" | "update" | "patch") && self.subresource.is_empty();
        let makes_pods = match self.resource {
            "pods" => self.verb == "create",
            resource => WORKLOAD_RESOURCES.contains(&resource),
        };
        (is_written && makes_pods).then_some(self.resource)
    }

    /// `create pods/exec`.
    pub(crate) fn words(&self) -> String {
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
        gives: Gives,
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

    /// The names of the steps, such as `create pods`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self.needs.first() {
            Some(questions) => questions.iter().map(Question::words).collect(),
            None => vec![NODE_CREDENTIALS.to_owned()],
        }
    }
}

// === impl Gives ===

impl Gives {
    /// Whether the name in the question is that of who is reached.
    pub(crate) const fn is_named(self) -> bool {
        matches!(self, Self::Account | Self::User | Self::Group)
    }
}
