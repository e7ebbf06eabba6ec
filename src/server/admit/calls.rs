//! Calls to webhooks: requests, timeouts, replies.
//!
//! ```text
//! now ────── timeout of a call ─────▶ end of calls ── margin ──▶ deadline of the caller
//!      the webhook's own, if shorter       the reply is on its way
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::server::limits::{CallPermit, CopyPermit, Permit};
use crate::telemetry::traces::TraceParent;
use crate::webhooks::client::CallError;
use crate::webhooks::{Reply, ReplyMemory, Requester, Upstreams};
use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::{
    Call, CallFailure, ReviewVersion, WebhookCallResult, WebhookReply,
};
use portcullis_policy::admission::{Chain, Phase, Request, TakenMemory};
use portcullis_policy::api;

/// The most bytes of webhook requests that one review holds at once, unless a single one is larger.
/// The limiter also bounds those of all reviews together. Calls beyond the bound wait until the
/// first have been answered.
const MAX_QUESTION_BYTES: usize = 64 << 20;

/// Replies of up to this size are verified on arrival, which takes microseconds, so that their
/// connections are free while the review waits for other webhooks.
const MAX_BYTES_VERIFIED_AT_ONCE: usize = 16 << 10;

const TOO_MANY_CALLS: &str = "the limit of webhook calls in flight for this cluster is reached";

/// A suspended run, and the webhooks that it waits for.
pub(crate) struct PendingCalls {
    pub(crate) chain: Chain,
    /// The user of the request.
    pub(crate) user: Box<str>,
    pub(crate) questions: Vec<CallRequest>,
    pub(crate) left: VecDeque<Call>,
}

/// A request to one webhook, ready to be sent.
pub(crate) struct CallRequest {
    call: Call,
    uid: String,
    body: Vec<u8>,
    /// The permit for the bytes of the body; `None` if the limit is reached.
    copied: Option<CopyPermit>,
    /// `None` if the limit of calls in flight is reached.
    permit: Option<CallPermit>,
}

/// On whose behalf a webhook is called, and how long the call may take.
pub(crate) struct CallOptions<'t> {
    /// The cluster whose request is reviewed.
    pub(crate) cluster: &'t str,
    pub(crate) phase: Phase,
    pub(crate) timeout: Duration,
    /// `None` if no request depends on the reply.
    pub(crate) requester: Option<Requester<'t>>,
    pub(crate) parent: Option<TraceParent>,
    /// The memory in which the reply is reserved.
    pub(crate) memory: ReplyMemory,
}

/// The result of a call.
pub(crate) struct CallResult {
    call: Call,
    uid: String,
    phase: Phase,
    pub(crate) result: Result<ReceivedReply, CallFailure>,
    took: Duration,
    memory: ReplyMemory,
    /// Held as long as the connection of the call may be in use.
    _permit: Option<CallPermit>,
}

pub(crate) enum ReceivedReply {
    /// A verified reply with its reserved memory; the received bytes are dropped.
    Verified(Box<WebhookReply>, Option<TakenMemory>),
    Unverified(Reply),
}

// === impl PendingCalls ===

impl PendingCalls {
    pub(crate) fn new(chain: Chain, calls: Vec<Call>, request: &Request<'_>, permit: &Permit) -> Self {
        let mut left = VecDeque::from(calls);
        Self {
            chain,
            user: request.user.name.as_ref().into(),
            questions: encode_requests(&mut left, request, permit),
            left,
        }
    }
}

/// Encodes as many requests as may be held at once, but at least one.
pub(crate) fn encode_requests(
    calls: &mut VecDeque<Call>,
    request: &Request<'_>,
    permit: &Permit,
) -> Vec<CallRequest> {
    questions_of(MAX_QUESTION_BYTES, calls, request, permit)
}

fn questions_of(
    most: usize,
    calls: &mut VecDeque<Call>,
    request: &Request<'_>,
    permit: &Permit,
) -> Vec<CallRequest> {
    let (mut questions, mut bytes, mut is_room) = (Vec::new(), 0, true);
    while is_room
        && bytes < most
        && let Some(call) = calls.pop_front()
    {
        let call_permit = permit.reserve_call();
        if call_permit.is_none() && !questions.is_empty() {
            calls.push_front(call);
            break;
        }
        let uid = Uuid::new_v4().to_string();
        let body = api::encode_review(&call, request, &uid);
        bytes += body.len();
        let copied = permit.reserve_copy(body.len());
        is_room = copied.is_some();
        questions.push(CallRequest {
            call,
            uid,
            body,
            copied,
            permit: call_permit,
        });
    }
    questions
}

// === impl CallRequest ===

