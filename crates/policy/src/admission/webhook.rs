//! Webhooks behind the gateway: their configurations, calls and responses, as data.
//!
//! The engine never makes a call itself. The caller of a run makes the calls ([`Call`]) and passes
//! the results ([`WebhookCallResult`]) to it: the server over the network, tests and the command line
//! from files.
//!
//! Follows `api/admissionregistration/v1/types.go` and
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
    /// `metadata.name`. Configurations are ordered by its bytes.
    pub name: String,
    /// Whether it comes from a file and its name ends in [`STATIC_SUFFIX`](super::STATIC_SUFFIX).
    /// The webhooks of static configurations are called before others, and also for objects that
    /// configure admission, for which other webhooks are never called.
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
    /// `clientConfig`.
    pub client: ClientConfig,
    /// `rules`, `matchPolicy`, `namespaceSelector`, `objectSelector`.
    pub constraints: Constraints,
    /// `matchConditions`: all must hold.
    pub match_conditions: Vec<CompiledMatchCondition>,
    /// `failurePolicy`: whether the request is rejected if the call fails.
    pub failure_policy: FailurePolicy,
    /// `timeoutSeconds`: the timeout of a call, within the deadline of the caller.
    pub timeout: Duration,
    /// `sideEffects`.
    pub side_effects: Option<SideEffects>,
    /// The first of `admissionReviewVersions` that is supported; `None` if none is.
    pub version: Option<ReviewVersion>,
    /// `reinvocationPolicy`, which only mutating webhooks have.
    pub reinvocation: Reinvocation,
}

/// How to reach a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The address of the webhook.
    pub target: WebhookTarget,
    /// `caBundle`, in PEM; empty if absent.
    pub ca_bundle: Vec<u8>,
}

/// The address of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookTarget {
    /// `url`, with the scheme https.
    Url(String),
    /// `service`.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port; 443 by default.
        port: u16,
        /// The path of the URL, with the leading slash; `/` by default.
        path: String,
    },
}

/// `SideEffectClass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SideEffects {
    /// No side effects.
    None,
    /// No side effects for requests with `dryRun`.
    NoneOnDryRun,
    /// Side effects; only allowed in v1beta1.
    Some,
    /// Not known; only allowed in v1beta1.
    Unknown,
}

/// The supported versions of AdmissionReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`, encoded as v1.
    V1beta1,
    /// `admission.k8s.io/v1alpha1`: has `spec` and `status`, but neither uid, patch nor warnings.
    V1alpha1,
}

/// A call of one webhook: everything that the run's own request does not say.
#[derive(Debug, Clone)]
pub struct Call {
    /// The webhook to call.
    pub webhook: Arc<Webhook>,
    /// The version of the AdmissionReview.
    pub version: ReviewVersion,
    /// The kind by which its rules matched. The object is of this kind.
    pub kind: GroupVersionKind<'static>,
    /// The resource by which its rules matched.
    pub resource: GroupVersionResource<'static>,
    /// The object as changed so far; `None` if it is as received.
    pub object: Option<Arc<ChangedObject>>,
}

/// The result of a [`Call`].
#[derive(Debug, Clone)]
pub struct WebhookCallResult {
    /// The response, or why the call failed.
    pub result: Result<WebhookReply, CallFailure>,
    /// How long it took.
    pub took: Duration,
}

/// A webhook's response, whose version, uid, and combination of patch and patchType have been
/// checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookReply {
    /// The denial; `None` if the webhook allows the request.
    pub denial: Option<Denial>,
    /// `patch`, decoded from base64: a JSON Patch. Only mutating webhooks have one.
    pub patch: Option<Arc<[u8]>>,
    /// `patchType`; empty if absent.
    pub patch_type: String,
    /// `warnings`, at most [`MAX_WARNINGS`](Self::MAX_WARNINGS) of them.
    pub warnings: Vec<String>,
    /// `auditAnnotations`, at most [`MAX_ANNOTATION_BYTES`](Self::MAX_ANNOTATION_BYTES).
    pub audit_annotations: BTreeMap<String, String>,
}

