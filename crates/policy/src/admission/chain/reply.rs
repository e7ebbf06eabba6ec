//! What a call of a webhook did: a failure or refusal, and whether it refuses the request; the patch
//! of a reply; warnings and audit annotations.
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

/// Why a webhook does not simply allow a request.
#[derive(Debug, Clone)]
pub(crate) enum WebhookFailure {
    /// It refuses.
    Denial(Box<Denial>),
    /// It could not be asked or not be believed: under its failurePolicy.
    Call(String),
    /// The request is refused, whatever it said and its failurePolicy says.
    Fatal(Box<Denial>),
    /// The deadline of the request itself passed, likewise.
    Expired,
    /// There are too many calls already, likewise.
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
) -> Result<Option<PatchedObject>, WebhookFailure> {
    let Some(bytes) = reply
        .patch
        .as_deref()
        .filter(|_| call.version != ReviewVersion::V1alpha1)
    else {
        return Ok(None);
    };
    let unchanged = |error: ChangeError| unchanged(call, &error);
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
    // v1beta1 has one type of patch and no word for it.
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

/// What differs, as paths; bounded.
pub(crate) fn changed_paths(before: Node<'_>, after: Node<'_>) -> Vec<String> {
    let mut paths: Vec<String> = diff(before, after)
        .into_iter()
        .take(MAX_CHANGED_PATHS)
        .map(|operation| truncate_with_mark(&operation.path, MAX_PATH_BYTES).into_owned())
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

fn internal(why: String) -> WebhookFailure {
    WebhookFailure::Fatal(Box::new(outcome::internal(why)))
}

/// The patch would take more than it may.
fn unchanged(call: &Call, error: &ChangeError) -> WebhookFailure {
    let by = format!("admission webhook \"{}\"", call.webhook.name);
    WebhookFailure::Fatal(Box::new(outcome::unchanged(&by, error)))
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
    let mut entries = self::entries(object).peekable();
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

// === impl WebhookFailure ===

impl WebhookFailure {
    /// What a call came to, if there was an answer at all.
    pub(crate) fn to(result: Option<Result<WebhookReply, CallFailure>>) -> Result<WebhookReply, Self> {
        match result {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(CallFailure::Failed(why))) => Err(Self::Call(why)),
            Some(Err(CallFailure::RequestExpired)) => Err(Self::Expired),
            Some(Err(CallFailure::NotMade(why))) => Err(Self::NotMade(why)),
            None => Err(Self::Call("failed to call webhook: nobody answered".to_owned())),
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

    /// What refuses the request; none if the failure is passed over.
    pub(crate) fn refusal(self, webhook: &Webhook) -> Option<Denial> {
        if self.is_ignored(webhook) {
            return None;
        }
        Some(match self {
            Self::Denial(denial) | Self::Fatal(denial) => *denial,
            Self::Call(why) => outcome::failed_call(webhook, &why),
            Self::Expired => outcome::timeout(),
            Self::NotMade(why) => outcome::not_made(webhook, &why),
        })
    }
}

/// Passes on what the webhook says besides its verdict, also when it refuses.
pub(crate) fn add_warnings_and_annotations(outcome: &mut Outcome, webhook: &Webhook, reply: &WebhookReply) {
    own(&mut outcome.audit_annotations, webhook, &reply.audit_annotations);
    for warning in &reply.warnings {
        outcome.warnings.push(warning);
    }
}

/// The webhook as what refused the request.
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
/// Which webhook changed what. The API server's own, `patch.webhook.…`, has the
/// values too, and is written at the audit level Request alone; from outside
/// there is only the level Metadata, where the data of Secrets must not go.
const PATHS: &str = "paths.webhook.portcullis.dev";
/// The longest value of [`PATHS`], in bytes.
const PATHS_BYTES: usize = 4 << 10;

/// What the annotations of one request may come to, in bytes, before those of
/// webhooks themselves are dropped: each may send as much as its reply holds.
pub(crate) const ALL_BYTES: usize = WebhookReply::MAX_ANNOTATION_BYTES;

/// The annotations of one request, by key.
pub(crate) type AuditAnnotations = BTreeMap<String, String>;

/// That a webhook was to be asked, and whether it changed the object.
pub(crate) fn mutation(
    all: &mut AuditAnnotations,
    (round, index): (usize, usize),
    webhook: &Webhook,
    mutated: bool,
) {
    let value = about(webhook, |fields| fields.flag("mutated", mutated));
    add(all, key(MUTATION, round, index), value);
}

/// Which paths a webhook changed, if any; past the bound, how many more.
pub(crate) fn paths(
    all: &mut AuditAnnotations,
    (round, index): (usize, usize),
    webhook: &Webhook,
    paths: &[String],
) {
    if paths.is_empty() {
        return;
    }
    let value = about(webhook, |fields| {
        let out = fields.key("paths");
        let written = write_paths(out, paths);
        if written < paths.len() {
            fields.json("more", &(paths.len() - written).to_string());
        }
    });
    add(all, key(PATHS, round, index), value);
}

/// Appends the paths as a list, up to the bound; how many they are.
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

/// That a mutating webhook could not be asked or believed, and was passed over.
pub(crate) fn failed_open(all: &mut AuditAnnotations, (round, index): (usize, usize), webhook: &Webhook) {
    add(all, key(MUTATION_FAILED_OPEN, round, index), webhook.name.clone());
}

/// The same of a validating webhook.
pub(crate) fn validation_failed_open(all: &mut AuditAnnotations, index: usize, webhook: &Webhook) {
    add(all, key(VALIDATION_FAILED_OPEN, 0, index), webhook.name.clone());
}

/// What the webhook itself wants written, under its name. What is then no
/// qualified name with one slash is dropped, as is what is too much.
pub(crate) fn own(all: &mut AuditAnnotations, webhook: &Webhook, annotations: &BTreeMap<String, String>) {
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

/// The first value of a key stays.
fn add(all: &mut AuditAnnotations, key: String, value: String) {
    all.entry(key).or_insert(value);
}

fn key(prefix: &str, round: usize, index: usize) -> String {
    format!("{prefix}/round_{round}_index_{index}")
}

/// Which webhook it is, and what `more` writes of it.
fn about(webhook: &Webhook, more: impl FnOnce(&mut ObjectWriter<'_>)) -> String {
    let mut value = String::new();
    ObjectWriter::write(&mut value, |fields| {
        fields.text("configuration", &webhook.configuration);
        fields.text("webhook", &webhook.name);
        more(fields);
    });
    value
}
