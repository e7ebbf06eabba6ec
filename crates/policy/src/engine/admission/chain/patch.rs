//! Applies the patch of a webhook.
//!
//! The end of `callAttrMutatingHook` of
//! `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`.

use super::objection::Objection;
use crate::engine::admission::apply::{self, Decoded, Reading};
use crate::engine::admission::status;
use crate::engine::admission::webhook::{Call, ReviewVersion, WebhookReply};
use crate::engine::text::truncate_with_mark;
use portcullis_cel::json::{self, Document, Kind, Node, diff, patch};

/// The only `patchType`.
const JSON_PATCH: &str = "JSONPatch";
/// The most paths that are reported for one webhook, and the most bytes of each.
const PATHS: usize = 256;
const PATH_BYTES: usize = 1 << 10;

/// An object after a patch.
pub(super) struct Patched {
    pub(super) object: Document<'static>,
    /// Whether it is another object, as the API server compares them.
    pub(super) is_changed: bool,
}

/// The object after the patch of the reply; `None` if there is nothing to apply.
///
/// # Errors
///
/// A patch that cannot be read falls under `failurePolicy`; one that cannot be
/// applied, or of which no object of its kind comes, refuses the request.
pub(super) fn patched(
    call: &Call,
    reply: &WebhookReply,
    object: Option<Node<'_>>,
) -> Result<Option<Patched>, Objection> {
    let Some(bytes) = reply
        .patch
        .as_deref()
        .filter(|_| call.version != ReviewVersion::V1alpha1)
    else {
        return Ok(None);
    };
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
    let patched = applied(&document, object).map_err(internal)?;
    decoded(call, object, patched).map(Some).map_err(internal)
}

/// What differs, as paths; bounded.
pub(super) fn paths(before: Node<'_>, after: Node<'_>) -> Vec<String> {
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

fn applied(patch: &Document<'_>, object: Node<'_>) -> Result<Document<'static>, String> {
    let operations = patch::read(patch.root()).map_err(|error| error.to_string())?;
    let tree = patch::apply(object, operations).map_err(|error| error.to_string())?;
    Document::parse(tree.to_text()).map_err(|error: json::Error| error.to_string())
}

/// The object as the API server has it.
fn decoded(call: &Call, before: Node<'_>, after: Document<'static>) -> Result<Patched, String> {
    apply::check_type_meta(&call.kind, after.root())?;
    let Decoded { text, is_changed } = apply::decode(&call.kind, before, after.root(), Reading::Lenient)
        .map_err(|error| error.to_string())?;
    let object = match text {
        Some(text) => Document::parse(text).map_err(|error| error.to_string())?,
        None => after,
    };
    Ok(Patched { object, is_changed })
}

fn internal(why: String) -> Objection {
    Objection::Fatal(Box::new(status::internal(why)))
}
