//! JSON Patches: what they put where something is removed, and copies of that elsewhere.

use super::marks::Marks;
use super::{QUOTED_MARKER, Redaction, TooManyPlaces, kinds, path};
use portcullis_cel::json::{Document, Kind, Node, escape_bytes, pointer, write_string};

/// The patch in one line of JSON, without what is removed from the object that it changes; `at`
/// is its place in the line.
///
/// # Errors
///
/// [`TooManyPlaces`].
pub(crate) fn redacted_patch(
    patch: &[u8],
    redaction: &mut Redaction,
    at: &str,
) -> Result<String, TooManyPlaces> {
    let text = escape_bytes(patch);
    let Ok(document) = Document::parse(text.as_ref()) else {
        // What it would change cannot be told: written where there is nothing to hide, as text.
        if redaction.patterns.is_empty() && !redaction.is_any() {
            let mut written = String::new();
            write_string(&mut written, &text);
            return Ok(written);
        }
        redaction.places.push(at.to_owned());
        return Ok(QUOTED_MARKER.to_owned());
    };
    let (root, mut marks) = (document.root(), Marks::default());
    for operation in root.items() {
        let Some(value) = operation.get("value") else {
            continue;
        };
        let target = operation.get("path").and_then(Node::as_str);
        // A path that leads nowhere puts its value nowhere, but it is written.
        let steps = target.as_deref().and_then(pointer::steps);
        for pattern in &redaction.patterns {
            let left = match &steps {
                Some(steps) => pattern.after(steps),
                None => Some([].as_slice()),
            };
            if let Some(left) = left {
                path::find(left, value, &mut marks);
            }
        }
    }
    kinds::find(root, &mut marks);
    // Every text that is, or has in it, what was removed elsewhere.
    let is_copy = |node: &Node<'_>| {
        node.kind() == Kind::String && redaction.removed.is_within(&node.as_str().unwrap_or_default())
    };
    root.descendants()
        .filter(is_copy)
        .for_each(|node| marks.add(node));
    let text = redaction.remove(root, marks, at)?;
    Ok(crate::recording::digest::into_line(text))
}
