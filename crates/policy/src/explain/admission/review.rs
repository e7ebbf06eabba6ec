//! Answers a review offline, in one phase or both, and records the trace.
//!
//! ```text
//! review ─▶ mutate ─▶ the review with the object changed ─▶ validate ─▶ one reply
//!             └── webhooks: recorded answers ───────────────────┘
//! ```
//!
//! No webhook is called. If there is no recorded answer for one that would be, the run
//! ends without a decision.

use std::time::Instant;

use super::trace::{StepRecorder, TracedStep};
use crate::api::{AdmissionReview, AdmissionReviewError};
use crate::engine::admission::chain::{Comparison, compare};
use crate::engine::admission::trace::{Recorder, TraceStep};
use crate::engine::admission::webhook::{Call, WebhookAnswer, WebhookResult};
use crate::engine::admission::{Chain, GrantReview, Outcome, Phase, Progress, Request, Run};
use crate::engine::{Deadline, Time};
use crate::explain::LoadedPolicies;
use crate::explain::recorded::{AnswerSequence, RecordedAnswers};
use crate::manifest::Surroundings;
use portcullis_cel::json::{Document, ObjectWriter, patch, write_list};

/// How to answer.
#[derive(Clone, Copy)]
pub struct OfflineReview<'a> {
    pub loaded: &'a LoadedPolicies,
    pub cluster: &'a str,
    pub phases: &'a [Phase],
    /// The only policy or webhook configuration that is to be asked.
    pub only: Option<&'a str>,
    /// The instant for which it is decided.
    pub now: Time,
    /// Tells how long each step of the trace takes.
    pub clock: fn() -> Instant,
    /// What webhooks answer.
    pub answers: &'a RecordedAnswers,
    /// Nobody knows who asks, nor what was there before.
    pub nobody_asks: bool,
    /// When to give up: then the answer says nothing. `None`: never.
    pub deadline: Option<Deadline<'a>>,
    /// Takes the steps, in place of the trace of the answer.
    pub recorder: Option<&'a dyn Recorder>,
}

/// What came of a review.
pub struct OfflineReviewResult {
    pub decided: Result<OfflineDecision, MissingAnswers>,
    /// The webhooks that were asked, in order, as `configuration/webhook`.
    pub asked: Vec<String>,
    pub trace: Vec<TracedStep>,
}

/// The answer of all phases together.
pub struct OfflineDecision {
    pub outcome: Outcome,
    /// The reply as it goes over the wire.
    pub reply: String,
    /// The object after the mutations; none where the review has none.
    pub object: Option<String>,
}

/// What would be decided depends on webhooks of which no answer is recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it depends on the answers of {}, which are not recorded", webhooks.join(", "))]
pub struct MissingAnswers {
    /// As `configuration/webhook`.
    pub webhooks: Vec<String>,
}

/// One run of all phases.
struct OfflineRun<'a> {
    asked: OfflineReview<'a>,
    answering: AnswerSequence<'a>,
    webhooks: Vec<String>,
    trace: Vec<TracedStep>,
}

/// Why a review has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswerable {
    #[error("{0}")]
    Review(#[from] AdmissionReviewError),
    #[error("the changed object cannot be put back: {0}")]
    Patch(#[from] patch::PatchError),
}

impl OfflineReview<'_> {
    /// Answers the review in `body`.
    ///
    /// # Errors
    ///
    /// It is no AdmissionReview.
    pub fn answer(&self, body: &[u8]) -> Result<OfflineReviewResult, Unanswerable> {
        let received = Document::parse_bytes(body).map_err(AdmissionReviewError::from)?;
        let review = AdmissionReview::decode(&received)?;
        let mut running = OfflineRun {
            asked: *self,
            answering: AnswerSequence::new(self.answers),
            webhooks: Vec::new(),
            trace: Vec::new(),
        };
        let decided = running.all(&received, &review)?;
        Ok(OfflineReviewResult {
            decided,
            asked: running.webhooks,
            trace: running.trace,
        })
    }
}

// === impl OfflineRun ===

