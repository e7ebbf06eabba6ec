//! Failed and refused calls: whether they refuse the request, and what is kept of a
//! reply.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::engine::admission::policy::FailurePolicy;
use crate::engine::admission::run::Phase;
use crate::engine::admission::webhook::{CallFailure, ReviewVersion, Verdict, Webhook, WebhookReply};
use crate::engine::admission::webhooks::ListedWebhook;
use crate::engine::admission::{Denial, Outcome, outcome};
use crate::engine::{Cause, CauseKind, is_label_key};
use portcullis_cel::json::{ObjectWriter, write_string};

/// Why a webhook does not simply allow a request.
#[derive(Debug, Clone)]
pub(crate) enum Objection {
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

// === impl Objection ===

impl Objection {
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
