//! Records the outcome of each policy for one object.
//!
//! ```text
//! Run ─▶ expressions (which depend on unknown data?) ─▶ Decided, for each validation
//!                             └──────── one outcome for policy and binding ◀──┘
//! ```

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::formats::ScanOutcome;
use portcullis_cel::{EvalError, Value};
use portcullis_policy::admission::ValidationAction;
use portcullis_policy::admission::exceptions::NotExcused;
use portcullis_policy::admission::matching::Mismatch;
use portcullis_policy::admission::run::{
    BindingDecision, LastSelectedField, MatchFinding, PolicyExpression, Recorder, TraceStep,
};
use portcullis_policy::admission::validating::ValidationDecision;
use portcullis_policy::model::CauseKind;

/// The outcome of one policy with one binding for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyOutcome {
    pub(crate) policy: String,
    pub(crate) binding: String,
    pub(crate) result: ScanOutcome,
    pub(crate) message: String,
    pub(crate) exception: String,
    /// The part of the object that the failing expression selected last, as a JSON Pointer.
    pub(crate) field: Option<String>,
}

/// The recorded outcomes.
#[derive(Debug, Default)]
pub(crate) struct PolicyResults {
    /// The outcomes of ValidatingAdmissionPolicies, in their order.
    pub(crate) validating: Vec<PolicyOutcome>,
    /// The MutatingAdmissionPolicies whose effect on the object is unknown.
    pub(crate) unknown_mutations: Vec<PolicyOutcome>,
    /// Whether any policy applied to the object.
    pub(crate) is_matched: bool,
    /// If none applied, the policy that nearly applied.
    pub(crate) nearest: Option<NearestPolicy>,
}

/// Why a policy does not apply to an object, in the order of evaluation: the greater, the nearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MissedBy {
    /// `excludeResourceRules`.
    ExcludeRules,
    /// `namespaceSelector`.
    NamespaceSelector,
    /// `objectSelector`.
    ObjectSelector,
    /// The parameter does not exist.
    Parameter,
    /// `matchConditions`.
    Conditions,
}

/// A policy whose rules match an object, but that does not apply to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NearestPolicy {
    pub(crate) by: MissedBy,
    pub(crate) kind: CauseKind,
    pub(crate) policy: String,
    /// `None` if the policy itself does not apply.
    pub(crate) binding: Option<String>,
}

/// Records the evaluation of one object.
#[derive(Debug, Default)]
pub(crate) struct PolicyResultRecorder(RefCell<RecorderState>);

#[derive(Debug, Default)]
struct RecorderState {
    mutates: bool,
    /// The policy that is being matched.
    policy: String,
    open: Option<PolicyRun>,
    judgements: PolicyResults,
    /// For each policy, the exceptions that do not apply because they are limited to some subjects.
    for_subjects: BTreeMap<String, BTreeSet<String>>,
}

/// The unfinished evaluation of a policy.
#[derive(Debug)]
struct PolicyRun {
    policy: String,
    binding: String,
    /// Whether a match condition is false.
    misses: bool,
    /// The unknown data on which a match condition depends.
    condition: Option<&'static str>,
    /// The error of a match condition.
    failure: Option<String>,
    /// The unknown data on which each validation depends.
    validations: BTreeMap<usize, &'static str>,
    /// For each validation that is not true, the part of the object that it selected last.
    fields: BTreeMap<usize, String>,
    /// The unknown data on which another expression depends.
    other: Option<&'static str>,
    decided: Vec<PolicyOutcome>,
}

// === impl PolicyResultRecorder ===

impl PolicyResultRecorder {
    pub(crate) fn into_results(self) -> PolicyResults {
        let mut state = self.0.into_inner();
        state.close();
        state.judgements
    }
}

impl Recorder for PolicyResultRecorder {
    fn record(&self, step: TraceStep<'_>) {
        let mut state = self.0.borrow_mut();
        match step {
            TraceStep::Policy { kind, name, finding } => {
                state.close();
                state.mutates = kind == CauseKind::MutatingAdmissionPolicy;
                name.clone_into(&mut state.policy);
                state.compared(None, &finding);
            }
            TraceStep::Binding { name, finding } => state.compared(Some(name), &finding),
            TraceStep::Run { policy, binding, .. } => {
                state.close();
                state.open = Some(PolicyRun::new(policy, binding));
            }
            TraceStep::Expression {
                part, result, read, ..
            } => {
                if let Some(open) = &mut state.open {
                    open.evaluated(part, result, read);
                }
            }
            TraceStep::Exception {
                name,
                policy,
                found: Err(NotExcused::Subjects),
            } => {
                let names = state.for_subjects.entry(policy.to_owned()).or_default();
                names.insert(name.to_owned());
            }
            TraceStep::Decided(decided) => state.decided(&decided),
            _ => {}
        }
    }
}