impl OfflineRun<'_> {
    fn all(
        &mut self,
        received: &Document<'_>,
        review: &AdmissionReview<'_>,
    ) -> Result<Result<OfflineDecision, MissingAnswers>, Unanswerable> {
        let (mut outcome, mut changed) = (Outcome::default(), None);
        for phase in self.asked.phases {
            let document: &Document<'_> = changed.as_ref().unwrap_or(received);
            let of_phase = match self.run(*phase, &AdmissionReview::decode(document)?) {
                Ok(of_phase) => of_phase,
                Err(unknown) => return Ok(Err(unknown)),
            };
            if !of_phase.patch.is_empty() {
                changed = Some(with_patch(document, &of_phase.patch)?);
            }
            merge(&mut outcome, of_phase);
            if outcome.denial.is_some() {
                break;
            }
        }
        let outcome = review.within_version(outcome);
        let object = AdmissionReview::decode(changed.as_ref().unwrap_or(received))?
            .request
            .object
            .map(|object| object.raw().to_owned());
        Ok(Ok(OfflineDecision {
            reply: String::from_utf8(review.reply(&outcome)).unwrap_or_default(),
            outcome,
            object,
        }))
    }

    fn run(&mut self, phase: Phase, review: &AdmissionReview<'_>) -> Result<Outcome, MissingAnswers> {
        let OfflineReview {
            loaded,
            cluster,
            only,
            now,
            clock,
            nobody_asks,
            deadline,
            recorder,
            ..
        } = self.asked;
        let tape = StepRecorder::new(phase, clock);
        let surroundings = Surroundings::new(
            loaded.policies.for_cluster(cluster),
            loaded.admission.for_cluster(cluster),
        );
        let unlimited = Run::new(&**loaded.policies.for_cluster(cluster), now);
        let run = Run {
            only,
            nobody_asks,
            deadline: deadline.unwrap_or(unlimited.deadline),
            recorder: Some(recorder.unwrap_or(&tape)),
            grants: Some(GrantReview {
                policies: loaded.policies.for_cluster(cluster),
                is_allowed_elsewhere: false,
            }),
            judge: Some(&surroundings),
            ..unlimited
        };
        let policies = loaded.admission.for_cluster(cluster);
        let (mut chain, mut answers) = (Chain::new(phase), Ok(Vec::new()));
        let outcome = loop {
            let given = match answers {
                Ok(given) => given,
                Err(unknown) => break Err(unknown),
            };
            match chain.advance(policies, &review.request, run, given) {
                Progress::Done(outcome) => {
                    self.compare(&outcome.shadows, phase, &review.request, &tape);
                    break Ok(*outcome);
                }
                Progress::Ask(calls) => answers = self.ask(&calls, phase),
            }
        };
        self.trace.extend(tape.into_steps());
        outcome
    }

    /// Reports what shadow webhooks would have decided, where that is recorded.
    fn compare(&mut self, shadows: &[Call], phase: Phase, request: &Request<'_>, tape: &StepRecorder) {
        for call in shadows {
            let Some(answer) = self.answering.answer(call, phase) else {
                continue;
            };
            let Comparison {
                webhook,
                verdict,
                changed,
                ..
            } = compare(call, request, answer, None);
            tape.record(TraceStep::Answered(&WebhookResult {
                webhook,
                round: 0,
                index: 0,
                verdict,
                changed,
                took: None,
            }));
        }
    }

    fn ask(&mut self, calls: &[Call], phase: Phase) -> Result<Vec<WebhookAnswer>, MissingAnswers> {
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for call in calls {
            let answer = self.answering.answer(call, phase);
            self.webhooks.push(call.webhook.id());
            match answer {
                Some(answer) => answers.push(answer),
                None => missing.push(call.webhook.id()),
            }
        }
        if missing.is_empty() {
            Ok(answers)
        } else {
            Err(MissingAnswers { webhooks: missing })
        }
    }
}

/// Adds what a later phase said to what the earlier did.
fn merge(all: &mut Outcome, one: Outcome) {
    all.denial = one.denial;
    all.cause = one.cause;
    for warning in one.warnings.iter() {
        all.warnings.push(warning);
    }
    all.exceptions.extend(one.exceptions);
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
    let object = patch::apply(object, patch::read(changes.root())?)?.to_text();
    let mut replace = String::new();
    write_list(&mut replace, [object], |out, object| {
        ObjectWriter::write(out, |operation| {
            operation.text("op", "replace");
            operation.text("path", &pointer);
            operation.json("value", &object);
        });
    });
    let replace = read(replace)?;
    let operations = patch::read(replace.root())?;
    Ok(read(patch::apply(review.root(), operations)?.to_text())?)
}
