//! Whether reading an object from JSON changes it.
//!
//! `metadata.managedFields` says when each manager wrote. The API server takes this time to the
//! nanosecond, and JSON has whole seconds, so the first patch of a request is a change there even
//! if it changes nothing else (`changed` in `callAttrMutatingHook` of
//! `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`). Custom resources are JSON from
//! the beginning.

use std::collections::HashSet;

use crate::engine::admission::Request;
use crate::engine::admission::matching::is_own_group;
use portcullis_cel::json::{Node, diff};

/// What every write changes, and is no manager's.
const BOOKKEEPING: [&str; 3] = [
    "/metadata/managedFields",
    "/metadata/resourceVersion",
    "/metadata/generation",
];

/// Whether a manager's time in the object of `request` is that of the request itself.
pub(crate) fn are_new(request: &Request<'_>) -> bool {
    let Some(object) = request.object.filter(|_| is_own_group(&request.kind.group)) else {
        return false;
    };
    let mut entries = entries(object).peekable();
    if entries.peek().is_none() {
        return false;
    }
    let Some(old) = request.old_object else {
        return true;
    };
    let known: HashSet<&str> = self::entries(old).collect();
    // Two writes of one manager within a second leave the same entry.
    entries.any(|entry| !known.contains(entry)) || writes(old, object)
}

fn entries(object: Node<'_>) -> impl Iterator<Item = &str> {
    let fields = object
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    fields.into_iter().flat_map(Node::items).map(Node::raw)
}

/// Whether some field is set, or set to something else.
fn writes(old: Node<'_>, object: Node<'_>) -> bool {
    let operations = diff(old, object);
    operations.iter().any(|operation| {
        operation.value.is_some() && !BOOKKEEPING.iter().any(|path| operation.path.starts_with(path))
    })
}
