//! A program that runs beside a test and never outlives it.
//!
//! Servers shared by tests live in statics, which Rust never drops, and a test
//! run can be interrupted. So each program runs under a shell that kills it as
//! soon as the pipe from the test process closes, for whatever reason.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// `$1` is a folder to remove at the end (or empty), the rest the program.
/// Jobs are killed by job, not by number: a number may by then belong to
/// another process.
const GUARD: &str = r#"
folder=$1; shift
exec 3<&0
"$@" </dev/null 3<&- &
cat <&3 >/dev/null &
exec 3<&-
wait -n
{ kill -9 %1 %2; wait; } 2>/dev/null
[ -z "$folder" ] || rm -rf -- "$folder"
"#;

/// Lines of a log that a failing test prints.
const TAIL: usize = 40;

/// A running program with its log.
pub(crate) struct Process {
    name: String,
    guard: Child,
    lifeline: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; its output goes to `NAME.log` in `folder`.
    ///
    /// A folder to `remove` goes when the program has ended.
    pub(crate) fn start<A: AsRef<OsStr>>(
        name: &str,
        folder: &Path,
        remove: Option<&Path>,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        fs::create_dir_all(folder).unwrap();
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).unwrap();
        let mut guard = Command::new("bash")
            .args(["-c", GUARD, "guard"])
            .arg(remove.unwrap_or(Path::new("")))
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("bash is there");
        let lifeline = guard.stdin.take();
        Self {
            name: name.to_owned(),
            guard,
            lifeline,
            log,
        }
    }

    /// Whether the program still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.guard.try_wait(), Ok(None))
    }

    /// The whole log so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of the log, under a heading.
    pub(crate) fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL)..];
        format!(
            "==== {} ({})\n{}\n",
            self.name,
            self.log.display(),
            tail.join("\n")
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        // Fails only if it was waited for before.
        let _ = self.guard.wait();
    }
}
