//! YAML as Kubernetes' clients read it: YAML 1.1, as `sigs.k8s.io/yaml` turns
//! it into JSON.
//!
//! ```text
//! text --Cursor--> characters --YamlScanner--> tokens --Parser--> Tree --Builder--> Node
//!                                                     anchors, tags     aliases, merge keys,
//!                                                                       what scalars mean
//! ```
//!
//! That library is based on a port of libyaml, whose scanner accepts more than the
//! specification in some places and less in others. This reader accepts what that scanner
//! accepts, so that a manifest means the same to kubectl and to Portcullis; a
//! differential test ensures it (`tests/oracle/yaml.rs`). It is stricter where that
//! library would silently lose text: text after the end of a document, and duplicate
//! keys.
//!
//! Time and memory are linear in the text: there is no recursion over nesting levels
//! ([`MAX_DEPTH`](super::MAX_DEPTH) limits the depth of the tree), and the repetition by
//! aliases is limited.

mod builder;
mod parser;
mod property;
mod resolve;
mod scalar;
mod scanner;
#[cfg(test)]
mod tests;

use super::Node;
use super::layout::{Reason, Unreadable};

pub(crate) use resolve::{ResolvedScalar, normal, resolve};

/// Reads the one document in `text`; `None` where there is nothing but comments.
/// Lines are counted from `line`, that of its beginning. More than `max_values` values are an error.
pub(crate) fn parse(text: &str, line: u32, max_values: usize) -> Result<Option<Node>, Unreadable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.starts_with('\u{feff}') {
        // Behind two of them the reader of kubectl loses the first character of every line.
        let message = "the text begins with two byte order marks: remove one";
        let error = Unreadable::new(0, 1, Reason::Syntax, message);
        return Err(error.moved_down(line - 1));
    }
    let read = match scanner::forbidden(text) {
        None => read(text, max_values),
        Some((at, error)) => match read(text.get(..at).unwrap_or_default(), max_values) {
            Err(earlier) if earlier.reason == Reason::Trailing => Err(earlier),
            _ => Err(error),
        },
    };
    match read {
        Ok(mut node) => {
            if let Some(node) = node.as_mut().filter(|_| line > 1) {
                node.move_down(line - 1);
            }
            Ok(node)
        }
        Err(error) => Err(error.moved_down(line - 1)),
    }
}

fn read(text: &str, max_values: usize) -> Result<Option<Node>, Unreadable> {
    match parser::EventParser::new(text, max_values).document()? {
        Some(tree) => builder::build(&tree, max_values).map(Some),
        None => Ok(None),
    }
}