/// Why a call of a webhook failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The webhook could not be reached, timed out, or sent an invalid response; `failurePolicy`
    /// applies. The message follows `failed calling webhook "NAME": ` and begins as in Kubernetes:
    /// `failed to call webhook: …` or `received invalid webhook response: …`.
    #[error("{0}")]
    Failed(String),
    /// The deadline of the request itself passed: the request ends, whatever `failurePolicy` says.
    #[error("the deadline of the request passed")]
    RequestExpired,
    /// The call was not made, because a limit of calls in flight is reached. The request is
    /// rejected whatever `failurePolicy` says: otherwise a user could get around a webhook with
    /// `failurePolicy: Ignore` by filling the limit. The message names the limit.
    #[error("{0}")]
    NotMade(String),
}

/// The result of one webhook that matched the request, for the decision log.
#[derive(Debug, Clone)]
pub struct WebhookResult {
    /// The webhook.
    pub webhook: Arc<Webhook>,
    /// 0 for the first pass, 1 for the reinvocation.
    pub round: usize,
    /// Its index, as in the audit annotations of Kubernetes: among all webhooks when mutating,
    /// among those that matched when validating.
    pub index: usize,
    /// The verdict.
    pub verdict: Verdict,
    /// The paths that it changed.
    pub changed: Vec<String>,
    /// The duration of the call; `None` if no call was made.
    pub took: Option<Duration>,
}

/// The verdict of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It allows the request.
    Allowed,
    /// It denies the request, with this message.
    Denied(String),
    /// It could not be called, or its response is invalid.
    Failed {
        /// The error.
        message: String,
        /// Whether its `failurePolicy` ignores the failure.
        is_ignored: bool,
    },
}

/// The result of every call in a run without calls: a failure.
#[must_use]
pub fn fail_every_call(_: &Call) -> WebhookCallResult {
    WebhookCallResult {
        result: Err(CallFailure::Failed(
            "failed to call webhook: this run calls no webhooks".to_owned(),
        )),
        took: Duration::ZERO,
    }
}

// === impl WebhookReply ===

impl WebhookReply {
    /// The most warnings of one response that are read; more are never shown.
    pub const MAX_WARNINGS: usize = 1000;

    /// The most bytes of warnings of one response that are kept.
    pub const MAX_WARNING_BYTES: usize = 64 << 10;

    /// The most bytes of audit annotations of one response that are kept: as many as one request
    /// may have in total.
    pub const MAX_ANNOTATION_BYTES: usize = 1 << 20;

    /// The most bytes of each string of a denial that are kept, because these strings, above all
    /// the message, are sent, logged and recorded.
    pub const MAX_TEXT_BYTES: usize = 64 << 10;

    /// The most causes of a denial that are kept.
    pub const MAX_CAUSES: usize = 1000;

    /// The approximate number of bytes that it occupies in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// The overhead of a string, in bytes.
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
    /// `configuration/name`, which identifies the webhook in metrics and logs.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.configuration, self.name)
    }
}

// === impl ReviewVersion ===

impl ReviewVersion {
    /// The `apiVersion` of reviews.
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
// Kubernetes implements this twice, for policies and for webhooks:
// `apiserver/pkg/admission/plugin/{policy,webhook}/mutating/reinvocationcontext.go`.

/// `reinvocationPolicy`, of policies and of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reinvocation {
    /// The policy or webhook runs once.
    Never,
    /// It runs again if the object changed after it ran.
    IfNeeded,
}

/// The policies or webhooks with `reinvocationPolicy: IfNeeded`, for the second pass.
#[derive(Debug, Clone)]
pub(crate) struct ReinvocationState<K> {
    /// The policies or webhooks that ran, and after which the object has not changed.
    ran: BTreeSet<K>,
    /// The policies or webhooks after which the object has changed: they run again.
    again: BTreeSet<K>,
}

impl<K: Ord> ReinvocationState<K> {
    pub(crate) const fn new() -> Self {
        Self {
            ran: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    /// Notes that a policy or webhook with IfNeeded ran (`AddReinvocable…ToPreviouslyInvoked`).
    pub(crate) fn ran(&mut self, key: K) {
        self.ran.insert(key);
    }

    /// Notes that the object changed (`RequireReinvokingPreviouslyInvokedPlugins`).
    pub(crate) fn require(&mut self) {
        self.again.append(&mut self.ran);
    }

    /// Whether anything has to run in the second pass.
    pub(crate) fn is_any_required(&self) -> bool {
        !self.again.is_empty()
    }

    /// Whether this policy or webhook has to run in the second pass (`ShouldReinvoke…`).
    pub(crate) fn is_required(&self, key: &K) -> bool {
        self.again.contains(key)
    }
}
