//! The webhooks of one phase, indexed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Request;
use super::matching::{Equivalents, Index, Mismatch};
use super::trace::{MatchFinding, Recorder, TraceStep};
use super::webhook::{Webhook, WebhookConfiguration};

/// Webhooks in the order in which they are asked: that of the names of their
/// configurations, then of the lists
/// (`apiserver/pkg/admission/configuration/{mutating,validating}_webhook_manager.go`).
#[derive(Debug)]
pub(super) struct Webhooks {
    listed: Vec<Arc<Listed>>,
    /// The names of configurations, those without webhooks among them.
    configurations: BTreeSet<String>,
    index: Index<Listed>,
}

/// A webhook in its place.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) webhook: Arc<Webhook>,
    /// Its place in its configuration.
    pub(super) position: usize,
    /// Whether it decides nothing.
    pub(super) is_shadow: bool,
}

// === impl Webhooks ===

impl Webhooks {
    pub(super) fn new(
        mut configurations: Vec<Arc<WebhookConfiguration>>,
        shadow: &BTreeSet<String>,
        equivalents: &Equivalents,
    ) -> Self {
        configurations.sort_by(|one, other| one.name.cmp(&other.name));
        let of = |configuration: &Arc<WebhookConfiguration>| {
            let webhooks = configuration.webhooks.iter().enumerate();
            let listed = webhooks.map(|(position, webhook)| Listed {
                webhook: Arc::clone(webhook),
                position,
                is_shadow: shadow.contains(&webhook.name) || shadow.contains(&webhook.id()),
            });
            listed.map(Arc::new).collect::<Vec<_>>()
        };
        let listed: Vec<Arc<Listed>> = configurations.iter().flat_map(of).collect();
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

    /// Those that could match, each with its place, rising. Admission itself and what
    /// is nowhere stored is shown to none.
    pub(super) fn candidates(&self, request: &Request<'_>, only: Option<&str>) -> Vec<(usize, Arc<Listed>)> {
        if self.listed.is_empty() || is_exempt(request) {
            return Vec::new();
        }
        let candidates = self.index.candidates(request).into_iter();
        candidates
            .filter(|(_, listed)| only.is_none_or(|only| listed.is_of(only)))
            .map(|(place, listed)| (place, Arc::clone(listed)))
            .collect()
    }

    /// Reports those that [`candidates`](Self::candidates) leaves out.
    #[cold]
    pub(super) fn record_others(&self, request: &Request<'_>, only: Option<&str>, recorder: &dyn Recorder) {
        let candidates = self.candidates(request, only);
        let miss = if is_exempt(request) {
            Mismatch::Exempt
        } else {
            Mismatch::Rules
        };
        for (place, listed) in self.listed.iter().enumerate() {
            if only.is_none_or(|only| listed.is_of(only)) && !is_among(place, &candidates) {
                recorder.record(TraceStep::Webhook {
                    webhook: &listed.webhook,
                    finding: MatchFinding::Misses(miss),
                });
            }
        }
    }

    /// Whether there is a configuration of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.configurations.contains(name)
    }

    /// Each, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        self.listed.iter().map(|listed| &listed.webhook)
    }

    /// Those in shadow.
    pub(super) fn shadows(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        let shadows = self.listed.iter().filter(|listed| listed.is_shadow);
        shadows.map(|listed| &listed.webhook)
    }
}

fn is_among(place: usize, candidates: &[(usize, Arc<Listed>)]) -> bool {
    candidates.iter().any(|(candidate, _)| *candidate == place)
}

fn is_exempt(request: &Request<'_>) -> bool {
    request.is_admission_configuration() || request.request_resource.is_virtual()
}

// === impl Listed ===

impl Listed {
    fn is_of(&self, configuration: &str) -> bool {
        self.webhook.configuration == configuration
    }
}
