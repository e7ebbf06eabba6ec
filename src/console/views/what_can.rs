//! `/what-can`: everything that one user may do.

use askama::Template;

use super::cluster::ClusterChoice;
use super::paging::Paging;
use crate::console::context::{ViewContext, ViewRequest};
use crate::console::frame::PageFrame;
use crate::console::page::{Page, Representation, ViewError};
use crate::console::query::ViewQuery;
use portcullis_policy::authorization::{Permission, PolicySet, Within};
use portcullis_policy::engine::{Time, User};
use portcullis_policy::explain::access::{DenyNote, deny_notes, limits_in_words, object_and_rule};
use portcullis_policy::explain::what_can::{
    AccessMatrix, VERBS, WhatCanAnswer, WhatCanQuestion, in_a_word, targets,
};

/// The fields of its form; `group` is the name that `portcullis` has for one of `groups`.
const FIELDS: [&str; 6] = ["user", "groups", "group", "namespace", "cluster", "page"];

#[derive(Template)]
#[template(path = "what-can.html")]
struct WhatCanPage<'a> {
    frame: PageFrame,
    form: &'a WhatCanForm,
    clusters: &'a ClusterChoice,
    answer: Option<WhatCanTables>,
}

/// What was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct WhatCanForm {
    user: String,
    groups: Vec<String>,
    namespace: String,
}

/// What the user may, rule by rule and resource by resource.
#[derive(Debug)]
struct WhatCanTables {
    notes: Vec<&'static str>,
    rows: Vec<PermissionRow>,
    paging: Paging,
    /// What the Denies of the page are about.
    denies: Vec<DenyNote>,
    verbs: [&'static str; VERBS.len()],
    /// A word for each verb of each resource.
    matrix: Vec<(String, Vec<&'static str>)>,
}

/// What one rule allows.
#[derive(Debug, PartialEq, Eq)]
struct PermissionRow {
    verbs: String,
    targets: String,
    /// `*` for every one.
    namespace: String,
    rule: String,
    limits: String,
    denied_by: Vec<String>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.only(&FIELDS)?;
    let clusters = ClusterChoice::new(context, &request.query)?;
    let form = WhatCanForm::new(&request.query)?;
    let page = |answer| WhatCanPage {
        frame: context.frame("What can", request),
        form: &form,
        clusters: &clusters,
        answer,
    };
    let is_json = request.representation == Representation::Json;
    if form == WhatCanForm::default() && !is_json {
        return Page::of(request.representation, &(), &page(None));
    }
    let question = form.question()?;
    let (set, now) = (
        context.snapshot.policies.for_cluster(&clusters.chosen),
        Time::from(context.now),
    );
    let answer = question.answer(set, now);
    if is_json {
        return Page::of(request.representation, &answer.report(), &page(None));
    }
    let matrix = question.matrix(set, &answer, now);
    let mut tables = WhatCanTables::new(&answer, set, matrix, &request.query)?;
    if question.is_never_asked() {
        tables
            .notes
            .push("An API server allows the group system:masters everything, without asking.");
    }
    Page::of(request.representation, &answer.report(), &page(Some(tables)))
}

// === impl WhatCanForm ===

impl WhatCanForm {
    fn new(query: &ViewQuery) -> Result<Self, ViewError> {
        Ok(Self {
            user: query.text("user")?.to_owned(),
            groups: [query.lines("groups"), query.lines("group")].concat(),
            namespace: query.text("namespace")?.to_owned(),
        })
    }

    /// Without a namespace it is about any, and about none.
    fn question(&self) -> Result<WhatCanQuestion, ViewError> {
        if self.user.is_empty() && self.groups.is_empty() {
            return Err(ViewError::Invalid("name a user or a group".to_owned()));
        }
        Ok(WhatCanQuestion {
            user: User {
                name: self.user.clone().into(),
                groups: self.groups.iter().map(|group| group.clone().into()).collect(),
                ..User::default()
            },
            within: match self.namespace.as_str() {
                "" => Within::AnyNamespace,
                namespace => Within::Namespace(namespace.to_owned()),
            },
        })
    }
}

// === impl WhatCanTables ===

impl WhatCanTables {
    fn new(
        answer: &WhatCanAnswer,
        set: &PolicySet,
        matrix: AccessMatrix,
        query: &ViewQuery,
    ) -> Result<Self, ViewError> {
        let paging = Paging::new(answer.0.len(), "/what-can", query)?;
        let shown = paging.rows(&answer.0);
        let denied = shown.iter().flat_map(|permission| &permission.denied_by);
        let words =
            |(resource, shares): (String, Vec<_>)| (resource, shares.into_iter().map(in_a_word).collect());
        Ok(Self {
            notes: Vec::new(),
            denies: deny_notes(denied, set),
            rows: shown.iter().map(PermissionRow::from).collect(),
            paging,
            verbs: VERBS,
            matrix: matrix.rows.into_iter().map(words).collect(),
        })
    }
}

// === impl PermissionRow ===

impl From<&Permission> for PermissionRow {
    fn from(permission: &Permission) -> Self {
        let mut limits = permission.via.limits.clone();
        if !permission.names.is_empty() {
            limits.insert(0, format!("names: {}", permission.names.join(", ")));
        }
        Self {
            verbs: permission.verbs.join(", "),
            targets: targets(permission).join(", "),
            namespace: match permission.via.namespace.as_str() {
                "" => "*".to_owned(),
                namespace => namespace.to_owned(),
            },
            rule: object_and_rule(&permission.via),
            limits: limits_in_words(&limits),
            denied_by: permission.denied_by.iter().map(|name| name.to_string()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
