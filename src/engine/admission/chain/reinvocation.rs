//! Who is to run once more in the second pass.
//!
//! Upstream has this twice, for policies and for webhooks:
//! `apiserver/pkg/admission/plugin/{policy,webhook}/mutating/reinvocationcontext.go`.

use std::collections::BTreeSet;

/// Those that ran and want to see later changes, and those of them that are to.
#[derive(Debug, Clone)]
pub(in crate::engine::admission) struct Reinvocable<K> {
    /// After these, nothing has changed yet.
    ran: BTreeSet<K>,
    /// After these, something has.
    again: BTreeSet<K>,
}

impl<K: Ord> Reinvocable<K> {
    pub(in crate::engine::admission) const fn new() -> Self {
        Self {
            ran: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    /// `AddReinvocable…ToPreviouslyInvoked`: this one, with the policy IfNeeded, ran.
    pub(in crate::engine::admission) fn ran(&mut self, key: K) {
        self.ran.insert(key);
    }

    /// `RequireReinvokingPreviouslyInvokedPlugins`: the object changed.
    pub(in crate::engine::admission) fn require(&mut self) {
        self.again.append(&mut self.ran);
    }

    /// `ShouldReinvoke…`: whether this one is to run in the second pass.
    pub(in crate::engine::admission) fn is_required(&self, key: &K) -> bool {
        self.again.contains(key)
    }

    /// Whether there is any.
    pub(in crate::engine::admission) fn is_any_required(&self) -> bool {
        !self.again.is_empty()
    }
}
