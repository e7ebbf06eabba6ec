//! Messages to and from the reloading thread, and what is logged of reloads.

use std::path::PathBuf;
use std::time::Duration;

use super::schedule::ReloadRequest;
use crate::config::{self, HeldBack};
use crate::reload::job::ReloadResult;
use crate::reload::{ReloadFailure, ReloadState, Restriction};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place, Severity};

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

pub(crate) enum FileEvent {
    /// Something is to be done.
    ReloadRequest(ReloadRequest),
    /// The job of this number ended; without result if it broke off.
    Ended(u64, Option<Box<ReloadResult>>),
    /// The reloader is dropped.
    Stop,
}

/// What a reload that takes longer than `limit` still waits for.
pub(crate) fn hanging(limit: Duration) -> Vec<Fault> {
    let pending = config::files::pending();
    if pending.is_empty() {
        let message = format!("the reload has not finished after {limit:?}; it takes effect when it does");
        return vec![fault(message)];
    }
    let of = |path: PathBuf| Fault {
        place: Place::of_file(&path),
        ..fault(format!(
            "the reload has not finished after {limit:?} and is reading this file: check its file system"
        ))
    };
    pending.into_iter().map(of).collect()
}

pub(crate) fn fault(message: String) -> Fault {
    Fault::error(Place::default(), FaultKind::Unreadable, message)
}

/// Logs the faults of files that were read, and whose files are not in force as they are.
pub fn log(faults: &Faults, held_back: &HeldBack) {
    for fault in faults.iter() {
        match fault.severity {
            Severity::Error => tracing::error!("{fault}"),
            Severity::Warning => tracing::warn!("{fault}"),
        }
    }
    for (cluster, faults) in held_back {
        tracing::error!(
            cluster,
            faults = faults.len(),
            "the cluster's own files have faults: its last good ones stay in force, everything else takes effect"
        );
    }
}

/// Each by name: an administrator who removed a restriction by mistake finds it in the log.
pub(crate) fn warn_of_vanished(restrictions: &[Restriction]) {
    for restriction in restrictions {
        let policy = restriction.in_cluster();
        match restriction.kind {
            "ValidatingAdmissionPolicy" => {
                tracing::warn!(policy, "a validating policy is no longer in force")
            }
            _ => tracing::warn!(policy, "a Deny is no longer in force"),
        }
    }
}

/// Sockets are bound and queues made once.
pub(crate) fn warn_of_restart(old: &config::Config, new: &config::Config) {
    let console = |config: &config::Config| config.console.clone();
    let address = |config| console(config).map(|console| console.address);
    let max_decisions = |config| console(config).map(|console| console.max_decisions);
    let has_tls = |config| console(config).map(|console| console.tls.is_some());
    let changed = [
        ("server.address", old.server.address != new.server.address),
        ("admin.address", old.admin.address != new.admin.address),
        ("console.address", address(old) != address(new)),
        ("console.maxDecisions", max_decisions(old) != max_decisions(new)),
        ("console.tls", has_tls(old) != has_tls(new)),
        ("limits", old.limits != new.limits),
        ("decisionLog", old.decision_log != new.decision_log),
    ];
    for (field, _) in changed.into_iter().filter(|(_, changed)| *changed) {
        tracing::warn!("{field} changed: it takes effect at the next start");
    }
}
