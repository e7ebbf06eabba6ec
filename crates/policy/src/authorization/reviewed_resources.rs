//! The resources whose requests `/validate` is known to see, and since when. An Allow with
//! `objectConditions` grants only requests for these before their object is known.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use super::AuthorizationPolicy;
use super::authorizer::{Authorizer, Relevance};
use super::never_deny::{MASTERS, NODE_PREFIX, NODES};
use crate::model::{Attributes, Deadline, ResourceAttributes, Target, Time, groups};

/// What `/validate` is known to see of a cluster. Custom resources count only if a
/// CustomResourceDefinition is known, and those of aggregated API servers never do, since their
/// admission is unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReviewedResources {
    /// How this is known.
    pub knowledge: ReviewKnowledge,
    /// The custom resources that have a definition, by group and resource.
    pub custom: Arc<BTreeSet<(String, String)>>,
    /// The namespace of a gateway that runs in the cluster: its webhook configurations exclude it,
    /// too.
    pub own_namespace: Option<String>,
    /// The API server's own authorization webhooks. If none of them is called for a user, another
    /// authorizer allows the user's requests.
    pub authorizers: Arc<[Authorizer]>,
}

/// How it is known what `/validate` sees of a cluster.
#[derive(Debug, Clone, Default)]
pub enum ReviewKnowledge {
    /// The configuration declares that it sees everything that the webhook configurations of
    /// `portcullis init` do not exclude.
    #[default]
    Declared,
    /// The cluster is not queried, for example offline: the same is assumed.
    Assumed,
    /// From the webhook configurations of the cluster.
    Watched(Arc<dyn AdmissionCoverage>),
    /// The webhook configurations are unknown, for this reason, so `/validate` is not known to see
    /// anything.
    Unproven(Arc<str>),
}

/// What the webhook configurations of a cluster are certain to send to `/validate`.
pub trait AdmissionCoverage: fmt::Debug + Send + Sync {
    /// Why it is not certain that `/validate` is called at `now` for the request with these
    /// `attributes`, whose object is not known; `None` if it is certain.
    fn why_not_covered(
        &self,
        attributes: &Attributes<'_>,
        is_cluster_scoped: bool,
        now: (Time, Deadline<'_>),
    ) -> Option<String>;

    /// Since when both `/mutate` and `/validate` are called for every create and update of the
    /// resource, and for every update of its status. Webhooks with matchConditions do not count.
    fn covered_since(&self, group: &str, resource: &str) -> Option<Time>;
}

/// Since when each Allow with objectConditions exists, and which were removed or changed recently.
#[derive(Debug)]
pub(crate) struct GrantHistory {
    /// Since when changes are tracked: earlier removals are unknown.
    began: Time,
    /// By the address of the policy, which is valid because `kept` contains it.
    since: HashMap<usize, Time>,
    kept: Vec<Arc<AuthorizationPolicy>>,
    /// Each with the first instant at which it is no longer checked; at most [`MAX_FORMER`].
    former: Vec<(Arc<AuthorizationPolicy>, Time)>,
}

/// Why a policy with objectConditions that applies to a request decides nothing at `/authorize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotGranted {
    /// `/validate` decides, when the object is known.
    AtValidate,
    /// `/validate` is not known to see the requests to this cluster.
    NotReviewed,
    /// The webhook configurations of `portcullis init` exclude the resource or namespace, or the
    /// resource has no known definition.
    LeftOut,
    /// No webhook configuration of the cluster is certain to send the request, for this reason.
    NotCovered(String),
    /// `/validate` never denies requests of this user, or does not see what others allow the user.
    NeverRefused,
    /// Other gateways may not have the policy yet.
    New,
}

/// How long a new Allow with objectConditions grants nothing, in seconds. By then the other
/// gateways have it, too, and can check it at `/validate`.
pub const NEW_GRANT_DELAY_SECONDS: i64 = 10;

