//! Webhooks behind the gateway, called as the API server would call them.
//!
//! ```text
//! Upstreams::call ─▶ in flight? ─▶ breaker closed? ─▶ client ─▶ reply, or CallFailure
//!                        └────────────────┴── at once ───────────▶ CallFailure
//! ```
//!
//! [`client`] makes one POST and is also used for other webhooks. This module adds what
//! admission webhooks need: credentials by host (`settings`), protection (`in_flight`,
//! `breaker`), and keeping both across reloads.
//!
//! It follows `apiserver/pkg/util/webhook/client.go`.

pub mod authorizers;
mod breaker;
pub mod client;
mod settings;
mod webhook;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::config::{Config, HeldBack};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::UpstreamRecorder;
use crate::telemetry::traces::TraceParent;
use portcullis_policy::admission::webhook::{CallFailure, Webhook};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use settings::UpstreamSettings;
use webhook::{CallLimits, FailedCall, Upstream};

use client::CallError;

pub use client::{Reply, ReplyMemory};
pub use settings::{USER_AGENT, UpstreamCredentials, credentials_of};
pub use webhook::Requester;
pub(crate) use webhook::{InFlight, InFlightPermit};

/// The longest timeout of a call, even if its webhook has a longer one: as in
/// `apiserver/pkg/util/webhook/authentication.go`.
pub const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The most webhooks of one cluster, from its files and watched, that are called. Each has a client
/// of its own, and those that match a review are called concurrently.
pub const MAX_WEBHOOKS_OF_CLUSTER: usize = 200;

/// The webhooks of one set of manifests, ready to be called. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upstreams {
    settings: Arc<UpstreamSettings>,
    webhooks: Arc<KnownUpstreams>,
}

/// A webhook of a set of manifests.
#[derive(Debug, Clone, Copy)]
pub struct ConfiguredWebhook<'w> {
    /// The webhook.
    pub webhook: &'w Arc<Webhook>,
    /// The only cluster that it applies to; `None` for every cluster.
    pub cluster: Option<&'w str>,
    /// Whether it comes from the API server of that cluster, and not from a file.
    pub is_watched: bool,
}

impl<'w> ConfiguredWebhook<'w> {
    /// A webhook from a file, for every cluster.
    #[must_use]
    pub const fn everywhere(webhook: &'w Arc<Webhook>) -> Self {
        Self {
            webhook,
            cluster: None,
            is_watched: false,
        }
    }
}

/// Upstreams by the cluster whose settings apply, and by `configuration/name`. One name has several
/// if manifests with different clients use it.
type UpstreamsBySettings = BTreeMap<Option<String>, HashMap<String, Vec<Arc<Upstream>>>>;

/// Upstreams by the address of their webhook in memory.
type UpstreamsByAddress = HashMap<usize, (Arc<Webhook>, Arc<Upstream>)>;

#[derive(Debug, Default)]
struct KnownUpstreams {
    by_owner: UpstreamsBySettings,
    /// By the cluster whose settings apply. Each webhook is kept with its upstream, so that no
    /// other webhook can get its address. Clusters may share a webhook.
    by_address: BTreeMap<Option<String>, UpstreamsByAddress>,
    /// The webhooks beyond [`MAX_WEBHOOKS_OF_CLUSTER`], by cluster and address.
    left_out: BTreeMap<String, HashMap<usize, Arc<Webhook>>>,
}

/// The most time that the gateway reserves to respond before its caller's deadline; it reserves a
/// tenth of the caller's timeout, up to this.
const MAX_MARGIN: Duration = Duration::from_millis(100);

/// When the calls for a review that arrived at `since` must have ended, so that the response
/// reaches the caller before its `deadline`.
#[must_use]
pub fn call_deadline(since: Instant, deadline: Instant) -> Instant {
    let allowed = deadline.saturating_duration_since(since);
    deadline
        .checked_sub(MAX_MARGIN.min(allowed / 10))
        .unwrap_or(deadline)
}

/// Every file that `upstreams` of `config` names.
#[must_use]
pub fn files(config: &Config) -> Vec<PathBuf> {
    settings::files(config)
}

// === impl Upstreams ===

impl Upstreams {
    /// Reads the settings in `upstreams` of `config` and of its `clusters`; there are no webhooks
    /// yet. Settings that cannot be read or used are an error. Errors in the settings of one
    /// cluster go to `held`: its webhooks are called with the settings of `previous`, or not at
    /// all.
    #[must_use]
    pub fn read(config: &Config, previous: Option<&Self>, held: &mut HeldBack) -> (Self, Faults) {
        let previous = previous.map(|previous| &*previous.settings);
        let (settings, faults) = UpstreamSettings::read(config, previous, held);
        let read = Self {
            settings: Arc::new(settings),
            webhooks: Arc::default(),
        };
        (read, faults)
    }

