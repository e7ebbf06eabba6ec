//! Follows one cluster: a watch for each kind, and a cache file written after changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};

use super::bounded::NegotiatedProtocol;
use super::kind::WatchedKind;
use super::reach::ApiServerConnection;
use super::reporter::{Reporter, StatusWriter};
use super::requests::{ApiRequest, ApiServer};
use super::saved::{RestoredSet, SnapshotSaver};
use super::store::Store;
use super::watch::{LEFT_OUT_RETRY_INTERVAL, MAX_LIST_TIME, Watch};
use super::{client, saved};
use crate::config::FileScope;
use crate::config::kubeconfig::client::Context;

/// How long to wait after a change before saving the set, since more changes may follow.
const SAVE_DELAY: Duration = Duration::from_secs(1);

/// How long to wait before the next save, as a multiple of the time that the last one took: a large
/// cluster that changes all the time must not use up a processor.
const SAVE_PAUSE_FACTOR: u32 = 40;

/// The maximum of this wait.
const MAX_SAVE_PAUSE: Duration = Duration::from_secs(10);

/// How long to wait before an error is retried, and between checks whether the watched webhook
/// configurations are stale.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The settings with which an API server is followed.
pub(crate) struct FollowedKinds {
    pub(crate) context: Arc<Context>,
    /// The label selector; `None` if no admission policies and webhook configurations are selected.
    pub(crate) labels: Option<String>,
    /// Whether AdmissionExceptions are accepted.
    pub(crate) accept_exceptions: bool,
    /// Whether the status of objects is written.
    pub(crate) writes_status: bool,
    /// Whether the API server's webhook configurations are watched.
    pub(crate) watches_registrations: bool,
    /// Whether the public keys of the API server's tokens are fetched.
    pub(crate) fetches_token_keys: bool,
    pub(crate) cache_file: Option<(PathBuf, FileScope)>,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
}

// === impl FollowedKinds ===

