//! Decides a recorded review with other policies, and equal reviews only once.
//!
//! API servers send the same SubjectAccessReviews over and over, and all of them are recorded. Two
//! records are equal if they only differ in time and revision, and no policy begins or ends between
//! their times. AdmissionReviews are never equal, because each has its own `uid`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Endpoint;
use crate::recording::{CallLine, ObjectState, RecordLine, RecordingError, object_state};
use portcullis_cel::Program;
use portcullis_cel::json::{Document, Node, patch};
use portcullis_policy::admission::exceptions::NotExcused;
use portcullis_policy::admission::matching::Mismatch;
use portcullis_policy::admission::run::{MatchFinding, PolicyExpression, Recorder, TraceStep};
use portcullis_policy::admission::webhook::{Call, WebhookCallResult};
use portcullis_policy::admission::{
    Chain, GrantReview, Outcome, Phase, Progress, Request, RunOptions, may_read,
};
use portcullis_policy::api::{AdmissionReview, SubjectAccessReview};
use portcullis_policy::authorization::{Authorization, PolicySet};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{StepRecorder, StepsInWords};
use portcullis_policy::explain::authorization::{self, ConsultationReport, InWords, Opinions};
use portcullis_policy::explain::recorded::{KnownDecision, ReplayDecision, ReviewComparison};
use portcullis_policy::manifest::ValidationContext;
use portcullis_policy::model::{CauseKind, Decision, Time};

/// The group of the gateway's own kinds, which are validated as a whole.
const OWN_GROUP: &str = "portcullis.dev";

/// A review, and the policies that decide it.
pub(crate) struct ReplayDecider<'a> {
    pub(crate) policies: &'a LoadedPolicies,
    pub(crate) recorded: &'a RecordLine<'a>,
    pub(crate) now: Time,
}

/// An evaluation that takes the responses of webhooks from the recording.
struct AdmissionReplay<'a> {
    recorded: &'a RecordLine<'a>,
    watch: RedactionWatch,
    /// The indexes of the recorded responses that were used.
    used_responses: Vec<usize>,
}

/// The decision that was recorded.
pub(crate) fn recorded_decision(line: &RecordLine<'_>) -> ReplayDecision {
    let patch = line
        .patch()
        .map_or_else(String::new, |patch| patch.raw().to_owned());
    ReplayDecision::Known(KnownDecision {
        decision: line.decision,
        reason: line.text("reason"),
        cause: line.cause(),
        patch: (!line.is_patch_redacted()).then_some(patch),
    })
}

// === impl ReplayDecider ===

