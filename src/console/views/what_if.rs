//! `/what-if`: how a request or a manifest would be decided, with the policies in force and with a
//! policy that the user pastes. Nothing that is pasted is kept.

mod manifest;
mod replay;
mod request;

use std::time::Instant;

use askama::Template;
use manifest::{AdmissionAnswer, ManifestForm, ManifestView};
use replay::{ComparedPolicies, RecentReplay};
pub(crate) use request::DecisionView;
use request::RequestForm;
use serde::Serialize;

use super::clusters::ClusterChoice;
use crate::console::page::{Page, PageFrame, Representation, ViewError};
use crate::console::query::ViewQuery;
use crate::console::{ViewContext, ViewRequest};
use crate::state::{Snapshot, Trial};
use portcullis_policy::admission::{AdmissionPolicies, Phase};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::AdmitAllExplained;
use portcullis_policy::explain::authorization::{AuthorizationAnswer, DecisionExplanation};
use portcullis_policy::explain::objects::KnownKinds;
use portcullis_policy::field::{Fault, Severity};
use portcullis_policy::manifest::Source;
use portcullis_policy::model::Deadline;

#[derive(Template)]
#[template(path = "what-if.html")]
struct WhatIfPage<'a> {
    frame: PageFrame,
    request: &'a RequestForm,
    manifest: &'a ManifestForm,
    trial: &'a TrialForm,
    clusters: &'a ClusterChoice,
    /// Why the question cannot be answered.
    wrong: &'a [String],
    decisions: Vec<DecisionView>,
    manifests: Vec<ManifestView>,
    on_trial: Option<&'a TrialAnswer>,
}

/// The JSON response: the output of `portcullis authorize` or `portcullis admit`, or what a policy
/// on trial would change.
#[derive(Serialize)]
#[serde(untagged)]
enum WhatIfReport<'a> {
    Request(DecisionExplanation<'a>),
    Manifest(AdmitAllExplained<'a>),
    Trial(Box<TrialReport<'a>>),
}

/// The input of the page.
struct WhatIfQuestion {
    request: RequestForm,
    manifest: ManifestForm,
    trial: TrialForm,
    clusters: ClusterChoice,
}

/// The decisions with the policies in force, and then with those on trial.
#[derive(Default)]
struct WhatIfAnswers {
    errors: Vec<String>,
    requests: Vec<AuthorizationAnswer>,
    manifests: Vec<AdmissionAnswer>,
    trial: Option<TrialAnswer>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    let question = match &request.form {
        None => WhatIfQuestion::of_query(context, &request.query)?,
        Some(form) => WhatIfQuestion::of_form(context, form)?,
    };
    let answers = question.answers(context)?;
    let is_json = request.representation == Representation::Json;
    if is_json && !answers.errors.is_empty() {
        return Err(ViewError::Invalid(answers.errors.join("; ")));
    }
    let page = WhatIfPage {
        frame: context.frame("What if", request),
        request: &question.request,
        manifest: &question.manifest,
        trial: &question.trial,
        clusters: &question.clusters,
        wrong: &answers.errors,
        decisions: answers.decisions(),
        manifests: answers.manifests.iter().map(ManifestView::from).collect(),
        on_trial: answers.trial.as_ref(),
    };
    if !is_json {
        let rendered = Page::of(request.representation, &(), &page)?;
        let status = if answers.errors.is_empty() {
            rendered.status
        } else {
            400
        };
        return Ok(Page { status, ..rendered });
    }
    match answers.report() {
        Some(report) => Page::of(request.representation, &report, &page),
        None => Err(ViewError::Invalid(
            "name a request by its fields, such as `user`, `verb` and `resource`".to_owned(),
        )),
    }
}

// === impl WhatIfQuestion ===

impl WhatIfQuestion {
    /// A request by its fields. With an operation, it is the user and namespace for a manifest that
    /// is still to be pasted.
    fn of_query(context: &ViewContext<'_>, query: &ViewQuery) -> Result<Self, ViewError> {
        query.reject_unknown(&[&request::FIELDS[..], &["operation", "cluster"]].concat())?;
        let (request, manifest) = (RequestForm::new(query)?, ManifestForm::new(query)?);
        Ok(Self {
            request: if manifest.has_operation() {
                request.without_target()
            } else {
                request
            },
            manifest,
            trial: TrialForm::default(),
            clusters: ClusterChoice::new(context, query)?,
        })
    }

    /// A manifest, or a policy on trial with the request or manifest to decide.
    fn of_form(context: &ViewContext<'_>, form: &ViewQuery) -> Result<Self, ViewError> {
        let known = [&request::FIELDS[..], &manifest::FIELDS, &FIELDS, &["cluster"]].concat();
        form.reject_unknown(&known)?;
        Ok(Self {
            request: RequestForm::new(form)?,
            manifest: ManifestForm::new(form)?,
            trial: TrialForm::new(form)?,
            clusters: ClusterChoice::new(context, form)?,
        })
    }

    fn answers(&self, context: &ViewContext<'_>) -> Result<WhatIfAnswers, ViewError> {
        let mut answers = WhatIfAnswers::default();
        let in_force = in_force(context.snapshot);
        let on_trial = if self.trial.is_empty() {
            None
        } else {
            let (loaded, mut answer) = self.trial.load(context, &in_force)?;
            if let Some(on_trial) = &loaded {
                let sides = ComparedPolicies {
                    in_force: &in_force,
                    on_trial,
                };
                // Half of the time is left for the rest of the page.
                let now = Instant::now();
                let until = now + context.deadline.saturating_duration_since(now) / 2;
                let recent = context.decisions.since(0);
                answer.replay = Some(RecentReplay::new(&recent, sides, until));
            }
            answers.trial = Some(answer);
            loaded
        };
        let sides: Vec<&LoadedPolicies> = [Some(&in_force), on_trial.as_ref()]
            .into_iter()
            .flatten()
            .collect();
        let (cluster, now) = (self.clusters.chosen.as_str(), self.request.time(context.now)?);
        if !self.request.is_empty() {
            match self.request.attributes() {
                Ok(attributes) => {
                    let answer =
                        |side: &&LoadedPolicies| AuthorizationAnswer::new(side, cluster, &attributes, now);
                    answers.requests = sides.iter().map(answer).collect();
                }
                Err(wrong) => answers.errors.extend(wrong),
            }
        }
        if !self.manifest.is_empty() {
            let is_named = |group: &str, resource: &str| {
                let mut sets = sides.iter().map(|side| side.admission.for_cluster(cluster));
                sets.any(|set| set.names_resource(group, resource))
            };
            match self.manifest.reviews(&self.request, is_named) {
                Ok(reviews) => {
                    for side in &sides {
                        let answer = AdmissionAnswer::new(side, cluster, &reviews, now, context.deadline)?;
                        answers.manifests.push(answer);
                    }
                }
                Err(wrong) => answers.errors.extend(wrong),
            }
        }
        Ok(answers)
    }
}

// === impl WhatIfAnswers ===

impl WhatIfAnswers {
    fn decisions(&self) -> Vec<DecisionView> {
        self.requests.iter().map(DecisionView::from).collect()
    }

    /// The JSON response; `None` if the input is empty.
    fn report(&self) -> Option<WhatIfReport<'_>> {
        if let Some(trial) = &self.trial {
            let report = TrialReport::new(trial, &self.requests, &self.manifests);
            return Some(WhatIfReport::Trial(Box::new(report)));
        }
        let request = self
            .requests
            .first()
            .map(|answer| WhatIfReport::Request(answer.report()));
        let manifest = || {
            self.manifests
                .first()
                .map(|answer| WhatIfReport::Manifest(answer.report()))
        };
        request.or_else(manifest)
    }
}

/// The policies in force.
pub(crate) fn in_force(snapshot: &Snapshot) -> LoadedPolicies {
    let webhooks = &snapshot.config.authorization.webhooks;
    LoadedPolicies {
        policies: snapshot.policies.clone(),
        authorizers: webhooks.iter().map(|entry| entry.rules.clone()).collect(),
        admission: snapshot.admission.clone(),
        namespace: None,
        kinds: KnownKinds::default(),
    }
}

// A policy on trial: added to those in force for one request.

/// The parameters of the form.
pub(crate) const FIELDS: [&str; 1] = ["policy"];

/// The file name of the pasted policy in error messages.
const FILE: &str = "policy";

/// The pasted policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TrialForm {
    pub(crate) policy: String,
}

