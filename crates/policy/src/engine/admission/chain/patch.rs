//! Applies the patch of a webhook.
//!
//! The end of `callAttrMutatingHook` of
//! `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`.

use std::collections::HashSet;
use std::sync::Arc;

use super::objection::Objection;
use crate::engine::admission::apply::{self, DecodeMode, DecodedObject};
use crate::engine::admission::changes::{ChangeError, ChangeLimits, ChangedObject};
use crate::engine::admission::matching::is_own_group;
use crate::engine::admission::webhook::{Call, ReviewVersion, WebhookReply};
use crate::engine::admission::{Request, outcome};
use crate::engine::text::truncate_with_mark;
use portcullis_cel::json::patch::{self, PatchBudget};
use portcullis_cel::json::{Document, Kind, Node, diff};

/// The only `patchType`.
const JSON_PATCH: &str = "JSONPatch";
/// The most paths that are reported for one webhook, and the most bytes of each.
const PATHS: usize = 256;
const PATH_BYTES: usize = 1 << 10;

/// An object after a patch.
pub(crate) struct PatchedObject {
    pub(crate) object: Arc<ChangedObject>,
    /// Whether it is another object, as the API server compares them.
    pub(crate) is_changed: bool,
}

/// The object after the patch of the reply; `None` if there is nothing to apply.
///
/// # Errors
///
/// A patch that cannot be read falls under `failurePolicy`; one that cannot be
/// applied, or of which no object of its kind comes, refuses the request.
pub(crate) fn patched(
    call: &Call,
    reply: &WebhookReply,
    object: Option<Node<'_>>,
    limits: ChangeLimits<'_>,
    budget: &mut PatchBudget,
) -> Result<Option<PatchedObject>, Objection> {
    let Some(bytes) = reply
        .patch
        .as_deref()
        .filter(|_| call.version != ReviewVersion::V1alpha1)
    else {
        return Ok(None);
    };
    let unchanged = |error: ChangeError| unchanged(call, &error);
    let _memory = limits.memory_of_patch(bytes).map_err(unchanged)?;
    let document = read(bytes).map_err(Objection::Call)?;
    if document.root().is_empty() {
        return Ok(None);
    }
    let name = &call.webhook.name;
    let object = object.ok_or_else(|| {
        internal(format!(
            "admission webhook \"{name}\" attempted to modify the object, which is not supported for \
             this operation"
        ))
    })?;
    // v1beta1 has one type of patch and no word for it.
    if call.version == ReviewVersion::V1 && reply.patch_type != JSON_PATCH {
        let why = format!("unsupported patch type {:?}", reply.patch_type);
        return Err(Objection::Call(why));
    }
    let patched = applied(&document, object, budget).map_err(|error| internal(error.to_string()))?;
    let patched = limits.object(patched).map_err(unchanged)?;
    apply::check_type_meta(&call.kind, patched.root()).map_err(internal)?;
    let DecodedObject { text, is_changed } =
        apply::decode(&call.kind, object, patched.root(), DecodeMode::Lenient)
            .map_err(|error| internal(error.to_string()))?;
    let object = match text {
        Some(text) => limits.object(text).map_err(unchanged)?,
        None => patched,
    };
    Ok(Some(PatchedObject { object, is_changed }))
}

/// What differs, as paths; bounded.
pub(crate) fn paths(before: Node<'_>, after: Node<'_>) -> Vec<String> {
    let mut paths: Vec<String> = diff(before, after)
        .into_iter()
        .take(PATHS)
        .map(|operation| truncate_with_mark(&operation.path, PATH_BYTES).into_owned())
        .collect();
    paths.dedup();
    paths
}

/// A list of operations, of which nothing more is known yet; or none.
fn read(bytes: &[u8]) -> Result<Document<'_>, String> {
    let undecodable =
        |why: &dyn std::fmt::Display| format!("received undecodable patch in webhook response: {why}");
    let document = Document::parse_bytes(bytes).map_err(|error| undecodable(&error))?;
    let root = document.root();
    let is_operation = |item: Node<'_>| matches!(item.kind(), Kind::Object | Kind::Null);
    match root.kind() {
        Kind::Null => {}
        Kind::Array if root.items().all(is_operation) => {}
        _ => return Err(undecodable(&"a list of operations expected")),
    }
    Ok(document)
}

fn applied(
    patch: &Document<'_>,
    object: Node<'_>,
    budget: &mut PatchBudget,
) -> Result<String, patch::PatchError> {
    let tree = patch::apply_within(object, patch::read(patch.root())?, budget)?;
    Ok(tree.to_text())
}

fn internal(why: String) -> Objection {
    Objection::Fatal(Box::new(outcome::internal(why)))
}

/// The patch would take more than it may.
fn unchanged(call: &Call, error: &ChangeError) -> Objection {
    let by = format!("admission webhook \"{}\"", call.webhook.name);
    Objection::Fatal(Box::new(outcome::unchanged(&by, error)))
}

// Whether reading an object from JSON changes it.
//
// `metadata.managedFields` says when each manager wrote. The API server takes this time to the
// nanosecond, and JSON has whole seconds, so the first patch of a request is a change there even
// if it changes nothing else (`changed` in `callAttrMutatingHook` of
// `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`). Custom resources are JSON from
// the beginning.

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
