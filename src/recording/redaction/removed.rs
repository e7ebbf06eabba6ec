//! The texts that were removed, so that copies of them are removed too: a mutation may have
//! put them elsewhere, a message may quote them.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;

use portcullis_cel::json::{Kind, Node};

/// The shortest text that is looked for within others.
const WITHIN: usize = 6;

/// The shortest text that is looked for as a whole.
const WHOLE: usize = 4;

/// Texts that were removed.
#[derive(Debug, Default)]
pub(super) struct Removed(HashSet<String>);

// === impl Removed ===

impl Removed {
    /// Remembers every text in `node`, also what it is in base64, and what it is base64 of.
    pub(super) fn add(&mut self, node: Node<'_>) {
        let mut pending = vec![node];
        while let Some(node) = pending.pop() {
            match node.kind() {
                Kind::String => self.add_text(&node.as_str().unwrap_or_default()),
                Kind::Array => pending.extend(node.items()),
                Kind::Object => pending.extend(node.entries().map(|(_, value)| value)),
                Kind::Null | Kind::Bool | Kind::Number => {}
            }
        }
    }

    fn add_text(&mut self, text: &str) {
        let decoded = STANDARD.decode(text).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        for text in [Some(text.to_owned()), decoded, Some(STANDARD.encode(text))] {
            self.0.extend(text.filter(|text| text.len() >= WHOLE));
        }
    }

    /// Whether one of them is `text` or stands in it.
    pub(super) fn is_within(&self, text: &str) -> bool {
        !self.0.is_empty()
            && (self.0.contains(text)
                || self
                    .0
                    .iter()
                    .filter(|removed| removed.len() >= WITHIN)
                    .any(|removed| memmem::find(text.as_bytes(), removed.as_bytes()).is_some()))
    }
}
