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
//! Facts: `apiserver/pkg/util/webhook/client.go`.

mod breaker;
pub mod client;
#[cfg(test)]
mod fixtures;
mod in_flight;
mod settings;
mod webhook;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::config::{Config, Disk};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::UpstreamRecorder;
use crate::telemetry::traces::TraceParent;
use portcullis_policy::engine::admission::webhook::{CallFailure, Webhook};
use portcullis_policy::field::{Fault, FaultKind, Faults};
use settings::CallSettings;
use webhook::{CallLimits, FailedCall, Upstream};

pub use client::Reply;
pub use in_flight::Requester;
pub use settings::{USER_AGENT, UpstreamCredentials, credentials_of};

/// The most time that a call may take, whoever allows it more: as in
/// `apiserver/pkg/util/webhook/authentication.go`.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The webhooks of one set of manifests, ready to be called. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upstreams {
    settings: Arc<CallSettings>,
    /// By `configuration/name`; more than one where clusters differ in whom that is.
    webhooks: Arc<HashMap<String, Vec<Upstream>>>,
}

/// How much earlier than the caller the gateway gives up: a tenth of the time
/// that it has, but no longer than it takes to answer.
const MARGIN: Duration = Duration::from_millis(100);

/// When calls for a caller that gives up at `deadline` must have ended, so that
/// the answer is on its way in time; the caller's time runs from `since` on.
#[must_use]
pub fn end_of_calls(since: Instant, deadline: Instant) -> Instant {
    let allowed = deadline.saturating_duration_since(since);
    deadline.checked_sub(MARGIN.min(allowed / 10)).unwrap_or(deadline)
}

/// Every file that `upstreams` of `config` is or would be read from.
#[must_use]
pub fn files(config: &Config) -> Vec<PathBuf> {
    CallSettings::read(config, &Disk).1
}

// === impl Upstreams ===

impl Upstreams {
    /// Reads what `upstreams` of `config` names; there is no webhook yet. What
    /// cannot be read or used is an error.
    #[must_use]
    pub fn read(config: &Config) -> (Self, Faults) {
        let (settings, _, faults) = CallSettings::read(config, &Disk);
        let read = Self {
            settings: Arc::new(settings),
            webhooks: Arc::default(),
        };
        (read, faults)
    }

    /// Prepares to call `webhooks` with these settings. Nobody is connected to
    /// yet. Connections, breakers and calls in flight of `previous` go on for
    /// webhooks that are called as before.
    #[must_use]
    pub fn with<'w>(
        &self,
        webhooks: impl IntoIterator<Item = &'w Arc<Webhook>>,
        previous: Option<&Self>,
    ) -> Self {
        let mut built: HashMap<String, Vec<Upstream>> = HashMap::new();
        for webhook in webhooks {
            let id = webhook.id();
            let same = built.entry(id.clone()).or_default();
            if same.iter().any(|upstream| upstream.is(&webhook.client)) {
                continue;
            }
            let before = previous.and_then(|previous| previous.webhooks.get(&id));
            let before = before.map(Vec::as_slice).unwrap_or_default();
            same.push(Upstream::new(id, &webhook.client, &self.settings, before));
        }
        Self {
            settings: Arc::clone(&self.settings),
            webhooks: Arc::new(built),
        }
    }

    /// Asks `webhook` with `body` for `requester`, as a part of the trace of
    /// `parent`, and gives a reply with status 200 to 206. May be awaited on any runtime. Without requester
    /// (no request depends on the reply) no user's share is counted.
    ///
    /// # Errors
    ///
    /// No such reply within `timeout`, at once if too many calls are in flight, or
    /// if the webhook was not there again and again and its failurePolicy is Fail.
    /// The text names what happened, not the webhook.
    pub async fn call(
        &self,
        webhook: &Arc<Webhook>,
        body: impl Into<Bytes>,
        timeout: Duration,
        requester: Option<Requester<'_>>,
        parent: Option<TraceParent>,
    ) -> Result<Reply, CallFailure> {
        let failed =
            |reason: &dyn std::fmt::Display| CallFailure::Failed(format!("failed to call webhook: {reason}"));
        let upstream = self
            .webhooks
            .get(&webhook.id())
            .and_then(|same| same.iter().find(|upstream| upstream.is(&webhook.client)))
            .ok_or_else(|| failed(&"it is not among the manifests in force"))?;
        let limits = CallLimits {
            timeout: timeout.min(TIMEOUT),
            own_timeout: webhook.timeout,
            failure_policy: webhook.failure_policy,
            reply_bytes: self.settings.reply_bytes,
        };
        let called = upstream.call(body.into(), limits, requester, parent).await;
        called.map_err(|error| match error {
            FailedCall::Full(full) => CallFailure::NotMade(full.to_string()),
            error => failed(&error),
        })
    }

    /// Counts calls in `metrics` from now on, and ends the series of whoever is
    /// neither here nor among `others`. The recorders of those, in their order.
    pub fn observe<'o>(
        &'o self,
        metrics: &Metrics,
        others: impl IntoIterator<Item = &'o str>,
    ) -> Vec<UpstreamRecorder> {
        let all: Vec<&Upstream> = self.webhooks.values().flatten().collect();
        let names = all.iter().map(|upstream| upstream.id());
        let mut recorders = metrics.upstreams(names.chain(others));
        let of_others = recorders.split_off(all.len());
        for (upstream, recorder) in all.into_iter().zip(recorders) {
            upstream.record_to(recorder);
        }
        of_others
    }

    /// What deserves a look: webhooks that can never be called, and names in
    /// `shadow` of `config` that no webhook has.
    #[must_use]
    pub fn warnings(&self, config: &Config) -> Faults {
        let all = self.webhooks.values().flatten();
        let mut faults: Vec<Fault> = all.filter_map(Upstream::warning).collect();
        let place = &config.upstreams.place;
        let is_known = |shadow: &str| {
            let of_any = |id: &String| id.rsplit('/').next() == Some(shadow);
            self.webhooks.contains_key(shadow) || self.webhooks.keys().any(of_any)
        };
        // What is watched may be there later.
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

#[cfg(test)]
mod tests;
