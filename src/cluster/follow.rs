//! Follows one cluster: a watch for each kind, and a snapshot saved after changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Client, Config};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};

use super::kind::WatchedKind;
use super::reporter::Reporter;
use super::status::StatusWriter;
use super::store::Store;
use super::watch::Watch;
use super::{client, saved};

/// How long after a change the set is saved: others may come with it.
const SETTLE: Duration = Duration::from_secs(1);

/// How long to wait for a credential that cannot be read just now.
const AGAIN: Duration = Duration::from_secs(5);

/// What is followed of one API server.
pub(super) struct Following {
    pub(super) config: Config,
    /// Restricts what is selected; `None`: nothing is.
    pub(super) labels: Option<String>,
    /// Whether AdmissionExceptions are taken.
    pub(super) exceptions: bool,
    /// Whether the status of objects is written.
    pub(super) writes_status: bool,
    pub(super) snapshot: Option<PathBuf>,
    pub(super) store: Arc<Store>,
    pub(super) reporter: Reporter,
}

// === impl Following ===

impl Following {
    /// Follows it, with the kinds of parameters that are `wanted` at the time,
    /// for as long as it is polled.
    pub(super) async fn run(self, mut wanted: watch::Receiver<BTreeSet<WatchedKind>>) {
        let client = self.client().await;
        let mut tasks = JoinSet::new();
        let mut watches: BTreeMap<WatchedKind, AbortHandle> = BTreeMap::new();
        self.store.await_all();
        tasks.spawn(save(
            self.snapshot.clone(),
            Arc::clone(&self.store),
            self.reporter.clone(),
        ));
        if self.writes_status {
            tasks.spawn(self.status_writer(&client).run());
        }
        loop {
            let mut kinds = self.fixed_kinds();
            kinds.extend(wanted.borrow_and_update().iter().cloned());
            watches.retain(|kind, watch| {
                let keep = kinds.contains(kind);
                if !keep {
                    watch.abort();
                }
                keep
            });
            if self.store.keep(&kinds) {
                self.reporter.changed();
            }
            for kind in kinds {
                let watch = || tasks.spawn(self.watch(&kind, &client).run());
                watches.entry(kind.clone()).or_insert_with(watch);
            }
            if wanted.changed().await.is_err() {
                return;
            }
        }
    }

    fn fixed_kinds(&self) -> BTreeSet<WatchedKind> {
        let fixed = WatchedKind::fixed(self.labels.is_some(), self.exceptions);
        let is_told = self.writes_status && !self.exceptions;
        let reported_only = is_told.then(WatchedKind::reported_only);
        fixed.into_iter().chain(reported_only).collect()
    }

    fn status_writer(&self, client: &Client) -> StatusWriter {
        StatusWriter {
            client: client.clone(),
            store: Arc::clone(&self.store),
            reporter: self.reporter.clone(),
            settled: BTreeMap::new(),
        }
    }

    async fn client(&self) -> Client {
        loop {
            match client::client(&self.config) {
                Ok(client) => return client,
                Err(error) => {
                    let error = error.to_string();
                    if self.reporter.failed("client", &error, Instant::now()) {
                        let cluster = &**self.reporter.cluster();
                        tracing::error!(cluster, error, "cannot watch the API server");
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    fn watch(&self, kind: &WatchedKind, client: &Client) -> Watch {
        Watch {
            kind: kind.clone(),
            client: client.clone(),
            labels: self.labels.clone(),
            store: Arc::clone(&self.store),
            reporter: self.reporter.clone(),
        }
    }
}

/// Saves the set, as soon as it is complete, and again when it changed.
async fn save(path: Option<PathBuf>, store: Arc<Store>, reporter: Reporter) {
    let Some(path) = path else { return };
    let mut last = None;
    loop {
        reporter.news().await;
        tokio::time::sleep(SETTLE).await;
        if !store.is_complete() {
            continue;
        }
        let (path, cluster) = (path.clone(), Arc::clone(reporter.cluster()));
        let (store, before) = (Arc::clone(&store), last);
        let write = move || {
            let (digest, texts) = store.texts();
            let same = before == Some(digest);
            let outcome = if same {
                Ok(())
            } else {
                saved::write(&path, &cluster, &texts)
            };
            (outcome, digest)
        };
        match spawn_blocking(write).await {
            Ok((Ok(()), digest)) => last = Some(digest),
            Ok((Err(error), _)) => {
                tracing::error!(cluster = &**reporter.cluster(), %error, "cannot save the snapshot of the cluster");
                reporter.listed();
                tokio::time::sleep(AGAIN).await;
            }
            Err(_) => {}
        }
    }
}
