//! One review to be recorded, as a worker hands it over.

use std::sync::Arc;
use std::time::SystemTime;

use super::calls::RecordedCall;
use crate::config::Endpoint;
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::authorization::authorizer::NamedOpinion;
use portcullis_policy::engine::{Cause, Decision};

/// What a review takes beside its texts.
const OVERHEAD: usize = 1024;

/// A review, who asked, and what was answered.
#[derive(Debug)]
pub struct RecordedReview {
    /// For when it was decided.
    pub time: SystemTime,
    /// What was asked.
    pub endpoint: Endpoint,
    /// The only policy or webhook configuration that was to be asked: the end of the path.
    pub name: Option<String>,
    /// The cluster the caller speaks for.
    pub cluster: String,
    /// The caller's name.
    pub caller: String,
    /// The revision of what it was decided by.
    pub revision: Arc<str>,
    /// The answer.
    pub decision: RecordedDecision,
    /// What other authorizers said, in the order asked.
    pub opinions: Vec<NamedOpinion>,
    /// What webhooks behind the gateway said, in the order asked.
    pub calls: Vec<RecordedCall>,
    /// The review.
    pub body: RecordedBody,
}

/// What was answered.
#[derive(Debug)]
pub struct RecordedDecision {
    /// Whether it may be.
    pub decision: Decision,
    /// Why.
    pub reason: String,
    /// The object that decided.
    pub cause: Option<Cause<'static>>,
    /// What went wrong on the way; empty if nothing did.
    pub error: String,
    /// The JSON Patch of the reply; empty if there is none.
    pub patch: String,
}

/// A review as it was received.
#[derive(Debug)]
pub enum RecordedBody {
    /// A SubjectAccessReview.
    Access(Box<[u8]>),
    /// An AdmissionReview, which was read already.
    Admission(Arc<OwnedAdmissionReview>),
}

// === impl RecordedReview ===

impl RecordedReview {
    /// How much memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        let body = match &self.body {
            RecordedBody::Access(body) => body.len(),
            RecordedBody::Admission(review) => review.memory(),
        };
        let opinions = self.opinions.iter().map(|named| named.opinion.reason.len());
        let calls = self.calls.iter().map(RecordedCall::bytes);
        OVERHEAD
            + body
            + self.decision.reason.len()
            + self.decision.patch.len()
            + opinions.sum::<usize>()
            + calls.sum::<usize>()
    }
}
