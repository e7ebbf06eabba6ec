//! Other authorizers (webhooks), called if Portcullis' own policies have no opinion.
//!
//! ```text
//! consult: matchConditions, cached answers ──all known──▶ decided, at once
//!             │ one is not
//!             ▼
//! Pending::ask ──▶ the same question already asked? ──yes──▶ wait for its answer
//!                        │ no
//!                        ▼
//!                  call: up to 5 attempts ──▶ api: verify ──▶ cache ──▶ everybody who waits
//! ```
//!
//! Facts: `apiserver/plugin/pkg/authorizer/webhook/webhook.go`.

mod answers;
mod call;
mod consult;
mod entry;
mod question;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{Config, Files};
use crate::telemetry::metrics::UpstreamRecorder;
use portcullis_policy::field::Faults;

pub use consult::{ConsultationEnd, ConsultationStep, Pending};

use entry::WebhookAuthorizer;

/// The entries of `authorization.webhooks`, ready to be asked.
#[derive(Debug, Clone, Default)]
pub struct Authorizers {
    entries: Vec<Arc<WebhookAuthorizer>>,
    files: BTreeSet<PathBuf>,
}

// === impl Authorizers ===

impl Authorizers {
    /// Reads the kubeconfigs of `config`'s entries. An entry that is as it was
    /// in `previous`, credentials included, keeps its connections and its
    /// answers; those of any other begin anew.
    ///
    /// What is returned is complete only where there is no error among the faults.
    #[must_use]
    pub fn build(config: &Config, files: &dyn Files, previous: Option<&Self>) -> (Self, Faults) {
        let mut faults = Faults::new();
        let mut built = Self::default();
        for wanted in &config.authorization.webhooks {
            let (entry, read) = WebhookAuthorizer::build(wanted, config, files, &mut faults);
            built.files.extend(read);
            built.entries.extend(entry.map(|entry| {
                let kept = previous.and_then(|previous| previous.same(&entry));
                kept.unwrap_or_else(|| Arc::new(entry))
            }));
        }
        (built, faults)
    }

    /// Every file that was read or should have been.
    #[must_use]
    pub const fn files(&self) -> &BTreeSet<PathBuf> {
        &self.files
    }

    /// Whether there is nobody to ask.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Their names, in the order in which they are asked.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name())
    }

    /// Counts requests with these from now on, one for each name.
    pub fn record_to(&self, recorders: Vec<UpstreamRecorder>) {
        for (entry, recorder) in self.entries.iter().zip(recorders) {
            entry.record_to(recorder);
        }
    }

    fn same(&self, wanted: &WebhookAuthorizer) -> Option<Arc<WebhookAuthorizer>> {
        let found = self.entries.iter().find(|entry| entry.is_same(wanted));
        found.cloned()
    }
}
