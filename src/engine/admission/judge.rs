//! Objects that configure the gateway itself, judged as they are written.

use super::outcome::{Denial, Details, Outcome, Reason};
use super::{Request, Run};
use crate::engine::Time;

/// Knows what may be written of the gateway's own kinds.
pub trait Judge: Sync {
    /// What is wrong with the object of `request` as at `now`; `None` where it is
    /// of another kind, or nothing that is judged is done to it.
    fn judge(&self, request: &Request<'_>, now: Time) -> Option<Judgement>;
}

/// What `check` would say of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Why it cannot be used; empty where it can.
    pub faults: Vec<String>,
    /// What it probably is not meant to do.
    pub warnings: Vec<String>,
}

/// What the judge says of a request, as the beginning of its outcome. A run that is
/// limited to one policy or webhook configuration asks no judge.
pub(super) fn judged(request: &Request<'_>, run: Run<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let judge = run.judge.filter(|_| run.only.is_none());
    let Some(judgement) = judge.and_then(|judge| judge.judge(request, run.now)) else {
        return outcome;
    };
    for warning in &judgement.warnings {
        outcome.warnings.push(warning);
    }
    if !judgement.faults.is_empty() {
        outcome.denial = Some(invalid(request, &judgement.faults));
    }
    outcome
}

/// `NewInvalid` of `apimachinery/pkg/api/errors`.
fn invalid(request: &Request<'_>, faults: &[String]) -> Denial {
    let (kind, name) = (&request.request_kind, &request.name);
    let faults = match faults {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Denial {
        status: Denial::FAILURE.into(),
        reason: Reason::Invalid.as_str().into(),
        code: Reason::Invalid.code(),
        message: format!("{}.{} \"{name}\" is invalid: {faults}", kind.kind, kind.group),
        details: Details {
            name: name.to_string(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            ..Details::default()
        },
    }
}
