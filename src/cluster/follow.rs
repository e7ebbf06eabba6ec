//! Follows one cluster: a watch for each kind, and a cache file written after changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};

use super::bounded::SpokenProtocol;
use super::client;
use super::kind::WatchedKind;
use super::reach::SharedReach;
use super::reporter::Reporter;
use super::requests::ApiServer;
use super::saved::SnapshotSaver;
use super::status::StatusWriter;
use super::store::Store;
use super::watch::{LEFT_OUT, MAX_LIST_TIME, Watch};
use crate::config::FileScope;
use crate::config::kubeconfig::client::Context;

/// How long after a change the set is saved: others may come with it.
const SETTLE: Duration = Duration::from_secs(1);

/// How much longer than it took to save a set the next one is not saved: a large cluster that
/// changes all the time must not cost a processor.
const REST: u32 = 40;

/// The longest such rest.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// How long to wait for a credential that cannot be read just now.
const AGAIN: Duration = Duration::from_secs(5);

/// What is followed of one API server.
pub(crate) struct FollowedKinds {
    pub(crate) context: Arc<Context>,
    /// Restricts what is selected; `None`: nothing is.
    pub(crate) labels: Option<String>,
    /// Whether AdmissionExceptions are taken.
    pub(crate) accept_exceptions: bool,
    /// Whether the status of objects is written.
    pub(crate) writes_status: bool,
    pub(crate) cache_file: Option<(PathBuf, FileScope)>,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
}

// === impl FollowedKinds ===

impl FollowedKinds {
    /// Follows it, with the kinds of parameters that are `wanted` at the time,
    /// for as long as it is polled.
    pub(crate) async fn run(self, mut wanted: watch::Receiver<BTreeSet<WatchedKind>>) {
        let (server, protocol) = self.server().await;
        let reach = SharedReach::new(server.clone(), protocol, self.reporter.clone());
        let reach = Arc::new(reach);
        let mut tasks = JoinSet::new();
        let mut watches: BTreeMap<WatchedKind, AbortHandle> = BTreeMap::new();
        self.store.await_all();
        tasks.spawn(save(
            self.cache_file.clone(),
            Arc::clone(&self.store),
            self.reporter.clone(),
        ));
        if self.writes_status {
            tasks.spawn(self.status_writer(server).run());
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
                let watch = || tasks.spawn(self.watch(&kind, &reach).run());
                watches.entry(kind.clone()).or_insert_with(watch);
            }
            if wanted.changed().await.is_err() {
                return;
            }
        }
    }

    fn fixed_kinds(&self) -> BTreeSet<WatchedKind> {
        let fixed = WatchedKind::fixed(self.labels.is_some(), self.accept_exceptions);
        let is_told = self.writes_status && !self.accept_exceptions;
        let reported_only = is_told.then(WatchedKind::reported_only);
        fixed.into_iter().chain(reported_only).collect()
    }

    fn status_writer(&self, server: ApiServer) -> StatusWriter {
        StatusWriter {
            server,
            store: Arc::clone(&self.store),
            reporter: self.reporter.clone(),
            settled: BTreeMap::new(),
        }
    }

    async fn server(&self) -> (ApiServer, SpokenProtocol) {
        loop {
            match client::of_context(&self.context) {
                Ok((client, protocol)) => return (ApiServer::new(client), protocol),
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

    fn watch(&self, kind: &WatchedKind, reach: &Arc<SharedReach>) -> Watch {
        Watch {
            kind: kind.clone(),
            reach: Arc::clone(reach),
            labels: self.labels.clone(),
            store: Arc::clone(&self.store),
            reporter: self.reporter.clone(),
            max_list_time: MAX_LIST_TIME,
            left_out_period: LEFT_OUT,
        }
    }
}

/// Saves the set, as soon as it is complete, and again when it changed.
async fn save(place: Option<(PathBuf, FileScope)>, store: Arc<Store>, reporter: Reporter) {
    let Some((path, scope)) = place else { return };
    let cluster = Arc::clone(reporter.cluster());
    let mut saver = Some(SnapshotSaver::new(path, scope, &cluster));
    loop {
        reporter.news().await;
        tokio::time::sleep(SETTLE).await;
        if !store.is_complete() {
            continue;
        }
        let (store, taken) = (Arc::clone(&store), saver.take());
        let write = move || {
            let mut saver = taken?;
            let begun = Instant::now();
            let outcome = saver.save(&store.unsaved(saver.wants_all()));
            Some((saver, outcome, begun.elapsed()))
        };
        // The task that saves ends with the runtime.
        let Ok(Some((again, outcome, took))) = spawn_blocking(write).await else {
            return;
        };
        saver = Some(again);
        match outcome {
            Ok(()) => tokio::time::sleep((took * REST).min(LONGEST_REST)).await,
            Err(error) => {
                tracing::error!(cluster = &*cluster, %error, "cannot write the cache file of the cluster");
                reporter.listed();
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
