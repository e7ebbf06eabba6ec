//! Output: results on standard output, errors on standard error, without colour.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Error;

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// One JSON document, for programs.
    Json,
    /// SARIF 2.1.0, for code review tools; only for `check` and `scan`.
    Sarif,
    /// JUnit's XML, for CI services; only for `replay` and `scan`.
    Junit,
    /// Report and ClusterReport of openreports.io/v1alpha1, as JSON; only for `scan`.
    Openreports,
    /// A matrix of resources and verbs; only for `what-can`.
    Wide,
}

/// Writes one result: `text` for people or `value` for programs.
///
/// # Errors
///
/// Standard output takes no more.
pub(super) fn print(format: Format, text: impl Display, value: &impl Serialize) -> Result<(), Error> {
    match format {
        Format::Text => {
            let mut out = std::io::stdout().lock();
            let written = write!(out, "{text}");
            written.and_then(|()| out.flush()).map_err(Error::Output)
        }
        Format::Json => print_json(value),
        Format::Sarif => Err(Error::Usage("only `check` and `scan` support SARIF".into())),
        Format::Junit => Err(Error::Usage("only `replay` and `scan` support `-o junit`".into())),
        Format::Openreports => Err(Error::Usage("only `scan` supports `-o openreports`".into())),
        Format::Wide => Err(Error::Usage("only `what-can` supports `-o wide`".into())),
    }
}

/// Writes one JSON document.
///
/// # Errors
///
/// Standard output takes no more.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let written = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
    written
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush())
        .map_err(Error::Output)
}

/// `1 object`, `2 objects`.
pub(super) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// This program as a shell finds it again: as it was called, by a path such as
/// `target/debug/portcullis` too, which is no command without its folders.
pub(super) fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let is_path = |path: &PathBuf| path.components().count() > 1;
    match called {
        Some(path) if is_path(&path) => argument(&path),
        Some(path) if path.as_os_str() == "kubectl-portcullis" => "kubectl portcullis".to_owned(),
        _ => "portcullis".to_owned(),
    }
}

/// Whether kubectl runs the program as its plugin, `kubectl portcullis`.
pub(super) fn is_plugin() -> bool {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_stem);
    name.is_some_and(|name| name == "kubectl-portcullis" || name == "kubectl_portcullis")
}

/// `path` as one argument of a shell's command.
pub(super) fn argument(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Says on standard error what went wrong. That it cannot be said is no further failure.
pub(super) fn complain(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "portcullis: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_argument() {
        for (path, argument_of_it) in [
            ("/srv/gate/portcullis.yaml", "/srv/gate/portcullis.yaml"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(argument(Path::new(path)), argument_of_it);
        }
    }
}