/// How long an Allow that was removed, changed or ended is still checked as it was, in seconds:
/// longer than an API server caches a decision.
pub const REMOVED_GRANT_RETENTION_SECONDS: i64 = 600;

/// The maximum of removed or changed policies that are still checked. The newest are kept.
const MAX_FORMER: usize = 10_000;

/// The namespace that the webhook configurations of `portcullis init` exclude.
const LEFT_OUT_NAMESPACE: &str = "kube-system";

/// Groups whose objects are not sent to `/validate`, or whose rejection there has no effect.
const LEFT_OUT_GROUPS: [&str; 4] = [
    "authentication.k8s.io",
    "authorization.k8s.io",
    groups::ADMISSION,
    groups::PORTCULLIS,
];

/// Resources that the webhook configurations of `portcullis init` exclude with all subresources, by
/// group.
const LEFT_OUT_RESOURCES: [(&str, &str); 8] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "volumeattachments"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Resources that they exclude without their other subresources.
const LEFT_OUT_WITHOUT_SUBRESOURCES: [(&str, &str); 3] =
    [("", "nodes"), ("", "pods/binding"), ("", "serviceaccounts/token")];

/// Subresources that they exclude for all resources.
const LEFT_OUT_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Whether the webhook configurations of `portcullis init` exclude `resource`, which may include a
/// subresource, of `group`.
#[must_use]
pub(crate) fn is_left_out(group: &str, resource: &str) -> bool {
    let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    LEFT_OUT_SUBRESOURCES.contains(&subresource)
        || LEFT_OUT_RESOURCES.contains(&(group, name))
        || LEFT_OUT_WITHOUT_SUBRESOURCES.contains(&(group, resource))
}

/// Whether an API server itself serves `resource` of `group`. Groups of Kubernetes may also contain
/// resources of aggregated API servers and custom resources.
fn is_served(group: &str, resource: &str) -> bool {
    static SERVED: LazyLock<BTreeSet<(&str, &str)>> = LazyLock::new(|| {
        let table = include_str!("../manifest/lint/known/resources.txt");
        let lines = table.lines().filter(|line| !line.starts_with('#'));
        let served = lines.filter_map(|line| {
            let mut words = line.split(' ');
            let (group, resource) = (words.next()?, words.next()?);
            Some((if group == "core" { "" } else { group }, resource))
        });
        served.collect()
    });
    SERVED.contains(&(group, resource))
}

/// The group of the service accounts of kube-system, which run the cluster.
const KUBE_SYSTEM_ACCOUNTS: &str = "system:serviceaccounts:kube-system";

/// Users that run the cluster.
const CONTROL_PLANE_USERS: [&str; 2] = ["system:kube-controller-manager", "system:kube-scheduler"];

/// The user with which the API server calls kubelets, which ask whether it may.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

// === impl ReviewedResources ===

