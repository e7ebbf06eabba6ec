//! Bound policies: the policies of one kind with their bindings, indexed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::matching::{Equivalents, Index, Mismatch};
use super::policy::{Applicability, PolicyBinding};
use super::trace::{MatchFinding, Recorder, TraceStep};
use super::{MutatingPolicy, Request, ValidatingPolicy};
use crate::engine::CauseKind;

/// Policies of one kind with their bindings, static ones first, then by name
/// (`apiserver/pkg/admission/plugin/policy/generic/composite_policy_source.go`).
#[derive(Debug)]
pub(crate) struct BoundPolicies<P> {
    bound: Vec<Arc<BoundPolicy<P>>>,
    /// The names of those without binding.
    unbound: BTreeSet<String>,
    index: Index<BoundPolicy<P>>,
}

/// A policy and its bindings, by name. One without bindings does nothing.
#[derive(Debug)]
pub(crate) struct BoundPolicy<P> {
    pub(crate) policy: Arc<P>,
    pub(crate) bindings: Vec<Arc<PolicyBinding>>,
}

/// A policy that may be bound.
pub(crate) trait Policy {
    fn applicability(&self) -> &Applicability;
}

// === impl BoundPolicies ===

impl<P: Policy> BoundPolicies<P> {
    pub(crate) fn new(
        policies: Vec<Arc<P>>,
        bindings: Vec<Arc<PolicyBinding>>,
        equivalents: &Equivalents,
    ) -> Self {
        let mut by_policy: HashMap<String, BTreeMap<String, Arc<PolicyBinding>>> = HashMap::new();
        for binding in bindings {
            by_policy
                .entry(binding.policy.clone())
                .or_default()
                .insert(binding.name.clone(), binding);
        }
        let named: BTreeMap<String, Arc<P>> = policies
            .into_iter()
            .map(|policy| (policy.applicability().name.clone(), policy))
            .collect();
        let (mut bound, mut unbound) = (Vec::<Arc<BoundPolicy<P>>>::new(), BTreeSet::new());
        for (name, policy) in named {
            match by_policy.remove(&name) {
                Some(bindings) => bound.push(Arc::new(BoundPolicy {
                    policy,
                    bindings: bindings.into_values().collect(),
                })),
                None => {
                    unbound.insert(name);
                }
            }
        }
        bound.sort_by_key(|bound| !bound.is_static());
        let constraints = bound.iter().map(|bound: &Arc<BoundPolicy<P>>| {
            (&bound.policy.applicability().constraints, Arc::clone(bound))
        });
        let index = Index::new(constraints, equivalents);
        Self {
            bound,
            unbound,
            index,
        }
    }

    /// Those that could apply, in order, each with its place. Of policies and bindings only
    /// static ones do (`Dispatch` of `apiserver/pkg/admission/plugin/policy/generic/plugin.go`).
    pub(crate) fn candidates(
        &self,
        request: &Request<'_>,
        only: Option<&str>,
    ) -> impl Iterator<Item = (usize, &BoundPolicy<P>)> {
        let candidates = self.index.candidates(request).into_iter();
        let are_all_meant = !request.request_resource.is_policy();
        candidates
            .map(|(place, bound)| (place, &**bound))
            .filter(move |(_, bound)| are_all_meant || bound.is_static())
            .filter(move |(_, bound)| only.is_none_or(|only| bound.policy.applicability().name == only))
    }

    /// Reports those that [`candidates`](Self::candidates) leaves out.
    #[cold]
    pub(crate) fn record_others(
        &self,
        kind: CauseKind,
        request: &Request<'_>,
        only: Option<&str>,
        recorder: &dyn Recorder,
    ) {
        let candidates = self.index.candidates(request);
        let are_all_meant = !request.request_resource.is_policy();
        let miss = |(place, policy): (usize, &'_ Applicability)| {
            if !are_all_meant && !policy.is_static {
                return Some(Mismatch::NotStatic);
            }
            let is_candidate = candidates.iter().any(|(candidate, _)| *candidate == place);
            (!is_candidate).then_some(Mismatch::Rules)
        };
        let others = self
            .applicabilities()
            .enumerate()
            .filter_map(|(place, policy)| Some((policy.name.as_str(), miss((place, policy))?)));
        let unbound = self.unbound.iter().map(|name| (name.as_str(), Mismatch::Unbound));
        for (name, miss) in others.chain(unbound) {
            if only.is_none_or(|only| only == name) {
                let finding = MatchFinding::Misses(miss);
                recorder.record(TraceStep::Policy { kind, name, finding });
            }
        }
    }

    /// Those that are bound with their bindings, by place.
    pub(crate) fn listed(&self) -> Vec<(&Applicability, &[Arc<PolicyBinding>])> {
        let bound = self.bound.iter();
        bound
            .map(|bound| (bound.policy.applicability(), bound.bindings.as_slice()))
            .collect()
    }

    /// The bound one of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&P> {
        let mut bound = self.bound.iter();
        let found = bound.find(|bound| bound.policy.applicability().name == name);
        found.map(|bound| &*bound.policy)
    }

    /// The names of the others.
    pub(crate) fn unbound(&self) -> &BTreeSet<String> {
        &self.unbound
    }

    /// Whether there is one of this name, bound or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().any(|own| own == name) || self.unbound.contains(name)
    }

    /// The names of those that are bound, by place.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.applicabilities().map(|policy| policy.name.as_str())
    }

    /// When those that are bound apply, by place.
    pub(crate) fn applicabilities(&self) -> impl Iterator<Item = &Applicability> {
        self.bound.iter().map(|bound| bound.policy.applicability())
    }
}

// === impl BoundPolicy ===

impl<P: Policy> BoundPolicy<P> {
    /// The bindings that count for `request`: where it is about a policy or binding, static ones.
    pub(crate) fn bindings_for(&self, request: &Request<'_>) -> impl Iterator<Item = &Arc<PolicyBinding>> {
        let are_all_meant = !request.request_resource.is_policy();
        let bindings = self.bindings.iter();
        bindings.filter(move |binding| are_all_meant || binding.is_static)
    }

    fn is_static(&self) -> bool {
        self.policy.applicability().is_static
    }
}

impl Policy for ValidatingPolicy {
    fn applicability(&self) -> &Applicability {
        &self.applicability
    }
}

impl Policy for MutatingPolicy {
    fn applicability(&self) -> &Applicability {
        &self.applicability
    }
}
