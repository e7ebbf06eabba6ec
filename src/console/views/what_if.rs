//! `/what-if`: what would be decided about a request or a manifest, by what is in force or with a
//! policy pasted beside it. Nothing that is pasted is kept.

mod manifest;
mod replay;
mod request;
mod trial;

use std::time::Instant;

use askama::Template;
use serde::Serialize;

use super::parameters::ClusterChoice;
use crate::console::context::{ViewContext, ViewRequest};
use crate::console::page::{Page, PageFrame, Representation, ViewError};
use crate::console::query::ViewQuery;
use crate::reload::Snapshot;
use manifest::{AdmissionAnswer, ManifestForm, ManifestView};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::AdmitAllExplained;
use portcullis_policy::explain::authorization::{AuthorizationAnswer, Explained};
use replay::{RecentReplay, Sides};
use request::{DecisionView, RequestForm};
use trial::{TrialAnswer, TrialForm, TrialReport};

#[derive(Template)]
#[template(path = "what-if.html")]
struct WhatIfPage<'a> {
    frame: PageFrame,
    request: &'a RequestForm,
    manifest: &'a ManifestForm,
    trial: &'a TrialForm,
    clusters: &'a ClusterChoice,
    /// Why there is no answer.
    wrong: &'a [String],
    decisions: Vec<DecisionView>,
    manifests: Vec<ManifestView>,
    on_trial: Option<&'a TrialAnswer>,
}

/// What is answered, for programs: what `portcullis authorize` or `portcullis admit` says, or what
/// a policy on trial would change.
#[derive(Serialize)]
#[serde(untagged)]
enum WhatIfReport<'a> {
    Request(Explained<'a>),
    Manifest(AdmitAllExplained<'a>),
    Trial(Box<TrialReport<'a>>),
}

/// What was asked.
struct Question {
    request: RequestForm,
    manifest: ManifestForm,
    trial: TrialForm,
    clusters: ClusterChoice,
}

/// What is answered, by what is in force and then by what is on trial.
#[derive(Default)]
struct WhatIfAnswers {
    wrong: Vec<String>,
    requests: Vec<AuthorizationAnswer>,
    manifests: Vec<AdmissionAnswer>,
    trial: Option<TrialAnswer>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    let question = match &request.form {
        None => Question::of_query(context, &request.query)?,
        Some(form) => Question::of_form(context, form)?,
    };
    let answers = question.answers(context)?;
    let is_json = request.representation == Representation::Json;
    if is_json && !answers.wrong.is_empty() {
        return Err(ViewError::Invalid(answers.wrong.join("; ")));
    }
    let page = WhatIfPage {
        frame: context.frame("What if", request),
        request: &question.request,
        manifest: &question.manifest,
        trial: &question.trial,
        clusters: &question.clusters,
        wrong: &answers.wrong,
        decisions: answers.decisions(),
        manifests: answers.manifests.iter().map(ManifestView::from).collect(),
        on_trial: answers.trial.as_ref(),
    };
    if !is_json {
        let rendered = Page::of(request.representation, &(), &page)?;
        let status = if answers.wrong.is_empty() {
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

// === impl Question ===

impl Question {
    /// A request by its fields; or, where an operation is named, who does it and where, for a
    /// manifest that is yet to be pasted.
    fn of_query(context: &ViewContext<'_>, query: &ViewQuery) -> Result<Self, ViewError> {
        query.only(&[&request::FIELDS[..], &["operation", "cluster"]].concat())?;
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

    /// A manifest, or a policy on trial with what it is tried at.
    fn of_form(context: &ViewContext<'_>, form: &ViewQuery) -> Result<Self, ViewError> {
        let known = [
            &request::FIELDS[..],
            &manifest::FIELDS,
            &trial::FIELDS,
            &["cluster"],
        ]
        .concat();
        form.only(&known)?;
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
                let sides = Sides {
                    in_force: &in_force,
                    on_trial,
                };
                // The other half of the time is for the rest of the page.
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
                Err(wrong) => answers.wrong.extend(wrong),
            }
        }
        if !self.manifest.is_empty() {
            match self.manifest.reviews(&self.request) {
                Ok(reviews) => {
                    for side in &sides {
                        let answer = AdmissionAnswer::new(side, cluster, &reviews, now, context.deadline)?;
                        answers.manifests.push(answer);
                    }
                }
                Err(wrong) => answers.wrong.extend(wrong),
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

    /// `None` where nothing was asked.
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

/// What decides now.
fn in_force(snapshot: &Snapshot) -> LoadedPolicies {
    let webhooks = &snapshot.config.authorization.webhooks;
    LoadedPolicies {
        policies: snapshot.policies.clone(),
        authorizers: webhooks.iter().map(|entry| entry.rules.clone()).collect(),
        admission: snapshot.admission.clone(),
        namespace: None,
    }
}

#[cfg(test)]
mod tests;
