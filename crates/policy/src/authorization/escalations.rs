//! Who can become whom: by which steps a subject gets at what another subject may do.
//!
//! ```text
//! known_steps: kinds of step, each with the questions that it needs
//!   │
//!   ▼
//! reach: what each subject is allowed of these questions, Deny policies included
//!   │
//!   ▼
//! graph: actor ──step──▶ targets ──▶ actors, to a fixpoint
//!   │
//!   ▼
//! paths: the shortest, and what each step of them needs
//! ```
//!
//! A step is taken where the engine allows what it needs. One that only a Deny policy prevents is
//! kept apart, with the policy's name.

mod actors;
mod graph;
mod known_steps;
mod paths;
mod reach;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::authorization::access::SubjectScope;
use crate::authorization::matching::NamespacePattern;
use crate::authorization::{OpenRequest, PolicySet, ServiceAccount, Subject, SubjectKind};
use crate::model::CauseKind;
use actors::{Actor, AskedName, Question};

pub use actors::StepKind;
pub(crate) use known_steps::RUNS;
pub use known_steps::STEP_KINDS;

/// Who can become whom?
#[derive(Debug, Clone)]
pub struct EscalationQuery {
    /// Whom paths begin with; `None`: any subject.
    pub from: Option<Subject>,
    /// What they lead to.
    pub to: EscalationTarget,
    /// Service accounts that there are, besides those that bindings and policies name.
    pub accounts: Vec<ServiceAccount>,
}

/// What paths lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EscalationTarget {
    /// Who may `*` on `*/*` everywhere.
    ClusterAdmin,
    /// Each subject that can be reached.
    Everybody,
    /// This subject.
    Subject(Subject),
    /// The nearest subject that may do this, or some of it.
    Request(OpenRequest),
}

/// Who can become whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Escalations {
    /// The shortest path for each pair, by name.
    pub paths: Vec<EscalationPath>,
    /// For each pair without a path, the shortest that there would be without Deny policies.
    pub refuted: Vec<EscalationPath>,
}

/// How somebody becomes somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscalationPath {
    /// Who begins.
    pub from: Identity,
    /// What was asked for, or who is allowed it.
    pub to: Identity,
    /// At least one.
    pub steps: Vec<EscalationStep>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscalationStep {
    /// What is done; it begins with a name of the kind, such as `create pods`.
    pub by: String,
    /// What allows it; empty where the actor may everything.
    pub via: Vec<ObjectName>,
    /// Who the actor is then.
    pub becomes: Identity,
    /// What else must be so.
    pub limits: Vec<String>,
    /// The policies that prevent it.
    pub refuted_by: Vec<ObjectName>,
    /// The workload that is written to have a Pod made.
    pub workload: Option<NeededWorkload>,
}

/// A workload that a step needs, of which it takes admission to say whether it may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededWorkload {
    /// Its resource, such as `deployments`.
    pub resource: &'static str,
    /// What admission policies say of the plainest one, where they were asked.
    pub admission: Option<WorkloadAdmission>,
}

/// What admission policies say of a workload and its Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadAdmission {
    /// `None` where it is not known.
    pub is_admitted: Option<bool>,
    /// The policy that refuses it.
    pub refused_by: Option<ObjectName>,
    /// Why it is refused, or not known.
    pub message: String,
}

/// An object by which something is allowed or prevented.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; empty for none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A subject, or the holder of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// `User`, `Group`, `ServiceAccount`, `ClusterRole` or `Role`.
    pub kind: &'static str,
    /// That of a service account, or the one in which a role is had: `*` for several.
    pub namespace: String,
    /// Its name. A `*` at the end stands for any text, where a policy names a subject so.
    pub name: String,
}

/// Who and what is known.
pub(crate) struct Universe {
    /// In order.
    pub(crate) namespaces: Vec<String>,
    pub(crate) subjects: BTreeSet<SubjectScope>,
    pub(crate) requests: Vec<(OpenRequest, AskedName)>,
}

/// The namespaces that an API server makes itself.
pub(crate) const OWN_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The question of who may everything; a rule for all resources is for their subresources, too.
const EVERYTHING: Question = Question {
    verb: "*",
    group: "*",
    resource: "*",
    subresource: "",
    is_namespaced: true,
    name: AskedName::Any,
};

