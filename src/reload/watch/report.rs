//! What the log says of reloads.

use std::path::PathBuf;
use std::time::Duration;

use crate::config;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place, Severity};

/// What a reload that takes longer than `limit` still waits for.
pub(super) fn hanging(limit: Duration) -> Vec<Fault> {
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

pub(super) fn fault(message: String) -> Fault {
    Fault::error(Place::default(), FaultKind::Unreadable, message)
}

pub(super) fn log(faults: &Faults) {
    for fault in faults.iter() {
        match fault.severity {
            Severity::Error => tracing::error!("{fault}"),
            Severity::Warning => tracing::warn!("{fault}"),
        }
    }
}

/// Each by name: whoever removed a Deny by mistake finds it in the log.
pub(super) fn warn_of_vanished_denies(names: &[String]) {
    for policy in names {
        tracing::warn!(policy, "a Deny is no longer in force");
    }
}

/// Sockets are bound and queues made once.
pub(super) fn warn_of_restart(old: &config::Config, new: &config::Config) {
    let console = |config: &config::Config| config.console.clone();
    let address = |config| console(config).map(|console| console.address);
    let decisions = |config| console(config).map(|console| console.decisions);
    let has_tls = |config| console(config).map(|console| console.tls.is_some());
    let changed = [
        ("server.address", old.server.address != new.server.address),
        ("admin.address", old.admin.address != new.admin.address),
        ("console.address", address(old) != address(new)),
        ("console.decisions", decisions(old) != decisions(new)),
        ("console.tls", has_tls(old) != has_tls(new)),
        ("limits", old.limits != new.limits),
        ("decisionLog", old.decision_log != new.decision_log),
    ];
    for (field, _) in changed.into_iter().filter(|(_, changed)| *changed) {
        tracing::warn!("{field} changed: it takes effect at the next start");
    }
}
