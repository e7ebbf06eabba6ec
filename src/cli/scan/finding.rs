//! What a scan finds of an object.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// What came of judging an object, from the mildest to the gravest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ScanOutcome {
    /// The policy admits it.
    Pass,
    /// It cannot be said, or an exception lets it pass.
    Skip,
    /// The policy does not admit it, which its binding or failure policy lets pass.
    Warn,
    /// The policy has no result, which refuses the object.
    Error,
    /// The policy refuses it.
    Fail,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ScanFinding {
    /// Empty for an object of a cluster.
    pub(crate) file: Arc<str>,
    /// Of the field that a policy read last, where that is known, or else of the object; 0 for an
    /// object of a cluster.
    pub(crate) line: u32,
    /// Of that field, in characters from 1; 0 where the place is that of the object.
    pub(crate) column: u32,
    pub(crate) kind: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Empty where no policy, but the gateway itself refuses the object.
    pub(crate) policy: Arc<str>,
    pub(crate) binding: Arc<str>,
    pub(crate) result: ScanOutcome,
    pub(crate) message: Arc<str>,
    /// The AdmissionException that lets the object pass; empty for none.
    pub(crate) exception: Arc<str>,
    /// Of the object.
    #[serde(skip)]
    pub(crate) object_line: u32,
    /// The apiVersion of the object, for reports that refer to it.
    #[serde(skip)]
    pub(crate) api_version: Arc<str>,
    /// Of an object of a cluster.
    #[serde(skip)]
    pub(crate) uid: Arc<str>,
}

/// How many results there are of each sort.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ScanSummary {
    pub(crate) pass: u64,
    pub(crate) fail: u64,
    pub(crate) warn: u64,
    pub(crate) error: u64,
    pub(crate) skip: u64,
}

// === impl ScanOutcome ===

impl ScanOutcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Fail => "fail",
        }
    }

    /// Whether the object would be refused.
    pub(crate) const fn refuses(self) -> bool {
        matches!(self, Self::Fail | Self::Error)
    }
}

impl fmt::Display for ScanOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl ScanSummary ===

impl ScanSummary {
    pub(crate) const fn count(&mut self, result: ScanOutcome) {
        match result {
            ScanOutcome::Pass => self.pass += 1,
            ScanOutcome::Skip => self.skip += 1,
            ScanOutcome::Warn => self.warn += 1,
            ScanOutcome::Error => self.error += 1,
            ScanOutcome::Fail => self.fail += 1,
        }
    }

    /// Whether nothing would be refused.
    pub(crate) const fn is_sound(&self) -> bool {
        self.fail == 0 && self.error == 0
    }
}

impl fmt::Display for ScanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pass,
            fail,
            warn,
            error,
            skip,
        } = self;
        write!(
            f,
            "{pass} pass, {fail} fail, {warn} warn, {error} error, {skip} skip"
        )
    }
}
