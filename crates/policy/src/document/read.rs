//! Splits a text into documents, like kubectl (`k8s.io/apimachinery/pkg/util/yaml`,
//! `YAMLOrJSONDecoder`): consecutive JSON values, or YAML documents separated by lines
//! that begin with `---`.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::layout::{Reason, Unreadable};
use super::{Document, Node, Value, json, yaml};
use crate::field::{Fault, FaultKind, Place};

/// Reads every document of a YAML stream or JSON text. `file` is only for messages.
///
/// Empty documents are left out. A key that stands twice, aliases that multiply,
/// and nesting deeper than [`MAX_DEPTH`](super::MAX_DEPTH) are faults.
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

/// A document of more bytes is long.
const LONG_DOCUMENT_BYTES: usize = 256 << 10;

/// What bounds the memory that documents take while they are read: some hundred bytes a value, of
/// which there may be one for every two bytes of a text.
#[derive(Debug, Clone, Copy)]
pub struct ParseLimits<'l> {
    /// The most values of a document; one of more is a fault.
    pub max_values: usize,
    /// Locked while a document of more than 256 KiB is read and taken.
    pub long_documents: Option<&'l Mutex<()>>,
}

// === impl ParseLimits ===

impl<'l> ParseLimits<'l> {
    /// No bounds, for texts that are bounded themselves.
    pub const NONE: Self = Self {
        max_values: usize::MAX,
        long_documents: None,
    };

    /// Held while a document of so many bytes is read and taken.
    fn guard(&self, bytes: usize) -> Option<MutexGuard<'l, ()>> {
        let lock = self.long_documents.filter(|_| bytes > LONG_DOCUMENT_BYTES);
        lock.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// As [`parse`], but has `take` take each document before the next is read, until it breaks.
///
/// # Errors
///
/// As [`parse`]; `take` has taken what stands before that place.
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

/// What takes each document of a text, until it breaks.
type Take<'t> = &'t mut dyn FnMut(Node) -> ControlFlow<()>;

/// Has `take` take every document of `text`.
fn read(text: &str, limits: ParseLimits<'_>, take: Take<'_>) -> Result<(), Unreadable> {
    let mut count = 0;
    let counted = &mut |node: Node| {
        count += 1;
        take(node)
    };
    let (rest, line) = match values(text, limits, counted) {
        Ok(()) => return Ok(()),
        // After one value a stream of YAML may follow; after two it is one of JSON.
        Err(unread) if count < 2 && unread.error.reason == Reason::Syntax => (unread.rest, unread.line),
        Err(unread) => return Err(unread.error),
    };
    read_yaml(rest, line, limits, take)
}

/// `text` with a line feed at the end of each line, as kubectl's reader of lines gives it to YAML
/// (`LineReader` of `k8s.io/apimachinery/pkg/util/yaml`).
fn with_line_feeds(text: &str) -> Cow<'_, str> {
    match text.contains("\r\n") {
        true => Cow::Owned(text.replace("\r\n", "\n")),
        false => Cow::Borrowed(text),
    }
}

/// What of a text is not JSON.
struct Unread<'t> {
    error: Unreadable,
    rest: &'t str,
    /// The line on which it begins.
    line: u32,
}

/// The JSON values of `text`, which begins with a `{`.
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

/// The YAML documents of `text`, which begins on `first_line`.
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
    // The last line may have no end; kubectl gives it one.
    let mut document = with_line_feeds(text.get(start..).unwrap_or_default());
    if !document.ends_with('\n') {
        document.to_mut().push('\n');
    }
    let _one_at_a_time = limits.guard(document.len());
    if let Some(node) = yaml::parse(&document, start_line, limits.max_values)? {
        // It is the last, so that it does not matter whether there should be more.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = take(node);
    }
    Ok(())
}
