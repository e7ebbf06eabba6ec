//! The certificates that a configuration names: when they expire, and whether the
//! server's certificate is valid for its host names.
//!
//! ```text
//! Config ──▶ of_configuration: each certificate once ──┬─▶ metric, one series each
//!                                                      ├─▶ warnings of `check`
//!                                                      └─▶ Reminders: the log, at 30, 7 and 1 days
//! ```

mod collect;
mod fit;
mod reminders;
mod time;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

pub use collect::of_configuration;
pub use fit::misfits;
pub use reminders::Reminders;
pub use time::{rfc3339, system_time};

/// When a certificate expires; for a file with several, the earliest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The file that holds it, or the kubeconfig that names it.
    pub file: PathBuf,
    /// The user of that kubeconfig; else empty.
    pub name: String,
    /// What it is used for.
    pub used_for: Use,
    /// Its `notAfter`.
    pub at: SystemTime,
    /// Where it is named.
    pub place: Place,
}

/// What a certificate is used for: the values of the label `use`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// The gateway's own.
    Server,
    /// Authorities of callers' certificates.
    ClientCa,
    /// A caller's, and the authorities by which it knows the gateway.
    Caller,
    /// Shown to webhooks and authorizers behind the gateway, and their authorities.
    Upstream,
    /// Shown to API servers that are watched, and their authorities.
    Cluster,
}

/// From when on `check` warns of the end of a certificate.
pub const NOTICE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

// === impl Use ===

impl Use {
    /// The value of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::ClientCa => "clientCA",
            Self::Caller => "caller",
            Self::Upstream => "upstream",
            Self::Cluster => "cluster",
        }
    }
}

// === impl Expiry ===

impl Expiry {
    /// How it stands with the certificate at `now`, where it ends within [`NOTICE`].
    #[must_use]
    pub fn warning(&self, now: SystemTime) -> Option<Fault> {
        let end = rfc3339(self.at);
        let message = match self.at.duration_since(now) {
            Err(_) => format!("the certificate is expired since {end}"),
            Ok(left) if left <= NOTICE => format!("the certificate ends in {}, on {end}", time::days(left)),
            Ok(_) => return None,
        };
        let message = format!("{message}: renew it (`portcullis init DIR --renew`, where `init` made it)");
        Some(Fault::warning(self.place.clone(), FaultKind::Invalid, message))
    }
}

/// A warning for each certificate that has ended at `now`, or ends within [`NOTICE`].
#[must_use]
pub fn warnings(expiries: &[Expiry], now: SystemTime) -> Faults {
    let mut faults = Faults::new();
    faults.extend(expiries.iter().filter_map(|expiry| expiry.warning(now)));
    faults
}

#[cfg(test)]
mod tests;
