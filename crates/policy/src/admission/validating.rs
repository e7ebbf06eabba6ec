//! ValidatingAdmissionPolicies: evaluation for one request, binding and parameter.
//!
//! Follows `apiserver/pkg/admission/plugin/policy/validating/validator.go`: messages,
//! order and budgets are those of the API server.

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

/// The longest text that a message expression may give, in bytes.
const MESSAGE_BYTES: usize = 5 * 1024;

/// `ValidatingAdmissionPolicy` (`api/admissionregistration/v1/types.go`).
#[derive(Debug)]
pub struct ValidatingPolicy {
    /// When it applies.
    pub applicability: Applicability,
    /// What its expressions may name, `spec.variables` among it.
    pub environment: ExpressionEnvironment,
    /// `spec.validations`: all must hold.
    pub validations: Vec<Validation>,
    /// `spec.auditAnnotations`.
    pub audit_annotations: Vec<AuditAnnotation>,
}

/// One of `spec.validations`.
#[derive(Debug)]
pub struct Validation {
    /// Of type bool.
    pub expression: Expression,
    /// What to tell the user; may be empty.
    pub message: String,
    /// Computes what to tell the user.
    pub message_expression: Option<Expression>,
    /// Why to say that the request is refused.
    pub reason: StatusReason,
}

/// One of `spec.auditAnnotations`.
#[derive(Debug)]
pub struct AuditAnnotation {
    /// The key, under the policy's name.
    pub key: String,
    /// Of type string or null; null and blank text write nothing.
    pub value: Expression,
}

/// What a policy says of a request, with one binding and parameter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationResult {
    /// For each validation; one alone for an error that concerns all.
    pub decisions: Vec<ValidationDecision>,
    /// For each audit annotation.
    pub annotations: Vec<Annotation>,
}

/// One audit annotation, evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Its key, under the policy's name.
    pub key: String,
    /// What is written.
    pub value: AnnotationValue,
}

/// What is written for an audit annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnnotationValue {
    /// This.
    Publish(String),
    /// Nothing.
    Exclude,
    /// The expression failed, and the failure policy refuses the request.
    Error(String),
}

// === impl ValidatingPolicy ===

impl ValidatingPolicy {
    /// Runs the policy for one binding and parameter. Its match conditions see
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

    /// What the message expressions give; nothing if there are none.
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
            let texts = PolicyTexts {
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

/// What a validation says about itself.
#[derive(Debug, Clone, Copy)]
pub struct PolicyTexts<'t> {
    /// Its expression.
    pub expression: &'t str,
    /// Its fixed message; may be empty.
    pub message: &'t str,
    /// Its reason.
    pub reason: StatusReason,
}

/// Judges one validation by the results of its expression and of its message
/// expression. An error for all message expressions together is one of each
/// validation, of those that hold too.
#[must_use]
pub fn decide(
    texts: PolicyTexts<'_>,
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

impl PolicyTexts<'_> {
    fn fallback(&self) -> String {
        match self.message.trim() {
            "" => format!("failed expression: {}", self.expression.trim()),
            message => message.to_owned(),
        }
    }
}

/// Judges the value of an audit annotation.
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

/// Under which the failures of bindings with the action Audit stand.
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The most failures that are written.
const MAX_FAILURES: usize = 50;
/// The longest value of an annotation, in bytes.
const MAX_VALUE_BYTES: usize = 10 * 1024;

/// Under which the number of annotations stands that are left out.
const LEFT_OUT: &str = "left-out-annotations.portcullis.dev";

/// What the annotations of all policies may come to for one request.
#[derive(Debug)]
pub(crate) struct AnnotationRoom {
    /// In bytes.
    left: usize,
    left_out: usize,
}

/// The annotations of one policy, over all its bindings and parameters.
#[derive(Debug, Default)]
pub(crate) struct PolicyAnnotations(Vec<(String, Vec<String>)>);

/// The failures that bindings want audited, as a JSON list.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    json: String,
    count: usize,
}

// === impl AnnotationRoom ===

impl Default for AnnotationRoom {
    fn default() -> Self {
        Self {
            left: WebhookReply::MAX_ANNOTATION_BYTES,
            left_out: 0,
        }
    }
}

impl AnnotationRoom {
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        self.left_out += usize::from(left.is_none());
        left.is_some()
    }

    /// Says how many are left out, if any.
    pub(crate) fn publish(&self, annotations: &mut BTreeMap<String, String>) {
        if self.left_out > 0 {
            annotations.insert(LEFT_OUT.to_owned(), self.left_out.to_string());
        }
    }
}

// === impl PolicyAnnotations ===

impl PolicyAnnotations {
    /// Takes what is to be published, while there is `room`; gives back what failed.
    pub(crate) fn take(&mut self, annotations: &[Annotation], room: &mut AnnotationRoom) -> Vec<String> {
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

    fn add(&mut self, key: &str, text: &str, room: &mut AnnotationRoom) {
        let text = truncate(text, MAX_VALUE_BYTES);
        let known = self.0.iter_mut().find(|(own, _)| own == key);
        match known {
            Some((_, values)) if values.iter().any(|value| value == text) => {}
            _ if !room.take(key.len() + text.len()) => {}
            Some((_, values)) => values.push(text.to_owned()),
            None => self.0.push((key.to_owned(), vec![text.to_owned()])),
        }
    }

    /// Adds them under the policy's name; several values of a key in one.
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
        room: &mut AnnotationRoom,
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
