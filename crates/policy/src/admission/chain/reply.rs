//! The effects of a webhook's response: its failure or denial, its patch, its warnings and audit
//! annotations.
//!
//! Patches are applied as at the end of `callAttrMutatingHook` of
//! `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::admission::apply::{self, DecodeMode, DecodedObject};
use crate::admission::candidates::ListedWebhook;
use crate::admission::changes::{ChangeError, ChangeLimits, ChangedObject};
use crate::admission::matching::is_own_group;
use crate::admission::run::Phase;
use crate::admission::webhook::{Call, CallFailure, ReviewVersion, Verdict, Webhook, WebhookReply};
use crate::admission::{Denial, FailurePolicy, Outcome, Request, outcome};
use crate::model::{Cause, CauseKind, is_label_key, truncate_with_mark};
use portcullis_cel::json::patch::{self, PatchBudget};
use portcullis_cel::json::{Document, Kind, Node, ObjectWriter, diff, write_string};

/// Why a webhook does not allow a request.
#[derive(Debug, Clone)]
pub(crate) enum WebhookFailure {
    /// The webhook denies the request.
    Denial(Box<Denial>),
    /// The call failed or its response is invalid; `failurePolicy` applies.
    Call(String),
    /// The request is rejected whatever the response and `failurePolicy` say.
    Fatal(Box<Denial>),
    /// The deadline of the request itself passed; the request is rejected.
    Expired,
    /// Too many calls are in flight; the request is rejected.
    NotMade(String),
}

/// The only `patchType`.
const JSON_PATCH: &str = "JSONPatch";
/// The most paths that are reported for one webhook, and the most bytes of each.
const MAX_CHANGED_PATHS: usize = 256;
const MAX_PATH_BYTES: usize = 1 << 10;

/// An object after a patch.
pub(crate) struct PatchedObject {
    pub(crate) object: Arc<ChangedObject>,
    /// Whether the object changed, as the API server compares objects.
    pub(crate) is_changed: bool,
}

