//! Digests that identify a set of files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use openssl::sha::{Sha256, sha256};

use super::manifest_files::ManifestFiles;
use super::stamp::FileStamp;
use crate::config::files::{MANIFEST_BYTES, read};
use crate::reload::source::Watched;

/// The most bytes of all manifests together.
pub(crate) const MOST_BYTES: usize = 512 << 20;

/// The files of a set, each with a digest of its content. Two are equal where the files and
/// what they say are, whenever that was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fingerprint(Arc<[Arc<SeenFile>]>);

/// A file that was looked at.
#[derive(Debug, Clone)]
struct SeenFile {
    path: PathBuf,
    stamp: Option<FileStamp>,
    /// The digest and the length; `None`: it cannot be read, or is beyond the bytes of a set. Then the
    /// stamp tells whether it changed.
    content: Option<([u8; 32], usize)>,
}

impl Fingerprint {
    /// Of no files at all.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// The same where `files`, which are among them, were written since. `None` where one of them
    /// is not, or cannot be read.
    pub(crate) fn after(&self, files: &BTreeSet<PathBuf>, now: SystemTime) -> Option<Self> {
        let mut seen = self.0.to_vec();
        for path in files {
            let place = seen.binary_search_by(|seen| seen.path.cmp(path)).ok()?;
            let seen = seen.get_mut(place)?;
            let stamp = FileStamp::of(path, now);
            *seen = Arc::new(SeenFile {
                path: path.clone(),
                stamp,
                content: Some(content(path, MANIFEST_BYTES)?),
            });
        }
        let bytes: usize = seen.iter().filter_map(|seen| Some(seen.content?.1)).sum();
        (bytes <= MOST_BYTES).then(|| Self(seen.into()))
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<SeenFile>, &Arc<SeenFile>)| {
            let is_known = one.content.is_some() || one.stamp == other.stamp;
            Arc::ptr_eq(one, other) || one.path == other.path && one.content == other.content && is_known
        };
        self.0.len() == other.0.len() && self.0.iter().zip(other.0.iter()).all(same)
    }
}

/// A digest of the content of each of `files`, which ascend; of one that cannot be read, and of what
/// is beyond the bytes of a set, the stamp alone. Files that are as `earlier` saw them
/// are not read.
pub(crate) fn fingerprint(files: &[PathBuf], earlier: &Fingerprint, now: SystemTime) -> Fingerprint {
    fingerprint_within(MOST_BYTES, files, earlier, now)
}

fn fingerprint_within(
    mut left: usize,
    files: &[PathBuf],
    earlier: &Fingerprint,
    now: SystemTime,
) -> Fingerprint {
    let mut known = earlier.0.iter().peekable();
    let seen = |path: &PathBuf| {
        while known.next_if(|known| known.path < *path).is_some() {}
        let stamp = FileStamp::of(path, now);
        let earlier = known.next_if(|known| known.path == *path && stamp.is_some() && known.stamp == stamp);
        let is_within = |known: &&Arc<SeenFile>| known.content.is_some_and(|(_, length)| length <= left);
        let seen = match earlier.filter(is_within) {
            Some(known) => Arc::clone(known),
            None => Arc::new(SeenFile {
                path: path.clone(),
                stamp,
                content: content(path, left.min(MANIFEST_BYTES)),
            }),
        };
        left -= seen.content.map_or(0, |(_, length)| length);
        seen
    };
    Fingerprint(files.iter().map(seen).collect())
}

/// The digest and the length of what is in a file.
fn content(path: &Path, most: usize) -> Option<([u8; 32], usize)> {
    let content = read(path, most).ok()?;
    Some((sha256(&content), content.len()))
}

/// What the revision of a set is made of: its configuration and manifests,
/// without their paths on this machine and without any secret.
#[derive(Clone)]
pub(crate) struct Revision(Sha256);

// === impl Revision ===

impl Revision {
    /// Of a set of files alone, with the texts of its configuration.
    pub(crate) fn of_files<'t>(
        config_texts: impl IntoIterator<Item = &'t str>,
        files: &ManifestFiles,
    ) -> Self {
        let mut digest = Sha256::new();
        for text in config_texts {
            part(&mut digest, text.as_bytes());
        }
        for (cluster, text) in files.digests() {
            part(&mut digest, cluster.as_bytes());
            part(&mut digest, text);
        }
        Self(digest)
    }

    /// With what is beside the files.
    pub(crate) fn with(mut self, watched: &[Arc<Watched>]) -> Self {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// Else who fills the room of a set would have changes of others go unnoticed.
    #[test]
    fn a_change_is_noticed_beyond_the_bytes_of_a_set() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        fs::write(&files[0], "ten bytes.").unwrap();
        fs::write(&files[1], "before").unwrap();
        let later = SystemTime::now() + Duration::from_secs(10);
        let look = |earlier: &Fingerprint| fingerprint_within(10, &files, earlier, later);
        let before = look(&Fingerprint::none());
        assert!(look(&before) == before);
        fs::write(&files[1], "after").unwrap();
        assert!(look(&before) != before);
    }
}