impl CallRequest {
    /// The webhook to call: `configuration/name`.
    pub(crate) fn webhook(&self) -> String {
        self.call.webhook.id()
    }

    /// The timeout of the webhook.
    pub(crate) fn timeout(&self) -> Duration {
        self.call.webhook.timeout
    }

    /// Sends the request and waits for the reply.
    pub(crate) async fn send(self, upstreams: &Upstreams, terms: CallOptions<'_>) -> CallResult {
        let Self {
            call,
            uid,
            body,
            copied,
            permit,
        } = self;
        let CallOptions {
            cluster,
            phase,
            timeout,
            requester,
            parent,
            memory,
        } = terms;
        let start = Instant::now();
        let result = if timeout.is_zero() {
            Err(CallFailure::RequestExpired)
        } else if permit.is_none() {
            Err(CallFailure::NotMade(TOO_MANY_CALLS.to_owned()))
        } else {
            let asked = (cluster, &call.webhook);
            let taken_of = Some(Arc::clone(&memory));
            let called = upstreams.call(asked, body, timeout, requester, parent, taken_of);
            called.await
        };
        drop(copied);
        let took = start.elapsed();
        let returned = CallResult {
            call,
            uid,
            phase,
            result: result.map(ReceivedReply::Unverified),
            took,
            memory,
            _permit: permit,
        };
        if returned.is_large() {
            returned
        } else {
            returned.verified()
        }
    }
}

// === impl CallResult ===

impl CallResult {
    /// Whether the reply is too large to be [verified](Self::verified) outside the pool.
    pub(crate) fn is_large(&self) -> bool {
        matches!(&self.result, Ok(ReceivedReply::Unverified(reply)) if reply.body.len() > MAX_BYTES_VERIFIED_AT_ONCE)
    }

    /// Replaces the received reply by the verified one.
    pub(crate) fn verified(self) -> Self {
        let result = self.result.and_then(|reply| match reply {
            ReceivedReply::Unverified(reply) => {
                verify(&self.call, &self.uid, self.phase, reply, &self.memory)
            }
            verified => Ok(verified),
        });
        Self {
            result,
            _permit: None,
            ..self
        }
    }

    /// Returns the call, the webhook's answer, and the memory reserved for it.
    pub(crate) fn answer(self) -> (Call, WebhookCallResult, Option<TakenMemory>) {
        let (call, took) = (self.call.clone(), self.took);
        let (result, taken) = match self.verified().result {
            Ok(ReceivedReply::Verified(reply, taken)) => (Ok(*reply), taken),
            Ok(ReceivedReply::Unverified(_)) => (Err(CallFailure::RequestExpired), None),
            Err(failure) => (Err(failure), None),
        };
        (call, WebhookCallResult { result, took }, taken)
    }
}

