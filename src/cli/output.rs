//! Output of commands: results on standard output, errors on standard error, and progress on a
//! terminal.
//!
//! Commands write to these streams only through this module. Text for people goes through
//! [`Lines`].

use std::fmt::Display;
use std::io::{BufWriter, IsTerminal as _, Stdout, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::files;
use portcullis_policy::explain::{Lines, is_escaped, one_line};
use portcullis_policy::field::Faults;

/// The format of the results of most commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
}

/// `-o`, with the formats of a command.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Output<F: clap::ValueEnum + Default + Send + Sync + 'static> {
    /// The output format.
    #[arg(short, long = "output", value_enum, default_value_t)]
    pub(crate) output: F,
}

/// Prints a result: `words` for people, or `value` as JSON for programs.
///
/// # Errors
///
/// Standard output cannot be written to.
pub(crate) fn print(format: Format, words: &Lines, value: &impl Serialize) -> Result<(), CommandError> {
    match format {
        Format::Text => write(words.as_str()),
        Format::Json => print_json(value),
    }
}

/// Prints a JSON document.
///
/// # Errors
///
/// Standard output cannot be written to.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let mut out = stdout();
    let written = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
    written
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush())
        .map_err(CommandError::Output)
}

/// Prints a complete text.
///
/// # Errors
///
/// Standard output cannot be written to.
pub(crate) fn write(text: &str) -> Result<(), CommandError> {
    let mut out = stdout();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(CommandError::Output)
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// A buffered writer to standard output.
pub(crate) fn stdout() -> BufWriter<Stdout> {
    BufWriter::new(std::io::stdout())
}

/// `1 object`, `2 objects`.
pub(crate) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// The command with which a user runs this program again: the path if it was called by one, such as
/// `target/debug/portcullis`, and otherwise its name.
pub(crate) fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let is_path = |path: &PathBuf| path.components().count() > 1;
    match called {
        Some(path) if is_path(&path) => argument(&path),
        Some(path) if path.as_os_str() == "kubectl-portcullis" => "kubectl portcullis".to_owned(),
        _ => "portcullis".to_owned(),
    }
}

/// Whether the program runs as a plugin of kubectl, `kubectl portcullis`.
pub(crate) fn is_plugin() -> bool {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_stem);
    name.is_some_and(|name| name == "kubectl-portcullis" || name == "kubectl_portcullis")
}

/// `path`, quoted as one argument for a shell, on one line.
pub(crate) fn argument(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.into_owned();
    }
    if !text.contains(is_escaped) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    let escaped = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if is_escaped(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("$'{}'", text.chars().map(escaped).collect::<String>())
}

/// Prints an error on standard error, on one line.
pub(crate) fn print_error(what: impl Display) {
    print_error_lines(&Lines::from_iter([what]));
}

/// Prints an error on standard error, on several lines. Ignores that it cannot be written.
pub(crate) fn print_error_lines(what: &Lines) {
    let _ = write!(std::io::stderr(), "portcullis: {what}");
}

/// The minimum time between updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// A progress line on standard error, which is overwritten. Not shown unless that is a terminal.
pub(crate) struct ProgressLine {
    is_terminal: bool,
    shown: Option<Instant>,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            shown: None,
        }
    }

    /// Updates the line, unless it was updated just before.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        if !self.is_terminal
            || self
                .shown
                .is_some_and(|shown| shown.elapsed() < PROGRESS_INTERVAL)
        {
            return;
        }
        self.shown = Some(Instant::now());
        // Ignores that it cannot be written.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", one_line(&text()));
    }

    /// Clears the line before other output.
    pub(crate) fn clear(&mut self) {
        if self.is_terminal && self.shown.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// The result of a command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandResult {
    /// Allowed, valid, passed or done: exit code 0.
    Success,
    /// Not allowed, invalid or failed: exit code 1.
    Failure,
}

/// Why a command could not run: exit code 2. Each message includes the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The arguments cannot be combined.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read or written.
    #[error("cannot {verb} `{path}`: {}", files::describe(.source))]
    File {
        verb: &'static str,
        path: String,
        source: std::io::Error,
    },
    /// The configuration or policies have errors.
    #[error("`{path}` cannot be used:\n{faults}")]
    Faulty { path: String, faults: Faults },
    /// The gateway cannot start, or has stopped.
    #[error("{0}")]
    Serve(Box<dyn std::error::Error + Send + Sync>),
    /// A key or certificate cannot be made.
    #[error("cannot make keys and certificates: {0}")]
    Pki(#[from] openssl::error::ErrorStack),
    /// A request to a cluster failed.
    #[error("{0}")]
    Cluster(#[from] crate::cluster::LiveError),
    /// Standard output cannot be written to.
    #[error("cannot write the result: {0}")]
    Output(std::io::Error),
}

impl CommandError {
    pub(crate) fn file(verb: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File {
            verb,
            path: path.display().to_string(),
            source,
        }
    }

    /// The error as text, with one line for each fault.
    pub(crate) fn to_lines(&self) -> Lines {
        match self {
            Self::Faulty { path, faults } => {
                let mut lines = Lines::from_iter([format!("`{path}` cannot be used:")]);
                faults.iter().for_each(|fault| lines.line(fault));
                lines
            }
            error => Lines::from_iter([error]),
        }
    }
}

// SARIF 2.1.0, which code review tools show next to the affected lines.

/// The SARIF log of one run.
pub(crate) fn sarif_log(rules: Vec<Value>, results: Vec<Value>) -> Value {
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "portcullis",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

/// The message of a result. If `text` could be parsed as a link (`[words](address)`, SARIF 3.11.6),
/// its brackets are escaped, because names of objects are under the control of users.
pub(crate) fn sarif_message(text: &str) -> Value {
    let escaped = |c: char| {
        matches!(c, '\\' | '[' | ']')
            .then_some('\\')
            .into_iter()
            .chain([c])
    };
    match text.contains("](") {
        true => json!({"text": text.chars().flat_map(escaped).collect::<String>()}),
        false => json!({"text": text}),
    }
}

/// The location in a file. `line` and `column` count from 1; 0 means unknown. `None` if there is no
/// file.
pub(crate) fn physical_location(file: &str, line: u32, column: u32) -> Option<Value> {
    if file.is_empty() {
        return None;
    }
    let artifact = json!({"uri": uri(file)});
    Some(match (line, column) {
        (0, _) => json!({"artifactLocation": artifact}),
        (line, 0) => json!({"artifactLocation": artifact, "region": {"startLine": line}}),
        (line, column) => {
            let region = json!({"startLine": line, "startColumn": column});
            json!({"artifactLocation": artifact, "region": region})
        }
    })
}

/// Encodes a path as a relative URI reference.
fn uri(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    path.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_a_link() {
        for (text, escaped) in [
            ("spec.rules[0]: is (not) known", "spec.rules[0]: is (not) known"),
            ("[a](http://b)", r"\[a\](http://b)"),
            (r"\[a\](b)", r"\\\[a\\\](b)"),
        ] {
            assert_eq!(sarif_message(text), json!({"text": escaped}));
        }
    }

    #[test]
    fn a_path_is_one_argument() {
        for (path, argument_of_it) in [
            ("/srv/gate/portcullis.yaml", "/srv/gate/portcullis.yaml"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
            ("it's\n::a", r"$'it\'s\u000a::a'"),
        ] {
            assert_eq!(argument(Path::new(path)), argument_of_it);
        }
    }
}
