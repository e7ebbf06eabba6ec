//! AccessRequests: a ClusterRole for a time, which somebody asked for and somebody else approved.
//!
//! ```text
//! asked ─▶ approved ─▶ … ─▶ the approval that completes the number ─▶ + duration ─▶ ended
//!      └─▶ denied, withdrawn, deleted: grants nothing from then on
//! ```
//!
//! One grants as a binding of its requester to the ClusterRole would, in each of its namespaces or in
//! the whole cluster. It lifts a Deny or Limit that is `liftable` and that it names, for requests that
//! the role allows there.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::rbac::RoleResolver;
use super::{AccessRequest, Role, RoleKind, RoleRef};
use super::{Binding, Subject};
use crate::model::{Attributes, Target, Time, User, Validity};

/// How far ahead of this clock the time of an entry may be, in seconds: the clocks of replicas differ by less.
const MAX_AHEAD_SECONDS: i64 = 60;

/// `authorization.accessRequests` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRequestSettings {
    /// The longest time for which one grants, whatever it asks for.
    pub max_duration_seconds: i64,
    /// How many people must approve one; at least one.
    pub approvals: usize,
}

/// Which AccessRequests of a cluster grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRequestTrust {
    /// What they may grant.
    pub settings: AccessRequestSettings,
    /// Only what was created after this is what `/mutate` and `/validate` made of it; `None`: all is.
    pub since: Option<Time>,
}

/// Where an AccessRequest is on its way, at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessRequestState {
    /// Approvals are missing.
    Pending,
    /// It grants.
    InForce,
    /// It has granted.
    Ended,
    /// Somebody denied it.
    Denied,
    /// Somebody withdrew it, or it is being deleted.
    Withdrawn,
    /// It was not made through `/mutate` and `/validate`, or that is not known, or its time is ahead.
    Disbelieved,
}

/// What an approved AccessRequest grants.
#[derive(Debug, Clone)]
pub(crate) struct AccessGrant {
    pub(crate) request: Arc<AccessRequest>,
    /// `None` where there is no such ClusterRole.
    role: Option<Arc<Role>>,
    /// Those whose approvals it needed.
    approvers: Box<[String]>,
    from: Time,
    until: Time,
}

/// The approved AccessRequests of a cluster, by the name of the requester.
#[derive(Debug, Default)]
pub(crate) struct AccessGrants(HashMap<String, Vec<AccessGrant>>);

// === impl AccessRequest ===

impl AccessRequest {
    /// The first and the last instant, the latter excluded, at which it grants as far as its approvals
    /// say; `None` where these are too few.
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

    /// Those who approved it up to the number that it needs.
    pub fn approvers(&self, settings: AccessRequestSettings) -> impl Iterator<Item = &str> {
        let own = self.requester.username.as_str();
        let mut seen = BTreeSet::new();
        let names = self.approvals.iter().map(|entry| entry.username.as_str());
        let names = names.filter(move |name| *name != own && seen.insert(*name));
        names.take(settings.approvals.max(1))
    }

    /// Whether it was made through `/mutate` and `/validate`.
    fn is_believed(&self, trust: AccessRequestTrust) -> bool {
        match trust.since {
            None => true,
            Some(since) => self.created.is_some_and(|created| since < created),
        }
    }

    /// Where it is at `now`; `None`: nothing is known of a cluster where AccessRequests grant.
    #[must_use]
    pub fn state(&self, trust: Option<AccessRequestTrust>, now: Time) -> AccessRequestState {
        let Some(trust) = trust.filter(|trust| self.is_believed(*trust)) else {
            return AccessRequestState::Disbelieved;
        };
        if self.is_withdrawn {
            return AccessRequestState::Withdrawn;
        }
        if self.is_denied {
            return AccessRequestState::Denied;
        }
        match self.period(trust.settings) {
            None => AccessRequestState::Pending,
            Some((from, _)) if now.plus_seconds(MAX_AHEAD_SECONDS) < from => AccessRequestState::Disbelieved,
            Some((_, until)) if until <= now => AccessRequestState::Ended,
            Some(_) => AccessRequestState::InForce,
        }
    }

    /// Whether a user is the one who asked.
    #[must_use]
    pub fn is_of(&self, user: &User<'_>) -> bool {
        self.requester.username == user.name && self.requester.uid == user.uid
    }
}

// === impl AccessRequestState ===

impl Default for AccessRequestSettings {
    /// What the configuration says where it leaves them out: eight hours, and one approval.
    fn default() -> Self {
        Self {
            max_duration_seconds: 8 * 3600,
            approvals: 1,
        }
    }
}

impl AccessRequestState {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::InForce,
        Self::Ended,
        Self::Denied,
        Self::Withdrawn,
        Self::Disbelieved,
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
            Self::Disbelieved => "disbelieved",
        }
    }
}

// === impl AccessGrants ===

impl AccessGrants {
    /// What `requests` grant at some time; `None` where that is nothing.
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
            // The last to end first, so that the search stops at one that has ended.
            own.sort_by(|one, other| {
                let names = one.request.name.cmp(&other.request.name);
                other.until.cmp(&one.until).then(names)
            });
        }
        (!by_requester.is_empty()).then_some(Self(by_requester))
    }

    /// Those in force at `now` for the user, the last to end first.
    pub(crate) fn of(&self, user: &User<'_>, now: Time) -> impl Iterator<Item = &AccessGrant> {
        let own = self.0.get(user.name.as_ref()).map_or(&[][..], Vec::as_slice);
        let own = own.iter().take_while(move |grant| now < grant.until);
        own.filter(move |grant| {
            grant.from <= now.plus_seconds(MAX_AHEAD_SECONDS) && grant.request.requester.uid == user.uid
        })
    }

    /// Those that grant at `now` or later, of all users, in the order in which those of one user are asked.
    pub(crate) fn since(&self, now: Time) -> Vec<&AccessGrant> {
        let all = self.0.values().flatten();
        let mut found: Vec<_> = all.filter(|grant| now < grant.until).collect();
        let order = |grant: &AccessGrant| (std::cmp::Reverse(grant.until), grant.request.name.clone());
        found.sort_by_cached_key(|grant| order(grant));
        found
    }

    /// Those in force at `now`, of all users, by name.
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
    /// The rule of the role that allows what is asked, where it grants that role.
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

    /// The role that it grants; `None` where there is no such ClusterRole.
    pub(crate) const fn role(&self) -> Option<&Arc<Role>> {
        self.role.as_ref()
    }

    /// When it grants.
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

    /// Whether it names the AuthorizationPolicy `name` among those that it lifts.
    pub(crate) fn lifts(&self, name: &str) -> bool {
        self.request.lifts.iter().any(|one| one == name)
    }

    /// Those whose approvals it needed, in their order.
    pub(crate) fn approvers(&self) -> impl Iterator<Item = &str> {
        self.approvers.iter().map(String::as_str)
    }

    /// The first instant at which it grants no more.
    pub(crate) const fn until(&self) -> Time {
        self.until
    }
}