impl ReplayDecider<'_> {
    /// # Errors
    ///
    /// The recorded data is not a review.
    pub(crate) fn decide(&self) -> Result<ReplayDecision, RecordingError> {
        match self.recorded.endpoint {
            Endpoint::Authorize => self.access(),
            Endpoint::Validate => self.admission(Phase::Validate),
            Endpoint::Mutate => self.admission(Phase::Mutate),
        }
    }

    fn access(&self) -> Result<ReplayDecision, RecordingError> {
        let review = SubjectAccessReview::decode(self.recorded.review.raw().as_bytes())
            .map_err(|_| RecordingError::Field("review"))?;
        let policies = self.policies.policies.for_cluster(&self.recorded.text("cluster"));
        let own = policies.authorize(&review.attributes, self.now);
        if let Some(decision) = self.decision_of_missing_access_request(policies, &own) {
            return Ok(decision);
        }
        let authorizers = self.policies.authorizers.as_slice();
        let authorization = if own.decision == Decision::NoOpinion && !authorizers.is_empty() {
            let opinions = Opinions::of(self.recorded.opinions()?);
            let consulted =
                authorization::consult(policies, &review.attributes, own, (authorizers, &opinions));
            if let Some(name) = consulted.unanswered().next() {
                let why = format!("the authorizer {name} would be called, but no response is recorded");
                return Ok(ReplayDecision::Unknown(why));
            }
            consulted.authorization
        } else {
            own
        };
        Ok(ReplayDecision::Known(KnownDecision::of_authorization(
            &authorization,
        )))
    }

    /// The decision if the recorded one was caused by an AccessRequest that `policies` lack: it
    /// still allows what no policy decides, but whether it lifts a Deny or Limit is unknown. `None`
    /// if `own`, the decision of `policies`, applies.
    fn decision_of_missing_access_request(
        &self,
        policies: &PolicySet,
        own: &Authorization<'_>,
    ) -> Option<ReplayDecision> {
        let recorded = self.recorded.cause();
        let name = recorded.strip_prefix("AccessRequest/")?;
        if policies.access_requests().iter().any(|one| one.name == name) {
            return None;
        }
        match (own.decision, &own.cause) {
            (Decision::NoOpinion, _) => Some(recorded_decision(self.recorded)),
            (Decision::Deny, Some(by)) => {
                let mut all = policies.authorization_policies();
                all.any(|policy| policy.liftable && policy.name == by.name)
                    .then(|| {
                        ReplayDecision::Unknown(format!(
                            "{recorded} allowed it and may lift {by}, but is not among these policies"
                        ))
                    })
            }
            _ => None,
        }
    }

    /// The steps of the decision, as explained by `authorize` and `admit`.
    pub(crate) fn explain(&self) -> Vec<String> {
        let explained = match self.recorded.endpoint {
            Endpoint::Authorize => self.explain_access(),
            Endpoint::Validate => self.explain_admission(Phase::Validate),
            Endpoint::Mutate => self.explain_admission(Phase::Mutate),
        };
        let explained = explained.unwrap_or_default();
        explained
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn explain_access(&self) -> Result<String, RecordingError> {
        let review = SubjectAccessReview::decode(self.recorded.review.raw().as_bytes())
            .map_err(|_| RecordingError::Field("review"))?;
        let policies = self.policies.policies.for_cluster(&self.recorded.text("cluster"));
        let (own, trace) = policies.explain(&review.attributes, self.now);
        let opinions = Opinions::of(self.recorded.opinions()?);
        let webhooks = (self.policies.authorizers.as_slice(), &opinions);
        let consulted: ConsultationReport =
            authorization::consult(policies, &review.attributes, own, webhooks);
        let words = InWords {
            consulted: &consulted,
            trace: &trace,
            bindings: policies.unmatched(&review.attributes, self.now).bindings,
        };
        // The decision itself is already reported.
        let words = words.lines();
        let rest = words.as_str().split_once('\n').map(|(_, rest)| rest.to_owned());
        Ok(rest.unwrap_or_default())
    }

    fn explain_admission(&self, phase: Phase) -> Result<String, RecordingError> {
        let document = Document::parse(self.recorded.review.raw())?;
        let review = AdmissionReview::decode(&document).map_err(|_| RecordingError::Field("review"))?;
        let name = self.recorded.text("name");
        let steps = StepRecorder::new(phase, std::time::Instant::now);
        let replay = AdmissionReplay {
            recorded: self.recorded,
            watch: RedactionWatch::new(&self.recorded.redacted()),
            used_responses: Vec::new(),
        };
        let only = (!name.is_empty()).then_some(name.as_str());
        // The outcome is already known.
        let _ = replay.run(self, phase, only, &review.request, Some(&steps));
        Ok(StepsInWords(&steps.into_steps()).lines().to_string())
    }

    fn admission(&self, phase: Phase) -> Result<ReplayDecision, RecordingError> {
        let document = Document::parse(self.recorded.review.raw())?;
        let review = AdmissionReview::decode(&document).map_err(|_| RecordingError::Field("review"))?;
        let cluster = self.recorded.text("cluster");
        let (name, set) = (
            self.recorded.text("name"),
            self.policies.admission.for_cluster(&cluster),
        );
        let only = (!name.is_empty()).then_some(name.as_str());
        if only.is_some_and(|name| !set.has_policy_or_configuration(phase, name)) {
            let why = format!("there is no policy or webhook configuration `{name}` for its endpoint");
            return Ok(ReplayDecision::Unknown(why));
        }
        let replay = AdmissionReplay {
            recorded: self.recorded,
            watch: RedactionWatch::new(&self.recorded.redacted()),
            used_responses: Vec::new(),
        };
        if replay.watch.is_any() && review.request.request_kind.group == OWN_GROUP {
            let why =
                format!("an object of {OWN_GROUP} is validated as a whole, but parts of it are redacted");
            return Ok(ReplayDecision::Unknown(why));
        }
        Ok(match replay.run(self, phase, only, &review.request, None) {
            Ok(outcome) => ReplayDecision::Known(KnownDecision::of_admission(review.within_version(outcome))),
            Err(why) => ReplayDecision::Unknown(why),
        })
    }
}

