//! A review to be answered, and the policies that answer it.

use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::recording::RecordedCall;
use crate::server::limits::memory::ReviewMemory;
use crate::server::receive::ReceivedReview;
use crate::server::respond::Rejection;
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::engine::admission::webhook::{Call, WebhookAnswer};
use portcullis_policy::engine::admission::{AdmissionSet, ObjectMemory, Phase, TakenMemory};

/// A review to be answered.
pub(crate) struct PendingReview {
    pub(crate) received: ReceivedReview,
    pub(crate) phase: Phase,
    /// The only policy or webhook configuration that is to be asked.
    pub(crate) only: Option<String>,
    pub(crate) since: Instant,
    /// The webhooks that have answered so far, where reviews are recorded.
    pub(crate) calls: Mutex<Vec<RecordedCall>>,
    /// Memory for what is made of it, once anything is.
    pub(crate) memory: OnceLock<ReviewMemory>,
}

/// Memory for what is made of a review of this user.
pub(crate) struct MemoryOf<'r> {
    pub(crate) asked: &'r PendingReview,
    pub(crate) user: &'r str,
}

// === impl MemoryOf ===

impl MemoryOf<'_> {
    pub(crate) fn memory(&self) -> &ReviewMemory {
        let ReceivedReview { permit, caller, .. } = &self.asked.received;
        let new = || permit.memory(&caller.cluster, self.user);
        self.asked.memory.get_or_init(new)
    }
}

impl ObjectMemory for MemoryOf<'_> {
    fn take(&self, bytes: usize) -> Option<TakenMemory> {
        self.memory().take(bytes)
    }
}

// === impl PendingReview ===

impl PendingReview {
    /// Reads the review, the only time that it is decoded. Its bytes are gone from here then.
    pub(crate) fn read(&mut self) -> Result<OwnedAdmissionReview, Rejection> {
        let _span = self.received.trace.span("decode");
        let body = mem::take(&mut self.received.body);
        let review = OwnedAdmissionReview::read(Vec::from(body))?;
        let user = &review.review().request.user;
        // Who is not held up is judged by the files.
        self.received
            .is_awaited(&user.name, || self.access().protects(user))?;
        Ok(review)
    }

    /// Keeps what a webhook answered, to be recorded with the review.
    pub(crate) fn keep_call(&self, call: Call, answer: WebhookAnswer) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(RecordedCall::new(call, answer, false));
    }

    /// What was kept.
    pub(crate) fn take_calls(&self) -> Vec<RecordedCall> {
        mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn check_name(&self) -> Result<(), Rejection> {
        match &self.only {
            Some(name) if !self.policies().has(self.phase, name) => {
                Err(Rejection::NoSuchPolicy { name: name.clone() })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn policies(&self) -> &Arc<AdmissionSet> {
        let ReceivedReview { snapshot, caller, .. } = &self.received;
        snapshot.admission.for_cluster(&caller.cluster)
    }

    /// What answers the questions about access of expressions.
    pub(crate) fn access(&self) -> &PolicySet {
        let ReceivedReview { snapshot, caller, .. } = &self.received;
        snapshot.policies.for_cluster(&caller.cluster)
    }
}
