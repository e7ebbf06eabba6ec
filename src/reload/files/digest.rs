//! Digests that identify a set of files. A file is not read again if its file system says that it was
//! not written since.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openssl::sha::{Sha256, sha256};

use super::manifest_files::ManifestFiles;
use crate::config::files::{MANIFEST_BYTES, observed, read};
use crate::reload::source::Watched;

/// The most bytes of all manifests together.
pub(crate) const MAX_MANIFEST_BYTES: usize = 512 << 20;

/// The files of a set, each with a digest of its content. Two are equal where the files and
/// what they say are, whenever that was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fingerprint(Arc<[Arc<SeenFile>]>);

/// A file as it was found.
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
        (bytes <= MAX_MANIFEST_BYTES).then(|| Self(seen.into()))
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
    fingerprint_within(MAX_MANIFEST_BYTES, files, earlier, now)
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

/// A file that was written so shortly before it was read may be written again with the same
/// times: those of some file systems have a granularity of two seconds. git calls an index
/// with such files racy.
const GRANULARITY: Duration = Duration::from_secs(2);

/// Whether the times of files are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileTimes {
    /// A file that has those of before was not written.
    Believed,
    /// Every file is read: somebody asks for it.
    Ignored,
}

/// Device, inode, size, and when content and inode were changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of what `path` leads to, at the moment `now`; `None` where there is nothing, or
    /// where it was written so lately that it may be written again without another stamp.
    pub(crate) fn of(path: &Path, now: SystemTime) -> Option<Self> {
        let metadata = observed(path, || fs::metadata(path)).ok()?;
        Self::at(&metadata, now)
    }

    fn at(metadata: &Metadata, now: SystemTime) -> Option<Self> {
        let stamp = Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let settled = now
            .checked_sub(GRANULARITY)?
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        let settled = (
            i64::try_from(settled.as_secs()).ok()?,
            i64::from(settled.subsec_nanos()),
        );
        (stamp.modified < settled && stamp.changed < settled).then_some(stamp)
    }
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

    #[test]
    fn what_was_just_written_has_no_stamp_and_other_content_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "a: 1\n").unwrap();
        let first = fs::metadata(&path).unwrap();
        let written = first.modified().unwrap();
        assert_eq!(FileStamp::at(&first, written + Duration::from_secs(1)), None);
        // A clock behind the file system's.
        assert_eq!(FileStamp::at(&first, written - Duration::from_secs(60)), None);
        let later = written + Duration::from_secs(3);
        let stamp = FileStamp::at(&first, later).unwrap();
        assert_eq!(FileStamp::at(&fs::metadata(&path).unwrap(), later), Some(stamp));
        // The same size, in the same inode.
        fs::write(&path, "a: 2\n").unwrap();
        let second = fs::metadata(&path).unwrap();
        assert_ne!(
            FileStamp::at(&second, written + Duration::from_secs(60)),
            Some(stamp)
        );
        // The same size and time, behind a link that leads elsewhere now.
        fs::write(folder.path().join("b.yaml"), "a: 3\n").unwrap();
        let link = folder.path().join("link.yaml");
        std::os::unix::fs::symlink("b.yaml", &link).unwrap();
        let third = fs::metadata(&link).unwrap();
        assert_ne!(
            FileStamp::at(&third, written + Duration::from_secs(60)),
            Some(stamp)
        );
    }
}
