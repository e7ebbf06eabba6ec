//! Indexes of what may apply to a request: the policies of one kind with their bindings, and the
//! webhooks of one phase.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::matching::{Equivalents, Index, Mismatch};
use super::run::{MatchFinding, Recorder, TraceStep};
use super::webhook::{Webhook, WebhookConfiguration};
use super::{Applicability, MutatingPolicy, PolicyBinding, Request, ValidatingPolicy};
use crate::model::CauseKind;

/// Policies of one kind with their bindings. Static policies come first, then others by name
/// (`apiserver/pkg/admission/plugin/policy/generic/composite_policy_source.go`).
#[derive(Debug)]
pub(crate) struct BoundPolicies<P> {
    bound: Vec<Arc<BoundPolicy<P>>>,
    /// The names of policies without a binding.
    unbound: BTreeSet<String>,
    index: Index<BoundPolicy<P>>,
}

/// A policy and its bindings, sorted by name.
#[derive(Debug)]
pub(crate) struct BoundPolicy<P> {
    pub(crate) policy: Arc<P>,
    pub(crate) bindings: Vec<Arc<PolicyBinding>>,
}

/// A policy of either kind.
pub(crate) trait Policy {
    fn applicability(&self) -> &Applicability;
}

/// Webhooks in the order of the calls: static configurations first, then others by name; within a
/// configuration, in the order written
/// (`apiserver/pkg/admission/configuration/{mutating,validating}_webhook_manager.go`,
/// `…/plugin/webhook/generic/composite_webhook_source.go`).
#[derive(Debug)]
pub(crate) struct Webhooks {
    listed: Vec<Arc<ListedWebhook>>,
    /// The names of configurations, including those without webhooks.
    configurations: BTreeSet<String>,
    index: Index<ListedWebhook>,
}

/// A webhook with its position.
#[derive(Debug)]
pub(crate) struct ListedWebhook {
    pub(crate) webhook: Arc<Webhook>,
    /// Its index in its configuration.
    pub(crate) position: usize,
    /// Whether it is in shadow mode.
    pub(crate) is_shadow: bool,
    /// Whether its configuration is static.
    is_static: bool,
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

    /// The policies that could apply, in order, with their positions. Only static policies apply to
    /// policies and bindings (`Dispatch` of
    /// `apiserver/pkg/admission/plugin/policy/generic/plugin.go`).
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

    /// Records those that [`candidates`](Self::candidates) excludes.
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

    /// The bound policies with their bindings, in order.
    pub(crate) fn listed(&self) -> Vec<(&Applicability, &[Arc<PolicyBinding>])> {
        let bound = self.bound.iter();
        bound
            .map(|bound| (bound.policy.applicability(), bound.bindings.as_slice()))
            .collect()
    }

    /// The bound policy of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&P> {
        let mut bound = self.bound.iter();
        let found = bound.find(|bound| bound.policy.applicability().name == name);
        found.map(|bound| &*bound.policy)
    }

    /// The names of policies without a binding.
    pub(crate) fn unbound(&self) -> &BTreeSet<String> {
        &self.unbound
    }

    /// Whether a policy of this name exists, bound or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().any(|own| own == name) || self.unbound.contains(name)
    }

    /// The names of the bound policies, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.applicabilities().map(|policy| policy.name.as_str())
    }

    /// The applicability of the bound policies, in order.
    pub(crate) fn applicabilities(&self) -> impl Iterator<Item = &Applicability> {
        self.bound.iter().map(|bound| bound.policy.applicability())
    }
}

// === impl BoundPolicy ===

impl<P: Policy> BoundPolicy<P> {
    /// The bindings that may apply to `request`: if its object is a policy or binding, only static
    /// ones.
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

// === impl Webhooks ===

impl Webhooks {
    pub(crate) fn new(
        mut configurations: Vec<Arc<WebhookConfiguration>>,
        shadow: &BTreeSet<String>,
        equivalents: &Equivalents,
    ) -> Self {
        configurations
            .sort_by(|one, other| (!one.is_static, &one.name).cmp(&(!other.is_static, &other.name)));
        let of = |configuration: &Arc<WebhookConfiguration>| {
            let webhooks = configuration.webhooks.iter().enumerate();
            let listed = webhooks.map(|(position, webhook)| ListedWebhook {
                webhook: Arc::clone(webhook),
                position,
                is_static: configuration.is_static,
                is_shadow: shadow.contains(&webhook.name) || shadow.contains(&webhook.id()),
            });
            listed.map(Arc::new).collect::<Vec<_>>()
        };
        let listed: Vec<Arc<ListedWebhook>> = configurations.iter().flat_map(of).collect();
        let constraints = listed
            .iter()
            .map(|listed| (&listed.webhook.constraints, Arc::clone(listed)));
        Self {
            index: Index::new(constraints, equivalents),
            configurations: configurations
                .iter()
                .map(|configuration| configuration.name.clone())
                .collect(),
            listed,
        }
    }

    /// The webhooks that could match, with their positions, in ascending order. Webhooks are not
    /// called for resources that are not stored, and only static ones for objects that configure
    /// admission.
    pub(crate) fn candidates(
        &self,
        request: &Request<'_>,
        only: Option<&str>,
    ) -> Vec<(usize, Arc<ListedWebhook>)> {
        if self.listed.is_empty() {
            return Vec::new();
        }
        let candidates = self.index.candidates(request).into_iter();
        candidates
            .filter(|(_, listed)| {
                only.is_none_or(|only| listed.is_of(only)) && listed.exemption(request).is_none()
            })
            .map(|(place, listed)| (place, Arc::clone(listed)))
            .collect()
    }

    /// Records those that [`candidates`](Self::candidates) excludes.
    #[cold]
    pub(crate) fn record_others(&self, request: &Request<'_>, only: Option<&str>, recorder: &dyn Recorder) {
        let candidates = self.candidates(request, only);
        for (place, listed) in self.listed.iter().enumerate() {
            if only.is_none_or(|only| listed.is_of(only)) && !is_among(place, &candidates) {
                recorder.record(TraceStep::Webhook {
                    webhook: &listed.webhook,
                    finding: MatchFinding::Misses(listed.exemption(request).unwrap_or(Mismatch::Rules)),
                });
            }
        }
    }

    /// Whether a configuration of this name exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.configurations.contains(name)
    }

    /// The webhooks, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        self.listed.iter().map(|listed| &listed.webhook)
    }

    /// The webhooks in shadow mode.
    pub(crate) fn shadows(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        let shadows = self.listed.iter().filter(|listed| listed.is_shadow);
        shadows.map(|listed| &listed.webhook)
    }
}

fn is_among(place: usize, candidates: &[(usize, Arc<ListedWebhook>)]) -> bool {
    candidates.iter().any(|(candidate, _)| *candidate == place)
}

// === impl ListedWebhook ===

impl ListedWebhook {
    fn is_of(&self, configuration: &str) -> bool {
        self.webhook.configuration == configuration
    }

    /// Why it is not called for the object, whatever its rules say (`Dispatch` of
    /// `apiserver/pkg/admission/plugin/webhook/generic/webhook.go`).
    fn exemption(&self, request: &Request<'_>) -> Option<Mismatch> {
        if request.request_resource.is_virtual() {
            return Some(Mismatch::Exempt);
        }
        (request.is_admission_configuration() && !self.is_static).then_some(Mismatch::NotStatic)
    }
}