// === impl AdmissionReplay ===

impl AdmissionReplay<'_> {
    /// The outcome, or an error that says on which unknown data it depends.
    fn run(
        mut self,
        deciding: &ReplayDecider<'_>,
        phase: Phase,
        only: Option<&str>,
        request: &Request<'_>,
        steps: Option<&dyn Recorder>,
    ) -> Result<Outcome, String> {
        let cluster = self.recorded.text("cluster");
        let access = deciding.policies.policies.for_cluster(&cluster);
        let set = deciding.policies.admission.for_cluster(&cluster);
        let validation = ValidationContext::new(access, set);
        let (mut chain, mut answers) = (Chain::new(phase), Vec::new());
        let outcome = loop {
            let run = RunOptions {
                only,
                reauthorization: Some(GrantReview {
                    policies: access,
                    is_allowed_elsewhere: false,
                }),
                own_kinds: Some(&validation),
                recorder: steps.or_else(|| self.watch.is_any().then_some(&self.watch as &dyn Recorder)),
                ..RunOptions::new(&**access, deciding.now)
            };
            match chain.advance(set, request, run, answers) {
                Progress::Done(outcome) => break *outcome,
                Progress::Calls(calls) => {
                    answers = calls
                        .iter()
                        .map(|call| self.answer(call))
                        .collect::<Result<_, String>>()?;
                }
            }
        };
        match self.watch.into_dependency() {
            Some(why) => Err(why),
            None => Ok(outcome),
        }
    }

    /// The recorded response of the webhook to the same request.
    fn answer(&mut self, call: &Call) -> Result<WebhookCallResult, String> {
        let asked = object_state(call).within(self.watch.is_any());
        let id = call.webhook.id();
        let of_call = |(_, line): &(usize, CallLine<'_>)| line.is_of(call);
        let all: Vec<_> = self.recorded.calls().enumerate().filter(of_call).collect();
        if all.is_empty() {
            return Err(format!(
                "the webhook {id} would be called, but no response is recorded"
            ));
        }
        let is_same =
            |(_, line): &&(usize, CallLine<'_>)| line.object() == asked && asked != ObjectState::Redacted;
        let same: Vec<_> = all.iter().filter(is_same).collect();
        let fresh = same
            .iter()
            .find(|(index, _)| !self.used_responses.contains(index));
        let Some((index, line)) = fresh.or(same.last()).copied() else {
            return Err(format!(
                "the webhook {id} would be called with an object that differs from the recorded one"
            ));
        };
        if line.is_redacted || line.patch().is_some_and(|patch| self.touches(patch)) {
            return Err(format!("the patch of the webhook {id} changes redacted fields"));
        }
        self.used_responses.push(*index);
        Ok(WebhookCallResult {
            result: line.answer(),
            took: std::time::Duration::ZERO,
        })
    }

    /// Whether a patch affects redacted data.
    fn touches(&self, patch: Node<'_>) -> bool {
        let leads = |operation: Node<'_>, field: &str| {
            let target = operation.get(field).and_then(Node::as_str);
            target.is_some_and(|target| self.watch.overlaps(&target))
        };
        self.watch.is_any()
            && (patch.as_str().is_some()
                || patch
                    .items()
                    .any(|operation| leads(operation, "path") || leads(operation, "from")))
    }
}

// Finding out whether an evaluation depends on redacted data.

/// The maximum number of redacted places that are distinguished, because each expression is
/// compared with each place. If a review has more, all of its objects count as redacted.
const MAX_PLACES: usize = 1000;

/// The redacted places of a review, and whether the evaluation depends on one.
pub(crate) struct RedactionWatch {
    /// The path of each place, from the request.
    places: Vec<Vec<String>>,
    touched: RefCell<Option<String>>,
}

// === impl RedactionWatch ===

