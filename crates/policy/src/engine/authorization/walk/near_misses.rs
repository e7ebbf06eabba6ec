//! The bindings and policies that came nearest to a request that nothing matched.

use std::ptr;

use super::event::{binding_event, policy_event};
use crate::engine::authorization::{AuthorizationPolicy, Binding, Criterion, Event, Finding, Unmatched};

/// At most [`Unmatched::MAX_NEAREST`], the nearest first; of those that are equally near, the one
/// that was noted first.
#[derive(Default)]
pub(super) struct NearMisses<'s>(Vec<NearMiss<'s>>);

struct NearMiss<'s> {
    object: NearMissObject<'s>,
    /// The rule that came nearest; `None` where there is none.
    rule: Option<usize>,
    criterion: Criterion,
}

/// What might have allowed.
#[derive(Clone, Copy)]
pub(super) enum NearMissObject<'s> {
    Binding(&'s Binding),
    Policy(&'s AuthorizationPolicy),
}

// === impl NearMisses ===

impl<'s> NearMisses<'s> {
    /// A rule of `object` does not fit in `criterion`: the later it is looked at, the nearer the
    /// rule. Each object counts once, with its nearest rule.
    pub(super) fn note(&mut self, object: NearMissObject<'s>, rule: Option<usize>, criterion: Criterion) {
        if let Some(known) = self.0.iter().position(|known| known.object.is(object)) {
            if self
                .0
                .get(known)
                .is_some_and(|known| known.criterion >= criterion)
            {
                return;
            }
            self.0.remove(known);
        }
        let place = self.0.partition_point(|known| known.criterion >= criterion);
        if place < Unmatched::MAX_NEAREST {
            let miss = NearMiss {
                object,
                rule,
                criterion,
            };
            self.0.insert(place, miss);
            self.0.truncate(Unmatched::MAX_NEAREST);
        }
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.0.into_iter().map(NearMiss::into_event).collect()
    }
}

// === impl NearMiss ===

impl NearMiss<'_> {
    fn into_event(self) -> Event {
        let finding = Finding::NoMatch {
            rule: self.rule,
            criterion: self.criterion,
        };
        match self.object {
            NearMissObject::Binding(binding) => binding_event(binding, finding),
            NearMissObject::Policy(policy) => policy_event(policy, finding),
        }
    }
}

// === impl NearMissObject ===

impl NearMissObject<'_> {
    /// Whether both are the very same object.
    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Binding(one), Self::Binding(other)) => ptr::eq(one, other),
            (Self::Policy(one), Self::Policy(other)) => ptr::eq(one, other),
            _ => false,
        }
    }
}
