//! Folders of private keys.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The bits of a mode by which a group and all others may write.
const OTHERS_WRITE: u32 = 0o022;

/// Who may own a folder of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFolderOwner {
    /// Root, and the user as whom this program runs: it writes keys there.
    Own,
    /// Anybody: whoever owns it manages the keys.
    Any,
}

/// Why private keys are not safe in `folder`, with what to do: others could put keys of their own
/// there, or have keys written where they can read them. `None` of a folder that is not there, and
/// of one that is mounted to be read alone, as Kubernetes mounts Secrets.
pub(crate) fn unsafe_for_keys(folder: &Path, owner: KeyFolderOwner) -> Option<String> {
    let found = fs::symlink_metadata(folder).ok()?;
    let shown = folder.display();
    if found.is_symlink() {
        return Some(format!(
            "`{shown}` is a symbolic link: keys belong into a folder; name where it leads"
        ));
    }
    if !found.is_dir() {
        return Some(format!("`{shown}` is not a folder"));
    }
    if is_foreign(&found, owner) {
        let uid = found.uid();
        return Some(format!(
            "`{shown}` belongs to another user (uid {uid}), who could replace the keys in it: use a folder of your own"
        ));
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 && !is_read_only(folder) {
        return Some(format!(
            "others may write to `{shown}` (mode {mode:04o}), and so replace the keys in it: `chmod go-w {shown}`"
        ));
    }
    None
}

fn is_foreign(found: &Metadata, owner: KeyFolderOwner) -> bool {
    let own = [0, rustix::process::geteuid().as_raw()];
    owner == KeyFolderOwner::Own && !own.contains(&found.uid())
}

fn is_read_only(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn keys_are_not_safe_behind_links_and_where_others_write() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("pki");
        let said = |folder: &Path| unsafe_for_keys(folder, KeyFolderOwner::Own);
        assert_eq!(said(&folder), None, "it is to be made");
        fs::create_dir(&folder).unwrap();
        for (mode, word) in [
            (0o755, ""),
            (0o700, ""),
            (0o775, "others may write"),
            (0o757, "(mode 0757)"),
            (0o1777, "chmod go-w"),
        ] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let said = said(&folder);
            assert_eq!(said.is_none(), word.is_empty(), "{mode:o}");
            assert!(said.unwrap_or_default().contains(word), "{mode:o}");
        }
        let link = top.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(said(&link).unwrap().contains("is a symbolic link"));
        fs::write(top.path().join("file"), "").unwrap();
        assert!(
            said(&top.path().join("file"))
                .unwrap()
                .contains("is not a folder")
        );
    }
}
