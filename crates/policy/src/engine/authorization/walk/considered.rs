//! What has been learned of a policy or role so far.

use std::slice;
use std::sync::Arc;

use crate::engine::authorization::listed_policy::ListedPolicy;
use crate::engine::authorization::{AuthorizationPolicy, Criterion};

/// How far a group of policies was walked.
pub(super) struct GroupProgress<'s> {
    pub(super) current: Option<Considered<'s>>,
    /// Those of which nothing was told, for a record of everything.
    pub(super) untold: slice::Iter<'s, Arc<ListedPolicy>>,
    pub(super) applied: Option<Applied<'s>>,
}

/// A policy whose rules are being compared.
pub(super) struct Considered<'s> {
    pub(super) listed: &'s ListedPolicy,
    /// The rule that came nearest, and what of it does not fit.
    pub(super) nearest: Option<(usize, Criterion)>,
    /// One of its rules applies: the others do not matter.
    pub(super) settled: bool,
}

/// A policy that decides.
pub(super) struct Applied<'s> {
    pub(super) policy: &'s AuthorizationPolicy,
    pub(super) rule: usize,
    /// The condition that has no result, where that decides.
    pub(super) failed: Option<&'s str>,
}

/// What the rules of a role come to.
pub(super) enum NearestRule {
    /// This one allows.
    Allows(usize),
    /// None does; this one comes nearest.
    Mismatch(usize, Criterion),
    /// There is none.
    NoRule,
}

impl Considered<'_> {
    pub(super) fn note(&mut self, rule: usize, criterion: Criterion) {
        if self.nearest.is_none_or(|(_, nearest)| nearest < criterion) {
            self.nearest = Some((rule, criterion));
        }
    }
}
