//! AccessRequests: a ClusterRole for a limited time, requested by one user and approved by others.
//!
//! ```text
//! requested ─▶ approved ─▶ … ─▶ the last approval that is required ─▶ + duration ─▶ ended
//!          └─▶ denied, withdrawn, deleted: grants nothing from then on
//! ```
//!
//! An AccessRequest grants what a binding of its requester to the ClusterRole would grant, in each
//! of its namespaces or in the whole cluster. It also lifts the `liftable` Denies and Limits that
//! it names, for requests that the role allows there.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::rbac::RoleResolver;
use super::{AccessRequest, Role, RoleKind, RoleRef};
use super::{Binding, Subject};
use crate::model::{Attributes, Target, Time, User, Validity};

/// How far the time of an approval may be ahead of this clock, in seconds: the clocks of replicas
/// differ by less.
const MAX_AHEAD_SECONDS: i64 = 60;

/// `authorization.accessRequests` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRequestSettings {
    /// The maximum time for which an AccessRequest grants, even if it requests more.
    pub max_duration_seconds: i64,
    /// How many users other than the requester must approve an AccessRequest; at least one.
    pub approvals: usize,
}

/// Which AccessRequests of a cluster grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRequestTrust {
    /// The limits of what they grant.
    pub settings: AccessRequestSettings,
    /// AccessRequests created after this time are known to have passed `/mutate` and `/validate`;
    /// earlier ones grant nothing. `None`: all grant.
    pub since: Option<Time>,
}

/// The state of an AccessRequest at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessRequestState {
    /// Approvals are missing.
    Pending,
    /// It grants its role.
    InForce,
    /// It has granted its role, and has ended.
    Ended,
    /// Somebody denied it.
    Denied,
    /// Somebody withdrew it, or it is being deleted.
    Withdrawn,
    /// It is not known to have passed `/mutate` and `/validate`, or its last approval lies in the
    /// future.
    Untrusted,
}

/// An approved AccessRequest, with what it grants.
#[derive(Debug, Clone)]
pub(crate) struct AccessGrant {
    pub(crate) request: Arc<AccessRequest>,
    /// `None` if the ClusterRole does not exist.
    role: Option<Arc<Role>>,
    /// The users whose approvals were required.
    approvers: Box<[String]>,
    from: Time,
    until: Time,
}

/// The approved AccessRequests of a cluster, by the name of the requester.
#[derive(Debug, Default)]
pub(crate) struct AccessGrants(HashMap<String, Vec<AccessGrant>>);

// === impl AccessRequest ===

impl AccessRequest {
    /// The period in which it grants, according to its approvals: its first instant, and the first
    /// instant after it. `None` if there are too few approvals.
    #[must_use]
    pub fn period(&self, settings: AccessRequestSettings) -> Option<(Time, Time)> {
        let mut approvers = BTreeSet::new();
        let mut from = None::<Time>;
        for entry in &self.approvals {
            if entry.username != self.requester.username && approvers.insert(entry.username.as_str()) {
                from = from.max(Some(entry.time));
            }
            if approvers.len() >= settings.approvals.max(1) {
                let seconds = self.duration_seconds.min(settings.max_duration_seconds);
                return from.map(|from| (from, from.plus_seconds(seconds)));
            }
        }
        None
    }

    /// The users who approved it, up to the required number.
    pub fn approvers(&self, settings: AccessRequestSettings) -> impl Iterator<Item = &str> {
        let own = self.requester.username.as_str();
        let mut seen = BTreeSet::new();
        let names = self.approvals.iter().map(|entry| entry.username.as_str());
        let names = names.filter(move |name| *name != own && seen.insert(*name));
        names.take(settings.approvals.max(1))
    }

    /// Whether it is known to have passed `/mutate` and `/validate`.
    fn is_believed(&self, trust: AccessRequestTrust) -> bool {
        match trust.since {
            None => true,
            Some(since) => self.created.is_some_and(|created| since < created),
        }
    }

    /// Its state at `now`. With `None` as `trust`, no AccessRequest of the cluster grants.
    #[must_use]
    pub fn state(&self, trust: Option<AccessRequestTrust>, now: Time) -> AccessRequestState {
        let Some(trust) = trust.filter(|trust| self.is_believed(*trust)) else {
            return AccessRequestState::Untrusted;
        };
        if self.is_withdrawn {
            return AccessRequestState::Withdrawn;
        }
        if self.is_denied {
            return AccessRequestState::Denied;
        }
        match self.period(trust.settings) {
            None => AccessRequestState::Pending,
            Some((from, _)) if now.plus_seconds(MAX_AHEAD_SECONDS) < from => AccessRequestState::Untrusted,
            Some((_, until)) if until <= now => AccessRequestState::Ended,
            Some(_) => AccessRequestState::InForce,
        }
    }

    /// Whether `user` is the requester.
    #[must_use]
    pub fn is_requested_by(&self, user: &User<'_>) -> bool {
        self.requester.username == user.name && self.requester.uid == user.uid
    }
}

// === impl AccessRequestSettings and AccessRequestState ===

impl Default for AccessRequestSettings {
    /// The defaults of the configuration: eight hours, and one approval.
    fn default() -> Self {
        Self {
            max_duration_seconds: 8 * 3600,
            approvals: 1,
        }
    }
}

