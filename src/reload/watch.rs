//! Watches files and reloads after changes.
//!
//! There are three triggers. Watches on the folders report changes at once; they watch
//! folders rather than files, because mounted Secrets and ConfigMaps change by replacing
//! a link. Polling finds what no watch reports (network file systems, links whose target
//! changed). SIGHUP requests a reload.
//!
//! ```text
//! events ─▶ due? ─▶ job, on a thread of its own ─▶ ended: put in force, or keep
//!             ▲                  └── not within the limit: reported, and the next may begin
//!             └──────────────────────────────┘
//! ```

mod event;
pub(crate) mod schedule;
mod worker;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::ReloadState;
use event::FileEvent;
pub use event::{ReloadAttempt, ReloadObserver, Trigger, log};
use worker::ReloadWorker;

/// How long a reload may take before it is reported, and no longer holds up the next.
pub const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps a [`ReloadState`] up to date on a thread of its own, until dropped.
pub struct Reloader {
    trigger: Trigger,
    thread: Option<JoinHandle<()>>,
}

// === impl Reloader ===

impl Reloader {
    /// Starts to watch the files behind `state`, whose configuration is at `path`.
    /// A reload that takes longer than `limit` ([`RELOAD_TIMEOUT`]) is reported to
    /// `observer` as one that failed; it takes effect when it ends all the same,
    /// unless a later one has.
    ///
    /// # Errors
    ///
    /// The operating system refused a thread. That it refuses watches is only
    /// logged: the poll remains.
    pub fn start(
        state: Arc<ReloadState>,
        path: PathBuf,
        limit: Duration,
        observer: ReloadObserver,
    ) -> io::Result<Self> {
        let (sender, events) = channel();
        let trigger = Trigger(sender);
        let mut worker = ReloadWorker::new(trigger.clone(), state, path, limit, observer);
        worker.begin_to_watch();
        let thread = thread::Builder::new()
            .name("reload".into())
            .spawn(move || worker.run(&events))?;
        Ok(Self {
            trigger,
            thread: Some(thread),
        })
    }

    /// A handle that asks for a reload.
    #[must_use]
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        let _ = self.trigger.0.send(FileEvent::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
