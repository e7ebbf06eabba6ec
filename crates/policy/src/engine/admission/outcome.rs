//! The outcome of a run: denial, warnings, audit annotations, patch.

use std::collections::BTreeMap;

use super::denial::Denial;
use super::exceptions::Excused;
use super::warnings::Warnings;
use super::webhook::{Call, WebhookResult};
use crate::engine::{Cause, CauseKind, PolicyResult};

/// What a policy came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyEvaluation {
    /// Its kind.
    pub kind: CauseKind,
    /// Its place among those of the kind.
    pub place: usize,
    /// The worst result of its bindings and parameters.
    pub result: PolicyResult,
    /// What its expressions cost, in the units of Kubernetes' CEL cost model.
    pub cost: u64,
}

/// The answer.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Why the request is refused; allowed if there is none.
    pub denial: Option<Denial>,
    /// What to tell the user besides.
    pub warnings: Warnings,
    /// What to write into the audit log, by keys such as `policy/key`. The
    /// first value of a key stays.
    pub audit_annotations: BTreeMap<String, String>,
    /// The denials that AdmissionExceptions excused, each policy once.
    pub exceptions: Vec<Excused>,
    /// What to change, as a JSON Patch; empty if nothing.
    pub patch: String,
    /// What refused the request.
    pub cause: Option<Cause<'static>>,
    /// What each policy that was looked at came to.
    pub evaluations: Vec<PolicyEvaluation>,
    /// What each webhook that was to be asked came to, in the order asked.
    pub webhooks: Vec<WebhookResult>,
    /// What to ask webhooks in shadow mode, once the answer is on its way: they
    /// decide nothing.
    pub shadows: Vec<Call>,
}