// === impl Universe ===

impl Universe {
    pub(crate) fn of(set: &PolicySet, query: &EscalationQuery) -> Self {
        let subjects = subjects(set, query);
        let namespaces = namespaces(set, &subjects);
        let mut subjects = subjects;
        for namespace in &namespaces {
            subjects.extend(Actor::account(namespace, "default").into_subject());
        }
        let mut requests: Vec<_> = all_questions()
            .iter()
            .map(|one| (one.request(), one.name))
            .collect();
        if let EscalationTarget::Request(request) = &query.to {
            let request = request.clone().normalized(&set.cluster_scoped);
            requests.push((request, AskedName::Any));
        }
        Self {
            namespaces,
            subjects,
            requests,
        }
    }
}

/// The questions of all kinds of step, each once, after that of who may everything.
pub(crate) fn all_questions() -> Vec<Question> {
    let mut all = vec![EVERYTHING];
    let needed = STEP_KINDS
        .iter()
        .flat_map(|kind| kind.needs.iter().copied().flatten());
    for question in needed {
        if !all.contains(question) {
            all.push(*question);
        }
    }
    all
}

fn subjects(set: &PolicySet, query: &EscalationQuery) -> BTreeSet<SubjectScope> {
    let of_bindings = set.bindings().flat_map(|binding| {
        let subjects = binding.subjects.iter();
        subjects.filter_map(|subject| SubjectScope::of_binding(subject, &binding.namespace))
    });
    let allowing = set.policies.allow.policies.iter();
    let of_policies = allowing.flat_map(|indexed| &indexed.policy.subjects);
    let asked = query.from.iter().chain(match &query.to {
        EscalationTarget::Subject(subject) => Some(subject),
        _ => None,
    });
    let accounts = query
        .accounts
        .iter()
        .map(|account| SubjectScope::User(account.user_name()));
    let named = of_policies.filter_map(SubjectScope::of_policy);
    let asked = asked.filter_map(|subject| SubjectScope::of_binding(subject, ""));
    let own = [NODES, BOOTSTRAPPERS].map(|group| SubjectScope::Group(group.to_owned()));
    let own = own.into_iter().chain([SubjectScope::masters()]);
    of_bindings
        .chain(named)
        .chain(asked)
        .chain(accounts)
        .chain(own)
        .collect()
}

/// All that something names, in order.
fn namespaces(set: &PolicySet, subjects: &BTreeSet<SubjectScope>) -> Vec<String> {
    let of_bindings = set.bindings().map(|binding| binding.namespace.clone());
    let accounts = subjects.iter().map(|scope| scope.subject().0);
    let of_accounts = accounts
        .filter(|subject| subject.kind == SubjectKind::ServiceAccount)
        .map(|account| account.namespace);
    let rules = set
        .authorization_policies()
        .flat_map(|policy| &policy.resource_rules);
    let of_rules = rules.flat_map(|rule| rule.namespaces.iter().chain(&rule.exclude_namespaces));
    let of_rules = of_rules.filter_map(|pattern| match pattern {
        NamespacePattern::Named(name) => Some(name.clone()),
        NamespacePattern::Without | NamespacePattern::Prefix(_) => None,
    });
    let labelled = set.namespaces.known().map(str::to_owned);
    let own = OWN_NAMESPACES.map(str::to_owned);
    let all = of_bindings
        .chain(of_accounts)
        .chain(of_rules)
        .chain(labelled)
        .chain(own);
    let all: BTreeSet<String> = all.filter(|namespace| !namespace.is_empty()).collect();
    all.into_iter().collect()
}

pub(crate) const NODES: &str = "system:nodes";
pub(crate) const BOOTSTRAPPERS: &str = "system:bootstrappers";

/// Names of policies, as objects.
pub(crate) fn policies(names: Vec<Arc<str>>) -> impl Iterator<Item = ObjectName> {
    names.into_iter().map(|name| ObjectName {
        kind: CauseKind::AuthorizationPolicy.as_str(),
        namespace: String::new(),
        name: name.to_string(),
    })
}

#[cfg(test)]
mod tests;
