//! The validation of the gateway's own kinds, as part of a run.

use crate::engine::StatusReason;
use crate::engine::admission::{Denial, Outcome, Request, Run, StatusCause, StatusDetails};

/// What the judge says of a request, as the beginning of its outcome. A run that is
/// limited to one policy or webhook configuration asks no judge.
pub(crate) fn judged(request: &Request<'_>, run: Run<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let judge = run.judge.filter(|_| run.only.is_none());
    let Some(judgement) = judge.and_then(|judge| judge.judge(request, run.now, run.deadline)) else {
        return outcome;
    };
    for warning in &judgement.warnings {
        outcome.warnings.push(warning);
    }
    if !judgement.faults.is_empty() {
        outcome.denial = Some(invalid(request, judgement.faults));
    }
    outcome
}

/// `NewInvalid` of `apimachinery/pkg/api/errors`.
fn invalid(request: &Request<'_>, causes: Vec<StatusCause>) -> Denial {
    let (kind, name) = (&request.request_kind, &request.name);
    let text = |cause: &StatusCause| format!("{}: {}", cause.field, cause.message);
    let texts: Vec<String> = causes.iter().map(text).collect();
    let faults = match texts.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Denial {
        status: Denial::FAILURE.into(),
        reason: StatusReason::Invalid.as_str().into(),
        code: StatusReason::Invalid.code().into(),
        message: format!("{}.{} \"{name}\" is invalid: {faults}", kind.kind, kind.group),
        details: StatusDetails {
            name: name.to_string(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            // What kubectl shows of an object that is invalid.
            causes,
            ..StatusDetails::default()
        },
    }
}
