//! Digests that identify a set of files.

use std::path::PathBuf;
use std::sync::Arc;

use openssl::sha::Sha256;

use crate::config::files::{MANIFEST_BYTES, read};
use crate::manifest::Source;
use crate::reload::source::Watched;

/// The most bytes of all manifests together.
pub(super) const MOST_BYTES: usize = 512 << 20;

/// The files of a set and a digest of their names and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of no files at all.
    pub(crate) fn none() -> Self {
        fingerprint(&[])
    }
}

/// A digest of the names and content of `files`; one that cannot be read counts as absent,
/// and so does what is beyond the bytes of a set.
pub(crate) fn fingerprint(files: &[PathBuf]) -> Fingerprint {
    let mut digest = Sha256::new();
    let mut left = MOST_BYTES;
    for file in files {
        let content = read(file, left.min(MANIFEST_BYTES)).ok();
        left -= content.as_ref().map_or(0, Vec::len);
        part(&mut digest, file.as_os_str().as_encoded_bytes());
        digest.update(&[u8::from(content.is_some())]);
        part(&mut digest, content.as_deref().unwrap_or_default());
    }
    Fingerprint(digest.finish())
}

/// What the revision of a set is made of: its configuration and manifests,
/// without their paths on this machine and without any secret.
#[derive(Clone)]
pub(crate) struct Revision(Sha256);

// === impl Revision ===

impl Revision {
    /// Of a set of files alone.
    pub(crate) fn of_files(config_text: &str, sources: &[Source]) -> Self {
        let mut digest = Sha256::new();
        part(&mut digest, config_text.as_bytes());
        for source in sources {
            part(
                &mut digest,
                source.cluster.as_deref().unwrap_or_default().as_bytes(),
            );
            part(&mut digest, source.text.as_bytes());
        }
        Self(digest)
    }

    /// With what is beside the files.
    pub(crate) fn with(mut self, watched: &[Watched]) -> Self {
        for watched in watched {
            part(&mut self.0, &watched.digest);
        }
        self
    }

    /// As it is shown.
    pub(crate) fn name(self) -> Arc<str> {
        let digits = self.0.finish();
        let digits = digits.iter().take(6).map(|byte| format!("{byte:02x}"));
        digits.collect::<String>().into()
    }
}

/// One part, with its length before it: no two lists of parts read the same.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update(&(bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}