// === impl RecorderState ===

impl RecorderState {
    fn compared(&mut self, binding: Option<&str>, finding: &MatchFinding<'_>) {
        match finding {
            MatchFinding::Applies { .. } => {}
            // The rejection or admission because of the error is an outcome.
            MatchFinding::Fails(_) => self.judgements.is_matched = true,
            MatchFinding::Misses(mismatch) => {
                if let Some(by) = MissedBy::of(*mismatch) {
                    let policy = self.policy.clone();
                    self.missed(by, policy, binding.map(str::to_owned));
                }
            }
        }
    }

    fn missed(&mut self, by: MissedBy, policy: String, binding: Option<String>) {
        if self
            .judgements
            .nearest
            .as_ref()
            .is_none_or(|nearest| nearest.by < by)
        {
            let kind = match self.mutates {
                true => CauseKind::MutatingAdmissionPolicy,
                false => CauseKind::ValidatingAdmissionPolicy,
            };
            self.judgements.nearest = Some(NearestPolicy {
                by,
                kind,
                policy,
                binding,
            });
        }
    }

    fn decided(&mut self, decided: &BindingDecision<'_>) {
        let for_subjects = self.for_subjects.get(decided.policy);
        let binding = decided.binding.unwrap_or_default();
        let own = self
            .open
            .as_mut()
            .filter(|open| open.policy == decided.policy && open.binding == binding);
        match own {
            Some(open) => {
                let needs = open.unknown_data(decided.index);
                let field = decided.index.and_then(|index| open.fields.get(&index).cloned());
                let judgement = judgement(decided, needs, for_subjects);
                open.decided.push(PolicyOutcome { field, ..judgement });
            }
            None => {
                let judgement = judgement(decided, None, for_subjects);
                self.judgements.add(judgement);
            }
        }
    }

    /// Finishes the evaluation in progress, if there is one.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.misses {
            return self.missed(MissedBy::Conditions, open.policy, Some(open.binding));
        }
        self.judgements.is_matched = true;
        if self.mutates {
            let needs = open.condition.or(open.other);
            self.judgements
                .unknown_mutations
                .extend(needs.map(|needs| open.skip(needs)));
        } else {
            self.judgements.add(open.judged());
        }
    }
}

impl PolicyResults {
    /// Merges the outcome for one parameter into those of the same policy and binding for others.
    fn add(&mut self, judgement: PolicyOutcome) {
        let same =
            |own: &&mut PolicyOutcome| own.policy == judgement.policy && own.binding == judgement.binding;
        match self.validating.iter_mut().find(same) {
            Some(own) => own.merge(judgement),
            None => self.validating.push(judgement),
        }
    }
}

// === impl MissedBy ===

impl MissedBy {
    /// `None` if the rules of the policy do not match the object.
    const fn of(mismatch: Mismatch) -> Option<Self> {
        match mismatch {
            Mismatch::Excluded => Some(Self::ExcludeRules),
            Mismatch::Namespace => Some(Self::NamespaceSelector),
            Mismatch::Object => Some(Self::ObjectSelector),
            Mismatch::NoParameter => Some(Self::Parameter),
            Mismatch::Unbound | Mismatch::Rules | Mismatch::Exempt | Mismatch::NotStatic => None,
        }
    }
}

// === impl PolicyRun ===

