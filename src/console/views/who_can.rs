//! `/who-can`: everybody who may do something.

use askama::Template;

use super::cluster::ClusterChoice;
use super::paging::Paging;
use crate::console::context::{ViewContext, ViewRequest};
use crate::console::frame::PageFrame;
use crate::console::page::{Page, Representation, ViewError};
use crate::console::query::ViewQuery;
use portcullis_policy::authorization::{Grantee, PolicySet, SubjectKind, Within};
use portcullis_policy::engine::Time;
use portcullis_policy::explain::access::{DenyNote, deny_notes, limits_in_words, object_and_rule};
use portcullis_policy::explain::who_can::{WhoCanAnswer, WhoCanQuestion};

/// The fields of its form.
const FIELDS: [&str; 6] = ["verb", "resource", "name", "namespace", "cluster", "page"];

#[derive(Template)]
#[template(path = "who-can.html")]
struct WhoCanPage<'a> {
    frame: PageFrame,
    form: WhoCanForm<'a>,
    clusters: &'a ClusterChoice,
    answer: Option<WhoCanTable>,
}

/// What was asked, as it was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WhoCanForm<'q> {
    verb: &'q str,
    resource: &'q str,
    name: &'q str,
    namespace: &'q str,
}

/// Whoever may, a page at a time.
#[derive(Debug)]
struct WhoCanTable {
    /// What is odd about the question, and who is not listed.
    notes: Vec<String>,
    rows: Vec<SubjectRow>,
    paging: Paging,
    /// What the Denies of the page are about.
    denies: Vec<DenyNote>,
}

/// A subject, and by which objects.
#[derive(Debug, PartialEq, Eq)]
struct SubjectRow {
    kind: SubjectKind,
    name: String,
    is_pattern: bool,
    /// Each rule with its limits; none where the API server does not ask.
    via: Vec<(String, String)>,
    denied_by: Vec<String>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.only(&FIELDS)?;
    let clusters = ClusterChoice::new(context, &request.query)?;
    let form = WhoCanForm::new(&request.query)?;
    let set = context.snapshot.policies.for_cluster(&clusters.chosen);
    let page = |answer| WhoCanPage {
        frame: context.frame("Who can", request),
        form,
        clusters: &clusters,
        answer,
    };
    if form == WhoCanForm::default() && request.representation == Representation::Html {
        return Page::of(request.representation, &(), &page(None));
    }
    let question = form.question()?;
    let answer = question.answer(set, Time::from(context.now));
    if request.representation == Representation::Json {
        return Page::of(request.representation, &answer.report(), &page(None));
    }
    let mut notes = question.hints(set);
    for authorizer in &context.snapshot.config.authorization.webhooks {
        let name = &authorizer.rules.name;
        notes.push(format!(
            "the authorizer `{name}` is asked where nothing here decides; whom it allows something is not listed"
        ));
    }
    let table = WhoCanTable::new(&answer, set, notes, &request.query)?;
    Page::of(request.representation, &answer.report(), &page(Some(table)))
}

// === impl WhoCanForm ===

impl<'q> WhoCanForm<'q> {
    fn new(query: &'q ViewQuery) -> Result<Self, ViewError> {
        Ok(Self {
            verb: query.text("verb")?,
            resource: query.text("resource")?,
            name: query.text("name")?,
            namespace: query.text("namespace")?,
        })
    }

    /// Without a namespace it is about any, and about none.
    fn question(&self) -> Result<WhoCanQuestion, ViewError> {
        let is_path = self.resource.starts_with('/');
        let place = match self.namespace {
            "" if is_path => None,
            "" => Some(Within::AnyNamespace),
            namespace => Some(Within::Namespace(namespace.to_owned())),
        };
        let name = (!self.name.is_empty()).then_some(self.name);
        WhoCanQuestion::new(self.verb, self.resource, name, place)
            .map_err(|odd| ViewError::Invalid(odd.to_string()))
    }
}

// === impl WhoCanTable ===

impl WhoCanTable {
    fn new(
        answer: &WhoCanAnswer,
        set: &PolicySet,
        notes: Vec<String>,
        query: &ViewQuery,
    ) -> Result<Self, ViewError> {
        let paging = Paging::new(answer.0.len(), "/who-can", query)?;
        let shown = paging.rows(&answer.0);
        let denied = shown.iter().flat_map(|grantee| &grantee.denied_by);
        Ok(Self {
            notes,
            denies: deny_notes(denied, set),
            rows: shown.iter().map(SubjectRow::from).collect(),
            paging,
        })
    }
}

// === impl SubjectRow ===

impl From<&Grantee> for SubjectRow {
    fn from(grantee: &Grantee) -> Self {
        let subject = &grantee.subject;
        Self {
            kind: subject.kind,
            name: match subject.kind {
                SubjectKind::ServiceAccount => format!("{}/{}", subject.namespace, subject.name),
                SubjectKind::User | SubjectKind::Group => subject.name.clone(),
            },
            is_pattern: grantee.is_pattern,
            via: grantee
                .via
                .iter()
                .map(|via| (object_and_rule(via), limits_in_words(&via.limits)))
                .collect(),
            denied_by: grantee.denied_by.iter().map(|name| name.to_string()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
