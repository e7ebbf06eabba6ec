//! Webhooks behind the gateway: their configuration, calls and answers, as data.
//!
//! The engine never makes a call. The caller of a run makes the calls ([`Call`]) and
//! passes the answers ([`WebhookAnswer`]) to it: the server over the network, tests and
//! the command line from files.
//!
//! Facts: `api/admissionregistration/v1/types.go`;
//! `apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::changes::ChangedObject;
use super::matching::Constraints;
use super::{CompiledMatchCondition, Denial, FailurePolicy, GroupVersionKind, GroupVersionResource};

/// A ValidatingWebhookConfiguration or MutatingWebhookConfiguration.
#[derive(Debug)]
pub struct WebhookConfiguration {
    /// `metadata.name`, by whose bytes configurations are ordered.
    pub name: String,
    /// Whether it comes from a file under a name with
    /// [`STATIC_SUFFIX`](super::STATIC_SUFFIX): its webhooks go before others, and see what
    /// configures admission too, which others never do.
    pub is_static: bool,
    /// Its webhooks, in the order written.
    pub webhooks: Vec<Arc<Webhook>>,
}

/// One of `webhooks`.
#[derive(Debug)]
pub struct Webhook {
    /// The name of its configuration.
    pub configuration: String,
    /// `name`.
    pub name: String,
    /// Where it is.
    pub client: ClientConfig,
    /// `rules`, `matchPolicy`, `namespaceSelector`, `objectSelector`.
    pub constraints: Constraints,
    /// `matchConditions`: all must hold.
    pub match_conditions: Vec<CompiledMatchCondition>,
    /// `failurePolicy`: what becomes of a request that it could not be asked about.
    pub failure_policy: FailurePolicy,
    /// `timeoutSeconds`: how long it may take, within the caller's own deadline.
    pub timeout: Duration,
    /// `sideEffects`.
    pub side_effects: Option<SideEffects>,
    /// The first of `admissionReviewVersions` that is spoken here; none if none is.
    pub version: Option<ReviewVersion>,
    /// `reinvocationPolicy`; of a mutating webhook alone.
    pub reinvocation: Reinvocation,
}

/// `clientConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Whom to call.
    pub target: WebhookTarget,
    /// `caBundle`: PEM; empty if there is none.
    pub ca_bundle: Vec<u8>,
}

/// Whom to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookTarget {
    /// `url`, of the scheme https.
    Url(String),
    /// `service`.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port; 443 unless written.
        port: u16,
        /// The path of the URL, with its first slash; `/` unless written.
        path: String,
    },
}

/// `SideEffectClass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SideEffects {
    /// None at all.
    None,
    /// None on requests with `dryRun`.
    NoneOnDryRun,
    /// Some; only of v1beta1.
    Some,
    /// Nobody said; only of v1beta1.
    Unknown,
}

/// The versions of `admission.k8s.io` in which reviews are asked and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`: on the wire as v1.
    V1beta1,
    /// `admission.k8s.io/v1alpha1`: `spec` and `status`, without uid, patch, warnings.
    V1alpha1,
}

/// A question for one webhook. What it says besides the request that the run is about.
#[derive(Debug, Clone)]
pub struct Call {
    /// Whom to ask.
    pub webhook: Arc<Webhook>,
    /// In which version of the review.
    pub version: ReviewVersion,
    /// The kind that its rules match, in which the object is given.
    pub kind: GroupVersionKind<'static>,
    /// The resource that its rules match.
    pub resource: GroupVersionResource<'static>,
    /// The object as changed so far; `None` while it is as received.
    pub object: Option<Arc<ChangedObject>>,
}

/// What came of a [`Call`].
#[derive(Debug, Clone)]
pub struct WebhookAnswer {
    /// The reply, or why there is none.
    pub result: Result<WebhookReply, CallFailure>,
    /// How long it took.
    pub took: Duration,
}

/// The verified part of a webhook's answer: version, uid, and
/// patch with patchType have been checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookReply {
    /// The reason for the refusal, for the user; `None` if it allows.
    pub denial: Option<Denial>,
    /// `patch`, decoded: the text of a JSON Patch, of a mutating webhook alone.
    /// `None` where there is none.
    pub patch: Option<Arc<[u8]>>,
    /// `patchType`; empty if absent.
    pub patch_type: String,
    /// `warnings`, [`MAX_WARNINGS`](Self::MAX_WARNINGS) at most.
    pub warnings: Vec<String>,
    /// `auditAnnotations`, [`MAX_ANNOTATION_BYTES`](Self::MAX_ANNOTATION_BYTES) at most.
    pub audit_annotations: BTreeMap<String, String>,
}

