//! ValidatingAdmissionPolicies: how one policy is evaluated for one request, binding and parameter.
//!
//! Follows `apiserver/pkg/admission/plugin/policy/validating/validator.go`, including messages,
//! order and cost budgets.

mod dispatcher;

use std::collections::BTreeMap;

use super::environment::{Expression, ExpressionEnvironment};
use super::run::PolicyExpression;
use super::variables::{ExpressionResult, Inputs, MatchConditions, NamespaceObject, RequestView};
use super::webhook::WebhookReply;
use super::{Applicability, FailurePolicy, PolicyBinding};
use crate::model::{Deadline, StatusReason, truncate};
use portcullis_cel::json::{ObjectWriter, write_string};
use portcullis_cel::{Budget, EvalError, Value, cost};

pub use super::outcome::ValidationDecision;

/// The longest message of a message expression, in bytes.
const MESSAGE_BYTES: usize = 5 * 1024;

/// `ValidatingAdmissionPolicy` (`api/admissionregistration/v1/types.go`).
#[derive(Debug)]
pub struct ValidatingPolicy {
    /// When it applies.
    pub applicability: Applicability,
    /// The environment of its expressions, with `spec.variables`.
    pub environment: ExpressionEnvironment,
    /// `spec.validations`: all must hold.
    pub validations: Vec<Validation>,
    /// `spec.auditAnnotations`.
    pub audit_annotations: Vec<AuditAnnotation>,
}

/// One of `spec.validations`.
#[derive(Debug)]
pub struct Validation {
    /// `expression`, of type bool.
    pub expression: Expression,
    /// `message`; may be empty.
    pub message: String,
    /// `messageExpression`.
    pub message_expression: Option<Expression>,
    /// `reason`, for the status of the response.
    pub reason: StatusReason,
}

/// One of `spec.auditAnnotations`.
#[derive(Debug)]
pub struct AuditAnnotation {
    /// The key, which is prefixed by the name of the policy.
    pub key: String,
    /// `valueExpression`, of type string or null; null and blank strings write no annotation.
    pub value: Expression,
}

/// The result of a policy for one request, binding and parameter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationResult {
    /// The decision of each validation; a single one for an error of the whole policy.
    pub decisions: Vec<ValidationDecision>,
    /// The audit annotations.
    pub annotations: Vec<Annotation>,
}

/// An evaluated audit annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The key, which is prefixed by the name of the policy.
    pub key: String,
    /// The value.
    pub value: AnnotationValue,
}

/// The value of an audit annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnnotationValue {
    /// This value is written.
    Publish(String),
    /// Nothing is written.
    Exclude,
    /// The expression failed, and the failure policy is Fail.
    Error(String),
}

// === impl ValidatingPolicy ===

