//! The run of one AdmissionReview: the policies that it uses, its steps, and its end with metrics,
//! decision log and reply.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::calls::PendingCalls;
use crate::identity::Caller;
use crate::recording::{QuotedSecrets, RecordedBody, RecordedCall, RecordedDecision, RecordedReview};
use crate::server::gateway::{DecisionRecorder, GatewayState};
use crate::server::limits::ReviewMemory;
use crate::server::pool::JobClass;
use crate::server::receive::ReviewRequest;
use crate::server::respond::Rejection;
use crate::state::Snapshot;
use crate::telemetry::decision_log::{LoggedQuestion, Record, ShadowDecision, TextRedaction};
use portcullis_policy::admission::webhook::{Call, WebhookCallResult};
use portcullis_policy::admission::{
    AdmissionSet, AlternativeGrants, Chain, GrantReview, ObjectMemory, Outcome, Phase, Progress, Request,
    RunOptions, TakenMemory,
};
use portcullis_policy::api::{AdmissionReview, OwnedAdmissionReview};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest::ValidationContext;
use portcullis_policy::model::{Deadline, Decision};

/// How long the review of a binding waits for the role that it refers to. The same user may have
/// written the role just before, so that the watch of the cluster has not reported it yet.
const MAX_ROLE_WAIT: Duration = Duration::from_secs(3);
/// The interval at which a missing role is looked up again.
pub(crate) const ROLE_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// An AdmissionReview that is being answered.
pub(crate) struct PendingAdmission {
    pub(crate) received: ReviewRequest,
    pub(crate) phase: Phase,
    /// The only policy or webhook configuration to evaluate, from the path of the request.
    pub(crate) only: Option<String>,
    pub(crate) since: Instant,
    /// The answers of webhooks so far, if reviews are recorded.
    pub(crate) calls: Mutex<Vec<RecordedCall>>,
    /// The memory account of the review's user, once it is needed.
    pub(crate) memory: OnceLock<ReviewMemory>,
    /// Whether other authorizers allow what no policy allows, once they were consulted.
    pub(crate) allowed_by_authorizers: OnceLock<bool>,
}

/// The memory account of a review by this user.
pub(crate) struct UserMemory<'r> {
    pub(crate) admission: &'r PendingAdmission,
    pub(crate) user: &'r str,
}

// === impl UserMemory ===

impl ObjectMemory for UserMemory<'_> {
    fn reserve(&self, bytes: usize) -> Option<TakenMemory> {
        self.admission.memory_of(self.user).reserve(bytes)
    }
}

// === impl PendingAdmission ===

impl PendingAdmission {
    /// The memory account of the review, charged to `user`.
    pub(crate) fn memory_of(&self, user: &str) -> &ReviewMemory {
        let ReviewRequest { permit, caller, .. } = &self.received;
        self.memory.get_or_init(|| permit.memory(&caller.share, user))
    }

    /// Decodes the review and drops its bytes from `received`. It is called once.
    ///
    /// The reviewed resource must be one that the caller's token is valid for. The resource of the
    /// object and the one that the user requested may be of different groups (`matchPolicy:
    /// Equivalent`): both are checked.
    pub(crate) fn read(&mut self, shared: &GatewayState) -> Result<OwnedAdmissionReview, Rejection> {
        let _span = self.received.trace.span("decode");
        let body = mem::take(&mut self.received.body);
        let review = OwnedAdmissionReview::read(Vec::from(body))?;
        let request = &review.review().request;
        let groups = [&request.resource, &request.request_resource].map(|resource| &*resource.group);
        self.received.caller.check_groups(groups).map_err(|refusal| {
            shared.refusals.log_caller(&refusal);
            Rejection::of(refusal, &self.received.snapshot)
        })?;
        let user = &request.user;
        // Users whom `neverDeny` protects do not have to wait until their cluster is synced.
        self.received
            .is_unsynced(&user.name, || self.access().never_denies_user(user))?;
        Ok(review)
    }

