//! `POST /authorize`: one SubjectAccessReview, decoded, decided, logged, answered.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

use actix_web::web::Bytes;

use super::gateway::Shared;
use super::respond::Rejection;
use super::routes::Received;
use crate::api::{Reply, SubjectAccessReview};
use crate::engine::{Attributes, Authorization, Decision, PolicySet};
use crate::telemetry::decision_log::{DecisionLog, Question, Record, ShadowDecision};

/// The reply to the review in the body.
pub(super) fn answer(shared: &Shared, received: &Received) -> Result<Bytes, Rejection> {
    let review = SubjectAccessReview::decode(&received.body)?;
    let policies = received.snapshot.policies.for_cluster(&received.caller.cluster);
    let counters = shared.counters(&received.snapshot);

    let start = Instant::now();
    let authorization = policies.authorize_observed(&review.attributes, &mut |policy, evaluation| {
        if let Some(counters) = counters.as_ref() {
            counters.evaluated(policies, policy, evaluation);
        }
    });
    let took = start.elapsed();

    shared.metrics.authorization(authorization.decision, took);
    if let Some(log) = &shared.decision_log {
        record(log, received, policies, &review.attributes, &authorization, took);
    }
    let reply = Reply {
        version: review.version,
        decision: authorization.decision,
        reason: &authorization.reason,
        evaluation_error: "",
    };
    Ok(encoded(&reply))
}

/// The reply's bytes: written where the last one was, then copied once, to size.
fn encoded(reply: &Reply<'_>) -> Bytes {
    thread_local! {
        static REPLY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut written = REPLY.take();
    written.clear();
    reply.encode(&mut written);
    let bytes = Bytes::copy_from_slice(&written);
    REPLY.set(written);
    bytes
}

fn record(
    log: &DecisionLog,
    received: &Received,
    policies: &PolicySet,
    attributes: &Attributes<'_>,
    authorization: &Authorization,
    duration: Duration,
) {
    let why_not = match authorization.decision {
        Decision::NoOpinion => policies.unmatched(attributes).to_string(),
        Decision::Allow | Decision::Deny => String::new(),
    };
    let shadow: Vec<_> = authorization
        .shadow
        .iter()
        .map(|shadow| ShadowDecision {
            kind: shadow.kind.as_str(),
            name: &shadow.name,
            decision: shadow.decision,
        })
        .collect();
    log.record(&Record {
        time: SystemTime::now(),
        revision: &received.snapshot.revision,
        cluster: &received.caller.cluster,
        caller: &received.caller.name,
        question: Question::Authorization(attributes),
        decision: authorization.decision,
        reason: if why_not.is_empty() {
            &authorization.reason
        } else {
            &why_not
        },
        cause: authorization.cause.as_ref(),
        shadow: &shadow,
        webhooks: &[],
        duration,
    });
}
