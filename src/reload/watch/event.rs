//! Messages to and from the reloading thread.

use std::sync::mpsc::Sender;

use super::due::Requested;
use crate::reload::inspection::Inspected;
use crate::reload::{ReloadFailure, ReloadState, Restriction};

/// Called with each attempt that was made.
pub type ReloadObserver = Box<dyn Fn(ReloadAttempt<'_>) + Send>;

/// How an attempt to replace what is in force ended.
#[derive(Clone, Copy)]
pub enum ReloadAttempt<'a> {
    /// The files were read, and are in force.
    Reloaded(&'a ReloadState),
    /// Objects of clusters changed. The files were not read: where they are faulty, they still are.
    Refreshed(&'a ReloadState),
    /// These are about to be in force no more.
    TookAway(&'a [Restriction]),
    /// The files have faults, or are still being read; what was in force still is.
    Failed(&'a ReloadFailure),
}

/// Asks for a reload, from any thread.
#[derive(Clone)]
pub struct Trigger(pub(crate) Sender<WatchEvent>);

pub(crate) enum WatchEvent {
    /// Something is to be done.
    Requested(Requested),
    /// The inspection of this number ended; without result if it broke off.
    Ended(u64, Option<Box<Inspected>>),
    /// The reloader is dropped.
    Stop,
}

// === impl Trigger ===

impl Trigger {
    /// Loads the files again soon, changed or not.
    pub fn reload(&self) {
        self.request(Requested::FORCED);
    }

    /// Puts what the [`ManifestSource`](crate::reload::ManifestSource) has now beside the files, soon.
    pub fn refresh(&self) {
        self.request(Requested::BESIDE);
    }

    pub(crate) fn request(&self, requested: Requested) {
        // An error means that the reloader has stopped: nothing to ask any more.
        let _ = self.0.send(WatchEvent::Requested(requested));
    }
}
