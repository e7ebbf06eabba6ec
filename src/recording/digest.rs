//! About which object a webhook was asked: its answer counts for no other.

use std::fmt;

use openssl::sha::Sha256;

use portcullis_policy::engine::admission::webhook::Call;

/// The object of a call, as compared with that of the review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectState {
    /// As received.
    Received,
    /// Changed on the way: a digest of what it had become.
    Changed(String),
    /// Changed on the way, and something of it is redacted. No digest is kept of it, from
    /// which what was removed could be guessed.
    Redacted,
}

/// About which object `call` asks.
#[must_use]
pub fn object_state(call: &Call) -> ObjectState {
    match &call.object {
        None => ObjectState::Received,
        Some(object) => {
            let mut digest = Sha256::new();
            // As of the object in one line.
            for part in object.text().trim().split_inclusive(['\n', '\r']) {
                match part.strip_suffix(['\n', '\r']) {
                    None => digest.update(part.as_bytes()),
                    Some(line) => {
                        digest.update(line.as_bytes());
                        digest.update(b" ");
                    }
                }
            }
            let digest = digest.finish();
            ObjectState::Changed(digest.iter().map(|byte| format!("{byte:02x}")).collect())
        }
    }
}

/// The same JSON without line breaks: within its texts there are none.
pub(crate) fn into_line(json: String) -> String {
    if json.contains(['\n', '\r']) {
        return json.trim().replace(['\n', '\r'], " ");
    }
    json
}

// === impl ObjectState ===

impl ObjectState {
    /// The same in a review of which something is redacted, or not.
    #[must_use]
    pub fn within(self, is_redacted: bool) -> Self {
        match self {
            Self::Changed(_) if is_redacted => Self::Redacted,
            state => state,
        }
    }

    /// What [`Display`](fmt::Display) writes, read again.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "received" => Self::Received,
            "redacted" => Self::Redacted,
            digest => Self::Changed(digest.to_owned()),
        }
    }
}

impl fmt::Display for ObjectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Received => "received",
            Self::Changed(digest) => digest,
            Self::Redacted => "redacted",
        })
    }
}
