//! Splits a text into documents as kubectl does (`k8s.io/apimachinery/pkg/util/yaml`,
//! `YAMLOrJSONDecoder`): consecutive JSON values, or YAML documents separated by lines that begin
//! with `---`.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::layout::{Reason, Unreadable};
use super::{Document, Node, Value, json, yaml};
use crate::field::{Fault, FaultKind, Place};

/// Parses every document of a YAML stream or JSON text. `file` is only for messages.
///
/// Empty documents are left out. Duplicate keys, aliases that repeat too much, and nesting deeper
/// than [`MAX_DEPTH`](super::MAX_DEPTH) are errors.
///
/// # Errors
///
/// The first place at which the text is neither YAML nor JSON.
pub fn parse(file: Option<&str>, text: &str) -> Result<Vec<Document>, Fault> {
    let mut documents = Vec::new();
    parse_each(file, text, ParseLimits::NONE, |document| {
        documents.push(document);
        ControlFlow::Continue(())
    })?;
    Ok(documents)
}

/// A document with more bytes counts as long.
const LONG_DOCUMENT_BYTES: usize = 256 << 10;

/// Limits of the memory that documents take while they are parsed: a value takes some hundred
/// bytes, and a text may have a value for every two bytes.
#[derive(Debug, Clone, Copy)]
pub struct ParseLimits<'l> {
    /// The most values of a document; more are an error.
    pub max_values: usize,
    /// Locked while a document of more than 256 KiB is parsed and consumed, so that only one of
    /// them is in memory.
    pub long_documents: Option<&'l Mutex<()>>,
}

// === impl ParseLimits ===

impl<'l> ParseLimits<'l> {
    /// No limits, for texts whose length is limited elsewhere.
    pub const NONE: Self = Self {
        max_values: usize::MAX,
        long_documents: None,
    };

    /// The lock to hold while a document of `bytes` bytes is parsed and consumed.
    fn guard(&self, bytes: usize) -> Option<MutexGuard<'l, ()>> {
        let lock = self.long_documents.filter(|_| bytes > LONG_DOCUMENT_BYTES);
        lock.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Like [`parse`], but passes each document to `take` before the next is parsed, until `take`
/// breaks.
///
/// # Errors
///
/// Those of [`parse`]. The documents before the error have been passed to `take`.
pub fn parse_each(
    file: Option<&str>,
    text: &str,
    limits: ParseLimits<'_>,
    mut take: impl FnMut(Document) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let file: Option<Arc<str>> = file.map(Into::into);
    let mut take = |root: Node| match root.value {
        Value::Null => ControlFlow::Continue(()),
        _ => take(Document::new(file.clone(), root)),
    };
    read(text, limits, &mut take).map_err(|unreadable| {
        let place = Place {
            file: file.clone(),
            line: unreadable.line,
            ..Place::default()
        };
        Fault::error(place, FaultKind::Unreadable, unreadable.message())
    })
}

/// Consumes each document of a text, until it breaks.
type Take<'t> = &'t mut dyn FnMut(Node) -> ControlFlow<()>;

/// Passes every document of `text` to `take`.
fn read(text: &str, limits: ParseLimits<'_>, take: Take<'_>) -> Result<(), Unreadable> {
    let mut count = 0;
    let counted = &mut |node: Node| {
        count += 1;
        take(node)
    };
    let (rest, line) = match values(text, limits, counted) {
        Ok(()) => return Ok(()),
        // A YAML stream may follow one JSON value; after two, the text is a JSON stream.
        Err(unread) if count < 2 && unread.error.reason == Reason::Syntax => (unread.rest, unread.line),
        Err(unread) => return Err(unread.error),
    };
    read_yaml(rest, line, limits, take)
}

/// `text` with LF for CRLF, as kubectl's line reader passes it to the YAML parser (`LineReader` of
/// `k8s.io/apimachinery/pkg/util/yaml`).
fn with_line_feeds(text: &str) -> Cow<'_, str> {
    match text.contains("\r\n") {
        true => Cow::Owned(text.replace("\r\n", "\n")),
        false => Cow::Borrowed(text),
    }
}

/// The part of a text that is not JSON.
struct Unread<'t> {
    error: Unreadable,
    rest: &'t str,
    /// The line on which it begins.
    line: u32,
}

/// Reads the JSON values of `text`, if it begins with a `{`.
fn values<'t>(text: &'t str, limits: ParseLimits<'_>, take: Take<'_>) -> Result<(), Unread<'t>> {
    if !text.trim_start().starts_with('{') {
        let error = Unreadable::new(0, 0, Reason::Syntax, "not JSON");
        return Err(Unread {
            error,
            rest: text,
            line: 1,
        });
    }
    let mut reader = json::Reader::new(text, limits.max_values);
    loop {
        let (rest, line) = reader.rest();
        let _one_at_a_time = limits.guard(rest.len());
        match reader.next_value() {
            Ok(Some(value)) => {
                if take(value).is_break() {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(error) => return Err(Unread { error, rest, line }),
        }
    }
}

/// Parses the YAML documents of `text`, which begins on `first_line`.
fn read_yaml(text: &str, first_line: u32, limits: ParseLimits<'_>, take: Take<'_>) -> Result<(), Unreadable> {
    let mut start = 0;
    let mut start_line = first_line;
    let mut at = 0;
    let mut line = first_line;
    for one in text.split_inclusive('\n') {
        let end = at + one.len();
        if let Some(behind) = one.strip_prefix("---") {
            let behind = behind.trim();
            if !behind.is_empty() && !behind.starts_with('#') {
                let message =
                    "only a comment may follow `---` on its line; begin the document on the next line";
                return Err(Unreadable::new(line - 1, 3, Reason::Syntax, message));
            }
            let document = text.get(start..at).unwrap_or_default();
            if at > start {
                let _one_at_a_time = limits.guard(document.len());
                let node = yaml::parse(&with_line_feeds(document), start_line, limits.max_values)?;
                if node.is_some_and(|node| take(node).is_break()) {
                    return Ok(());
                }
                (start, start_line) = (end, line.saturating_add(1));
            }
        }
        (at, line) = (end, line.saturating_add(1));
    }
    // The last line may lack a line feed; kubectl adds one.
    let mut document = with_line_feeds(text.get(start..).unwrap_or_default());
    if !document.ends_with('\n') {
        document.to_mut().push('\n');
    }
    let _one_at_a_time = limits.guard(document.len());
    if let Some(node) = yaml::parse(&document, start_line, limits.max_values)? {
        // This is the last document, so it does not matter whether `take` breaks.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = take(node);
    }
    Ok(())
}