impl RedactionWatch {
    /// For a review from which the JSON Pointers `redacted` were removed.
    pub(crate) fn new(redacted: &[String]) -> Self {
        let steps = |pointer: &String| {
            // The first step is `/request` or `/spec`.
            let steps = patch::steps(pointer).unwrap_or_default().into_iter().skip(1);
            steps.map(|step| step.into_owned()).collect()
        };
        let places = if redacted.len() > MAX_PLACES {
            ["object", "oldObject", "options"]
                .map(|name| vec![name.to_owned()])
                .to_vec()
        } else {
            redacted.iter().map(steps).collect()
        };
        Self {
            places,
            touched: RefCell::default(),
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// Notes that the evaluation depends on redacted data.
    pub(crate) fn note_dependency(&self, why: impl FnOnce() -> String) {
        let mut touched = self.touched.borrow_mut();
        if touched.is_none() {
            *touched = Some(why());
        }
    }

    /// Why the decision is unknown, if it is.
    pub(crate) fn into_dependency(self) -> Option<String> {
        self.touched.into_inner()
    }

    /// Whether a redacted place overlaps with `path` in the object or old object.
    fn is_redacted(&self, path: &[&str]) -> bool {
        self.places.iter().any(|place| {
            let is_object = matches!(place.first().map(String::as_str), Some("object" | "oldObject"));
            let mut both = place.iter().skip(1).zip(path);
            is_object && both.all(|(step, name)| step == name)
        })
    }

    /// Whether the JSON Pointer `target` into the object overlaps with a redacted place.
    pub(crate) fn overlaps(&self, target: &str) -> bool {
        let Some(steps) = patch::steps(target) else {
            return true;
        };
        let steps: Vec<&str> = steps.iter().map(AsRef::as_ref).collect();
        self.is_redacted(&steps)
    }

    fn note_read(&self, program: &Program, what: impl Fn() -> String) {
        if self.is_any() && may_read(program, &self.places) {
            self.note_dependency(|| format!("{} may read redacted fields", what()));
        }
    }

    /// Notes if labels determine whether something applies, and are redacted.
    fn note_selection(&self, finding: &MatchFinding<'_>, what: impl Fn() -> String) {
        let is_by_labels = match finding {
            MatchFinding::Applies { .. } | MatchFinding::Fails(_) => true,
            MatchFinding::Misses(mismatch) => matches!(mismatch, Mismatch::Object | Mismatch::Namespace),
        };
        if is_by_labels && self.is_redacted(&["metadata", "labels"]) {
            self.note_dependency(|| format!("{} selects by labels, but these are redacted", what()));
        }
    }
}

impl Recorder for RedactionWatch {
    fn record(&self, step: TraceStep<'_>) {
        match step {
            // Its rules and `objectConditions` decide, not labels of the object.
            TraceStep::Policy {
                kind: CauseKind::AuthorizationPolicy,
                ..
            } => {}
            TraceStep::Policy { kind, name, finding } => {
                self.note_selection(&finding, || format!("{kind}/{name}"))
            }
            TraceStep::Binding { name, finding } => {
                self.note_selection(&finding, || format!("the binding {name}"))
            }
            TraceStep::Webhook { webhook, finding } => {
                self.note_selection(&finding, || format!("the webhook {}", webhook.id()));
            }
            TraceStep::Variable { name, program, .. } => {
                self.note_read(program, || format!("the variable `{name}`"));
            }
            TraceStep::Expression {
                part, program, text, ..
            } => match part {
                // These do not affect the decision.
                PolicyExpression::Message(_) | PolicyExpression::Annotation(_) => {}
                PolicyExpression::Condition(_)
                | PolicyExpression::ObjectCondition(_)
                | PolicyExpression::Validation(_) => {
                    self.note_read(program, || format!("`{text}`"));
                }
                // The result is typed and compared as a whole.
                PolicyExpression::Mutation(_) => {
                    self.note_dependency(|| "a mutation changes an object with redacted fields".to_owned());
                }
            },
            TraceStep::Exception { name, found, .. } => {
                if !matches!(
                    found,
                    Err(NotExcused::Ended | NotExcused::Subjects | NotExcused::Rules)
                ) && self.is_redacted(&["metadata", "labels"])
                {
                    self.note_dependency(|| {
                        format!(
                            "AdmissionException/{name} selects by labels, but these are \
                        redacted"
                        )
                    });
                }
            }
            TraceStep::Initializer { .. } => {
                if self.is_redacted(&["metadata", "initializers"]) {
                    self.note_dependency(|| "the initializers of the object are redacted".to_owned());
                }
            }
            TraceStep::Run { .. }
            | TraceStep::Changed { .. }
            | TraceStep::Decided(_)
            | TraceStep::Reinvocation
            | TraceStep::Called { .. }
            | TraceStep::CallCompleted(_) => {}
        }
    }
}

// The results of distinct reviews.

/// The memory for results, of all threads together, in bytes. Reviews beyond it are always decided.
const MAX_BYTES: usize = 96 << 20;

/// The size of an entry without its strings, in bytes.
const ENTRY_BYTES: usize = 64;

/// The number of hash maps among which reviews are distributed, so that threads seldom wait for a
/// lock.
const MAPS: usize = 64;

/// Two hashes with random keys, so that no review can be crafted with the hashes of another.
type ReviewKey = [u64; 2];

/// The result of an equal review.
#[derive(Debug, Clone)]
enum KnownOutcome {
    Same,
    Other(Arc<ReviewComparison<()>>),
}

/// The results of decided reviews.
#[derive(Debug)]
pub(crate) struct DistinctReviews {
    hashers: [RandomState; 2],
    known: Vec<Mutex<HashMap<ReviewKey, KnownOutcome>>>,
    left: AtomicUsize,
    /// The times at which decisions may change, ascending; `None`: at any time.
    boundaries: Option<Vec<Time>>,
}

// === impl DistinctReviews ===

impl DistinctReviews {
    /// Without results, for reviews that all of `policies` decide.
    pub(crate) fn of(policies: [Option<&LoadedPolicies>; 2]) -> Self {
        let sets = policies.into_iter().flatten().flat_map(LoadedPolicies::sets);
        let boundaries: Option<Vec<Vec<Time>>> = sets.map(|(_, set)| set.time_boundaries()).collect();
        Self::with_boundaries(boundaries.map(|all| all.concat()), MAX_BYTES)
    }

    fn with_boundaries(mut boundaries: Option<Vec<Time>>, bytes: usize) -> Self {
        if let Some(boundaries) = &mut boundaries {
            boundaries.sort_unstable();
        }
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            known: (0..MAPS).map(|_| Mutex::default()).collect(),
            left: AtomicUsize::new(bytes),
            boundaries,
        }
    }

    /// The key that equal reviews share if decided for `now`; `None` if a review cannot have an
    /// equal one.
    pub(crate) fn key(&self, recorded: &RecordLine<'_>, now: Time) -> Option<ReviewKey> {
        if recorded.endpoint != Endpoint::Authorize {
            return None;
        }
        let key = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            recorded.hash_question(&mut hasher);
            match &self.boundaries {
                Some(boundaries) => boundaries
                    .partition_point(|begin| *begin <= now)
                    .hash(&mut hasher),
                None => now.hash(&mut hasher),
            }
            std::hash::Hasher::finish(&hasher)
        });
        Some(key)
    }

    /// The result of an equal review, if one was decided.
    pub(crate) fn known(&self, key: ReviewKey) -> Option<Arc<ReviewComparison<()>>> {
        let part = self.part(key)?;
        let known = part.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key).map(|outcome| match outcome {
            KnownOutcome::Same => Arc::new(ReviewComparison::Same),
            KnownOutcome::Other(outcome) => Arc::clone(outcome),
        })
    }

    /// Keeps the result of a review, if there is room.
    pub(crate) fn keep(&self, key: ReviewKey, outcome: ReviewComparison<()>) {
        let texts = match &outcome {
            ReviewComparison::Same => 0,
            ReviewComparison::Changed(group, ()) => group.cause.len(),
            ReviewComparison::UnknownDenial(group, why, ()) => group.cause.len() + why.len(),
            ReviewComparison::Unknown(why) => why.len(),
        };
        let bytes = ENTRY_BYTES + size_of::<ReviewComparison<()>>() * usize::from(texts > 0) + texts;
        let room = |left: usize| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        let (Ok(_), Some(part)) = (taken, self.part(key)) else {
            return;
        };
        let outcome = match outcome {
            ReviewComparison::Same => KnownOutcome::Same,
            other => KnownOutcome::Other(Arc::new(other)),
        };
        part.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, outcome);
    }

    fn part(&self, [hash, _]: ReviewKey) -> Option<&Mutex<HashMap<ReviewKey, KnownOutcome>>> {
        let part = usize::try_from(hash % MAPS as u64).ok()?;
        self.known.get(part)
    }
}

#[cfg(test)]
mod tests;