/// The policy on trial, and its errors.
pub(crate) struct TrialAnswer {
    pub(crate) faults: Vec<FaultRow>,
    /// The objects, and whether each replaces one in force.
    pub(crate) objects: Vec<TrialObject>,
    /// The recent decisions that would change; `None` if the policy has errors.
    pub(crate) replay: Option<RecentReplay>,
}

/// An error or warning about the pasted policy, as in `check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FaultRow {
    /// `error` or `warning`.
    pub(crate) severity: &'static str,
    /// The line, from 1; 0 if it is unknown.
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

/// The JSON response for a policy on trial.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrialReport<'a> {
    faults: &'a [FaultRow],
    objects: &'a [TrialObject],
    #[serde(skip_serializing_if = "Option::is_none")]
    recent: Option<&'a RecentReplay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<BothSides<DecisionExplanation<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<BothSides<AdmitAllExplained<'a>>>,
}

/// The decisions with the policies in force, and with those on trial.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BothSides<T> {
    in_force: T,
    on_trial: T,
}

// === impl TrialForm ===

impl TrialForm {
    pub(crate) fn new(form: &ViewQuery) -> Result<Self, ViewError> {
        let policy = form.single("policy")?.unwrap_or_default().to_owned();
        Ok(Self { policy })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.policy.trim().is_empty()
    }

    /// The policies including the pasted one, unless it has errors, and what to report about it.
    ///
    /// # Errors
    ///
    /// The policy has parameters, whose content it could reveal.
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
        let deadline = Deadline::new(&expired);
        let (trial, faults) = context.snapshot.trial(&source, context.now, deadline);
        let answer = TrialAnswer {
            faults: faults.iter().map(FaultRow::from).collect(),
            objects: trial.as_ref().map(objects).unwrap_or_default(),
            replay: None,
        };
        let Some(trial) = trial else {
            return Ok((None, answer));
        };
        if let Some(name) = first_with_parameters(&trial) {
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
            kinds: KnownKinds::default(),
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

/// The first policy on trial that has parameters, or binding on trial that refers to some.
fn first_with_parameters(trial: &Trial) -> Option<String> {
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
    /// The report, with two decisions for the request and for the manifest: in force, and on trial.
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

#[cfg(test)]
mod tests;
