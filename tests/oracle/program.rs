//! The program that answers for Kubernetes.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use portcullis_cel::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::trials;

/// The newest Kubernetes that there is a program of.
pub(crate) const NEWEST: &str = "1.37";

/// A running program that is asked about one subject: `regex`, `cel`, `yaml`.
pub(crate) struct Oracle {
    child: Child,
    questions: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

// === impl Oracle ===

impl Oracle {
    /// The program with the newest Kubernetes' code, asked about `subject`.
    ///
    /// Where it was not built, the test counts as ignored, and is to return.
    ///
    /// # Panics
    /// Where it was not built, when `PORTCULLIS_REQUIRE_ORACLE` is `1`.
    pub(crate) fn start(subject: &str) -> Option<Self> {
        Self::of(NEWEST, &[subject])
    }

    /// The program with the code of the Kubernetes `server`, asked about expressions in the
    /// environment that it has for `version`; else like [`Oracle::start`].
    pub(crate) fn of_expressions(server: &str, version: Version) -> Option<Self> {
        Self::of(server, &["cel", &version.to_string()])
    }

    fn of(server: &str, arguments: &[&str]) -> Option<Self> {
        let program = path(server);
        if !program.is_file() {
            let missing = format!("{}; make it with tests/oracle/build", program.display());
            trials::ignore(&missing, Some("PORTCULLIS_REQUIRE_ORACLE"));
            return None;
        }
        let mut child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let questions = BufWriter::new(child.stdin.take().unwrap());
        let answers = BufReader::new(child.stdout.take().unwrap());
        Some(Self {
            child,
            questions,
            answers,
        })
    }

    /// The answers to all `questions`, in their order.
    pub(crate) fn ask<Q, A>(&mut self, questions: &[Q]) -> Vec<A>
    where
        Q: Serialize + Sync,
        A: DeserializeOwned,
    {
        let sent = &mut self.questions;
        let answers = &mut self.answers;
        // Questions are written beside the reading: pipes hold little.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for question in questions {
                    serde_json::to_writer(&mut *sent, question).unwrap();
                    sent.write_all(b"\n").unwrap();
                }
                sent.flush().unwrap();
            });
            questions.iter().map(|_| read(answers)).collect()
        })
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read<A: DeserializeOwned>(answers: &mut impl BufRead) -> A {
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in the answer {line:?}"))
}

fn path(server: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("oracle").join(server).join("oracle")
}