impl ValidatingPolicy {
    /// Evaluates the policy for one binding and parameter. Its match conditions see
    /// `condition_view` as `request`, and no namespace.
    pub(crate) fn validate<'g>(
        &'g self,
        inputs: &Inputs<'g>,
        condition_view: &'g RequestView<'g>,
        deadline: Deadline<'g>,
    ) -> ValidationResult {
        let policy = self.applicability.failure_policy;
        let conditions = &self.applicability.match_conditions;
        if !conditions.is_empty() {
            let inputs = Inputs {
                request: condition_view,
                namespace: NamespaceObject::Null,
                ..*inputs
            };
            match MatchConditions::evaluate(conditions, policy, &self.environment, &inputs, deadline) {
                MatchConditions::Match => {}
                MatchConditions::NoMatch(_) => return ValidationResult::default(),
                MatchConditions::Error(message) => return ValidationResult::failed(policy, message),
            }
        }
        let validations =
            self.validations.iter().enumerate().map(|(index, validation)| {
                (PolicyExpression::Validation(index), Some(&validation.expression))
            });
        let mut budget = deadline.budget(cost::PER_BINDING);
        let results = match inputs.sequence(&self.environment).run(validations, &mut budget) {
            Ok(results) => results,
            Err(error) => return ValidationResult::failed(policy, error.to_string()),
        };
        let messages = self.messages(inputs, &mut budget);
        let decisions = self.decisions(&results, messages.as_deref().map_err(ToString::to_string));
        if self.audit_annotations.is_empty() {
            return ValidationResult {
                decisions,
                annotations: Vec::new(),
            };
        }
        let annotations = self.audit_annotations.iter().map(|annotation| {
            (
                PolicyExpression::Annotation(&annotation.key),
                Some(&annotation.value),
            )
        });
        let mut budget = deadline.budget(cost::PER_BINDING);
        match inputs.sequence(&self.environment).run(annotations, &mut budget) {
            Ok(values) => ValidationResult {
                decisions,
                annotations: self.annotations(&values),
            },
            Err(error) => ValidationResult::failed(policy, error.to_string()),
        }
    }

    /// The results of the message expressions; empty if there are none.
    fn messages<'g>(
        &'g self,
        inputs: &Inputs<'g>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<ExpressionResult<'g>>, EvalError> {
        let expressions = self.validations.iter().map(|one| one.message_expression.as_ref());
        if expressions.clone().all(|expression| expression.is_none()) {
            return Ok(Vec::new());
        }
        let parts = expressions
            .enumerate()
            .map(|(index, expression)| (PolicyExpression::Message(index), expression));
        inputs.sequence(&self.environment).run(parts, budget)
    }

    fn decisions(
        &self,
        results: &[ExpressionResult<'_>],
        messages: Result<&[ExpressionResult<'_>], String>,
    ) -> Vec<ValidationDecision> {
        let policy = self.applicability.failure_policy;
        let one = |(index, validation): (usize, &Validation)| {
            let message = match &messages {
                Ok(messages) => Ok(messages.get(index)),
                Err(error) => Err(error.as_str()),
            };
            let texts = ValidationTexts {
                expression: validation.expression.text(),
                message: &validation.message,
                reason: validation.reason,
            };
            decide(texts, results.get(index), message, policy)
        };
        self.validations.iter().enumerate().map(one).collect()
    }

    fn annotations(&self, values: &[ExpressionResult<'_>]) -> Vec<Annotation> {
        let policy = self.applicability.failure_policy;
        let one = |(annotation, value): (&AuditAnnotation, &ExpressionResult<'_>)| Annotation {
            key: annotation.key.clone(),
            value: annotate(annotation.value.text(), value, policy),
        };
        self.audit_annotations.iter().zip(values).map(one).collect()
    }
}

// === impl ValidationResult ===

impl ValidationResult {
    fn failed(policy: FailurePolicy, message: String) -> Self {
        Self {
            decisions: vec![error(policy, message)],
            annotations: Vec::new(),
        }
    }
}

// === decisions ===

/// The constant parts of a validation.
#[derive(Debug, Clone, Copy)]
pub struct ValidationTexts<'t> {
    /// Its expression.
    pub expression: &'t str,
    /// Its fixed message; may be empty.
    pub message: &'t str,
    /// Its reason.
    pub reason: StatusReason,
}

/// Decides one validation by the results of its expression and its message expression. An error of
/// all message expressions together counts for every validation, even if its expression is true.
#[must_use]
pub fn decide(
    texts: ValidationTexts<'_>,
    result: Option<&ExpressionResult<'_>>,
    message: Result<Option<&ExpressionResult<'_>>, &str>,
    policy: FailurePolicy,
) -> ValidationDecision {
    if let Some(ExpressionResult::Failed(failure)) = result {
        return error(policy, failure.clone());
    }
    let message = match message {
        Ok(message) => message,
        Err(failure) => return error(policy, format!("failed messageExpression: {failure}")),
    };
    if matches!(result, Some(ExpressionResult::Value(Value::Bool(true)))) {
        return ValidationDecision::Admit;
    }
    let computed = message
        .and_then(ExpressionResult::text)
        .map(str::trim)
        .filter(|text| is_presentable(text));
    let message = computed.map_or_else(|| texts.fallback(), str::to_owned);
    ValidationDecision::Deny {
        message,
        reason: texts.reason,
    }
}

fn is_presentable(text: &str) -> bool {
    !text.is_empty() && text.len() <= MESSAGE_BYTES && !text.contains('\n')
}

impl ValidationTexts<'_> {
    fn fallback(&self) -> String {
        match self.message.trim() {
            "" => format!("failed expression: {}", self.expression.trim()),
            message => message.to_owned(),
        }
    }
}

/// Converts the result of an audit annotation's expression.
#[must_use]
pub fn annotate(expression: &str, value: &ExpressionResult<'_>, policy: FailurePolicy) -> AnnotationValue {
    match value {
        ExpressionResult::Failed(_) if policy == FailurePolicy::Ignore => AnnotationValue::Exclude,
        ExpressionResult::Failed(failure) => AnnotationValue::Error(failure.clone()),
        ExpressionResult::Value(Value::String(text)) if !text.trim().is_empty() => {
            AnnotationValue::Publish(text.trim().to_owned())
        }
        ExpressionResult::Value(Value::String(_) | Value::Null) | ExpressionResult::Absent => {
            AnnotationValue::Exclude
        }
        ExpressionResult::Value(other) => AnnotationValue::Error(format!(
            "valueExpression '{expression}' resulted in unsupported return type: {}. \
             Return type must be either string or null.",
            other.type_of()
        )),
    }
}

