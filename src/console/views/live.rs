//! `/live`: the most recent decisions, and new ones as they are made; `/live/{sequence}`: the
//! explanation of one decision.

use askama::Template;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::Endpoint;
use crate::console::live::{AFTER, DECISIONS, DecisionFilter, NewestFirst, completions, rows};
use crate::console::page::{Page, PageFrame, Representation, ViewError};
use crate::console::query;
use crate::console::views::what_if::{DecisionView, in_force};
use crate::console::{ViewContext, ViewRequest, VisibleClusters};
use portcullis_policy::explain::authorization::AuthorizationAnswer;
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};
use portcullis_policy::model::{Decision, Time};

/// The maximum number of rows in a table.
const MAX_ROWS: usize = 100;

/// The maximum number of lines in a JSON response.
const MAX_LINES: usize = 200;

/// The number of lines that are searched: all that are kept, whose number is limited.
const UNLIMITED: usize = usize::MAX;

/// The decision log lines that match a filter, newest first.
#[derive(Debug, Serialize)]
struct LiveView<'a> {
    /// The filter that was applied.
    filter: DecisionFilter,
    /// The number of the newest decision.
    newest: u64,
    decisions: Vec<NumberedLine<'a>>,
}

/// A line with its sequence number.
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
    parts: Vec<FilterPart>,
    denials: NewestFirst,
    others: NewestFirst,
    kept: u64,
    /// The URL of the event stream.
    events: String,
    /// The query of the filter, with `?` unless it is empty.
    query: String,
}

/// A condition of the filter that is set.
struct FilterPart {
    text: String,
    /// The URL of the view without the condition.
    without: String,
}

/// The completions of a search.
#[derive(Debug, Serialize)]
struct Completions {
    completions: Vec<String>,
}

/// `/live/complete?q=TEXT`: completions of the last word of a search, from recent decisions.
pub(crate) fn complete(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&["q"])?;
    let text = request.query.single("q")?.unwrap_or_default();
    Page::json(&Completions {
        completions: completions(text, &context.decisions.since(0)),
    })
}

/// A field of the filter's form.
struct FilterField<'a> {
    name: &'static str,
    label: &'static str,
    value: &'a str,
    /// The values to choose from; empty for free text.
    choices: Vec<&'static str>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    let filter = DecisionFilter::read(&request.query, &[AFTER])?;
    let decisions = context.decisions;
    let slice = decisions.since(0);
    let newest = slice.next().saturating_sub(1);
    if request.representation == Representation::Json {
        let found = rows(&slice, &filter, (MAX_LINES, UNLIMITED), |_| true);
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
        parts: parts(&filter),
        denials: rows(&slice, &filter, (MAX_ROWS, UNLIMITED), |decision| {
            decision == Decision::Deny
        }),
        others: rows(&slice, &filter, (MAX_ROWS, UNLIMITED), |decision| {
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

fn parts(filter: &DecisionFilter) -> Vec<FilterPart> {
    let part = |(text, rest): (String, query::ViewQuery)| FilterPart {
        text,
        without: match rest.is_empty() {
            true => "/live".to_owned(),
            false => format!("/live?{}", rest.encode()),
        },
    };
    filter.parts().into_iter().map(part).collect()
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
            "from" => ("From (RFC 3339)", Vec::new()),
            "to" => ("To (RFC 3339)", Vec::new()),
            _ => ("Cluster", Vec::new()),
        };
        FilterField {
            name,
            label,
            value,
            choices,
        }
    };
    let has_choice = |(name, _): &(&'static str, &str)| match *name {
        // The search has its own input.
        "q" => false,
        "cluster" => visible.only().is_none(),
        _ => true,
    };
    filter
        .values()
        .into_iter()
        .filter(has_choice)
        .map(field)
        .collect()
}

/// A decision log line, and a link to *What if*.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionLineView<'a> {
    sequence: u64,
    line: &'a RawValue,
    /// The URL of *What if* with the request.
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
    /// How the present policies decide an authorization request at its own time.
    again: Option<DecisionView>,
    /// The unchanged line.
    line: &'a str,
}

pub(crate) fn decision(
    context: &ViewContext<'_>,
    request: &ViewRequest,
    sequence: &str,
) -> Result<Page, ViewError> {
    request.query.reject_unknown(&[])?;
    let unknown = || ViewError::NotFound(format!("`{sequence}` is not the number of a decision"));
    let number: u64 = sequence.parse().map_err(|_| unknown())?;
    let decisions = context.decisions;
    let line = decisions
        .find(number)
        .ok_or_else(|| missing_decision(number, decisions.newest()))?;
    let broken = || ViewError::Internal("the line cannot be read".to_owned());
    let decided = LoggedDecision::read(&line).ok_or_else(broken)?;
    let what_if = format!("/what-if?{}", query::what_if_link(&decided).encode());
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
        took: format_duration(decided.duration_seconds),
        what_if,
        again: decided_again(context, &decided),
        line: std::str::from_utf8(&line).map_err(|_| broken())?,
        request: &decided,
    })
}

