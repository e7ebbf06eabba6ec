//! JSON Patches: what they put where something is removed, and copies of that elsewhere.

use super::path::{Pattern, RedactedPlace, remove_all};
use super::{MARKER, Redaction, kinds, pointer_of};
use portcullis_cel::json::{Document, Kind, Node, escape_bytes, pointer, write_string};

/// The patch in one line of JSON, without what is removed from the object that it changes; `at`
/// is its place in the line.
pub(in crate::recording) fn redacted_patch(patch: &[u8], redaction: &mut Redaction, at: &str) -> String {
    let text = escape_bytes(patch);
    let Ok(document) = Document::parse(text.as_ref()) else {
        // What it would change cannot be told: written where there is nothing to hide, as text.
        if redaction.patterns.is_empty() && !redaction.is_any() {
            let mut written = String::new();
            write_string(&mut written, &text);
            return written;
        }
        redaction.places.push(at.to_owned());
        return format!("\"{MARKER}\"");
    };
    let mut places = Vec::new();
    for (index, operation) in document.root().items().enumerate() {
        let here = [index.to_string(), "value".to_owned()];
        if let Some(value) = operation.get("value") {
            let target = operation.get("path").and_then(Node::as_str);
            // A path that leads nowhere puts its value nowhere, but it is written.
            let steps = target.as_deref().and_then(pointer::steps);
            let steps: Option<Vec<String>> =
                steps.map(|steps| steps.into_iter().map(|step| step.into_owned()).collect());
            for pattern in &redaction.patterns {
                let left = match &steps {
                    Some(steps) => pattern.after(steps),
                    None => Some(Pattern::new(Vec::new())),
                };
                if let Some(left) = left {
                    left.find(value, &here, &mut places);
                }
            }
        }
    }
    kinds::find(document.root(), &mut places);
    copies(document.root(), redaction, &mut places);
    places.iter().for_each(|place| redaction.removed.add(place.node));
    let (text, removed) = remove_all(document.root(), places);
    redaction
        .places
        .extend(removed.iter().map(|steps| pointer_of(at, steps)));
    crate::recording::digest::one_line(&text)
}

/// Adds every text that is, or has in it, what was removed elsewhere.
fn copies<'d>(root: Node<'d>, redaction: &Redaction, places: &mut Vec<RedactedPlace<'d>>) {
    let mut pending = vec![(root, Vec::new())];
    while let Some((node, at)) = pending.pop() {
        let mut go = |name: String, node: Node<'d>| {
            let mut at: Vec<String> = at.clone();
            at.push(name);
            pending.push((node, at));
        };
        match node.kind() {
            Kind::String if redaction.removed.is_within(&node.as_str().unwrap_or_default()) => {
                places.push(RedactedPlace::of(at, node));
            }
            Kind::Array => node
                .items()
                .enumerate()
                .for_each(|(index, item)| go(index.to_string(), item)),
            Kind::Object => node
                .entries()
                .for_each(|(name, value)| go(name.into_owned(), value)),
            Kind::String | Kind::Null | Kind::Bool | Kind::Number => {}
        }
    }
}