    /// Prepares to call `webhooks` with these settings, without connecting. Webhooks whose client
    /// is unchanged keep the connections, breakers and calls in flight of `previous`. Of the
    /// webhooks that apply to one cluster alone, the first [`MAX_WEBHOOKS_OF_CLUSTER`] are called;
    /// for the others their `failurePolicy` decides.
    #[must_use]
    pub fn with<'w>(
        &self,
        webhooks: impl IntoIterator<Item = ConfiguredWebhook<'w>>,
        previous: Option<&Self>,
    ) -> Self {
        let mut known = KnownUpstreams::default();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for registered in webhooks {
            if let Some(cluster) = registered.cluster {
                let count = counts.entry(cluster).or_default();
                *count += 1;
                if *count > MAX_WEBHOOKS_OF_CLUSTER {
                    known.leave_out(cluster, registered.webhook);
                    continue;
                }
            }
            let owner = self.settings.owner(registered.cluster, registered.is_watched);
            // There are none if the settings of the cluster are invalid.
            let Some(settings) = self.settings.of(owner) else {
                continue;
            };
            let owner = owner.map(str::to_owned);
            let webhook = registered.webhook;
            let before = previous.map(|previous| previous.webhooks.named(&owner, webhook));
            let same = known.by_owner.entry(owner.clone()).or_default();
            let same = same.entry(webhook.id()).or_default();
            let upstream = same
                .iter()
                .find(|upstream| upstream.has_config(&webhook.client))
                .cloned();
            let upstream = upstream.unwrap_or_else(|| {
                let before = before.unwrap_or_default();
                let new = Arc::new(Upstream::new(
                    (webhook.id(), registered.cluster),
                    &webhook.client,
                    settings,
                    before,
                ));
                same.push(Arc::clone(&new));
                new
            });
            let by_address = known.by_address.entry(owner).or_default();
            by_address.insert(address(webhook), (Arc::clone(webhook), upstream));
        }
        Self {
            settings: Arc::clone(&self.settings),
            webhooks: Arc::new(known),
        }
    }

    /// Calls `webhook` about a request of `cluster` with `body` for `requester`, as a part of the
    /// trace of `parent`, and returns a reply with a status from 200 to 206. May be awaited on any
    /// runtime. Without a requester (no request depends on the reply), the call does not count
    /// against any user's share. The reply reserves its size in `memory` while it arrives, and as
    /// long as it is kept.
    ///
    /// # Errors
    ///
    /// There is no reply with one of these statuses within `timeout`. The call fails at once if too
    /// many calls are in flight, or if the webhook was unreachable repeatedly and its failurePolicy
    /// is Fail. The message says what happened, without the name of the webhook.
    pub async fn call(
        &self,
        (cluster, webhook): (&str, &Arc<Webhook>),
        body: impl Into<Bytes>,
        timeout: Duration,
        requester: Option<Requester<'_>>,
        parent: Option<TraceParent>,
        memory: Option<ReplyMemory>,
    ) -> Result<Reply, CallFailure> {
        let failed =
            |reason: &dyn std::fmt::Display| CallFailure::Failed(format!("failed to call webhook: {reason}"));
        let upstream = self.webhooks.of(cluster, webhook).ok_or_else(|| {
            if self.webhooks.is_left_out(cluster, webhook) {
                return failed(&format_args!(
                    "it is not among the first {MAX_WEBHOOKS_OF_CLUSTER} webhooks of its cluster"
                ));
            }
            failed(&"it is not among the manifests in force, or its `upstreams` have errors")
        })?;
        let limits = CallLimits {
            timeout: timeout.min(MAX_CALL_TIMEOUT),
            own_timeout: webhook.timeout,
            failure_policy: webhook.failure_policy,
            reply_bytes: self.settings.reply_bytes,
        };
        let called = upstream
            .call(body.into(), limits, requester, parent, memory)
            .await;
        called.map_err(|error| match error {
            FailedCall::Full(full) => CallFailure::NotMade(full.to_string()),
            // This fails the request whatever the `failurePolicy`: a user must not get past a
            // webhook by filling the memory with replies.
            FailedCall::Call(full @ CallError::NoMemory) => CallFailure::NotMade(full.to_string()),
            error => failed(&error),
        })
    }

    /// Counts calls in `metrics` from now on, and removes the series of webhooks that are neither
    /// here nor among `others`. Returns the recorders of `others`, in their order.
    pub fn observe<'o>(
        &'o self,
        metrics: &Metrics,
        others: impl IntoIterator<Item = &'o str>,
    ) -> Vec<UpstreamRecorder> {
        let all: Vec<&Arc<Upstream>> = self.webhooks.all().collect();
        let names = all.iter().map(|upstream| upstream.id());
        let mut recorders = metrics.upstreams(names.chain(others));
        let of_others = recorders.split_off(all.len());
        for (upstream, recorder) in all.into_iter().zip(recorders) {
            upstream.record_to(recorder);
        }
        of_others
    }

    /// The clusters with more than [`MAX_WEBHOOKS_OF_CLUSTER`] webhooks, and how many of these are
    /// not called.
    pub fn left_out(&self) -> impl Iterator<Item = (&str, usize)> {
        let left_out = self.webhooks.left_out.iter();
        left_out.map(|(cluster, webhooks)| (cluster.as_str(), webhooks.len()))
    }

    /// Logs the clusters with webhooks that are not called, if their number has changed since
    /// `before`.
    pub(crate) fn log_left_out(&self, before: &Self) {
        for (cluster, left_out) in self.left_out() {
            if before.webhooks.left_out.get(cluster).map(HashMap::len) != Some(left_out) {
                tracing::error!(cluster, "{}", describe_left_out(left_out));
            }
        }
    }

    /// Warnings about webhooks that are not called, or can never be, and names in `shadow` of
    /// `config` that no webhook has.
    #[must_use]
    pub fn warnings(&self, config: &Config) -> Faults {
        let all = || self.webhooks.all();
        let mut faults: Vec<Fault> = all().filter_map(|upstream| upstream.warning()).collect();
        faults.extend(self.left_out().map(|(cluster, left_out)| {
            let place = Place {
                object: format!("cluster/{cluster}"),
                ..Place::default()
            };
            Fault::warning(place, FaultKind::TooMany, describe_left_out(left_out))
        }));
        let place = &config.upstreams.access.place;
        let is_known = |shadow: &str| {
            let names = |id: &str| id == shadow || id.rsplit('/').next() == Some(shadow);
            all().any(|upstream| names(upstream.id()))
        };
        // A watched webhook with this name may appear later.
        let shadows = config
            .upstreams
            .shadow
            .iter()
            .filter(|_| config.clusters.is_empty());
        faults.extend(shadows.filter(|shadow| !is_known(shadow)).map(|shadow| {
            let message = format!("there is no webhook `{shadow}` among the manifests");
            Fault::warning(place.at(place.path.field("shadow")), FaultKind::NotFound, message)
        }));
        faults.sort();
        let mut sorted = Faults::new();
        sorted.extend(faults);
        sorted
    }
}

