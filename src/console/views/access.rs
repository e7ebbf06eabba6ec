//! `/who-can`: who may do something; `/what-can`: everything that a user may do.

use std::time::Instant;

use askama::Template;

use super::clusters::ClusterChoice;

use crate::console::page::{Page, PageFrame, Representation, ViewError};
use crate::console::query::{Paging, ViewQuery};
use crate::console::{ViewContext, ViewRequest};
use portcullis_policy::authorization::{Grantee, Permission, PolicySet, SubjectKind, Within};
use portcullis_policy::explain::access::{
    AccessMatrix, DenyNote, VERBS, WhatCanAnswer, WhatCanQuestion, WhoCanAnswer, WhoCanQuestion, deny_notes,
    limits_in_words, object_and_rule, share_word, targets,
};
use portcullis_policy::explain::unknown_rbac;
use portcullis_policy::model::{Deadline, Time, User};

/// The parameters of the form.
const WHO_CAN_FIELDS: [&str; 6] = ["verb", "resource", "name", "namespace", "cluster", "page"];

#[derive(Template)]
#[template(path = "who-can.html")]
struct WhoCanPage<'a> {
    frame: PageFrame,
    form: WhoCanForm<'a>,
    clusters: &'a ClusterChoice,
    answer: Option<WhoCanTable>,
}

/// The values of the form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WhoCanForm<'q> {
    verb: &'q str,
    resource: &'q str,
    name: &'q str,
    namespace: &'q str,
}

/// The subjects that are allowed, on one page of the list.
#[derive(Debug)]
struct WhoCanTable {
    /// Notes about the query, and about who is not listed.
    notes: Vec<String>,
    rows: Vec<SubjectRow>,
    paging: Paging,
    /// The Denies that apply to subjects on the page.
    denies: Vec<DenyNote>,
}

/// A subject, and the objects that allow it.
#[derive(Debug, PartialEq, Eq)]
struct SubjectRow {
    kind: SubjectKind,
    name: String,
    is_pattern: bool,
    /// Each rule with its limits; empty if the API server never asks about the subject.
    via: Vec<(String, String)>,
    denied_by: Vec<String>,
}

pub(crate) fn who_can(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&WHO_CAN_FIELDS)?;
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
    let expired = || Instant::now() >= context.deadline;
    let deadline = Deadline::new(&expired);
    let answer = question.answer(set, Time::from(context.now), deadline);
    let answer = answer.ok_or(ViewError::TooLate)?;
    if request.representation == Representation::Json {
        return Page::of(request.representation, &answer.report(), &page(None));
    }
    let mut notes: Vec<String> = unknown_rbac_note(set, &clusters).into_iter().collect();
    notes.extend(question.hints(set));
    for authorizer in &context.snapshot.config.authorization.webhooks {
        let name = &authorizer.rules.name;
        notes.push(format!(
            "the authorizer `{name}` decides requests that the policies do not decide; subjects that it \
            allows are not listed"
        ));
    }
    let table = WhoCanTable::new(&answer, set, notes, &request.query)?;
    Page::of(request.representation, &answer.report(), &page(Some(table)))
}

/// A note if the gateway does not know the RBAC of the cluster, with the remedy.
fn unknown_rbac_note(set: &PolicySet, clusters: &ClusterChoice) -> Option<String> {
    let unknown = unknown_rbac(set, &clusters.chosen)?;
    Some(format!(
        "{unknown}: let the gateway watch it (`clusters` in its configuration; `portcullis init DIR --watch` \
         writes that)"
    ))
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

    /// The query. Without a namespace, it is about all namespaces and about cluster-scoped
    /// requests.
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

/// The parameters of the form. `group` is an alternative to lines of `groups`, as in the command.
const WHAT_CAN_FIELDS: [&str; 6] = ["user", "groups", "group", "namespace", "cluster", "page"];

#[derive(Template)]
#[template(path = "what-can.html")]
struct WhatCanPage<'a> {
    frame: PageFrame,
    form: &'a WhatCanForm,
    clusters: &'a ClusterChoice,
    answer: Option<WhatCanTables>,
}

/// The values of the form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct WhatCanForm {
    user: String,
    groups: Vec<String>,
    namespace: String,
}

/// What the user may do, by rule and by resource.
#[derive(Debug)]
struct WhatCanTables {
    notes: Vec<String>,
    rows: Vec<PermissionRow>,
    paging: Paging,
    /// The Denies that apply to rules on the page.
    denies: Vec<DenyNote>,
    verbs: [&'static str; VERBS.len()],
    /// For each resource, how far each verb is allowed.
    matrix: Vec<(String, Vec<&'static str>)>,
}

/// The permission from one rule.
#[derive(Debug, PartialEq, Eq)]
struct PermissionRow {
    verbs: String,
    targets: String,
    /// `*` for all namespaces.
    namespace: String,
    rule: String,
    limits: String,
    denied_by: Vec<String>,
}

pub(crate) fn what_can(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&WHAT_CAN_FIELDS)?;
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
    let expired = || Instant::now() >= context.deadline;
    let deadline = Deadline::new(&expired);
    let answer = question.answer(set, now, deadline).ok_or(ViewError::TooLate)?;
    if is_json {
        return Page::of(request.representation, &answer.report(), &page(None));
    }
    let matrix = question.matrix(set, &answer, now, deadline);
    let matrix = matrix.ok_or(ViewError::TooLate)?;
    let mut tables = WhatCanTables::new(&answer, set, matrix, &request.query)?;
    tables.notes.extend(unknown_rbac_note(set, &clusters));
    if question.is_never_asked() {
        tables.notes.push(
            "An API server allows the group system:masters everything, without calling a webhook.".to_owned(),
        );
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

    /// The query. Without a namespace, it is about all namespaces and about cluster-scoped
    /// requests.
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
            |(resource, shares): (String, Vec<_>)| (resource, shares.into_iter().map(share_word).collect());
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
