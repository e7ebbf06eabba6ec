//! `/live`: the decisions of the last while, and those to come.

use askama::Template;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::Endpoint;
use crate::console::context::{ViewContext, ViewRequest};
use crate::console::frame::PageFrame;
use crate::console::live::{AFTER, DECISIONS, DecisionFilter, NewestFirst, rows};
use crate::console::page::{Page, Representation, ViewError};
use crate::console::visible_clusters::VisibleClusters;
use portcullis_policy::engine::Decision;

/// Rows of a table.
const MOST_ROWS: usize = 100;

/// Lines that are sent as JSON.
const MOST_LINES: usize = 200;

/// Lines that are read to find them: of what is kept, which is bounded, all.
const ALL: usize = usize::MAX;

/// The lines of the decision log that meet a filter, the newest first.
#[derive(Debug, Serialize)]
struct LiveView<'a> {
    /// The filter that was applied.
    filter: DecisionFilter,
    /// The number of the newest decision that there is.
    newest: u64,
    decisions: Vec<NumberedLine<'a>>,
}

/// A line and its number.
#[derive(Debug, Serialize)]
struct NumberedLine<'a> {
    sequence: u64,
    line: &'a RawValue,
}

#[derive(Template)]
#[template(path = "live.html")]
struct LivePage<'a> {
    frame: PageFrame,
    filter: &'a DecisionFilter,
    fields: Vec<FilterField<'a>>,
    denials: NewestFirst,
    others: NewestFirst,
    kept: u64,
    /// Where events come from.
    events: String,
    /// The query of the filter, with `?` unless it is empty.
    query: String,
}

/// A field of the form.
struct FilterField<'a> {
    name: &'static str,
    label: &'static str,
    value: &'a str,
    /// What can be chosen; empty where it is a text.
    choices: Vec<&'static str>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    let filter = DecisionFilter::read(&request.query, &[AFTER])?;
    let decisions = context.decisions;
    let slice = decisions.since(0);
    let newest = slice.next().saturating_sub(1);
    if request.representation == Representation::Json {
        let found = rows(&slice, &filter, (MOST_LINES, ALL), |_| true);
        let lines: Vec<(u64, Vec<u8>)> = found
            .rows
            .iter()
            .filter_map(|row| Some((row.sequence, decisions.find(row.sequence)?)))
            .collect();
        let numbered = |(sequence, line): &'_ (u64, Vec<u8>)| -> Option<(u64, Box<RawValue>)> {
            Some((*sequence, serde_json::from_slice(line).ok()?))
        };
        let lines: Vec<(u64, Box<RawValue>)> = lines.iter().filter_map(numbered).collect();
        let view = LiveView {
            filter,
            newest,
            decisions: lines
                .iter()
                .map(|(sequence, line)| NumberedLine {
                    sequence: *sequence,
                    line,
                })
                .collect(),
        };
        return Page::json(&view);
    }
    let query = filter.query();
    let is_empty = query.is_empty();
    let query = query.encode();
    let page = LivePage {
        frame: context.frame("Live", request),
        fields: fields(&filter, context.visible),
        denials: rows(&slice, &filter, (MOST_ROWS, ALL), |decision| {
            decision == Decision::Deny
        }),
        others: rows(&slice, &filter, (MOST_ROWS, ALL), |decision| {
            decision != Decision::Deny
        }),
        kept: slice.len(),
        events: match is_empty {
            true => format!("/live/events?{AFTER}={newest}"),
            false => format!("/live/events?{query}&{AFTER}={newest}"),
        },
        query: if is_empty { query } else { format!("?{query}") },
        filter: &filter,
    };
    Page::html(&page)
}

fn fields<'a>(filter: &'a DecisionFilter, visible: &VisibleClusters) -> Vec<FilterField<'a>> {
    let field = |(name, value)| {
        let (label, choices) = match name {
            "user" => ("User", Vec::new()),
            "group" => ("Group", Vec::new()),
            "verb" => ("Verb or operation", Vec::new()),
            "resource" => ("Resource[.group][/subresource]", Vec::new()),
            "namespace" => ("Namespace", Vec::new()),
            "policy" => ("Policy, binding or webhook", Vec::new()),
            "decision" => ("Decision", DECISIONS.map(Decision::as_str).to_vec()),
            "shadow" => ("Differs in shadow", vec!["true"]),
            "endpoint" => ("Endpoint", Endpoint::ALL.map(Endpoint::as_str).to_vec()),
            _ => ("Cluster", Vec::new()),
        };
        FilterField {
            name,
            label,
            value,
            choices,
        }
    };
    let has_choice = |(name, _): &(&'static str, &str)| *name != "cluster" || visible.only().is_none();
    filter
        .values()
        .into_iter()
        .filter(has_choice)
        .map(field)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::fixtures::TestConsole;

    const OLD: &str = r#"{"cluster":"c","endpoint":"authorize","user":"old","groups":["g"],"attributes":{"verb":"delete","resource":"nodes","group":"example.com","namespace":"n"},"decision":"allow","cause":{"kind":"RoleBinding","namespace":"n","name":"b"},"shadow":[{"kind":"AuthorizationPolicy","name":"s","decision":"deny"}]}"#;
    const NEW: &str = r#"{"cluster":"c","endpoint":"authorize","user":"new","groups":[],"attributes":{"verb":"get","resource":"pods"},"decision":"allow","shadow":[]}"#;

    /// As far back as decisions are kept, and whatever can be told without reading a line.
    #[test]
    fn every_filter_finds_one_old_decision_among_thousands() {
        let console = TestConsole::of("");
        let decisions = &console.console;
        decisions.push(Decision::Allow, "c", OLD.as_bytes());
        for _ in 0..3000 {
            decisions.push(Decision::Allow, "c", NEW.as_bytes());
        }
        for query in [
            "user=old",
            "group=g",
            "verb=delete",
            "verb=DELETE",
            "resource=nodes",
            "resource=nodes.example.com",
            "namespace=n",
            "policy=b",
            "policy=s",
            "shadow=true",
            "decision=allow&verb=delete",
        ] {
            let url = format!("/live?{query}");
            let found = console.json(&url).unwrap();
            assert_eq!(found["decisions"].as_array().unwrap().len(), 1, "{query}");
            let page = console.html(&url).unwrap();
            assert!(
                page.contains("<td>old</td>") && !page.contains("<td>new</td>"),
                "{query}"
            );
        }
    }

    #[test]
    fn what_hides_in_a_name_is_shown_and_the_field_keeps_it() {
        let console = TestConsole::of("");
        let line = NEW.replace("new", "\u{202e}nimda\u{200b}");
        console.console.push(Decision::Allow, "c", line.as_bytes());
        let page = console.html("/live?user=%E2%80%AEnimda%E2%80%8B").unwrap();
        assert!(page.contains(r"<td>\u{202e}nimda\u{200b}</td>"), "{page}");
        assert!(page.contains("value=\"\u{202e}nimda\u{200b}\""), "{page}");
        let found = console.json("/live").unwrap();
        assert_eq!(found["decisions"][0]["line"]["user"], "\u{202e}nimda\u{200b}");
    }
}
