//! Results on standard output, complaints on standard error. No colour anywhere.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use super::Error;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// One JSON document, for programs.
    Json,
}

/// Writes one result: `text` for people or `value` for programs.
///
/// # Errors
///
/// Standard output takes no more.
pub(super) fn print(format: Format, text: impl Display, value: &impl Serialize) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let written = match format {
        Format::Text => write!(out, "{text}"),
        Format::Json => serde_json::to_writer_pretty(&mut out, value)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out)),
    };
    written.and_then(|()| out.flush()).map_err(Error::Output)
}

/// Says on standard error what went wrong. That it cannot be said is no further failure.
pub(super) fn complain(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "portcullis: {what}");
}
