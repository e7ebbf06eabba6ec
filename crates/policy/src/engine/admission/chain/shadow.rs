//! The decisions of shadow webhooks.

use std::sync::Arc;
use std::time::Duration;

use super::objection::Objection;
use super::patch;
use crate::engine::admission::Request;
use crate::engine::admission::changes::{ChangeLimits, ObjectMemory};
use crate::engine::admission::webhook::{Call, Verdict, Webhook, WebhookAnswer};
use portcullis_cel::json::patch::PatchBudget;

/// What would have come of a webhook, were it not in shadow mode.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Which.
    pub webhook: Arc<Webhook>,
    /// What it would have said; a failure that its failurePolicy passes over allows.
    pub verdict: Verdict,
    /// What it would have changed of the object as it was at its place in the chain.
    pub changed: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Judges the answer to one of [`Outcome::shadows`](crate::engine::admission::Outcome::shadows) of
/// a run for this request, which takes no more than `memory` has.
#[must_use]
pub fn compare(
    call: &Call,
    request: &Request<'_>,
    answer: WebhookAnswer,
    memory: Option<&dyn ObjectMemory>,
) -> Comparison {
    let webhook = Arc::clone(&call.webhook);
    let object = call
        .object
        .as_ref()
        .map(|object| object.root())
        .or(request.object);
    let limits = ChangeLimits::of(request, memory);
    let judged = Objection::to(Some(answer.result)).and_then(|reply| match &reply.denial {
        Some(denial) => Err(Objection::Denial(Box::new(denial.clone()))),
        None => patch::patched(call, &reply, object, limits, &mut PatchBudget::new()),
    });
    let (verdict, changed) = match judged {
        Err(objection) => (objection.verdict(&webhook), Vec::new()),
        Ok(patched) => {
            let paths = object
                .zip(patched.as_ref())
                .map(|(object, patched)| patch::paths(object, patched.object.root()));
            (Verdict::Allowed, paths.unwrap_or_default())
        }
    };
    Comparison {
        webhook,
        verdict,
        changed,
        took: answer.took,
    }
}

// === impl Comparison ===

impl Comparison {
    /// Whether it would have let the request pass.
    #[must_use]
    pub const fn allows(&self) -> bool {
        match &self.verdict {
            Verdict::Allowed => true,
            Verdict::Denied(_) => false,
            Verdict::Failed { is_ignored, .. } => *is_ignored,
        }
    }

    /// Why it would have refused, or failed; empty where it allows.
    #[must_use]
    pub fn reason(&self) -> &str {
        match &self.verdict {
            Verdict::Allowed => "",
            Verdict::Denied(message) | Verdict::Failed { message, .. } => message,
        }
    }
}
