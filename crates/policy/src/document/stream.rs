//! Splits a text into documents, like kubectl (`k8s.io/apimachinery/pkg/util/yaml`,
//! `YAMLOrJSONDecoder`): consecutive JSON values, or YAML documents separated by lines
//! that begin with `---`.

use std::borrow::Cow;

use super::unreadable::Reason;
use super::{Node, Unreadable, json, yaml};

/// Reads every document of `text`.
pub(crate) fn read(text: &str) -> Result<Vec<Node>, Unreadable> {
    let mut documents = Vec::new();
    let (rest, line) = match values(text, &mut documents) {
        Ok(()) => return Ok(documents),
        // After one value a stream of YAML may follow; after two it is one of JSON.
        Err(unread) if documents.len() < 2 && unread.error.reason == Reason::Syntax => {
            (unread.rest, unread.line)
        }
        Err(unread) => return Err(unread.error),
    };
    read_yaml(rest, line, &mut documents)?;
    Ok(documents)
}

/// What of a text is not JSON.
struct Unread<'t> {
    error: Unreadable,
    rest: &'t str,
    /// The line on which it begins.
    line: u32,
}

/// Adds the JSON values of `text`, which begins with a `{`.
fn values<'t>(text: &'t str, documents: &mut Vec<Node>) -> Result<(), Unread<'t>> {
    if !text.trim_start().starts_with('{') {
        let error = Unreadable::new(0, 0, Reason::Syntax, "not JSON");
        return Err(Unread {
            error,
            rest: text,
            line: 1,
        });
    }
    let mut reader = json::Reader::new(text);
    loop {
        let (rest, line) = reader.rest();
        match reader.next_value() {
            Ok(Some(value)) => documents.push(value),
            Ok(None) => return Ok(()),
            Err(error) => return Err(Unread { error, rest, line }),
        }
    }
}

/// Adds the YAML documents of `text`, which begins on `first_line`.
fn read_yaml(text: &str, first_line: u32, documents: &mut Vec<Node>) -> Result<(), Unreadable> {
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
                documents.extend(yaml::parse(document, start_line)?);
                (start, start_line) = (end, line.saturating_add(1));
            }
        }
        (at, line) = (end, line.saturating_add(1));
    }
    // The last line may have no end; kubectl gives it one.
    let mut document = Cow::Borrowed(text.get(start..).unwrap_or_default());
    if !document.ends_with('\n') {
        document.to_mut().push('\n');
    }
    documents.extend(yaml::parse(&document, start_line)?);
    Ok(())
}
