//! The webhooks of one phase, indexed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Request;
use super::matching::{Equivalents, Index, Mismatch};
use super::trace::{MatchFinding, Recorder, TraceStep};
use super::webhook::{Webhook, WebhookConfiguration};

/// Webhooks in the order in which they are asked: those of static configurations first, then
/// that of the names of their configurations, then of the lists
/// (`apiserver/pkg/admission/configuration/{mutating,validating}_webhook_manager.go`,
/// `…/plugin/webhook/generic/composite_webhook_source.go`).
#[derive(Debug)]
pub(crate) struct Webhooks {
    listed: Vec<Arc<ListedWebhook>>,
    /// The names of configurations, those without webhooks among them.
    configurations: BTreeSet<String>,
    index: Index<ListedWebhook>,
}

/// A webhook in its place.
#[derive(Debug)]
pub(crate) struct ListedWebhook {
    pub(crate) webhook: Arc<Webhook>,
    /// Its place in its configuration.
    pub(crate) position: usize,
    /// Whether it decides nothing.
    pub(crate) is_shadow: bool,
    /// Whether its configuration is static.
    is_static: bool,
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

    /// Those that could match, each with its place, rising. What is nowhere stored is shown to
    /// none, what configures admission to those of static configurations alone.
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

    /// Reports those that [`candidates`](Self::candidates) leaves out.
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

    /// Whether there is a configuration of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.configurations.contains(name)
    }

    /// Each, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        self.listed.iter().map(|listed| &listed.webhook)
    }

    /// Those in shadow.
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

    /// Why it is not shown such objects whatever its rules say (`Dispatch` of
    /// `apiserver/pkg/admission/plugin/webhook/generic/webhook.go`).
    fn exemption(&self, request: &Request<'_>) -> Option<Mismatch> {
        if request.request_resource.is_virtual() {
            return Some(Mismatch::Exempt);
        }
        (request.is_admission_configuration() && !self.is_static).then_some(Mismatch::NotStatic)
    }
}