/// Returns the object after the patch of the response; `None` if there is nothing to apply.
///
/// # Errors
///
/// `failurePolicy` applies to a patch that cannot be parsed. A patch that cannot be applied, or
/// whose result is not an object of its kind, rejects the request.
pub(crate) fn patched(
    call: &Call,
    reply: &WebhookReply,
    object: Option<Node<'_>>,
    limits: ChangeLimits<'_>,
    budget: &mut PatchBudget,
) -> Result<Option<PatchedObject>, WebhookFailure> {
    let Some(bytes) = reply
        .patch
        .as_deref()
        .filter(|_| call.version != ReviewVersion::V1alpha1)
    else {
        return Ok(None);
    };
    let unchanged = |error: ChangeError| change_error(call, &error);
    let _memory = limits.memory_of_patch(bytes).map_err(unchanged)?;
    let document = read(bytes).map_err(WebhookFailure::Call)?;
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
    // In v1beta1 a patch has only one type, and `patchType` is not checked.
    if call.version == ReviewVersion::V1 && reply.patch_type != JSON_PATCH {
        let why = format!("unsupported patch type {:?}", reply.patch_type);
        return Err(WebhookFailure::Call(why));
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

/// The paths that differ, at most [`MAX_CHANGED_PATHS`].
pub(crate) fn changed_paths(before: Node<'_>, after: Node<'_>) -> Vec<String> {
    let mut paths: Vec<String> = diff(before, after)
        .into_iter()
        .take(MAX_CHANGED_PATHS)
        .map(|operation| truncate_with_mark(&operation.path, MAX_PATH_BYTES).into_owned())
        .collect();
    paths.dedup();
    paths
}

/// Parses a patch as a list of objects, which are not checked further, or `null`.
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

fn internal(why: String) -> WebhookFailure {
    WebhookFailure::Fatal(Box::new(outcome::internal(why)))
}

/// The failure for a patch that exceeds a limit.
fn change_error(call: &Call, error: &ChangeError) -> WebhookFailure {
    let by = format!("admission webhook \"{}\"", call.webhook.name);
    WebhookFailure::Fatal(Box::new(outcome::change_failed(&by, error)))
}

// Whether decoding an object from JSON changes it.
//
// `metadata.managedFields` contains the time of each manager's last write. In an API server this
// time has nanoseconds, while JSON has whole seconds, so the first patch of a request counts as a
// change there even if it changes nothing else (`changed` in `callAttrMutatingHook` of
// `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`). Custom resources are JSON from
// the beginning.

/// Metadata that every write changes.
const BOOKKEEPING: [&str; 3] = [
    "/metadata/managedFields",
    "/metadata/resourceVersion",
    "/metadata/generation",
];

/// Whether `managedFields` of the object has an entry whose time is that of this request.
pub(crate) fn has_new_managed_fields(request: &Request<'_>) -> bool {
    let Some(object) = request.object.filter(|_| is_own_group(&request.kind.group)) else {
        return false;
    };
    let mut entries = self::entries(object).peekable();
    if entries.peek().is_none() {
        return false;
    }
    let Some(old) = request.old_object else {
        return true;
    };
    let known: HashSet<&str> = self::entries(old).collect();
    // A second write of one manager within a second leaves the entry as it was.
    entries.any(|entry| !known.contains(entry)) || sets_a_field(old, object)
}

fn entries(object: Node<'_>) -> impl Iterator<Item = &str> {
    let fields = object
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    fields.into_iter().flat_map(Node::items).map(Node::raw)
}

/// Whether a field is added or changed.
fn sets_a_field(old: Node<'_>, object: Node<'_>) -> bool {
    let operations = diff(old, object);
    operations.iter().any(|operation| {
        operation.value.is_some() && !BOOKKEEPING.iter().any(|path| operation.path.starts_with(path))
    })
}

// === impl WebhookFailure ===

impl WebhookFailure {
    /// Converts the result of a call; `None` means that there was no result.
    pub(crate) fn of_result(result: Option<Result<WebhookReply, CallFailure>>) -> Result<WebhookReply, Self> {
        match result {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(CallFailure::Failed(why))) => Err(Self::Call(why)),
            Some(Err(CallFailure::RequestExpired)) => Err(Self::Expired),
            Some(Err(CallFailure::NotMade(why))) => Err(Self::NotMade(why)),
            None => Err(Self::Call("failed to call webhook: no response".to_owned())),
        }
    }

    pub(crate) fn verdict(&self, webhook: &Webhook) -> Verdict {
        let message = match self {
            Self::Denial(denial) => return Verdict::Denied(denial.message.clone()),
            Self::Call(why) | Self::NotMade(why) => why.clone(),
            Self::Fatal(denial) => denial.message.clone(),
            Self::Expired => CallFailure::RequestExpired.to_string(),
        };
        Verdict::Failed {
            message,
            is_ignored: self.is_ignored(webhook),
        }
    }

    pub(crate) fn is_ignored(&self, webhook: &Webhook) -> bool {
        matches!(self, Self::Call(_)) && webhook.failure_policy == FailurePolicy::Ignore
    }

    /// The denial of the request; `None` if the failure is ignored.
    pub(crate) fn refusal(self, webhook: &Webhook) -> Option<Denial> {
        if self.is_ignored(webhook) {
            return None;
        }
        Some(match self {
            Self::Denial(denial) | Self::Fatal(denial) => *denial,
            Self::Call(why) => outcome::failed_call(webhook, &why),
            Self::Expired => outcome::timeout(),
            Self::NotMade(why) => outcome::call_limit_reached(webhook, &why),
        })
    }
}

/// Adds the warnings and audit annotations of the response, whether it allows or denies.
pub(crate) fn add_warnings_and_annotations(outcome: &mut Outcome, webhook: &Webhook, reply: &WebhookReply) {
    add_webhook_annotations(&mut outcome.audit_annotations, webhook, &reply.audit_annotations);
    for warning in &reply.warnings {
        outcome.warnings.push(warning);
    }
}

/// The webhook as the cause of a denial.
pub(crate) fn cause(phase: Phase, listed: &ListedWebhook) -> Cause<'static> {
    let is_alpha = listed.webhook.version == Some(ReviewVersion::V1alpha1);
    Cause {
        kind: match phase {
            _ if is_alpha => CauseKind::ExternalAdmissionHookConfiguration,
            Phase::Mutate => CauseKind::MutatingWebhookConfiguration,
            Phase::Validate => CauseKind::ValidatingWebhookConfiguration,
        },
        namespace: Cow::Borrowed(""),
        name: Cow::Owned(listed.webhook.configuration.clone()),
        rule: Some(listed.position),
    }
}

