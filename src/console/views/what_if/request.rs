//! The form for a request. Its fields have the names of the flags of `portcullis authorize`.

use std::time::SystemTime;

use crate::console::page::ViewError;
use crate::console::query::ViewQuery;
use portcullis_policy::explain::authorization::{AuthorizationAnswer, considered_rows, outcome};
use portcullis_policy::explain::request::{ArgumentError, RequestArguments};
use portcullis_policy::model::{Attributes, Decision, Time};

/// The parameters of the form.
pub(crate) const FIELDS: [&str; 12] = [
    "user",
    "group",
    "uid",
    "extra",
    "verb",
    "resource",
    "namespace",
    "name",
    "selector",
    "field-selector",
    "path",
    "at",
];

/// The values of the form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestForm {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) uid: String,
    /// Each as `KEY=VALUE`.
    pub(crate) extra: Vec<String>,
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) selector: String,
    pub(crate) field_selector: String,
    pub(crate) path: String,
    pub(crate) at: String,
}

/// The explanation of a decision for the page.
#[derive(Debug)]
pub(crate) struct DecisionView {
    pub(crate) decision: Decision,
    pub(crate) reason: String,
    pub(crate) cause: Option<String>,
    /// The policies in Shadow that would have decided, with their decisions.
    pub(crate) shadows: Vec<String>,
    pub(crate) hints: Vec<String>,
    /// The objects that were considered, with the result of each.
    pub(crate) considered: Vec<(String, String)>,
    /// The number of further objects considered.
    pub(crate) omitted: usize,
}

/// The maximum number of objects on the page. The JSON response has all.
const MAX_CONSIDERED: usize = 200;

// === impl RequestForm ===

impl RequestForm {
    pub(crate) fn new(query: &ViewQuery) -> Result<Self, ViewError> {
        let text = |name| query.text(name).map(str::to_owned);
        Ok(Self {
            user: text("user")?,
            groups: query.lines("group"),
            uid: text("uid")?,
            extra: query.lines("extra"),
            verb: text("verb")?,
            resource: text("resource")?,
            namespace: text("namespace")?,
            name: text("name")?,
            selector: text("selector")?,
            field_selector: text("field-selector")?,
            path: text("path")?,
            at: text("at")?,
        })
    }

    /// Keeps only the user and the namespace.
    pub(crate) fn without_target(self) -> Self {
        Self {
            user: self.user,
            groups: self.groups,
            extra: self.extra,
            namespace: self.namespace,
            ..Self::default()
        }
    }

    /// Whether the form contains no request.
    pub(crate) fn is_empty(&self) -> bool {
        self.verb.is_empty() && self.resource.is_empty() && self.path.is_empty()
    }

    /// The fields that the form for manifests does not show, but sends as hidden inputs.
    pub(crate) fn hidden(&self) -> Vec<(&'static str, &str)> {
        let fields = [
            ("uid", &self.uid),
            ("verb", &self.verb),
            ("resource", &self.resource),
            ("name", &self.name),
            ("selector", &self.selector),
            ("field-selector", &self.field_selector),
            ("path", &self.path),
            ("at", &self.at),
        ];
        let extra = self.extra.iter().map(|extra| ("extra", extra.as_str()));
        let written = fields.into_iter().filter(|(_, value)| !value.is_empty());
        written
            .map(|(name, value)| (name, value.as_str()))
            .chain(extra)
            .collect()
    }

    /// The time of the decision: that of the form, or `now`.
    pub(crate) fn time(&self, now: SystemTime) -> Result<Time, ViewError> {
        if self.at.is_empty() {
            return Ok(now.into());
        }
        Time::parse(&self.at).ok_or_else(|| {
            let at = &self.at;
            ViewError::Invalid(format!(
                "`at` is `{at}`: write a time in RFC 3339, such as `2026-12-01T08:00:00Z`"
            ))
        })
    }

    /// The attributes of the request, or the error messages.
    pub(crate) fn attributes(&self) -> Result<Attributes<'static>, Vec<String>> {
        let mut arguments = RequestArguments {
            user: self.user.clone(),
            uid: self.uid.clone(),
            groups: self.groups.clone(),
            verb: self.verb.clone(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            label_selector: self.selector.clone(),
            field_selector: self.field_selector.clone(),
            path: self.path.clone(),
            ..RequestArguments::default()
        };
        let mut wrong = Vec::new();
        for extra in &self.extra {
            match extra.split_once('=') {
                Some((key, value)) => arguments
                    .extra
                    .entry(key.to_owned())
                    .or_default()
                    .push(value.to_owned()),
                None => wrong.push(format!("`extra` is `{extra}`: write `KEY=VALUE`")),
            }
        }
        match arguments.attributes() {
            Ok(attributes) if wrong.is_empty() => Ok(attributes),
            Ok(_) => Err(wrong),
            Err(misfits) => {
                wrong.extend(misfits.iter().map(in_words));
                Err(wrong)
            }
        }
    }
}

fn in_words(misfit: &ArgumentError) -> String {
    let field = match misfit.field {
        "labelSelector" => "selector",
        "fieldSelector" => "field-selector",
        field => field,
    };
    format!("`{field}`: {}", misfit.message)
}

// === impl DecisionView ===

impl From<&AuthorizationAnswer> for DecisionView {
    fn from(answer: &AuthorizationAnswer) -> Self {
        let authorization = &answer.consulted.authorization;
        let shadow = |shadow: &portcullis_policy::authorization::Shadow| {
            let failed = shadow
                .error
                .as_ref()
                .map(|error| format!(", because it failed: {error}"));
            let (kind, name, decision) = (shadow.kind, &shadow.name, shadow.decision);
            format!("{kind}/{name} would say {decision}{}", failed.unwrap_or_default())
        };
        let mut considered = considered_rows(&answer.trace, authorization.decision);
        let omitted = answer.trace.omitted + considered.len().saturating_sub(MAX_CONSIDERED);
        considered.truncate(MAX_CONSIDERED);
        let webhooks = answer.consulted.turns.iter();
        considered.extend(webhooks.map(|turn| (format!("Webhook/{}", turn.name), outcome(&turn.outcome))));
        Self {
            decision: authorization.decision,
            reason: match authorization.decision {
                Decision::NoOpinion if authorization.reason.is_empty() => {
                    "nothing matched; the API server asks its next authorizer".to_owned()
                }
                _ => authorization.reason.to_string(),
            },
            cause: authorization.cause.as_ref().map(ToString::to_string),
            shadows: authorization.shadow.iter().map(shadow).collect(),
            hints: answer.hints.clone(),
            considered,
            omitted,
        }
    }
}