impl FollowedKinds {
    /// Follows the cluster, with the kinds of parameters that are `wanted` at any time, as long as
    /// it is polled.
    pub(crate) async fn run(self, mut wanted: watch::Receiver<BTreeSet<WatchedKind>>) {
        let (server, protocol) = self.server().await;
        let reach = ApiServerConnection::new(server.clone(), protocol, self.reporter.clone());
        let reach = Arc::new(reach);
        let mut tasks = JoinSet::new();
        let mut watches: BTreeMap<WatchedKind, AbortHandle> = BTreeMap::new();
        self.store.await_all();
        tasks.spawn(save(
            self.cache_file.clone(),
            Arc::clone(&self.store),
            self.reporter.clone(),
        ));
        if self.watches_registrations {
            tasks.spawn(note_stale_registrations(
                Arc::clone(&self.store),
                self.reporter.clone(),
            ));
        }
        if self.fetches_token_keys {
            tasks.spawn(fetch_token_keys(
                server.clone(),
                Arc::clone(&self.store),
                self.reporter.clone(),
            ));
        }
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
            if self.store.set_kinds(&kinds) {
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
        let registrations = self.watches_registrations.then(WatchedKind::registrations);
        let all = fixed.into_iter().chain(reported_only);
        all.chain(registrations.into_iter().flatten()).collect()
    }

    fn status_writer(&self, server: ApiServer) -> StatusWriter {
        StatusWriter {
            server,
            store: Arc::clone(&self.store),
            reporter: self.reporter.clone(),
            settled: BTreeMap::new(),
        }
    }

    async fn server(&self) -> (ApiServer, NegotiatedProtocol) {
        loop {
            match client::of_context(&self.context) {
                Ok((client, protocol)) => return (ApiServer::new(client), protocol),
                Err(error) => {
                    let error = error.to_string();
                    if self.reporter.failed("client", &error, Instant::now()) {
                        let cluster = &**self.reporter.cluster();
                        tracing::error!(cluster, error, "cannot watch the API server");
                    }
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    fn watch(&self, kind: &WatchedKind, reach: &Arc<ApiServerConnection>) -> Watch {
        Watch {
            kind: kind.clone(),
            reach: Arc::clone(reach),
            labels: self.labels.clone(),
            store: Arc::clone(&self.store),
            reporter: self.reporter.clone(),
            max_list_time: MAX_LIST_TIME,
            left_out_period: LEFT_OUT_RETRY_INTERVAL,
        }
    }
}

/// Causes a reload when the webhook configurations of the cluster become stale, or are up to date
/// again, which no event of a watch reports.
async fn note_stale_registrations(store: Arc<Store>, reporter: Reporter) {
    loop {
        tokio::time::sleep(RETRY_DELAY).await;
        if store.registrations_changed(Instant::now()) {
            reporter.changed();
        }
    }
}

/// The request for the keys of the API server's tokens.
const TOKEN_KEYS: ApiRequest<'static> = ApiRequest::get("/openid/v1/jwks", "application/jwk-set+json");

/// The maximum size of the keys in bytes: some hundred keys.
const MAX_TOKEN_KEYS_BYTES: usize = 128 << 10;

/// The timeout of fetching the keys.
const MAX_TOKEN_KEYS_TIME: Duration = Duration::from_secs(10);

/// How often the keys are fetched. A withdrawn key stays valid for up to this time.
const TOKEN_KEYS_INTERVAL: Duration = Duration::from_secs(60);

/// How long the keys stay valid if they cannot be fetched again: as long as the API server allows
/// clients to cache them.
const MAX_TOKEN_KEYS_AGE: Duration = Duration::from_secs(3600);

/// Keeps the keys of the API server's tokens up to date. Invalid responses change nothing, until
/// the known keys are too old.
async fn fetch_token_keys(server: ApiServer, store: Arc<Store>, reporter: Reporter) {
    let mut fetched = Instant::now();
    loop {
        let (keys, wait) = match token_keys(&server).await {
            Ok(keys) => {
                fetched = Instant::now();
                (Some(keys), TOKEN_KEYS_INTERVAL)
            }
            Err(error) => {
                if reporter.failed("token keys", &error, Instant::now()) {
                    let cluster = &**reporter.cluster();
                    tracing::warn!(
                        cluster,
                        error,
                        "cannot fetch the keys of the API server's tokens from /openid/v1/jwks (the \
                        ClusterRole system:service-account-issuer-discovery allows it): \
                        `callers[].webhookToken` uses the last ones for an hour"
                    );
                }
                let known = store
                    .token_keys()
                    .filter(|_| fetched.elapsed() < MAX_TOKEN_KEYS_AGE);
                (known, RETRY_DELAY)
            }
        };
        if store.set_token_keys(keys) {
            reporter.changed();
        }
        tokio::time::sleep(wait).await;
    }
}

/// Fetches the keys, if the response is a set of keys.
async fn token_keys(server: &ApiServer) -> Result<Arc<[u8]>, String> {
    let asked = server.ask(&TOKEN_KEYS, MAX_TOKEN_KEYS_BYTES);
    let answered = tokio::time::timeout(MAX_TOKEN_KEYS_TIME, asked).await;
    let seconds = MAX_TOKEN_KEYS_TIME.as_secs();
    let answer = answered.map_err(|_| format!("the response did not end within {seconds} s"))?;
    let answer = answer.map_err(|error| error.to_string())?;
    let has_keys = |set: &Value| {
        set.get("keys")
            .and_then(Value::as_array)
            .is_some_and(|keys| !keys.is_empty())
    };
    match serde_json::from_slice(&answer) {
        Ok(set) if has_keys(&set) => Ok(Arc::from(&*answer)),
        _ => Err("the response is not a JSON Web Key Set with a key".to_owned()),
    }
}

/// Saves the set when it is complete, and again after changes.
async fn save(place: Option<(PathBuf, FileScope)>, store: Arc<Store>, reporter: Reporter) {
    let Some((path, scope)) = place else { return };
    let cluster = Arc::clone(reporter.cluster());
    let mut saver = Some(SnapshotSaver::new(path, scope, &cluster));
    loop {
        reporter.wait_for_unsaved().await;
        tokio::time::sleep(SAVE_DELAY).await;
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
            Ok(()) => tokio::time::sleep((took * SAVE_PAUSE_FACTOR).min(MAX_SAVE_PAUSE)).await,
            Err(error) => {
                tracing::error!(cluster = &*cluster, %error, "cannot write the cache file of the cluster");
                reporter.listed();
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

// To compile what one cluster saved, or to compile it again for another version of CEL, may take
// minutes. This delays neither the start of the gateway nor other clusters: if it takes long, the
// next cluster begins nevertheless.

/// The maximum number of jobs that run at once, not counting those that take longer than
/// [`MAX_TURN_WAIT`].
const MAX_AT_ONCE: usize = 4;

/// How long the next job waits for one of these.
const MAX_TURN_WAIT: Duration = Duration::from_secs(1);

/// A job for one cluster, which reports its end itself.
pub(crate) type ClusterJob = Box<dyn FnOnce() + Send>;

/// The saved set of a cluster, which has not been read yet. Until it is restored completely,
/// nothing is known about the cluster.
pub(crate) struct Restoration {
    pub(crate) file: (PathBuf, FileScope),
    /// The maximum size of the file.
    pub(crate) max_bytes: usize,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
    /// Dropped when the set is restored, or cannot be.
    pub(crate) restoring: tokio::sync::watch::Sender<()>,
}

/// Runs all jobs side by side, and waits for them for up to `patience`. Jobs that take longer
/// continue.
///
/// # Errors
///
/// The operating system refuses a thread, and no job is run.
pub(crate) fn run_concurrently(jobs: Vec<ClusterJob>, patience: Duration) -> io::Result<()> {
    let (ended, ends) = channel();
    let mut left = jobs.len();
    spawn(move || run_each(jobs, &ended))?;
    let until = Instant::now() + patience;
    let wait = || ends.recv_timeout(until.saturating_duration_since(Instant::now()));
    while left > 0 && wait().is_ok() {
        left -= 1;
    }
    Ok(())
}

fn run_each(jobs: Vec<ClusterJob>, ended: &Sender<()>) {
    let (free, freed) = channel();
    for (number, job) in jobs.into_iter().enumerate() {
        if number >= MAX_AT_ONCE {
            let _one_or_too_long = freed.recv_timeout(MAX_TURN_WAIT);
        }
        let (free, ended) = (free.clone(), ended.clone());
        let begun = spawn(move || {
            job();
            // An error means that nothing waits for this job any more.
            let _ = free.send(());
            let _ = ended.send(());
        });
        if let Err(error) = begun {
            tracing::error!(%error, "cannot compile the objects of a cluster");
        }
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name("compile".to_owned())
        .spawn(run)
        .map(drop)
}

// === impl Restoration ===

impl Restoration {
    pub(crate) fn run(self) {
        if let Some(saved) = self.read() {
            if saved.lacks_changes {
                self.log_lost_changes();
            }
            self.store.restore(saved);
            self.reporter.changed();
        }
        drop(self.restoring);
    }

    fn log_lost_changes(&self) {
        let (cluster, file) = (&**self.reporter.cluster(), self.file.0.display());
        tracing::error!(
            cluster,
            %file,
            "the saved changes next to the cache file of the cluster are damaged or cannot be read: until all \
            kinds have been listed from its API server, a Deny or a revocation may be missing, and requests \
            wait for up to 30 s"
        );
    }

    fn read(&self) -> Option<RestoredSet> {
        let (path, scope) = &self.file;
        let cluster = &**self.reporter.cluster();
        let read = saved::read((path, scope), cluster, self.max_bytes);
        read.unwrap_or_else(|error| {
            let file = path.display();
            tracing::error!(cluster, %file, %error, "cannot use the cache file of the cluster");
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::contents::SharedContents;
    use super::super::memory::WatchedMemory;
    use super::super::reporter::Signal;
    use super::*;
    use crate::cluster::tests::fixtures::{api_server, block_on};
    use http::StatusCode;
    use portcullis_cel::Version;
    use serde_json::json;

    /// Longer than any test runs.
    const LONG: Duration = Duration::from_secs(20);

    fn mk_restoration(folder: &std::path::Path, cluster: &str) -> Restoration {
        let path = folder.join(cluster);
        saved::write_empty(&path, cluster);
        let memory = WatchedMemory::default();
        let store = Store::sharing(
            &Arc::<SharedContents>::default(),
            memory.cluster(),
            cluster,
            Version::NEWEST,
        );
        Restoration {
            file: (path, FileScope::Anywhere),
            max_bytes: 1 << 20,
            store: Arc::new(store),
            reporter: Reporter::new(cluster, Arc::<Signal>::default()),
            restoring: tokio::sync::watch::channel(()).0,
        }
    }

    #[test]
    fn keys_are_taken_only_from_a_key_set() {
        let keys = json!({"keys": [{"kty": "RSA", "n": "AQ", "e": "AQAB"}]});
        let large = json!({"keys": ["x".repeat(MAX_TOKEN_KEYS_BYTES)]});
        for (status, answer, expected) in [
            (StatusCode::OK, keys.clone(), "taken"),
            (StatusCode::OK, json!({"keys": []}), "not a JSON Web Key Set"),
            (StatusCode::OK, json!("page"), "not a JSON Web Key Set"),
            (StatusCode::OK, large, "more than 131072 bytes"),
            (
                StatusCode::FORBIDDEN,
                json!({"message": "jwks is forbidden"}),
                "jwks is forbidden",
            ),
        ] {
            let taken = block_on(async {
                let of_path = move |uri: &http::Uri| {
                    assert_eq!(uri.path(), "/openid/v1/jwks");
                    (status, answer.clone())
                };
                token_keys(&api_server(of_path)).await
            });
            let taken = taken.map(|_| "taken".to_owned());
            let (Ok(said) | Err(said)) = &taken;
            assert!(said.contains(expected), "{said}");
        }
        let store = Store::new("c", None, Version::NEWEST);
        let keys: Arc<[u8]> = Arc::from(keys.to_string().as_bytes());
        assert!(store.set_token_keys(Some(Arc::clone(&keys))));
        assert!(!store.set_token_keys(Some(Arc::from(&*keys))));
        assert!(store.set_token_keys(None));
    }

    #[test]
    fn saved_sets_that_take_long_hold_up_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let names = (0..=MAX_AT_ONCE).map(|number| format!("slow-{number}"));
        let mut all: Vec<_> = names.map(|name| mk_restoration(folder.path(), &name)).collect();
        let slow: Vec<_> = all.iter().map(|one| Arc::clone(&one.store)).collect();
        all.push(mk_restoration(folder.path(), "quick"));
        let quick = Arc::clone(&all.last().unwrap().store);
        let held: Vec<_> = slow.iter().map(|store| store.delay_requests()).collect();
        let jobs = all.into_iter().map(|one| Box::new(|| one.run()) as ClusterJob);
        run_concurrently(jobs.collect(), Duration::ZERO).unwrap();
        let start = Instant::now();
        while quick.is_unsynced() {
            assert!(start.elapsed() < LONG, "it waits for the others");
            thread::yield_now();
        }
        drop(held);
        while slow.iter().any(|store| store.is_unsynced()) {
            assert!(start.elapsed() < LONG, "they are not restored");
            thread::yield_now();
        }
    }
}