impl ReviewedResources {
    /// Why `/validate` is not known to see the request with these `attributes` at `now`; `None` if
    /// it is.
    pub(crate) fn why_not_seen(
        &self,
        (attributes, request): (&Attributes<'_>, &ResourceAttributes<'_>),
        is_cluster_scoped: bool,
        now: (Time, Deadline<'_>),
    ) -> Option<NotGranted> {
        let (group, resource) = (request.group.as_ref(), request.resource.as_ref());
        let is_defined = || self.custom.contains(&(group.to_owned(), resource.to_owned()));
        if LEFT_OUT_GROUPS.contains(&group) || !is_served(group, resource) && !is_defined() {
            return Some(NotGranted::LeftOut);
        }
        match &self.knowledge {
            ReviewKnowledge::Declared | ReviewKnowledge::Assumed => {
                self.leaves_out(request).then_some(NotGranted::LeftOut)
            }
            ReviewKnowledge::Watched(coverage) => coverage
                .why_not_covered(attributes, is_cluster_scoped, now)
                .map(NotGranted::NotCovered),
            ReviewKnowledge::Unproven(why) => Some(NotGranted::NotCovered(why.to_string())),
        }
    }

    /// Since when both `/mutate` and `/validate` are known to see every create and update of the
    /// resource, and every update of its status; `None` if they are not. If the configuration
    /// declares it, this is always.
    #[must_use]
    pub fn reviewed_since(&self, group: &str, resource: &str) -> Option<Time> {
        match &self.knowledge {
            ReviewKnowledge::Declared | ReviewKnowledge::Assumed => Some(Time::UNIX_EPOCH),
            ReviewKnowledge::Watched(coverage) => coverage.covered_since(group, resource),
            ReviewKnowledge::Unproven(_) => None,
        }
    }

    /// Whether the webhook configurations of `portcullis init` exclude the request.
    fn leaves_out(&self, request: &ResourceAttributes<'_>) -> bool {
        let (group, resource) = (request.group.as_ref(), request.resource.as_ref());
        let is_left_out = match request.subresource.as_ref() {
            "" => is_left_out(group, resource),
            subresource => is_left_out(group, &format!("{resource}/{subresource}")),
        };
        is_left_out
            || request.namespace == LEFT_OUT_NAMESPACE
            || self.own_namespace.as_deref() == Some(request.namespace.as_ref())
    }

    /// Whether the API server calls none of its authorization webhooks for the request. If these
    /// are unknown, the AuthorizationConfiguration that `portcullis init` writes is assumed.
    pub(crate) fn calls_no_webhook(&self, attributes: &Attributes<'_>, deadline: Deadline<'_>) -> bool {
        let is_skipped = |one: &Authorizer| {
            let relevance = one.relevance(attributes, deadline);
            matches!(relevance, Relevance::Skipped(_))
        };
        match self.authorizers.is_empty() {
            true => attributes.skips_authorization_webhook(),
            false => self.authorizers.iter().all(is_skipped),
        }
    }
}

// === impl ReviewKnowledge ===

impl PartialEq for ReviewKnowledge {
    /// Whether both know the same from the same webhook configurations.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Declared, Self::Declared) | (Self::Assumed, Self::Assumed) => true,
            (Self::Watched(one), Self::Watched(other)) => Arc::ptr_eq(one, other),
            (Self::Unproven(one), Self::Unproven(other)) => one == other,
            _ => false,
        }
    }
}

// === impl GrantHistory ===

impl GrantHistory {
    /// The history at `now` after `before`, when `policies` are the Allows that grant.
    pub(crate) fn following(
        before: Option<&Self>,
        policies: Vec<Arc<AuthorizationPolicy>>,
        now: Time,
    ) -> Self {
        let mut history = Self {
            began: before.map_or(now, |before| before.began),
            since: HashMap::new(),
            kept: Vec::new(),
            former: Vec::new(),
        };
        let known = before.map_or(&[][..], |before| before.kept.as_slice());
        let by_name = |all: &[Arc<AuthorizationPolicy>]| -> HashMap<String, Arc<AuthorizationPolicy>> {
            all.iter()
                .map(|one| (one.name.clone(), Arc::clone(one)))
                .collect()
        };
        let (known_names, names) = (by_name(known), by_name(&policies));
        for policy in &policies {
            let same = known_names.get(&policy.name).filter(|one| is_same(one, policy));
            let since = same.and_then(|same| before?.since.get(&address(same)).copied());
            history.since.insert(address(policy), since.unwrap_or(now));
        }
        let until = now.plus_seconds(REMOVED_GRANT_RETENTION_SECONDS);
        let is_gone = |one: &&Arc<AuthorizationPolicy>| {
            let own = names.get(&one.name);
            own.is_none_or(|own| !is_same(own, one))
        };
        let gone = known.iter().filter(is_gone).map(|one| (Arc::clone(one), until));
        let earlier = before.map_or(&[][..], |before| before.former.as_slice());
        let earlier = earlier.iter().filter(|(_, until)| now < *until).cloned();
        history.former = earlier.chain(gone).collect();
        let too_many = history.former.len().saturating_sub(MAX_FORMER);
        history.former.drain(..too_many);
        history.kept = policies;
        history
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.former.is_empty()
    }

