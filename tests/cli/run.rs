//! Runs the binary in a throwaway folder.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The user and group that own nothing.
const NOBODY: u32 = 65534;

/// A folder and the program in it.
pub(crate) struct Portcullis {
    folder: tempfile::TempDir,
}

/// What one run left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Portcullis {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// Writes a file, and the folders around it.
    pub(crate) fn write(&self, relative: &str, contents: &str) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    /// Writes the project's example policies, which deny in earnest, into a folder.
    pub(crate) fn write_examples(&self, folder: &str) {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies");
        for entry in std::fs::read_dir(examples).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name.ends_with(".yaml") && !name.ends_with("_test.yaml") {
                self.write(
                    &format!("{folder}/{name}"),
                    &std::fs::read_to_string(&path).unwrap(),
                );
            }
        }
    }

    /// Runs with `arguments`, separated by blanks, and nothing on standard input.
    pub(crate) fn run(&self, arguments: &str) -> Run {
        self.run_with(&arguments.split_whitespace().collect::<Vec<_>>(), "")
    }

    /// Runs with `arguments` and `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        self.run_command(
            Command::new(env!("CARGO_BIN_EXE_portcullis")).args(arguments),
            input,
        )
    }

    /// Runs with `arguments`, separated by blanks, as a user whom permissions bind. Where the test
    /// runs as root, that is another user, to whom the folder is given.
    pub(crate) fn run_unprivileged(&self, arguments: &str) -> Run {
        let program = Path::new(env!("CARGO_BIN_EXE_portcullis"));
        let arguments = arguments.split_whitespace();
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        if !is_root {
            return self.run_command(Command::new(program).args(arguments), "");
        }
        // That user may not be able to reach the folder of the build.
        let copy = self.path("portcullis-of-nobody");
        // Written by another process: what this one has open for writing, a test beside it that
        // starts a program may hold open for a moment longer, and then it could not be run.
        let copied = Command::new("cp").arg(program).arg(&copy).status().unwrap();
        assert!(copied.success());
        give(self.folder.path());
        self.run_command(Command::new(copy).args(arguments).uid(NOBODY).gid(NOBODY), "")
    }

    fn run_command(&self, command: &mut Command, input: &str) -> Run {
        use std::io::Write as _;

        let mut child = command
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that ends without reading its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Run {
            code: output.status.code().expect("ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Makes `path`, and all in it, `NOBODY`'s own.
fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}
