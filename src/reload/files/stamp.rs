//! What a file system tells of a file, by which one that was not written since is known.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::config::files::observed;

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
    use super::*;

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
