//! `POST /authorize`: one SubjectAccessReview, decoded, decided, logged, answered.

use std::time::{Duration, Instant, SystemTime};

use super::gateway::Shared;
use super::respond::Rejection;
use super::routes::Received;
use crate::api::{Reply, SubjectAccessReview};
use crate::engine::{Attributes, Authorization, Decision, PolicySet};
use crate::telemetry::decision_log::{DecisionLog, Question, Record, ShadowDecision};

/// Room for a usual reply.
const REPLY_BYTES: usize = 320;

/// The reply to the review in the body.
pub(super) fn answer(shared: &Shared, received: &Received) -> Result<Vec<u8>, Rejection> {
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
    let mut reply = Vec::with_capacity(REPLY_BYTES);
    Reply {
        version: review.version,
        decision: authorization.decision,
        reason: &authorization.reason,
        evaluation_error: "",
    }
    .encode(&mut reply);
    Ok(reply)
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
        duration,
    });
}