/// Verifies that `reply` answers the request `uid`. If it does not, the connection is closed,
/// because a later request on it could receive the reply to this one.
fn verify(
    call: &Call,
    uid: &str,
    phase: Phase,
    reply: Reply,
    memory: &ReplyMemory,
) -> Result<ReceivedReply, CallFailure> {
    let Reply {
        body,
        taken,
        connection,
    } = reply;
    let indexed = memory.reserve(Document::most_bytes(&body));
    let _indexed = indexed.ok_or_else(|| CallFailure::NotMade(CallError::NoMemory.to_string()))?;
    let verified = api::verify(call, uid, phase, &body)?;
    // Replies of versions before v1 need not repeat the uid.
    connection.release(call.version == ReviewVersion::V1);
    Ok(ReceivedReply::Verified(Box::new(verified), taken))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::limits::{Capacity, Limiter};
    use crate::telemetry::per_worker::{WorkerGauge, WorkerRef};
    use portcullis_policy::admission::FailurePolicy;
    use portcullis_policy::admission::Reinvocation;
    use portcullis_policy::admission::matching::Constraints;
    use portcullis_policy::admission::webhook::{ClientConfig, ReviewVersion, Webhook, WebhookTarget};
    use portcullis_policy::admission::{GroupVersionKind, GroupVersionResource};
    use portcullis_policy::api::AdmissionReview;

    const REVIEW: &str = r#"{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request":
        {"uid": "u", "operation": "CREATE", "resource": {"version": "v1", "resource": "pods"}, "object": {"a": "b"}}}"#;

    fn mk_call() -> Call {
        let webhook = Webhook {
            configuration: "a".to_owned(),
            name: "b".to_owned(),
            client: ClientConfig {
                target: WebhookTarget::Url("https://b".to_owned()),
                ca_bundle: Vec::new(),
            },
            constraints: Constraints::default(),
            match_conditions: Vec::new(),
            failure_policy: FailurePolicy::Fail,
            timeout: Duration::from_secs(10),
            side_effects: None,
            version: Some(ReviewVersion::V1),
            reinvocation: Reinvocation::Never,
        };
        Call {
            webhook: Arc::new(webhook),
            version: ReviewVersion::V1,
            kind: GroupVersionKind::default(),
            resource: GroupVersionResource::default(),
            object: None,
        }
    }

    fn permit(bytes: usize) -> Permit {
        permit_of(bytes, 100)
    }

    fn permit_of(bytes: usize, calls: usize) -> Permit {
        let capacity = Capacity {
            requests: 1,
            bytes,
            memory: 0,
            calls,
        };
        let gauge = WorkerGauge::default();
        WorkerRef::<Limiter>::new(Arc::default())
            .enter(capacity, None, 0, &gauge)
            .unwrap()
    }

    fn mk_result(body: &'static [u8], memory: usize) -> CallResult {
        let capacity = Capacity {
            requests: 1,
            bytes: 0,
            memory,
            calls: 0,
        };
        let gauge = WorkerGauge::default();
        let permit = WorkerRef::<Limiter>::new(Arc::default()).enter(capacity, None, 0, &gauge);
        let reply = Reply {
            body: body.into(),
            ..Reply::default()
        };
        CallResult {
            call: mk_call(),
            uid: "u".to_owned(),
            phase: Phase::Validate,
            result: Ok(ReceivedReply::Unverified(reply)),
            took: Duration::ZERO,
            _permit: None,
            memory: Arc::new(permit.unwrap().memory("east", "jane")),
        }
    }

    #[test]
    fn a_reply_that_cannot_be_read_within_the_memory_refuses_the_request() {
        let body = br#"{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": "u", "allowed": true}}"#;
        assert!(!mk_result(body, 0).is_large());
        let (_, answer, _) = mk_result(body, 0).verified().answer();
        assert!(
            matches!(answer.result, Err(CallFailure::NotMade(_))),
            "{answer:?}"
        );
        let (_, answer, _) = mk_result(body, 1 << 20).verified().answer();
        assert!(answer.result.is_ok(), "{answer:?}");

        let large: &[u8] = Vec::leak(vec![b' '; MAX_BYTES_VERIFIED_AT_ONCE + 1]);
        assert!(mk_result(large, 0).is_large());
        assert!(!mk_result(large, 1 << 20).verified().is_large(), "it is no reply");
    }

    #[test]
    fn questions_beyond_what_may_be_held_wait_but_one_is_always_put() {
        let body = Document::parse(REVIEW).unwrap();
        let review = AdmissionReview::decode(&body).unwrap();
        let length = api::encode_review(&mk_call(), &review.request, &Uuid::new_v4().to_string()).len();
        for (most, expected) in [(1, [1, 1, 1]), (length + 1, [2, 1, 0]), (usize::MAX, [3, 0, 0])] {
            let mut left = VecDeque::from([mk_call(), mk_call(), mk_call()]);
            let put =
                expected.map(|_| questions_of(most, &mut left, &review.request, &permit(1 << 20)).len());
            assert_eq!(put, expected, "{most}");
        }
    }

    #[test]
    fn questions_beyond_the_calls_that_may_be_wait_and_without_any_the_request_is_refused() {
        let body = Document::parse(REVIEW).unwrap();
        let review = AdmissionReview::decode(&body).unwrap();
        let permit = permit_of(1 << 20, 2);
        let ask = || {
            let mut left = VecDeque::from([mk_call(), mk_call(), mk_call()]);
            let questions = encode_requests(&mut left, &review.request, &permit);
            (questions, left.len())
        };
        let (first, left) = ask();
        assert_eq!((first.len(), left), (2, 1));
        let (mut second, left) = ask();
        assert_eq!((second.len(), left), (1, 2));
        assert!(second.remove(0).permit.is_none());
        drop(first);
        assert_eq!(ask().0.len(), 2);
    }

    #[test]
    fn questions_of_all_reviews_together_have_as_much_room_as_bodies() {
        let body = Document::parse(REVIEW).unwrap();
        let review = AdmissionReview::decode(&body).unwrap();
        let length = api::encode_review(&mk_call(), &review.request, &Uuid::new_v4().to_string()).len();
        let permit = permit(2 * length);
        let ask = || {
            let mut left = VecDeque::from([mk_call(), mk_call(), mk_call(), mk_call()]);
            encode_requests(&mut left, &review.request, &permit)
        };
        let first = ask();
        assert_eq!(
            first.len(),
            3,
            "two for which there is room, and the one that shows that there is none"
        );
        let second = ask();
        assert_eq!(second.len(), 1, "one is always put");
        drop(first);
        assert_eq!(ask().len(), 3);
    }
}
