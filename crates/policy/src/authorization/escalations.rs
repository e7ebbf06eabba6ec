//! Finds escalation paths: the steps by which a subject can gain the permissions of another one.
//!
//! ```text
//! known_steps: the kinds of step, with the questions that each needs
//!   │
//!   ▼
//! reach: which of these each subject is allowed, taking Deny policies into account
//!   │
//!   ▼
//! graph: actor ──step──▶ targets ──▶ actors, to a fixpoint
//!   │
//!   ▼
//! paths: the shortest paths, and what each of their steps needs
//! ```
//!
//! A step is possible if the policy set allows what it needs. A step that only a Deny policy
//! prevents is kept separately, with the name of the policy.

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
use actors::{Actor, Question, QuestionName};

pub use actors::StepKind;
pub(crate) use known_steps::RUNS;
pub use known_steps::STEP_KINDS;

/// A query for escalation paths.
#[derive(Debug, Clone)]
pub struct EscalationQuery {
    /// The subject with which paths begin; `None` for any.
    pub from: Option<Subject>,
    /// The target of the paths.
    pub to: EscalationTarget,
    /// Service accounts that exist, in addition to those in bindings and policies.
    pub accounts: Vec<ServiceAccount>,
}

/// The target of escalation paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EscalationTarget {
    /// Subjects that may do everything (`*` on `*/*`) in the whole cluster.
    ClusterAdmin,
    /// Every subject that can be reached.
    Everybody,
    /// This subject.
    Subject(Subject),
    /// The nearest subject that may make this request, or some of the requests that it leaves open.
    Request(OpenRequest),
}

/// The result of an [`EscalationQuery`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Escalations {
    /// The shortest path for each pair of subjects, by name.
    pub paths: Vec<EscalationPath>,
    /// For each pair without a path, the shortest that would exist without Deny policies.
    pub refuted: Vec<EscalationPath>,
}

/// How a subject gains the permissions of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscalationPath {
    /// The subject that begins.
    pub from: Identity,
    /// The target, or a subject that is allowed what was queried.
    pub to: Identity,
    /// The steps, at least one.
    pub steps: Vec<EscalationStep>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscalationStep {
    /// The action, which begins with a name of the kind of step, such as `create pods`.
    pub by: String,
    /// The objects that allow it; empty if the actor may do everything.
    pub via: Vec<ObjectName>,
    /// The identity that the actor gains.
    pub becomes: Identity,
    /// Conditions that must also hold.
    pub limits: Vec<String>,
    /// The policies that prevent it.
    pub refuted_by: Vec<ObjectName>,
    /// The workload that is written so that a controller creates a Pod.
    pub workload: Option<NeededWorkload>,
}

/// A workload that a step needs. Admission determines whether it can be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededWorkload {
    /// Its resource, such as `deployments`.
    pub resource: &'static str,
    /// The result of admission policies for the simplest such workload, if they were evaluated.
    pub admission: Option<WorkloadAdmission>,
}

/// The result of admission policies for a workload and its Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadAdmission {
    /// `None` if it is unknown.
    pub is_admitted: Option<bool>,
    /// The policy that rejects it.
    pub refused_by: Option<ObjectName>,
    /// Why it is rejected, or unknown.
    pub message: String,
}

/// An object that allows or prevents a step.
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
    /// The namespace of a service account, or in which a role is held: `*` for several.
    pub namespace: String,
    /// The name. A `*` at the end makes it a prefix, if it is from a policy.
    pub name: String,
}

/// The known namespaces, subjects and requests.
pub(crate) struct Universe {
    /// Sorted.
    pub(crate) namespaces: Vec<String>,
    pub(crate) subjects: BTreeSet<SubjectScope>,
    pub(crate) requests: Vec<(OpenRequest, QuestionName)>,
}

/// The namespaces that an API server creates itself.
pub(crate) const OWN_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The question whether a subject may do everything. A rule for all resources includes their
/// subresources.
const EVERYTHING: Question = Question {
    verb: "*",
    group: "*",
    resource: "*",
    subresource: "",
    is_namespaced: true,
    name: QuestionName::Any,
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
            requests.push((request, QuestionName::Any));
        }
        Self {
            namespaces,
            subjects,
            requests,
        }
    }
}

/// The questions of all kinds of step without duplicates, after the one whether a subject may do
/// everything.
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

/// All namespaces that any object names, sorted.
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
        NamespacePattern::ClusterScope | NamespacePattern::Prefix(_) => None,
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

/// The policies with these names, as objects.
pub(crate) fn policies(names: Vec<Arc<str>>) -> impl Iterator<Item = ObjectName> {
    names.into_iter().map(|name| ObjectName {
        kind: CauseKind::AuthorizationPolicy.as_str(),
        namespace: String::new(),
        name: name.to_string(),
    })
}

#[cfg(test)]
mod tests;
