//! A review answered in one phase or both, with the trace.
//!
//! ```text
//! review ─▶ mutate ─▶ the review with the object changed ─▶ validate ─▶ one reply
//! ```

use super::trace::{Tape, Traced};
use crate::api::{AdmissionReview, AdmissionReviewError};
use crate::cli::loading::Deciding;
use crate::engine::admission::Phase;
use crate::engine::admission::webhook::nobody;
use crate::engine::admission::{Chain, Outcome, Run};
use crate::json::{Document, patch, write_string};

/// How to answer.
#[derive(Clone, Copy)]
pub(in crate::cli) struct Asked<'a> {
    pub(in crate::cli) deciding: &'a Deciding,
    pub(in crate::cli) cluster: &'a str,
    pub(in crate::cli) phases: &'a [Phase],
    /// The only policy that is to be asked.
    pub(in crate::cli) only: Option<&'a str>,
}

/// The answer of all phases together.
pub(in crate::cli) struct Answered {
    pub(in crate::cli) outcome: Outcome,
    /// The reply as it goes over the wire.
    pub(in crate::cli) reply: String,
    /// The object after the mutations; none where the review has none.
    pub(in crate::cli) object: Option<String>,
    pub(in crate::cli) trace: Vec<Traced>,
}

/// Why a review has no answer.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Unanswerable {
    #[error("{0}")]
    Review(#[from] AdmissionReviewError),
    #[error("the changed object cannot be put back: {0}")]
    Patch(#[from] patch::Error),
}

impl Asked<'_> {
    /// Answers the review in `body`.
    ///
    /// # Errors
    ///
    /// It is no AdmissionReview.
    pub(in crate::cli) fn answer(&self, body: &[u8]) -> Result<Answered, Unanswerable> {
        let received = Document::parse_bytes(body).map_err(AdmissionReviewError::from)?;
        let received_review = AdmissionReview::decode(&received)?;
        let (mut outcome, mut trace, mut changed) = (Outcome::default(), Vec::new(), None);
        for phase in self.phases {
            let document: &Document<'_> = changed.as_ref().unwrap_or(&received);
            let (of_phase, steps) = self.run(*phase, &AdmissionReview::decode(document)?);
            trace.extend(steps);
            if !of_phase.patch.is_empty() {
                changed = Some(with_patch(document, &of_phase.patch)?);
            }
            merge(&mut outcome, of_phase);
            if outcome.denial.is_some() {
                break;
            }
        }
        let outcome = received_review.tellable(outcome);
        let object = AdmissionReview::decode(changed.as_ref().unwrap_or(&received))?
            .request
            .object
            .map(|object| object.raw().to_owned());
        Ok(Answered {
            reply: String::from_utf8(received_review.reply(&outcome)).unwrap_or_default(),
            outcome,
            object,
            trace,
        })
    }

    fn run(&self, phase: Phase, review: &AdmissionReview<'_>) -> (Outcome, Vec<Traced>) {
        let tape = Tape::new(phase);
        let run = Run {
            only: self.only,
            recorder: Some(&tape),
            ..Run::new(&**self.deciding.policies.for_cluster(self.cluster))
        };
        let policies = self.deciding.admission.for_cluster(self.cluster);
        let outcome = Chain::run(phase, policies, &review.request, run, &mut nobody);
        (outcome, tape.into_steps())
    }
}

/// Adds what a later phase said to what the earlier did.
fn merge(all: &mut Outcome, one: Outcome) {
    all.denial = one.denial;
    all.cause = one.cause;
    for warning in one.warnings.iter() {
        all.warnings.push(warning);
    }
    for (key, value) in one.audit_annotations {
        all.audit_annotations.entry(key).or_insert(value);
    }
    if !one.patch.is_empty() {
        all.patch = one.patch;
    }
}

/// The review with the patch applied to its object.
fn with_patch(review: &Document<'_>, changes: &str) -> Result<Document<'static>, Unanswerable> {
    let read = |text: String| Document::parse(text).map_err(AdmissionReviewError::from);
    let member = ["request", "spec"]
        .into_iter()
        .find(|member| review.root().get(member).is_some())
        .unwrap_or_default();
    let pointer = format!("/{member}/object");
    let Some(object) = review.root().pointer(&pointer) else {
        return Ok(read(review.text().to_owned())?);
    };
    let changes = read(changes.to_owned())?;
    let object = patch::apply(object, &patch::read(changes.root())?)?.to_text();
    let mut replace = String::from(r#"[{"op":"replace","path":"#);
    write_string(&mut replace, &pointer);
    replace.push_str(r#","value":"#);
    replace.push_str(&object);
    replace.push_str("}]");
    let replace = read(replace)?;
    let operations = patch::read(replace.root())?;
    Ok(read(patch::apply(review.root(), &operations)?.to_text())?)
}
