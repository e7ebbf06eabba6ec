//! Lines of a decision log, read back.

use std::borrow::Cow;

use serde::Deserialize;

/// So much of a line as tells who was allowed what, and by which object.
///
/// Fields of later versions are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LoggedDecision<'l> {
    #[serde(borrow)]
    pub(crate) time: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) cluster: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) endpoint: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) user: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) attributes: LoggedAttributes<'l>,
    #[serde(borrow)]
    pub(crate) decision: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) cause: Option<LoggedCause<'l>>,
    #[serde(borrow)]
    pub(crate) shadow: Vec<LoggedCause<'l>>,
    #[serde(borrow)]
    pub(crate) exceptions: Vec<LoggedCause<'l>>,
    pub(crate) truncated: bool,
}

/// `attributes` of a line about authorization.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LoggedAttributes<'l> {
    #[serde(borrow)]
    pub(crate) verb: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) namespace: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) group: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) resource: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) subresource: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) path: Cow<'l, str>,
    pub(crate) field_selector: Option<serde::de::IgnoredAny>,
    pub(crate) label_selector: Option<serde::de::IgnoredAny>,
}

/// An object that the line names; of an exception its name alone.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LoggedCause<'l> {
    #[serde(borrow)]
    pub(crate) kind: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) namespace: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'l, str>,
    pub(crate) rule: Option<usize>,
}
