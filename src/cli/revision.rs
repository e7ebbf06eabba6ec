//! `git:REVISION:PATH`: the files of a revision, exactly as stored in git.
//!
//! Attributes and filters that the revision itself may contain (`export-ignore`, `export-subst`,
//! smudge filters) do not apply, and the work tree is not read: only the revision is compared.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use super::output::CommandError;

/// The maximum size of the files of one revision, in bytes.
const MAX_REVISION_BYTES: u64 = 512 << 20;
/// The maximum number of files of one revision.
const MAX_REVISION_FILES: usize = 100_000;
/// The maximum size of git's output, in bytes. A tree that contains the same tree many times, and
/// so on, would have an endless list.
const MAX_LISTED_BYTES: u64 = 64 << 20;
/// The maximum size of git's error message that is shown, in bytes.
const MAX_ERROR_BYTES: u64 = 4 << 10;

/// The files of a revision in a temporary folder, which is removed on drop.
pub(crate) struct GitRevision {
    path: PathBuf,
    /// The path of the folder's content, from the top of the repository.
    tree: PathBuf,
    folder: tempfile::TempDir,
}

/// An entry of a git tree.
struct TreeEntry {
    kind: EntryKind,
    object: String,
    bytes: u64,
    path: PathBuf,
}

#[derive(PartialEq, Eq)]
enum EntryKind {
    File,
    Link,
    Submodule,
}

impl GitRevision {
    /// Reads `REVISION:PATH`, or `REVISION` for the working directory. If the path is a file, all
    /// files of its folder are read too, because a configuration refers to others.
    ///
    /// # Errors
    ///
    /// The revision has no such path, or its content differs from that of a checkout.
    pub(crate) fn read(written: &str) -> Result<Self, CommandError> {
        Self::try_read(written)
            .map_err(|reason| CommandError::Usage(format!("git:{written}: {}", reason.trim())))
    }

    fn try_read(written: &str) -> Result<Self, String> {
        let (revision, path) = written.split_once(':').unwrap_or((written, ""));
        if revision.is_empty() || revision.starts_with('-') {
            return Err("name a revision, such as git:main:policies".to_owned());
        }
        let prefix = git(&["rev-parse", "--show-prefix"])?;
        let path = within_repository(Path::new(prefix.trim_end_matches('\n')), Path::new(path))?;
        let mut tree = path.clone();
        let mut object = object_at(revision, &tree)?;
        if git(&["cat-file", "-t", &object])?.trim() == "blob" {
            tree.pop();
            object = object_at(revision, &tree)?;
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        write_tree(&object, folder.path())?;
        let below = path.strip_prefix(&tree).unwrap_or(&path);
        Ok(Self {
            path: folder.path().join(below),
            tree,
            folder,
        })
    }

    /// The temporary folder, and the path of its content in the repository.
    pub(crate) fn folder(&self) -> (&Path, &Path) {
        (self.folder.path(), &self.tree)
    }

    /// The path in the temporary folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a command that runs git. Missing objects are not fetched, because the configuration of the
/// repository determines how to do that, and may name any command.
fn git_command(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.arg("--no-replace-objects").args(arguments);
    command.env("GIT_NO_LAZY_FETCH", "1").stdin(Stdio::null());
    command
}

/// Runs git and returns its output.
fn git(arguments: &[&str]) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("git: {error}");
    let mut errors = tempfile::tempfile().map_err(failed)?;
    let mut command = git_command(arguments);
    command.stdout(Stdio::piped());
    command.stderr(errors.try_clone().map_err(failed)?);
    let mut running = command.spawn().map_err(failed)?;
    let (mut answer, mut files) = (Vec::new(), 0);
    if let Some(output) = running.stdout.take() {
        let mut output = BufReader::new(output.take(MAX_LISTED_BYTES + 1));
        while files <= MAX_REVISION_FILES && output.read_until(0, &mut answer).map_err(failed)? > 0 {
            files += 1;
        }
    }
    let is_too_long = files > MAX_REVISION_FILES || answer.len() as u64 > MAX_LISTED_BYTES;
    if is_too_long {
        running.kill().map_err(failed)?;
    }
    let done = running.wait().map_err(failed)?;
    if is_too_long {
        return Err(format!(
            "it has more than {MAX_REVISION_FILES} files: name a folder below it"
        ));
    }
    if !done.success() {
        let mut told = Vec::new();
        errors.rewind().map_err(failed)?;
        errors
            .take(MAX_ERROR_BYTES)
            .read_to_end(&mut told)
            .map_err(failed)?;
        return Err(String::from_utf8_lossy(&told).into_owned());
    }
    String::from_utf8(answer).map_err(|_| "a file name is not UTF-8".to_owned())
}

/// `path`, which is relative to the folder `prefix`, from the top of the repository.
fn within_repository(prefix: &Path, path: &Path) -> Result<PathBuf, String> {
    let mut whole = prefix.to_owned();
    for component in path.components() {
        match component {
            Component::Normal(name) => whole.push(name),
            Component::CurDir => {}
            Component::ParentDir if whole.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err("name a path in the repository, relative to the current folder".to_owned());
            }
        }
    }
    Ok(whole)
}