fn error(policy: FailurePolicy, message: String) -> ValidationDecision {
    match policy {
        FailurePolicy::Fail => ValidationDecision::Error { message },
        FailurePolicy::Ignore => ValidationDecision::Ignored { message },
    }
}

// Audit annotations of validating policies.

/// The annotation key for failures of bindings with the action Audit.
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The most failures in that annotation.
const MAX_FAILURES: usize = 50;
/// The longest value of an annotation, in bytes.
const MAX_VALUE_BYTES: usize = 10 * 1024;

/// The annotation key for the number of annotations that are left out.
const LEFT_OUT: &str = "left-out-annotations.portcullis.dev";

/// The room for the annotations of all policies in one review.
#[derive(Debug)]
pub(crate) struct AnnotationBudget {
    /// The remaining bytes.
    left: usize,
    left_out: usize,
}

/// The annotations of one policy, over all its bindings and parameters.
#[derive(Debug, Default)]
pub(crate) struct PolicyAnnotations(Vec<(String, Vec<String>)>);

/// The failures of bindings with the action Audit, as a JSON list.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    json: String,
    count: usize,
}

// === impl AnnotationBudget ===

impl Default for AnnotationBudget {
    fn default() -> Self {
        Self {
            left: WebhookReply::MAX_ANNOTATION_BYTES,
            left_out: 0,
        }
    }
}

impl AnnotationBudget {
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        self.left_out += usize::from(left.is_none());
        left.is_some()
    }

    /// Adds an annotation with the number of left out annotations, if any.
    pub(crate) fn publish(&self, annotations: &mut BTreeMap<String, String>) {
        if self.left_out > 0 {
            annotations.insert(LEFT_OUT.to_owned(), self.left_out.to_string());
        }
    }
}

// === impl PolicyAnnotations ===

impl PolicyAnnotations {
    /// Collects annotations while there is `room`, and returns the errors.
    pub(crate) fn take(&mut self, annotations: &[Annotation], room: &mut AnnotationBudget) -> Vec<String> {
        let mut failures = Vec::new();
        for Annotation { key, value } in annotations {
            match value {
                AnnotationValue::Publish(text) => self.add(key, text, room),
                AnnotationValue::Error(failure) => failures.push(failure.clone()),
                AnnotationValue::Exclude => {}
            }
        }
        failures
    }

    fn add(&mut self, key: &str, text: &str, room: &mut AnnotationBudget) {
        let text = truncate(text, MAX_VALUE_BYTES);
        let known = self.0.iter_mut().find(|(own, _)| own == key);
        match known {
            Some((_, values)) if values.iter().any(|value| value == text) => {}
            _ if !room.take(key.len() + text.len()) => {}
            Some((_, values)) => values.push(text.to_owned()),
            None => self.0.push((key.to_owned(), vec![text.to_owned()])),
        }
    }

    /// Adds the annotations under the name of the policy; several values of one key are joined.
    pub(crate) fn publish(self, policy: &str, annotations: &mut BTreeMap<String, String>) {
        for (key, values) in self.0 {
            annotations
                .entry(format!("{policy}/{key}"))
                .or_insert_with(|| values.join(", "));
        }
    }
}

// === impl Failures ===

impl Failures {
    pub(crate) fn push(
        &mut self,
        binding: &PolicyBinding,
        (index, message): (usize, &str),
        room: &mut AnnotationBudget,
    ) {
        if self.count >= MAX_FAILURES || !room.take(message.len()) {
            return;
        }
        self.json.push(if self.count > 0 { ',' } else { '[' });
        self.count += 1;
        ObjectWriter::write(&mut self.json, |failure| {
            failure.text("message", message);
            failure.text("policy", &binding.policy);
            failure.text("binding", &binding.name);
            failure.json("expressionIndex", &index.to_string());
            failure.list("validationActions", &binding.actions, |out, action| {
                write_string(out, action.as_str());
            });
        });
    }

    pub(crate) fn publish(mut self, annotations: &mut BTreeMap<String, String>) {
        if self.count > 0 {
            self.json.push(']');
            annotations.insert(FAILURES.to_owned(), self.json);
        }
    }
}