// Audit annotations about webhooks.

const MUTATION: &str = "mutation.webhook.admission.k8s.io";
const MUTATION_FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io";
const VALIDATION_FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io";
/// The annotation for the paths that a webhook changed. The API server's own `patch.webhook.…`
/// contains the values, too, and is written only at audit level Request or above. A webhook's
/// annotations are also written at level Metadata, where the data of Secrets must not appear.
const PATHS: &str = "paths.webhook.portcullis.dev";
/// The longest value of [`PATHS`], in bytes.
const PATHS_BYTES: usize = 4 << 10;

/// The most bytes of the annotations of one request. Annotations of webhooks beyond it are dropped,
/// because each webhook may send as much as one response can contain.
pub(crate) const ALL_BYTES: usize = WebhookReply::MAX_ANNOTATION_BYTES;

/// The annotations of one request, by key.
pub(crate) type AuditAnnotations = BTreeMap<String, String>;

/// Adds an annotation that a webhook was called, and whether it changed the object.
pub(crate) fn annotate_mutation(
    all: &mut AuditAnnotations,
    (round, index): (usize, usize),
    webhook: &Webhook,
    mutated: bool,
) {
    let value = webhook_json(webhook, |fields| fields.flag("mutated", mutated));
    add(all, key(MUTATION, round, index), value);
}

/// Adds an annotation with the paths that a webhook changed, if any, and the number of those that
/// do not fit.
pub(crate) fn annotate_paths(
    all: &mut AuditAnnotations,
    (round, index): (usize, usize),
    webhook: &Webhook,
    paths: &[String],
) {
    if paths.is_empty() {
        return;
    }
    let value = webhook_json(webhook, |fields| {
        let out = fields.key("paths");
        let written = write_paths(out, paths);
        if written < paths.len() {
            fields.json("more", &(paths.len() - written).to_string());
        }
    });
    add(all, key(PATHS, round, index), value);
}

/// Appends the paths that fit as a list, and returns their number.
fn write_paths(out: &mut String, paths: &[String]) -> usize {
    out.push('[');
    let mut written = 0;
    for path in paths {
        let back = out.len();
        out.push_str(if written > 0 { "," } else { "" });
        write_string(out, path);
        if out.len() > PATHS_BYTES {
            out.truncate(back);
            break;
        }
        written += 1;
    }
    out.push(']');
    written
}

/// Adds an annotation that the failure of a mutating webhook was ignored.
pub(crate) fn annotate_failed_open(
    all: &mut AuditAnnotations,
    (round, index): (usize, usize),
    webhook: &Webhook,
) {
    add(all, key(MUTATION_FAILED_OPEN, round, index), webhook.name.clone());
}

/// Adds an annotation that the failure of a validating webhook was ignored.
pub(crate) fn validation_failed_open(all: &mut AuditAnnotations, index: usize, webhook: &Webhook) {
    add(all, key(VALIDATION_FAILED_OPEN, 0, index), webhook.name.clone());
}

/// Adds the annotations of a webhook itself, prefixed by its name. Keys that are then not a
/// qualified name with one slash, and what exceeds the limit, are dropped.
pub(crate) fn add_webhook_annotations(
    all: &mut AuditAnnotations,
    webhook: &Webhook,
    annotations: &BTreeMap<String, String>,
) {
    if annotations.is_empty() {
        return;
    }
    let mut bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    for (name, value) in annotations {
        let key = format!("{}/{name}", webhook.name);
        let more = key.len() + value.len();
        if !name.contains('/') && is_label_key(&key) && more <= ALL_BYTES.saturating_sub(bytes) {
            bytes += more;
            add(all, key, value.clone());
        }
    }
}

/// Keeps the first value of a key.
fn add(all: &mut AuditAnnotations, key: String, value: String) {
    all.entry(key).or_insert(value);
}

fn key(prefix: &str, round: usize, index: usize) -> String {
    format!("{prefix}/round_{round}_index_{index}")
}

/// A JSON object that names the webhook, with the fields that `more` writes.
fn webhook_json(webhook: &Webhook, more: impl FnOnce(&mut ObjectWriter<'_>)) -> String {
    let mut value = String::new();
    ObjectWriter::write(&mut value, |fields| {
        fields.text("configuration", &webhook.configuration);
        fields.text("webhook", &webhook.name);
        more(fields);
    });
    value
}