/// Why a webhook gave no answer that counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// It could not be reached, was too slow, or answered what is no reply:
    /// under `failurePolicy`. The text follows `failed calling webhook "NAME": `
    /// and begins as upstream's, `failed to call webhook: …` or
    /// `received invalid webhook response: …`.
    #[error("{0}")]
    Failed(String),
    /// The caller's own deadline passed: whatever `failurePolicy` says, the
    /// request ends.
    #[error("the deadline of the request passed")]
    RequestExpired,
    /// It was not asked, because as many calls are in flight as may be: whatever
    /// `failurePolicy` says, the request is refused, since a user who fills the limit
    /// decides nothing. The text says which limit.
    #[error("{0}")]
    NotMade(String),
}

/// What one webhook that was to be asked came to, for the decision log.
#[derive(Debug, Clone)]
pub struct WebhookResult {
    /// Which.
    pub webhook: Arc<Webhook>,
    /// 0 for the first pass, 1 for that of reinvocation.
    pub round: usize,
    /// Its place as upstream's audit annotations count: among all webhooks when
    /// mutating, among those that matched when validating.
    pub index: usize,
    /// What it said.
    pub verdict: Verdict,
    /// What it changed: the paths of its patch.
    pub changed: Vec<String>,
    /// How long the call took; `None` if there was none.
    pub took: Option<Duration>,
}

/// What a webhook made of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It allows.
    Allowed,
    /// It refuses, with this message.
    Denied(String),
    /// It could not be asked, or not believed.
    Failed {
        /// Why.
        message: String,
        /// Whether its failurePolicy passes over that.
        is_ignored: bool,
    },
}

/// Answers for a run that calls nobody: every call fails.
#[must_use]
pub fn nobody(_: &Call) -> WebhookAnswer {
    WebhookAnswer {
        result: Err(CallFailure::Failed(
            "failed to call webhook: this run calls no webhooks".to_owned(),
        )),
        took: Duration::ZERO,
    }
}

// === impl WebhookReply ===

impl WebhookReply {
    /// How many warnings of one reply are read: more are never shown.
    pub const MAX_WARNINGS: usize = 1000;

    /// How many bytes of warnings of one reply are kept.
    pub const MAX_WARNING_BYTES: usize = 64 << 10;

    /// How many bytes of audit annotations of one reply are kept: as many as those of a request
    /// may have.
    pub const MAX_ANNOTATION_BYTES: usize = 1 << 20;

    /// How many bytes of each text of a refusal are kept, of its message above all: it is answered,
    /// logged and recorded.
    pub const MAX_TEXT_BYTES: usize = 64 << 10;

    /// How many causes of a refusal are kept.
    pub const MAX_CAUSES: usize = 1000;

    /// About how many bytes of memory it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// What a text takes besides its bytes.
        const TEXT: usize = 32;
        let patch = self.patch.as_ref().map_or(0, |patch| patch.len());
        let warnings = self.warnings.iter().map(|text| TEXT + text.len());
        let annotations = self.audit_annotations.iter();
        let annotations = annotations.map(|(key, value)| 2 * TEXT + key.len() + value.len());
        let denial = self.denial.as_ref().map_or(0, Denial::bytes);
        patch + warnings.sum::<usize>() + annotations.sum::<usize>() + denial
    }
}

// === impl Webhook ===

impl Webhook {
    /// `configuration/name`, by which metrics and logs tell webhooks apart.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.configuration, self.name)
    }
}

// === impl ReviewVersion ===

impl ReviewVersion {
    /// As `apiVersion` names it.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
            Self::V1alpha1 => "admission.k8s.io/v1alpha1",
        }
    }
}

// Reinvocation: which policies and webhooks run in the second pass.
//
// Upstream has this twice, for policies and for webhooks:
// `apiserver/pkg/admission/plugin/{policy,webhook}/mutating/reinvocationcontext.go`.

/// `reinvocationPolicy`, of policies and of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reinvocation {
    /// It runs once.
    Never,
    /// It runs again if others changed the object after it.
    IfNeeded,
}

/// Those that ran and want to see later changes, and those of them that are to.
#[derive(Debug, Clone)]
pub(crate) struct Reinvocable<K> {
    /// After these, nothing has changed yet.
    ran: BTreeSet<K>,
    /// After these, something has.
    again: BTreeSet<K>,
}

impl<K: Ord> Reinvocable<K> {
    pub(crate) const fn new() -> Self {
        Self {
            ran: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    /// `AddReinvocable…ToPreviouslyInvoked`: this one, with the policy IfNeeded, ran.
    pub(crate) fn ran(&mut self, key: K) {
        self.ran.insert(key);
    }

    /// `RequireReinvokingPreviouslyInvokedPlugins`: the object changed.
    pub(crate) fn require(&mut self) {
        self.again.append(&mut self.ran);
    }

    /// Whether there is any that is to run in the second pass.
    pub(crate) fn is_any_required(&self) -> bool {
        !self.again.is_empty()
    }

    /// `ShouldReinvoke…`: whether this one is to run in the second pass.
    pub(crate) fn is_required(&self, key: &K) -> bool {
        self.again.contains(key)
    }
}