    /// Keeps the answer of a webhook, to be recorded with the review.
    pub(crate) fn keep_call(&self, call: Call, answer: WebhookCallResult) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(RecordedCall::new(call, answer, false));
    }

    /// Takes the answers that were kept.
    pub(crate) fn take_calls(&self) -> Vec<RecordedCall> {
        mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn check_name(&self) -> Result<(), Rejection> {
        match &self.only {
            Some(name) if !self.policies().has_policy_or_configuration(self.phase, name) => {
                Err(Rejection::NoSuchPolicy { name: name.clone() })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn policies(&self) -> &Arc<AdmissionSet> {
        let ReviewRequest { snapshot, caller, .. } = &self.received;
        snapshot.admission.for_cluster(&caller.cluster)
    }

    /// The policies that decide the access checks of expressions (`authorizer`).
    pub(crate) fn access(&self) -> &Arc<PolicySet> {
        let ReviewRequest { snapshot, caller, .. } = &self.received;
        snapshot.policies.for_cluster(&caller.cluster)
    }
}

/// The limits after which a step stops before it is done.
#[derive(Clone, Copy)]
pub(crate) struct StepLimits<'a> {
    /// Whether the time of the step is over.
    pub(crate) is_over: &'a dyn Fn() -> bool,
    /// Whether the step is restarted if it stops. It then also stops when it needs more than its
    /// memory allowance.
    pub(crate) is_attempt: bool,
}

// === impl JobClass ===

impl JobClass {
    /// The limits of a step within a job of this class.
    pub(crate) fn step_end(self, is_over: &dyn Fn() -> bool) -> StepLimits<'_> {
        StepLimits {
            is_over,
            is_attempt: self == Self::Small,
        }
    }
}

/// The result of a step of a review.
pub(crate) enum JobStep {
    /// The reply, and the work that is left for after it.
    Done(AdmissionResult),
    /// Webhooks have to be called.
    Asks(Box<PendingCalls>),
    /// Other authorizers have to be consulted, which may allow one of these grants.
    AsksAuthorizers(AlternativeGrants),
    /// The binding refers to a role that is not known yet. The review is restarted after a moment.
    AwaitsRole,
}

impl PendingAdmission {
    /// Runs the next step; `None` if its limits end it before.
    pub(crate) fn advance(
        &self,
        shared: &GatewayState,
        review: &AdmissionReview<'_>,
        mut chain: Chain,
        answers: Vec<WebhookCallResult>,
        end: StepLimits<'_>,
    ) -> Option<JobStep> {
        let span = self.received.trace.span("evaluate");
        let in_force = shared.state.current();
        let progress = self.run(&in_force, &mut chain, &review.request, answers, end)?;
        drop(span);
        Some(match progress {
            Progress::Done(outcome) if self.may_ask_authorizers(&outcome) => {
                JobStep::AsksAuthorizers(outcome.missing_grants)
            }
            Progress::Done(outcome) if outcome.awaits_role && self.may_wait_for_role() => JobStep::AwaitsRole,
            Progress::Calls(calls) => JobStep::Asks(Box::new(PendingCalls::new(
                chain,
                calls,
                &review.request,
                &self.received.permit,
            ))),
            Progress::Done(outcome) => JobStep::Done(self.finish(shared, review, *outcome)),
        })
    }

    /// Whether the request is denied for a missing grant that other authorizers could give.
    fn may_ask_authorizers(&self, outcome: &Outcome) -> bool {
        !outcome.missing_grants.is_empty()
            && !self.received.snapshot.authorizers.is_empty()
            && self.allowed_by_authorizers.get().is_none()
    }

    /// Whether there is time for the watch to report an object that was just written.
    fn may_wait_for_role(&self) -> bool {
        let end = self.received.deadline.min(self.since + MAX_ROLE_WAIT);
        Instant::now() + ROLE_POLL_INTERVAL < end
    }

    /// Advances the chain. Objects of the gateway's own kinds are validated by what is `record_in_force`
    /// now, not by the snapshot of the review's arrival.
    fn run(
        &self,
        in_force: &Snapshot,
        chain: &mut Chain,
        request: &Request<'_>,
        answers: Vec<WebhookCallResult>,
        end: StepLimits<'_>,
    ) -> Option<Progress> {
        let was_over = AtomicBool::new(false);
        let expired = || {
            let is_over = was_over.load(Ordering::Relaxed) || (end.is_over)();
            was_over.store(is_over, Ordering::Relaxed);
            is_over
        };
        let policies = in_force.policies.for_cluster(&self.received.caller.cluster);
        let validation = ValidationContext::new(policies, self.policies());
        let run = RunOptions {
            only: self.only.as_deref(),
            deadline: Deadline {
                expired: &expired,
                needs_more_memory: end.is_attempt.then_some(&was_over),
            },
            now: self.received.time.into(),
            access: &**self.access(),
            reauthorization: Some(GrantReview {
                policies: self.access(),
                is_allowed_elsewhere: self.allowed_by_authorizers.get() == Some(&true),
            }),
            own_kinds: Some(&validation),
            requester_unknown: false,
            memory: Some(&UserMemory {
                admission: self,
                user: &request.user.name,
            }),
            recorder: None,
        };
        let progress = chain.advance(self.policies(), request, run, answers);
        (!was_over.into_inner()).then_some(progress)
    }
}

/// A finished review: its reply, and the work that is left.
pub(crate) struct AdmissionResult {
    pub(crate) reply: Vec<u8>,
    /// Present if webhooks in shadow have to be called before the line is written.
    pub(crate) log_line: Option<Box<DeferredLogLine>>,
    /// Present if reviews are recorded.
    pub(crate) recording: Option<Box<DeferredRecording>>,
}

/// The outcome of a review whose log line waits for webhooks in shadow.
pub(crate) struct DeferredLogLine {
    pub(crate) outcome: Outcome,
    pub(crate) time: SystemTime,
    pub(crate) took: Duration,
}

/// An outcome to record, without its review.
pub(crate) struct DeferredRecording {
    decision: RecordedDecision,
    pub(crate) calls: Vec<RecordedCall>,
    time: SystemTime,
    phase: Phase,
    name: Option<String>,
    cluster: String,
    caller: String,
    revision: Arc<str>,
}

/// The context of a decision that its log line contains.
pub(crate) struct DecisionContext<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) caller: &'a Caller,
    pub(crate) phase: Phase,
    pub(crate) request: &'a Request<'a>,
}