impl PolicyRun {
    fn new(policy: &str, binding: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            binding: binding.to_owned(),
            misses: false,
            condition: None,
            failure: None,
            validations: BTreeMap::new(),
            fields: BTreeMap::new(),
            other: None,
            decided: Vec::new(),
        }
    }

    fn evaluated(
        &mut self,
        part: PolicyExpression<'_>,
        result: Result<&Value<'_>, &EvalError>,
        read: LastSelectedField<'_>,
    ) {
        let needs = match result {
            Err(EvalError::Unknown(needs)) => Some(*needs),
            _ => None,
        };
        match (part, result) {
            (PolicyExpression::Condition(_), Ok(value)) => self.misses |= value.as_bool() == Some(false),
            (PolicyExpression::Condition(_), Err(_)) if needs.is_some() => {
                self.condition = self.condition.or(needs);
            }
            (PolicyExpression::Condition(_), Err(error)) => self.failure = Some(error.to_string()),
            (PolicyExpression::Validation(index), _) => {
                self.validations.extend(needs.map(|needs| (index, needs)));
                if result.ok().and_then(Value::as_bool) != Some(true) {
                    self.fields.extend(read.pointer().map(|field| (index, field)));
                }
            }
            // A fixed message, or the expression itself, is used instead.
            // A scan does not evaluate `objectConditions`.
            (PolicyExpression::Message(_) | PolicyExpression::ObjectCondition(_), _) => {}
            (PolicyExpression::Annotation(_) | PolicyExpression::Mutation(_), _) => {
                self.other = self.other.or(needs);
            }
        }
    }

    /// The unknown data on which the decision of the validation `index` depends.
    fn unknown_data(&self, index: Option<usize>) -> Option<&'static str> {
        match index {
            Some(index) => self.validations.get(&index).copied(),
            None => self.other,
        }
    }

    fn skip(&self, needs: &str) -> PolicyOutcome {
        PolicyOutcome {
            policy: self.policy.clone(),
            binding: self.binding.clone(),
            result: ScanOutcome::Skip,
            message: unknown(needs),
            exception: String::new(),
            field: None,
        }
    }

    fn judged(self) -> PolicyOutcome {
        if let Some(needs) = self.condition {
            return self.skip(needs);
        }
        let mut judgement = PolicyOutcome {
            result: ScanOutcome::Pass,
            message: String::new(),
            ..self.skip("")
        };
        if let (Some(failure), true) = (&self.failure, self.decided.is_empty()) {
            judgement.result = ScanOutcome::Warn;
            judgement.message = ignored(failure);
        }
        self.decided.into_iter().for_each(|one| judgement.merge(one));
        judgement
    }
}

// === impl PolicyOutcome ===

impl PolicyOutcome {
    /// Keeps the more severe of both outcomes, or both messages if they are equally severe.
    fn merge(&mut self, other: Self) {
        match other.severity().cmp(&self.severity()) {
            Ordering::Less => {}
            Ordering::Greater => *self = other,
            Ordering::Equal => {
                self.field = self.field.take().or(other.field);
                if !other.message.is_empty() && !self.message.split("; ").any(|own| own == other.message) {
                    let separator = if self.message.is_empty() { "" } else { "; " };
                    self.message = format!("{}{separator}{}", self.message, other.message);
                }
            }
        }
    }

    /// An unknown outcome may be a rejection, so a warning must not hide it, and it must not hide a
    /// rejection. The outcome is not unknown if an exception admits the object.
    fn severity(&self) -> u8 {
        match self.result {
            ScanOutcome::Pass => 0,
            ScanOutcome::Skip if !self.exception.is_empty() => 1,
            ScanOutcome::Warn => 2,
            ScanOutcome::Skip => 3,
            ScanOutcome::Fail => 4,
            ScanOutcome::Error => 5,
        }
    }
}

fn unknown(needs: &str) -> String {
    format!("{needs} is not known during a scan")
}

fn ignored(why: &str) -> String {
    format!("has no result, and its failure policy ignores this: {why}")
}

fn judgement(
    decided: &BindingDecision<'_>,
    needs: Option<&'static str>,
    for_subjects: Option<&BTreeSet<String>>,
) -> PolicyOutcome {
    let refuses = decided.actions.contains(&ValidationAction::Deny);
    let graver = |grave| if refuses { grave } else { ScanOutcome::Warn };
    let (result, message) = match decided.decision {
        ValidationDecision::Admit => (ScanOutcome::Pass, String::new()),
        ValidationDecision::Error { .. } | ValidationDecision::Ignored { .. } if needs.is_some() => {
            (ScanOutcome::Skip, unknown(needs.unwrap_or_default()))
        }
        ValidationDecision::Error { message } => (graver(ScanOutcome::Error), message.clone()),
        ValidationDecision::Ignored { message } => (ScanOutcome::Warn, ignored(message)),
        ValidationDecision::Deny { message, .. } => match decided.exception {
            Some(exception) => (
                ScanOutcome::Skip,
                format!(
                    "AdmissionException `{}` lets pass: {message} (until {}: {})",
                    exception.name, exception.not_after, exception.reason
                ),
            ),
            None => (
                graver(ScanOutcome::Fail),
                format!("{message}{}", not_applying(for_subjects)),
            ),
        },
    };
    let exception = decided
        .exception
        .map(|exception| exception.name.clone())
        .unwrap_or_default();
    PolicyOutcome {
        policy: decided.policy.to_owned(),
        binding: decided.binding.unwrap_or_default().to_owned(),
        result,
        message,
        exception,
        field: None,
    }
}

/// The note that exceptions for some subjects do not apply.
fn not_applying(for_subjects: Option<&BTreeSet<String>>) -> String {
    let Some(names) = for_subjects else {
        return String::new();
    };
    let names = names.iter().map(|name| format!("`{name}`"));
    format!(
        " (AdmissionException {} does not apply: it has subjects, and the scan has no user)",
        names.collect::<Vec<_>>().join(", ")
    )
}