// === impl KnownUpstreams ===

impl KnownUpstreams {
    /// The upstreams of this owner with the name of `webhook`.
    fn named(&self, owner: &Option<String>, webhook: &Webhook) -> &[Arc<Upstream>] {
        let of_owner = self.by_owner.get(owner);
        let named = of_owner.and_then(|by_name| by_name.get(&webhook.id()));
        named.map(Vec::as_slice).unwrap_or_default()
    }

    /// The upstream through which `webhook` is called about a request of `cluster`.
    fn of(&self, cluster: &str, webhook: &Arc<Webhook>) -> Option<&Upstream> {
        let find = |owner: &Option<String>| self.by_address.get(owner)?.get(&address(webhook));
        let found = find(&Some(cluster.to_owned())).or_else(|| find(&None))?;
        Some(&found.1)
    }

    fn leave_out(&mut self, cluster: &str, webhook: &Arc<Webhook>) {
        let left_out = self.left_out.entry(cluster.to_owned()).or_default();
        left_out.insert(address(webhook), Arc::clone(webhook));
    }

    fn is_left_out(&self, cluster: &str, webhook: &Arc<Webhook>) -> bool {
        let left_out = self.left_out.get(cluster);
        left_out.is_some_and(|left_out| left_out.contains_key(&address(webhook)))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.by_owner.values().flat_map(HashMap::values).flatten()
    }
}

/// Describes that this number of webhooks of a cluster is not called.
#[must_use]
pub fn describe_left_out(left_out: usize) -> String {
    format!(
        "{left_out} webhooks are not called, and their failurePolicy applies: the limit for one cluster is \
        {MAX_WEBHOOKS_OF_CLUSTER}"
    )
}

fn address(webhook: &Arc<Webhook>) -> usize {
    Arc::as_ptr(webhook).addr()
}

#[cfg(test)]
pub(crate) mod tests;
