//! YAML as Kubernetes' clients read it: YAML 1.1, as `sigs.k8s.io/yaml` turns
//! it into JSON.
//!
//! ```text
//! text --Cursor--> characters --Scanner--> tokens --Parser--> Tree --Builder--> Node
//!                                                     anchors, tags     aliases, merge keys,
//!                                                                       what scalars mean
//! ```
//!
//! That library stands on a port of libyaml, whose scanner accepts more than the
//! specification does and some things less. What is accepted here is what that
//! scanner accepts, so that a manifest means the same to kubectl and to us; a
//! differential test against it holds us to that (`tests/oracle/yaml.rs`). We
//! are stricter where it would lose what is written: text after the end of a
//! document, and a key that stands twice.
//!
//! Time and memory are linear in the text: nothing recurses by its nesting
//! ([`MAX_DEPTH`](super::MAX_DEPTH) bounds what the tree is built with), and
//! what aliases repeat is bounded.

mod block;
mod builder;
mod collection;
mod cursor;
mod indicator;
mod number;
mod parser;
mod property;
mod quoted;
mod resolve;
mod scanner;
#[cfg(test)]
mod tests;
mod timestamp;
mod token;
mod tree;

use super::unreadable::Reason;
use super::{Node, Unreadable};

pub(super) use number::normal;
#[cfg(feature = "server")]
pub(super) use resolve::{Scalar, resolve};

/// Reads the one document in `text`; `None` where there is nothing but comments.
/// Lines are counted from `line`, that of its beginning.
pub(super) fn parse(text: &str, line: u32) -> Result<Option<Node>, Unreadable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = match cursor::forbidden(text) {
        None => read(text),
        Some((at, error)) => match read(text.get(..at).unwrap_or_default()) {
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

fn read(text: &str) -> Result<Option<Node>, Unreadable> {
    match parser::Parser::new(text).document()? {
        Some(tree) => builder::build(&tree).map(Some),
        None => Ok(None),
    }
}
