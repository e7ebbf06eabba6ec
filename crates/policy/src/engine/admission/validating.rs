//! ValidatingAdmissionPolicies: evaluation for one request, binding and parameter.
//!
//! Follows `apiserver/pkg/admission/plugin/policy/validating/validator.go`: messages,
//! order and budgets are those of the API server.

mod audit;
mod dispatcher;

use super::conditions::{self, MatchConditions};
pub use super::decision::ValidationDecision;
use super::environment::{Expression, ExpressionEnvironment};
use super::evaluation::Evaluated;
use super::policy::{Applicability, FailurePolicy};
use super::trace::PolicyExpression;
use super::variables::{Inputs, NamespaceObject, RequestView};
use crate::engine::{Deadline, StatusReason};
use portcullis_cel::{Budget, EvalError, Value, cost};

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
pub struct Validated {
    /// For each validation; one alone for an error that concerns all.
    pub decisions: Vec<ValidationDecision>,
    /// For each audit annotation.
    pub annotations: Vec<Annotation>,
}

/// What became of one audit annotation.
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
    ) -> Validated {
        let policy = self.applicability.failure_policy;
        let conditions = &self.applicability.match_conditions;
        if !conditions.is_empty() {
            let inputs = Inputs {
                request: condition_view,
                namespace: NamespaceObject::Null,
                ..*inputs
            };
            match conditions::evaluate(conditions, policy, &self.environment, &inputs, deadline) {
                MatchConditions::Match => {}
                MatchConditions::NoMatch(_) => return Validated::default(),
                MatchConditions::Error(message) => return Validated::failed(policy, message),
            }
        }
        let validations =
            self.validations.iter().enumerate().map(|(index, validation)| {
                (PolicyExpression::Validation(index), Some(&validation.expression))
            });
        let mut budget = deadline.budget(cost::PER_BINDING);
        let results = match inputs.sequence(&self.environment).run(validations, &mut budget) {
            Ok(results) => results,
            Err(error) => return Validated::failed(policy, error.to_string()),
        };
        let messages = self.messages(inputs, &mut budget);
        let decisions = self.decisions(&results, messages.as_deref().map_err(ToString::to_string));
        if self.audit_annotations.is_empty() {
            return Validated {
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
            Ok(values) => Validated {
                decisions,
                annotations: self.annotations(&values),
            },
            Err(error) => Validated::failed(policy, error.to_string()),
        }
    }

    /// What the message expressions give; nothing if there are none.
    fn messages<'g>(
        &'g self,
        inputs: &Inputs<'g>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<Evaluated<'g>>, EvalError> {
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
        results: &[Evaluated<'_>],
        messages: Result<&[Evaluated<'_>], String>,
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

    fn annotations(&self, values: &[Evaluated<'_>]) -> Vec<Annotation> {
        let policy = self.applicability.failure_policy;
        let one = |(annotation, value): (&AuditAnnotation, &Evaluated<'_>)| Annotation {
            key: annotation.key.clone(),
            value: annotate(annotation.value.text(), value, policy),
        };
        self.audit_annotations.iter().zip(values).map(one).collect()
    }
}

// === impl Validated ===

impl Validated {
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
    result: Option<&Evaluated<'_>>,
    message: Result<Option<&Evaluated<'_>>, &str>,
    policy: FailurePolicy,
) -> ValidationDecision {
    if let Some(Evaluated::Failed(failure)) = result {
        return error(policy, failure.clone());
    }
    let message = match message {
        Ok(message) => message,
        Err(failure) => return error(policy, format!("failed messageExpression: {failure}")),
    };
    if matches!(result, Some(Evaluated::Value(Value::Bool(true)))) {
        return ValidationDecision::Admit;
    }
    let computed = message
        .and_then(Evaluated::text)
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
pub fn annotate(expression: &str, value: &Evaluated<'_>, policy: FailurePolicy) -> AnnotationValue {
    match value {
        Evaluated::Failed(_) if policy == FailurePolicy::Ignore => AnnotationValue::Exclude,
        Evaluated::Failed(failure) => AnnotationValue::Error(failure.clone()),
        Evaluated::Value(Value::String(text)) if !text.trim().is_empty() => {
            AnnotationValue::Publish(text.trim().to_owned())
        }
        Evaluated::Value(Value::String(_) | Value::Null) | Evaluated::Absent => AnnotationValue::Exclude,
        Evaluated::Value(other) => AnnotationValue::Error(format!(
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