// === impl PendingAdmission ===

impl PendingAdmission {
    /// Counts the outcome, and returns the reply and the work that is left.
    pub(crate) fn finish(
        &self,
        shared: &GatewayState,
        review: &AdmissionReview<'_>,
        outcome: Outcome,
    ) -> AdmissionResult {
        let ReviewRequest { snapshot, caller, .. } = &self.received;
        let decided = DeferredLogLine {
            outcome: review.within_version(outcome),
            time: self.received.time,
            took: self.since.elapsed(),
        };
        self.count(shared, &decided);
        self.trace_outcome(&decided.outcome);
        let mut settled = AdmissionResult {
            reply: review.reply(&decided.outcome),
            log_line: None,
            recording: shared
                .recordings
                .is_on()
                .then(|| Box::new(self.recording(&decided.outcome))),
        };
        if !decided.outcome.shadows.is_empty() {
            settled.log_line = Some(Box::new(decided));
            return settled;
        }
        if shared.recorder.is_on() {
            let about = DecisionContext {
                snapshot,
                caller,
                phase: self.phase,
                request: &review.request,
            };
            decided.record(&shared.recorder, &about, &[]);
        }
        settled
    }

    fn recording(&self, outcome: &Outcome) -> DeferredRecording {
        let ReviewRequest {
            snapshot,
            caller,
            time,
            ..
        } = &self.received;
        let (decision, reason) = decision(outcome);
        DeferredRecording {
            decision: RecordedDecision {
                decision,
                reason: reason.to_owned(),
                cause: outcome.cause.clone(),
                error: String::new(),
                patch: outcome.patch.clone(),
            },
            calls: self.take_calls(),
            time: *time,
            phase: self.phase,
            name: self.only.clone(),
            cluster: caller.cluster.to_string(),
            caller: caller.name.to_string(),
            revision: Arc::clone(&snapshot.revision),
        }
    }

