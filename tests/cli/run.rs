//! Runs the binary in a throwaway folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
        use std::io::Write as _;

        let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(arguments)
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
