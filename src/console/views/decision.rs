//! `/live/{sequence}`: one decision, explained.

use askama::Template;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::console::context::{ViewContext, ViewRequest};
use crate::console::frame::PageFrame;
use crate::console::links;
use crate::console::page::{Page, Representation, ViewError};
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};

/// A line of the decision log, and where to ask the same again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionLineView<'a> {
    sequence: u64,
    line: &'a RawValue,
    /// *What if*, filled in with the request.
    what_if: String,
}

#[derive(Template)]
#[template(path = "decision.html")]
struct DecisionPage<'a> {
    frame: PageFrame,
    request: &'a LoggedDecision<'a>,
    what: String,
    groups: String,
    extra: Vec<String>,
    took: String,
    what_if: String,
    /// The line, as it is.
    line: &'a str,
}

pub(crate) fn view(
    context: &ViewContext<'_>,
    request: &ViewRequest,
    sequence: &str,
) -> Result<Page, ViewError> {
    request.query.only(&[])?;
    let unknown = || ViewError::NotFound(format!("`{sequence}` is not the number of a decision"));
    let number: u64 = sequence.parse().map_err(|_| unknown())?;
    let decisions = context.decisions;
    let line = decisions
        .find(number)
        .ok_or_else(|| gone(number, decisions.newest()))?;
    let broken = || ViewError::Internal("the line cannot be read".to_owned());
    let decided = LoggedDecision::read(&line).ok_or_else(broken)?;
    let what_if = format!("/what-if?{}", links::what_if(&decided).encode());
    if request.representation == Representation::Json {
        return Page::json(&DecisionLineView {
            sequence: number,
            line: serde_json::from_slice(&line).map_err(|_| broken())?,
            what_if,
        });
    }
    let extra = decided.attributes.extra.iter();
    Page::html(&DecisionPage {
        frame: context.frame(format!("Decision {number}"), request),
        what: decided.what(),
        groups: decided.groups.join(", "),
        extra: extra
            .map(|(key, values)| format!("{key}: {}", values.join(", ")))
            .collect(),
        took: took(decided.duration_seconds),
        what_if,
        line: std::str::from_utf8(&line).map_err(|_| broken())?,
        request: &decided,
    })
}

/// Why there is no decision of this number.
fn gone(number: u64, newest: u64) -> ViewError {
    ViewError::NotFound(if number > newest || number == 0 {
        format!("there is no decision {number} yet: the newest is {newest}")
    } else {
        format!("decision {number} is no longer kept: `console.maxDecisions` says how many are")
    })
}

/// A duration as one reads it.
fn took(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.001 => format!("{:.1} µs", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

// === impl DecisionPage ===

impl DecisionPage<'_> {
    /// The path of the view of an object that the line names.
    fn path(&self, object: &LoggedObject<'_>) -> String {
        links::object(object, &self.request.cluster)
    }

    /// The text of a selector, if the request has it.
    fn selectors(&self) -> impl Iterator<Item = (&'static str, String)> {
        let asked = &self.request.attributes;
        let selectors = [
            ("Label selector", &asked.label_selector),
            ("Field selector", &asked.field_selector),
        ];
        selectors
            .into_iter()
            .filter_map(|(name, selector)| Some((name, selector.as_ref()?.to_string())))
    }
}

/// What of an object did not fit, in words.
fn misfit(near: &LoggedObject<'_>) -> String {
    let rule = near.rule.map(|rule| format!("rule {rule}: "));
    format!("{}{}", rule.unwrap_or_default(), near.criterion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_says_why() {
        assert!(gone(7, 3).to_string().contains("the newest is 3"));
        assert!(gone(1, 30_000).to_string().contains("no longer kept"));
    }

    #[test]
    fn durations_are_read_in_their_unit() {
        assert_eq!(took(0.000_001_2), "1.2 µs");
        assert_eq!(took(0.0034), "3.40 ms");
        assert_eq!(took(2.5), "2.50 s");
    }
}