    fn trace_outcome(&self, outcome: &Outcome) {
        let ReviewRequest { caller, trace, .. } = &self.received;
        trace.record("portcullis.cluster", || caller.cluster.to_string());
        trace.decided(decision(outcome).0, outcome.cause.as_ref());
    }

    fn count(&self, shared: &GatewayState, decided: &DeferredLogLine) {
        let DeferredLogLine { outcome, took, .. } = decided;
        let is_allowed = outcome.denial.is_none();
        shared.metrics.admission(self.phase, is_allowed, *took);
        if let Some(counters) = shared.counters.load().of(&self.received.snapshot) {
            for evaluation in &outcome.evaluations {
                counters.admission_evaluated(self.access(), self.policies(), evaluation);
            }
        }
    }
}

// === impl DeferredLogLine ===

impl DeferredLogLine {
    /// Writes the line.
    pub(crate) fn record(
        &self,
        recorder: &DecisionRecorder,
        about: &DecisionContext<'_>,
        shadow: &[ShadowDecision<'_>],
    ) {
        let (decision, reason) = decision(&self.outcome);
        let of_policies = self.outcome.policy_shadows.iter().map(|shadow| ShadowDecision {
            kind: shadow.kind.as_str(),
            name: &shadow.name,
            decision: shadow.decision,
            reason: shadow.error.as_deref().unwrap_or_default(),
        });
        let shadow: Vec<_> = of_policies.chain(shadow.iter().cloned()).collect();
        let recording = about.snapshot.config.recording.as_ref();
        let rules = recording.map(|recording| recording.redact.as_slice());
        // Redaction is needed for log lines only: usage counts contain no reason or error that
        // could quote the object.
        let secrets = recorder
            .writes_lines()
            .then(|| QuotedSecrets::new(about.request, rules.unwrap_or_default(), &self.outcome.patch));
        let record = Record {
            time: self.time,
            revision: &about.snapshot.revision,
            cluster: &about.caller.cluster,
            caller: &about.caller.name,
            question: LoggedQuestion::Admission(about.phase, about.request),
            decision,
            reason,
            cause: self.outcome.cause.as_ref(),
            near_misses: &[],
            shadow: &shadow,
            exceptions: &self.outcome.exceptions,
            webhooks: &self.outcome.webhooks,
            evaluation_error: "",
            duration: self.took,
            redaction: secrets.as_ref().map(|secrets| secrets as &dyn TextRedaction),
        };
        recorder.record(&record, about.snapshot);
    }
}

// === impl DeferredRecording ===

impl DeferredRecording {
    /// Records the outcome together with its review.
    pub(crate) fn record(self, shared: &GatewayState, review: Arc<OwnedAdmissionReview>) {
        shared.recordings.record(|| RecordedReview {
            time: self.time,
            endpoint: self.phase.into(),
            name: self.name,
            cluster: self.cluster,
            caller: self.caller,
            revision: self.revision,
            decision: self.decision,
            opinions: Vec::new(),
            calls: self.calls,
            body: RecordedBody::Admission(review),
        });
    }
}

/// The decision, with its reason if it is a denial.
fn decision(outcome: &Outcome) -> (Decision, &str) {
    match &outcome.denial {
        None => (Decision::Allow, ""),
        Some(denial) => (Decision::Deny, denial.message.as_str()),
    }
}
