//! A review to be answered, and the policies that answer it.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::admission::{AdmissionSet, Phase};
use crate::engine::authorization::PolicySet;
use crate::server::receive::ReceivedReview;
use crate::server::respond::Rejection;

/// A review to be answered.
pub(super) struct PendingReview {
    pub(super) received: ReceivedReview,
    pub(super) phase: Phase,
    /// The only policy or webhook configuration that is to be asked.
    pub(super) only: Option<String>,
    pub(super) since: Instant,
}

impl PendingReview {
    pub(super) fn check_name(&self) -> Result<(), Rejection> {
        match &self.only {
            Some(name) if !self.policies().has(self.phase, name) => {
                Err(Rejection::NoSuchPolicy { name: name.clone() })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn policies(&self) -> &Arc<AdmissionSet> {
        let ReceivedReview { snapshot, caller, .. } = &self.received;
        snapshot.admission.for_cluster(&caller.cluster)
    }

    /// What answers the questions about access of expressions.
    pub(super) fn access(&self) -> &PolicySet {
        let ReceivedReview { snapshot, caller, .. } = &self.received;
        snapshot.policies.for_cluster(&caller.cluster)
    }
}