impl AccessRequestState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::InForce,
        Self::Ended,
        Self::Denied,
        Self::Withdrawn,
        Self::Untrusted,
    ];

    /// The value of the metric's label `state`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InForce => "inForce",
            Self::Ended => "ended",
            Self::Denied => "denied",
            Self::Withdrawn => "withdrawn",
            Self::Untrusted => "disbelieved",
        }
    }
}

// === impl AccessGrants ===

impl AccessGrants {
    /// The approved ones of `requests`, whenever they grant; `None` if there are none.
    pub(crate) fn new(
        requests: &[Arc<AccessRequest>],
        roles: &[Arc<Role>],
        trust: AccessRequestTrust,
    ) -> Option<Self> {
        if requests.is_empty() {
            return None;
        }
        let roles = RoleResolver::new(roles);
        let mut by_requester: HashMap<String, Vec<AccessGrant>> = HashMap::new();
        for request in requests {
            let is_over = request.is_denied || request.is_withdrawn || !request.is_believed(trust);
            let Some((from, until)) = request.period(trust.settings).filter(|_| !is_over) else {
                continue;
            };
            let reference = RoleRef {
                kind: RoleKind::ClusterRole,
                name: request.role.clone(),
            };
            let own = by_requester
                .entry(request.requester.username.clone())
                .or_default();
            own.push(AccessGrant {
                request: Arc::clone(request),
                role: roles.resolve(&reference, "").ok().cloned(),
                approvers: request.approvers(trust.settings).map(str::to_owned).collect(),
                from,
                until,
            });
        }
        for own in by_requester.values_mut() {
            // The last to end comes first, so that a search can stop at one that has ended.
            own.sort_by(|one, other| {
                let names = one.request.name.cmp(&other.request.name);
                other.until.cmp(&one.until).then(names)
            });
        }
        (!by_requester.is_empty()).then_some(Self(by_requester))
    }

    /// The grants of the user in force at `now`, the last to end first.
    pub(crate) fn of(&self, user: &User<'_>, now: Time) -> impl Iterator<Item = &AccessGrant> {
        let own = self.0.get(user.name.as_ref()).map_or(&[][..], Vec::as_slice);
        let own = own.iter().take_while(move |grant| now < grant.until);
        own.filter(move |grant| {
            grant.from <= now.plus_seconds(MAX_AHEAD_SECONDS) && grant.request.requester.uid == user.uid
        })
    }

    /// The grants of all users that end after `now`, in the order in which those of a user are
    /// tried.
    pub(crate) fn ending_after(&self, now: Time) -> Vec<&AccessGrant> {
        let all = self.0.values().flatten();
        let mut found: Vec<_> = all.filter(|grant| now < grant.until).collect();
        let order = |grant: &AccessGrant| (std::cmp::Reverse(grant.until), grant.request.name.clone());
        found.sort_by_cached_key(|grant| order(grant));
        found
    }

    /// The grants of all users in force at `now`, by name.
    pub(crate) fn in_force(&self, now: Time) -> Vec<&AccessGrant> {
        let all = self.0.values().flatten();
        let is_in_force =
            |grant: &&AccessGrant| now < grant.until && grant.from <= now.plus_seconds(MAX_AHEAD_SECONDS);
        let mut found: Vec<_> = all.filter(is_in_force).collect();
        found.sort_by(|one, other| one.request.name.cmp(&other.request.name));
        found
    }
}

// === impl AccessGrant ===

impl AccessGrant {
    /// The rule of the role that allows the request, if the role is granted there.
    pub(crate) fn allowing_rule(&self, attributes: &Attributes<'_>, visited: &mut usize) -> Option<usize> {
        let namespaces = &self.request.namespaces;
        let is_there = match &attributes.target {
            _ if namespaces.is_empty() => true,
            Target::Resource(request) => namespaces.iter().any(|one| *one == request.namespace),
            Target::NonResource { .. } => false,
        };
        let role = self.role.as_ref().filter(|_| is_there)?;
        role.rules.first_allowing(attributes, visited)
    }

    /// The granted role; `None` if the ClusterRole does not exist.
    pub(crate) const fn role(&self) -> Option<&Arc<Role>> {
        self.role.as_ref()
    }

    /// The period in which it grants.
    pub(crate) fn period(&self) -> Validity {
        Validity {
            not_before: Some(self.from.plus_seconds(-MAX_AHEAD_SECONDS)),
            not_after: Some(self.until),
        }
    }

    /// Bindings that would grant the same.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = Binding> {
        let everywhere = self.request.namespaces.is_empty().then(String::new);
        let namespaces = self.request.namespaces.iter().cloned().chain(everywhere);
        namespaces.map(|namespace| Binding {
            namespace,
            name: self.request.name.clone(),
            role: RoleRef {
                kind: RoleKind::ClusterRole,
                name: self.request.role.clone(),
            },
            subjects: vec![Subject::user(&self.request.requester.username)],
            until: Some(self.until),
        })
    }

    /// Whether it names the AuthorizationPolicy `name` to be lifted.
    pub(crate) fn lifts(&self, name: &str) -> bool {
        self.request.lifts.iter().any(|one| one == name)
    }

    /// The users whose approvals were required, in the order of their approvals.
    pub(crate) fn approvers(&self) -> impl Iterator<Item = &str> {
        self.approvers.iter().map(String::as_str)
    }

    /// The first instant at which it no longer grants.
    pub(crate) const fn until(&self) -> Time {
        self.until
    }
}