    /// Whether removals are unknown that happened while a decision that an API server still caches
    /// at `now` was made.
    pub(crate) fn history_is_too_short(&self, now: Time) -> bool {
        now < self.began.plus_seconds(REMOVED_GRANT_RETENTION_SECONDS)
    }

    /// Whether `policy` is so new at `now` that other gateways may not have it. A policy that is
    /// not in the history is not new: without tracking, for example offline, none is.
    pub(crate) fn is_new(&self, policy: &Arc<AuthorizationPolicy>, now: Time) -> bool {
        let since = self.since.get(&address(policy));
        since.is_some_and(|since| now < since.plus_seconds(NEW_GRANT_DELAY_SECONDS))
    }

    /// The policies that were removed or changed recently.
    pub(crate) fn former(&self) -> impl Iterator<Item = &Arc<AuthorizationPolicy>> {
        self.former.iter().map(|(policy, _)| policy)
    }

    /// Whether `policy`, which was removed or changed, is still checked at `now`.
    pub(crate) fn still_checks(&self, policy: &Arc<AuthorizationPolicy>, now: Time) -> bool {
        let mut former = self.former.iter();
        former.any(|(one, until)| Arc::ptr_eq(one, policy) && now < *until)
    }
}

/// The address of a policy, which identifies it as long as it exists.
fn address(policy: &Arc<AuthorizationPolicy>) -> usize {
    Arc::as_ptr(policy).addr()
}

/// Whether both grant the same under the same name.
fn is_same(one: &Arc<AuthorizationPolicy>, other: &Arc<AuthorizationPolicy>) -> bool {
    let parts = |policy: &AuthorizationPolicy| {
        (
            policy.name.clone(),
            policy.subjects.clone(),
            policy.exclude_subjects.clone(),
            policy.resource_rules.clone(),
            policy.conditions.clone(),
            policy.object_conditions.clone(),
            policy.validity,
        )
    };
    Arc::ptr_eq(one, other) || parts(one) == parts(other)
}

// === impl Attributes ===

impl Attributes<'_> {
    /// Whether an API server with the AuthorizationConfiguration that `portcullis init` writes
    /// calls no webhook for this request: the user is in `system:masters`, which is allowed
    /// everything, or runs the cluster.
    #[must_use]
    pub fn skips_authorization_webhook(&self) -> bool {
        let user = &*self.user.name;
        let is_in = |group: &str| self.user.groups.iter().any(|one| one == group);
        let is_of_nodes = match &self.target {
            Target::Resource(resource) => resource.group.is_empty() && resource.resource == "nodes",
            Target::NonResource { .. } => false,
        };
        is_in(MASTERS)
            || is_in(KUBE_SYSTEM_ACCOUNTS)
            || is_in(NODES) && user.starts_with(NODE_PREFIX)
            || CONTROL_PLANE_USERS.contains(&user)
            || user == KUBELET_CLIENT && is_of_nodes
    }
}

// === impl NotGranted ===

/// The reason, and what to do about it.
impl fmt::Display for NotGranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Self::AtValidate => "/validate decides, where the object is known",
            Self::NotReviewed => {
                "/validate is not known to see the writes to this cluster: set `admission` in the cluster's \
                entry of `clusters`"
            }
            Self::LeftOut => {
                "the webhook configurations of `portcullis init` exclude this resource or namespace, or no \
                watched CustomResourceDefinition defines it, so /validate would not see it"
            }
            Self::NotCovered(why) => {
                return write!(
                    f,
                    "no webhook configuration of the cluster is sure to send the request to /validate: {why}"
                );
            }
            Self::NeverRefused => "/validate never refuses this user",
            Self::New => {
                "it is new, and other gateways may not have it yet: it takes effect after 10 seconds"
            }
        };
        f.write_str(why)
    }
}