fn object_at(revision: &str, path: &Path) -> Result<String, String> {
    let named = format!("{revision}:{}", path.display());
    let object = git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &named]);
    let object = object.map_err(|_| {
        let commit = format!("{revision}^{{commit}}");
        match git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]) {
            Ok(_) => format!("the revision `{revision}` has no `{}`", path.display()),
            Err(_) => format!(
                "there is no revision `{revision}` in this repository: `git fetch` it, or name another"
            ),
        }
    })?;
    Ok(object.trim().to_owned())
}

/// Writes the files of the tree `object` to `folder`. All folders come first and links last, so
/// that nothing is written through a link, even if a tree has a link and a folder of the same name.
fn write_tree(object: &str, folder: &Path) -> Result<(), String> {
    let listed = git(&["ls-tree", "-r", "-z", "-l", "--full-tree", object])?;
    let entries: Result<Vec<TreeEntry>, String> = listed.split_terminator('\0').map(entry).collect();
    let (links, files): (Vec<TreeEntry>, Vec<TreeEntry>) = entries?
        .into_iter()
        .partition(|entry| entry.kind == EntryKind::Link);
    let bytes: u64 = files.iter().chain(&links).map(|entry| entry.bytes).sum();
    if bytes > MAX_REVISION_BYTES {
        return Err(format!(
            "its files have {bytes} bytes, of which at most {MAX_REVISION_BYTES} are read: name a folder below"
        ));
    }
    let all: Vec<&TreeEntry> = files.iter().chain(&links).collect();
    let failed = |entry: &TreeEntry, error: std::io::Error| format!("{}: {error}", entry.path.display());
    for entry in &all {
        let path = folder.join(&entry.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| failed(entry, error))?;
    }
    for_each_content(&all, folder, |entry, content| {
        let path = folder.join(&entry.path);
        let written = match entry.kind {
            EntryKind::Link => symlink(
                PathBuf::from(String::from_utf8_lossy(&content).into_owned()),
                &path,
            ),
            EntryKind::File | EntryKind::Submodule => fs::write(&path, &content),
        };
        written.map_err(|error| failed(entry, error))
    })?;
    links.iter().try_for_each(|link| check_link(link, folder))
}

/// Parses a line of `git ls-tree -l`: `MODE TYPE OBJECT SIZE<tab>PATH`.
fn entry(line: &str) -> Result<TreeEntry, String> {
    let unreadable = || format!("git ls-tree: `{line}`");
    let (facts, path) = line.split_once('\t').ok_or_else(unreadable)?;
    let mut facts = facts.split_ascii_whitespace();
    let (Some(mode), Some(_), Some(object), Some(size)) =
        (facts.next(), facts.next(), facts.next(), facts.next())
    else {
        return Err(unreadable());
    };
    let path = PathBuf::from(path);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("`{}` is not the path of a file", path.display()));
    }
    let kind = match mode {
        "120000" => EntryKind::Link,
        "160000" => EntryKind::Submodule,
        _ => EntryKind::File,
    };
    if kind == EntryKind::Submodule {
        return Err(format!(
            "`{}` is a submodule, whose files are in another repository: compare a checkout of it",
            path.display()
        ));
    }
    Ok(TreeEntry {
        kind,
        object: object.to_owned(),
        bytes: size.parse().map_err(|_| unreadable())?,
        path,
    })
}

/// Passes the content of each entry to `each`, in order.
fn for_each_content(
    entries: &[&TreeEntry],
    folder: &Path,
    mut each: impl FnMut(&TreeEntry, Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("git cat-file: {error}");
    let mut asked = tempfile::tempfile_in(folder).map_err(failed)?;
    for entry in entries {
        writeln!(asked, "{}", entry.object).map_err(failed)?;
    }
    asked.rewind().map_err(failed)?;
    let mut batch = cat_file(asked).map_err(failed)?;
    let mut output = BufReader::new(batch.stdout.take().ok_or("git cat-file: no output")?);
    for entry in entries {
        let mut head = String::new();
        output.read_line(&mut head).map_err(failed)?;
        if !head.ends_with(&format!(" {}\n", entry.bytes)) {
            return Err(format!(
                "git does not have the content of `{}`: if the clone is a partial one, fetch it first",
                entry.path.display()
            ));
        }
        let mut content = Vec::new();
        let read = (&mut output)
            .take(entry.bytes)
            .read_to_end(&mut content)
            .map_err(failed)?;
        output.read_until(b'\n', &mut Vec::new()).map_err(failed)?;
        if read as u64 != entry.bytes {
            return Err(format!("git has only a part of `{}`", entry.path.display()));
        }
        each(entry, content)?;
    }
    batch.wait().map(drop).map_err(failed)
}

fn cat_file(asked: File) -> std::io::Result<std::process::Child> {
    let mut command = git_command(&["cat-file", "--batch"]);
    command.stdin(Stdio::from(asked)).stdout(Stdio::piped()).spawn()
}

/// Checks that a link does not lead out of the folder, to files that are not part of the revision.
fn check_link(link: &TreeEntry, folder: &Path) -> Result<(), String> {
    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    match folder.join(&link.path).canonicalize() {
        Ok(target) if !target.starts_with(&folder) => Err(format!(
            "`{}` is a symbolic link that leads out of the revision's folder: compare a checkout of it",
            link.path.display()
        )),
        _ => Ok(()),
    }
}
