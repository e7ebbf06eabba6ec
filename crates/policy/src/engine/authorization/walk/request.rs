//! A request, looked up once in the set that is asked.

use std::cell::OnceCell;

use crate::engine::authorization::condition::{Condition, Conditions, RequestActivation};
use crate::engine::authorization::index::{Ids, Query};
use crate::engine::authorization::{AuthorizationPolicy, Mode, PolicySet};
use crate::engine::{Attributes, Time};

/// A request to a policy set, and what of it is worked out at most once.
pub(crate) struct WalkRequest<'s, 'r> {
    pub(super) set: &'s PolicySet,
    pub(super) attributes: &'r Attributes<'r>,
    pub(super) now: Time,
    pub(super) who: Ids,
    pub(super) query: Query<'s, 'r>,
    activation: RequestActivation<'r>,
    /// Of its own, so that no policy in Shadow uses up what the others may cost.
    shadow_activation: RequestActivation<'r>,
    protected: OnceCell<bool>,
}

impl<'s, 'r> WalkRequest<'s, 'r> {
    #[inline]
    pub(crate) fn new(set: &'s PolicySet, attributes: &'r Attributes<'r>, now: Time) -> Self {
        Self {
            set,
            attributes,
            now,
            who: set.subjects.find(&attributes.user),
            query: Query::new(attributes, &set.symbols, &set.namespaces, &set.cluster_scoped),
            activation: RequestActivation::new(attributes),
            shadow_activation: RequestActivation::new(attributes),
            protected: OnceCell::new(),
        }
    }

    /// Whether the policy holds now.
    pub(super) fn is_in_force(&self, policy: &AuthorizationPolicy) -> bool {
        policy.validity.contains(self.now)
    }

    /// Whether no Deny can hold up the request.
    pub(super) fn is_protected(&self) -> bool {
        *self
            .protected
            .get_or_init(|| self.set.protection.covers(self.attributes))
    }

    /// What the conditions of `policy` come to, and what they cost.
    pub(super) fn conditions<'p>(&self, policy: &'p AuthorizationPolicy) -> (Conditions<'p>, u64) {
        let activation = match policy.mode {
            Mode::Enforce => &self.activation,
            Mode::Shadow => &self.shadow_activation,
        };
        let before = activation.remaining();
        let conditions = Condition::all(&policy.conditions, activation);
        (conditions, before.saturating_sub(activation.remaining()))
    }
}
