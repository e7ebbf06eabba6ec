//! Match conditions of policies and webhooks.
//!
//! `apiserver/pkg/admission/plugin/webhook/matchconditions/matcher.go`: all are
//! evaluated; a false one decides, otherwise one that failed.

use super::environment::ExpressionEnvironment;
use super::evaluation::Evaluated;
use super::policy::{CompiledMatchCondition, FailurePolicy};
use super::trace::PolicyExpression;
use super::variables::Inputs;
use crate::engine::Deadline;
use portcullis_cel::{Value, cost};

/// What all conditions together come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MatchConditions {
    /// All hold.
    Match,
    /// One does not, or one failed and the failure policy lets that pass.
    NoMatch(Option<String>),
    /// One failed, none is false, and the failure policy refuses the request.
    Error(String),
}

/// Evaluates conditions out of their own budget.
pub(crate) fn evaluate<'g>(
    conditions: &'g [CompiledMatchCondition],
    policy: FailurePolicy,
    environment: &'g ExpressionEnvironment,
    inputs: &Inputs<'g>,
    deadline: Deadline<'g>,
) -> MatchConditions {
    if conditions.is_empty() {
        return MatchConditions::Match;
    }
    let expressions = conditions.iter().map(|condition| {
        (
            PolicyExpression::Condition(&condition.name),
            Some(&condition.expression),
        )
    });
    let mut budget = deadline.budget(cost::PER_MATCH_CONDITIONS);
    match inputs.sequence(environment).run(expressions, &mut budget) {
        Ok(results) => combine(
            conditions.iter().map(|one| one.name.as_str()).zip(&results),
            policy,
        ),
        Err(error) => fail(policy, error.to_string()),
    }
}

/// Judges the results of conditions, each with its name.
pub fn combine<'c, 'v: 'c>(
    results: impl IntoIterator<Item = (&'c str, &'c Evaluated<'v>)>,
    policy: FailurePolicy,
) -> MatchConditions {
    let mut failures: Vec<&str> = Vec::new();
    for (name, result) in results {
        match result {
            Evaluated::Value(Value::Bool(false)) => return MatchConditions::NoMatch(Some(name.to_owned())),
            // As `utilerrors.NewAggregate`, the same text once.
            Evaluated::Failed(failure) if !failures.contains(&failure.as_str()) => failures.push(failure),
            _ => {}
        }
    }
    match failures.as_slice() {
        [] => MatchConditions::Match,
        [only] => fail(policy, (*only).to_owned()),
        several => fail(policy, format!("[{}]", several.join(", "))),
    }
}

fn fail(policy: FailurePolicy, message: String) -> MatchConditions {
    match policy {
        FailurePolicy::Fail => MatchConditions::Error(message),
        FailurePolicy::Ignore => MatchConditions::NoMatch(None),
    }
}
