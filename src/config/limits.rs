//! `limits`: in-flight limits and body size.

use super::section::Section;
use portcullis_policy::field::FaultKind;

/// Bounds. Those of requests are each for authorization and for admission separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest body of one request, in bytes.
    pub body_bytes: usize,
    /// Requests at once.
    pub in_flight: usize,
    /// Bytes of the bodies of all requests at once; no less than `body_bytes`.
    pub in_flight_bytes: usize,
    /// Bytes of memory for the objects of all watched clusters; `None`: half of what the process
    /// may use.
    pub watched_bytes: Option<usize>,
}

// === impl Limits ===

impl Limits {
    /// Bytes of what is made of all bodies at once, such as their indexes: as many as of the
    /// bodies, and enough for what an API server's objects become of the largest.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.in_flight_bytes.max(4 * self.body_bytes)
    }
}

/// 1 MiB of selectors in a URL becomes a review of over 20 MB.
const fn default_body_bytes() -> usize {
    32 * 1024 * 1024
}

const fn default_in_flight() -> usize {
    1024
}

const fn default_in_flight_bytes() -> usize {
    256 * 1024 * 1024
}

/// The least memory for watched objects.
const MIN_WATCHED_BYTES: u64 = 16 << 20;

pub(crate) fn limits(root: &Section<'_>) -> Limits {
    let section = root.section(
        "limits",
        &["bodyBytes", "inFlight", "inFlightBytes", "watchedBytes"],
    );
    let limits = Limits {
        body_bytes: section.positive("bodyBytes").unwrap_or_else(default_body_bytes),
        in_flight: section.positive("inFlight").unwrap_or_else(default_in_flight),
        in_flight_bytes: section
            .positive("inFlightBytes")
            .unwrap_or_else(default_in_flight_bytes),
        watched_bytes: section
            .bytes("watchedBytes", MIN_WATCHED_BYTES)
            .and_then(|bytes| bytes.try_into().ok()),
    };
    if limits.in_flight_bytes < limits.body_bytes {
        let message = format!(
            "{} is less than bodyBytes, {}: the largest body would never be accepted",
            limits.in_flight_bytes, limits.body_bytes
        );
        section.fault("inFlightBytes", FaultKind::Invalid, message);
    }
    limits
}