/// Decides the request again with the present policies. Only for authorization, because objects
/// under review are not kept.
fn decided_again(context: &ViewContext<'_>, decided: &LoggedDecision<'_>) -> Option<DecisionView> {
    let (asked, time) = (decided.asked()?, Time::parse(&decided.time)?);
    let in_force = in_force(context.snapshot);
    let answer = AuthorizationAnswer::new(&in_force, &decided.cluster, &asked, time);
    Some(DecisionView::from(&answer))
}

/// The error that there is no decision with this number.
fn missing_decision(number: u64, newest: u64) -> ViewError {
    ViewError::NotFound(if number > newest || number == 0 {
        format!("there is no decision {number} yet: the newest is {newest}")
    } else {
        format!("decision {number} is no longer kept: `console.maxDecisions` says how many are")
    })
}

/// A duration with a suitable unit.
fn format_duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.001 => format!("{:.1} µs", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

// === impl LivePage ===

impl LivePage<'_> {
    /// Whether conditions other than the search are set.
    fn has_fields(&self) -> bool {
        self.fields.iter().any(|field| !field.value.is_empty())
    }

    fn shows_denials(&self) -> bool {
        self.filter.decision().is_none_or(|only| only == Decision::Deny)
    }

    fn shows_others(&self) -> bool {
        self.filter.decision() != Some(Decision::Deny)
    }
}

// === impl DecisionPage ===

impl DecisionPage<'_> {
    /// The URL of the view of an object in the line.
    fn path(&self, object: &LoggedObject<'_>) -> String {
        query::object_link(object, &self.request.cluster)
    }

    /// The selectors of the request, with their names.
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

/// Why an object that nearly matched did not.
fn mismatch_text(near: &LoggedObject<'_>) -> String {
    let rule = near.rule.map(|rule| format!("rule {rule}: "));
    format!("{}{}", rule.unwrap_or_default(), near.criterion)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::tests::fixtures::TestConsole;

    const OLD: &str = r#"{"cluster":"c","endpoint":"authorize","user":"old","groups":["g"],"attributes":{"verb":"delete","resource":"nodes","group":"example.com","namespace":"n"},"decision":"allow","cause":{"kind":"RoleBinding","namespace":"n","name":"b"},"shadow":[{"kind":"AuthorizationPolicy","name":"s","decision":"deny"}]}"#;
    const NEW: &str = r#"{"cluster":"c","endpoint":"authorize","user":"new","groups":[],"attributes":{"verb":"get","resource":"pods"},"decision":"allow","shadow":[]}"#;

    /// Filters find old decisions, including those that are checked without parsing lines.
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

    const GUARD: &str = "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: guard}
spec:
  effect: Deny
  subjects: [{kind: User, name: new}]
  resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}]
";

    #[test]
    fn a_decision_is_shown_with_what_is_considered_now() {
        let console = TestConsole::of(GUARD);
        let line = NEW.replace('{', r#"{"time":"2027-01-15T08:00:00Z","#);
        let line = line.replace(
            r#""attributes":{"time":"2027-01-15T08:00:00Z","#,
            r#""attributes":{"#,
        );
        console.console.push(Decision::Allow, "c", line.as_bytes());
        let page = console.html("/live/1").unwrap();
        assert!(page.contains("AuthorizationPolicy/guard"), "{page}");
        assert!(page.contains("What is in force now decides otherwise"), "{page}");
        console.console.push(
            Decision::NoOpinion,
            "c",
            line.replace("\"allow\"", "\"noOpinion\"").as_bytes(),
        );
        let page = console.html("/live/2").unwrap();
        assert!(
            page.contains("<span class=\"noOpinion\">no opinion</span>"),
            "{page}"
        );
        // The object of an admission request is not known.
        console.console.push(
            Decision::Allow,
            "c",
            line.replace("authorize", "validate")
                .replace("verb", "operation")
                .as_bytes(),
        );
        let page = console.html("/live/3").unwrap();
        assert!(!page.contains("What was considered"), "{page}");
    }

    #[test]
    fn what_is_not_there_says_why() {
        assert!(missing_decision(7, 3).to_string().contains("the newest is 3"));
        assert!(missing_decision(1, 30_000).to_string().contains("no longer kept"));
    }

    #[test]
    fn durations_are_read_in_their_unit() {
        assert_eq!(format_duration(0.000_001_2), "1.2 µs");
        assert_eq!(format_duration(0.0034), "3.40 ms");
        assert_eq!(format_duration(2.5), "2.50 s");
    }
}
