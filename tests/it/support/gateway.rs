//! A gateway in this process, with files in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use portcullis::server::{Gateway as Parts, ListenAddresses, Server};
use portcullis::state::{self, ReloadState};
use portcullis::telemetry::Metrics;
use portcullis::telemetry::decision_log::{DecisionLog, Destination};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::builder::Builder;
use super::client::{Client, Connection};
use crate::harness::pki::{Authority, Identity};

/// A running gateway. Dropping it stops it.
pub(crate) struct Gateway {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
    pub(crate) caller: Identity,
    pub(crate) addresses: ListenAddresses,
    pub(crate) state: Arc<ReloadState>,
    pub(crate) reloader: state::Reloader,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// A gateway with the usual files.
    pub(crate) fn usual() -> Self {
        Builder::new().start()
    }

    pub(super) fn start(builder: Builder, authority: Authority) -> Self {
        let Builder {
            folder,
            source,
            reload_limit,
            ..
        } = builder;
        let config = folder.path().join("config.yaml");
        let (snapshot, faults) = state::load(&config, &*source, None, SystemTime::now());
        let state = ReloadState::new(snapshot.unwrap_or_else(|| panic!("{faults}")), source);
        let metrics = Arc::new(Metrics::new().unwrap());
        let log = Destination::File(folder.path().join("decisions.log"));
        let decision_log = Some(DecisionLog::open(log, metrics.decision_log_dropped()).unwrap());
        let reloader =
            state::Reloader::start(Arc::clone(&state), config, reload_limit, Box::new(|_| {})).unwrap();
        let server = Server::bind(Parts {
            state: Arc::clone(&state),
            metrics,
            decision_log,
        })
        .unwrap();
        let addresses = server.addresses();
        let (stop, reported) = oneshot::channel();
        let run = move || server.run(async move { drop(reported.await) }).unwrap();
        let gateway = Self {
            caller: authority.client("kube-apiserver", &[]),
            folder,
            authority,
            addresses,
            state,
            reloader,
            stop: Some(stop),
            thread: Some(thread::spawn(run)),
        };
        until("the gateway is ready", || {
            super::get(addresses.admin, "/readyz").0 == 200
        });
        gateway
    }

    /// A client with the API server's certificate.
    pub(crate) fn client(&self) -> Client<'_> {
        Client {
            authority: &self.authority,
            certificate: Some(&self.caller),
        }
    }

    /// A client without certificate.
    pub(crate) fn stranger(&self) -> Client<'_> {
        Client {
            authority: &self.authority,
            certificate: None,
        }
    }

    /// A connection of the API server.
    pub(crate) fn connect(&self) -> Connection {
        self.client().connect(self.addresses.server)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Everything that `/metrics` says.
    pub(crate) fn metrics(&self) -> String {
        super::get(self.addresses.admin, "/metrics").1
    }

    /// The value of one series, by its full name.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let metrics = self.metrics();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in\n{metrics}"))
            .parse()
            .unwrap()
    }

    /// Replaces files and waits until they are in force.
    pub(crate) fn reload(&self, files: &[(&str, &[u8])]) {
        let before = Arc::clone(&self.state.current());
        for (name, content) in files {
            replace(&self.file(name), content);
        }
        self.reloader.trigger().reload();
        until("the files are in force", || {
            !Arc::ptr_eq(&before, &self.state.current())
        });
        self.settle(files);
    }

    /// Waits until the reload is the last one: several files may have been noticed one by one.
    fn settle(&self, files: &[(&str, &[u8])]) {
        for _ in files {
            let before = Arc::clone(&self.state.current());
            self.reloader.trigger().reload();
            until("the files are in force", || {
                !Arc::ptr_eq(&before, &self.state.current())
            });
        }
    }

    /// Has the gateway drain, as SIGTERM does.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the gateway has ended.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Waits for something that must happen.
pub(crate) fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happens() {
        assert!(start.elapsed() < Duration::from_secs(30), "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Lines of the decision log or of recordings in the order of their times: those of two workers may be written in
/// another order.
pub(crate) fn by_time(mut lines: Vec<Value>) -> Vec<Value> {
    lines.sort_by_key(|line| line["time"].to_string());
    lines
}

fn replace(path: &Path, content: &[u8]) {
    let aside = path.with_extension("new");
    fs::write(&aside, content).unwrap();
    fs::rename(&aside, path).unwrap();
}
