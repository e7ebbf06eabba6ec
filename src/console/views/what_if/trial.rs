//! A policy on trial: pasted beside what is in force, for one question.

use std::time::Instant;

use serde::Serialize;

use super::manifest::AdmissionAnswer;
use super::replay::RecentReplay;
use crate::console::context::ViewContext;
use crate::console::page::ViewError;
use crate::console::query::ViewQuery;
use crate::reload::Trial;
use portcullis_policy::engine::Deadline;
use portcullis_policy::engine::admission::{AdmissionPolicies, Phase};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::AdmitAllExplained;
use portcullis_policy::explain::authorization::{AuthorizationAnswer, Explained};
use portcullis_policy::field::{Fault, Severity};
use portcullis_policy::manifest::Source;

/// The fields of its form.
pub(crate) const FIELDS: [&str; 1] = ["policy"];

/// What the faults of what was pasted name as its file.
const FILE: &str = "policy";

/// What was pasted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TrialForm {
    pub(crate) policy: String,
}

/// What is on trial, as far as it could be read.
pub(crate) struct TrialAnswer {
    pub(crate) faults: Vec<FaultRow>,
    /// The objects, each with whether it stands in the place of one in force.
    pub(crate) objects: Vec<TrialObject>,
    /// What it would change of the recent decisions; `None` where it has faults.
    pub(crate) replay: Option<RecentReplay>,
}

/// What `check` says of what was pasted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FaultRow {
    /// `error` or `warning`.
    pub(crate) severity: &'static str,
    /// From 1; 0 where it is not known.
    pub(crate) line: u32,
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

/// An object on trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrialObject {
    pub(crate) name: String,
    pub(crate) replaces: bool,
}

/// The same for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrialReport<'a> {
    faults: &'a [FaultRow],
    objects: &'a [TrialObject],
    #[serde(skip_serializing_if = "Option::is_none")]
    recent: Option<&'a RecentReplay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<BothSides<Explained<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<BothSides<AdmitAllExplained<'a>>>,
}

/// What is answered now, and what would be.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BothSides<T> {
    in_force: T,
    on_trial: T,
}

// === impl TrialForm ===

impl TrialForm {
    pub(crate) fn new(form: &ViewQuery) -> Result<Self, ViewError> {
        let policy = form.one("policy")?.unwrap_or_default().to_owned();
        Ok(Self { policy })
    }

    /// Whether nothing was pasted.
    pub(crate) fn is_empty(&self) -> bool {
        self.policy.trim().is_empty()
    }

    /// What would decide with it, unless it has faults, and what is to be said about it.
    ///
    /// # Errors
    ///
    /// It takes parameters, whose data it could show.
    pub(crate) fn load(
        &self,
        context: &ViewContext<'_>,
        in_force: &LoadedPolicies,
    ) -> Result<(Option<LoadedPolicies>, TrialAnswer), ViewError> {
        let source = Source {
            file: FILE.to_owned(),
            text: self.policy.clone(),
            cluster: context.visible.only().map(str::to_owned),
        };
        let expired = || Instant::now() >= context.deadline;
        let deadline = Deadline { expired: &expired };
        let (trial, faults) = context.snapshot.trial(&source, context.now, deadline);
        let answer = TrialAnswer {
            faults: faults.iter().map(FaultRow::from).collect(),
            objects: trial.as_ref().map(objects).unwrap_or_default(),
            replay: None,
        };
        let Some(trial) = trial else {
            return Ok((None, answer));
        };
        if let Some(name) = takes_parameters(&trial) {
            return Err(ViewError::Invalid(format!(
                "`{name}` takes parameters, and could show what they hold: try it with \
                 `portcullis admit`, where they are your own files"
            )));
        }
        let loaded = LoadedPolicies {
            policies: trial.policies,
            authorizers: in_force.authorizers.clone(),
            admission: trial.admission,
            namespace: None,
        };
        Ok((Some(loaded), answer))
    }
}

fn objects(trial: &Trial) -> Vec<TrialObject> {
    let object = |identity| TrialObject {
        replaces: trial.replaced.contains(identity),
        name: identity.to_string(),
    };
    trial.objects.iter().map(object).collect()
}

/// The first policy on trial that reads parameters, or binding that gives some.
fn takes_parameters(trial: &Trial) -> Option<String> {
    let is_on_trial = |kind: &str, name: &str| {
        let mut objects = trial.objects.iter();
        objects.any(|object| object.kind() == kind && object.name() == name)
    };
    let AdmissionPolicies { shared, clusters } = &trial.admission;
    let kinds = [
        (
            Phase::Validate,
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ),
        (
            Phase::Mutate,
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
        ),
    ];
    for set in std::iter::once(shared).chain(clusters.values()) {
        for (phase, kind, binding_kind) in kinds {
            for (policy, bindings) in set.policies(phase) {
                if policy.param_kind.is_some() && is_on_trial(kind, &policy.name) {
                    return Some(policy.name.clone());
                }
                let mut with_parameters = bindings.iter().filter(|binding| binding.param_ref.is_some());
                if let Some(binding) =
                    with_parameters.find(|binding| is_on_trial(binding_kind, &binding.name))
                {
                    return Some(binding.name.clone());
                }
            }
        }
    }
    None
}

// === impl FaultRow ===

impl From<&Fault> for FaultRow {
    fn from(fault: &Fault) -> Self {
        Self {
            severity: match fault.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            line: fault.place.line,
            object: fault.place.object.clone(),
            path: fault.place.path.to_string(),
            kind: fault.kind.as_str(),
            message: fault.message.clone(),
        }
    }
}

// === impl TrialReport ===

impl<'a> TrialReport<'a> {
    /// The answers of both sides, the first of each in force.
    pub(crate) fn new(
        trial: &'a TrialAnswer,
        requests: &'a [AuthorizationAnswer],
        manifests: &'a [AdmissionAnswer],
    ) -> Self {
        let request = match requests {
            [in_force, on_trial] => Some(BothSides {
                in_force: in_force.report(),
                on_trial: on_trial.report(),
            }),
            _ => None,
        };
        let manifest = match manifests {
            [in_force, on_trial] => Some(BothSides {
                in_force: in_force.report(),
                on_trial: on_trial.report(),
            }),
            _ => None,
        };
        Self {
            faults: &trial.faults,
            objects: &trial.objects,
            recent: trial.replay.as_ref(),
            request,
            manifest,
        }
    }
}
