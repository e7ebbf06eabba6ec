//! Reinvocation: which policies and webhooks run in the second pass.
//!
//! Upstream has this twice, for policies and for webhooks:
//! `apiserver/pkg/admission/plugin/{policy,webhook}/mutating/reinvocationcontext.go`.

use std::collections::BTreeSet;

/// `reinvocationPolicy`, of policies and of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reinvocation {
    /// It runs once.
    Never,
    /// It runs again if others changed the object after it.
    IfNeeded,
}

/// Those that ran and want to see later changes, and those of them that are to.
#[derive(Debug, Clone)]
pub(crate) struct Reinvocable<K> {
    /// After these, nothing has changed yet.
    ran: BTreeSet<K>,
    /// After these, something has.
    again: BTreeSet<K>,
}

impl<K: Ord> Reinvocable<K> {
    pub(crate) const fn new() -> Self {
        Self {
            ran: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    /// `AddReinvocable…ToPreviouslyInvoked`: this one, with the policy IfNeeded, ran.
    pub(crate) fn ran(&mut self, key: K) {
        self.ran.insert(key);
    }

    /// `RequireReinvokingPreviouslyInvokedPlugins`: the object changed.
    pub(crate) fn require(&mut self) {
        self.again.append(&mut self.ran);
    }

    /// Whether there is any that is to run in the second pass.
    pub(crate) fn is_any_required(&self) -> bool {
        !self.again.is_empty()
    }

    /// `ShouldReinvoke…`: whether this one is to run in the second pass.
    pub(crate) fn is_required(&self, key: &K) -> bool {
        self.again.contains(key)
    }
}
