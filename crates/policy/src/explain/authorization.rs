//! Answers about authorization: a decision with all that was considered.

use std::cmp::Reverse;
use std::fmt::{Display, Write as _};

use serde::Serialize;

use super::authorizers::{self, AuthorizerTurn, Consulted, Opinions, TurnOutcome};
use super::{Lines, LoadedPolicies};
use crate::authorization::{Criterion, Event, Finding, Mode, Trace};
use crate::engine::{Attributes, Cause, Decision, Time};
use crate::manifest::odd_request;

/// A decision as JSON.
#[derive(Debug, Serialize)]
pub struct Explained<'a> {
    decision: Decision,
    reason: String,
    trace: &'a [Event],
    /// Other authorizers whose turn it was.
    #[serde(skip_serializing_if = "<[AuthorizerTurn]>::is_empty")]
    webhooks: &'a [AuthorizerTurn],
    /// Events of a very long trace that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: usize,
    /// What may have been meant, where Kubernetes has no such verb, group or resource.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    hints: &'a [String],
}

/// What decides a request, and all that was considered.
pub struct AuthorizationAnswer {
    pub consulted: Consulted,
    pub trace: Trace,
    /// What may have been meant, where Kubernetes has no such verb, group or resource.
    pub hints: Vec<String>,
    /// How many bindings apply to the user where the request is.
    pub bindings: usize,
}

/// A decision in words.
pub struct InWords<'a> {
    pub consulted: &'a Consulted,
    pub trace: &'a Trace,
    /// How many bindings apply to the user where the request is.
    pub bindings: usize,
}

impl AuthorizationAnswer {
    /// What `loaded` decides about a request of `cluster` at `now`. Other authorizers are not asked.
    pub fn new(loaded: &LoadedPolicies, cluster: &str, attributes: &Attributes<'_>, now: Time) -> Self {
        let policies = loaded.policies.for_cluster(cluster);
        let (own, trace) = policies.explain(attributes, now);
        let nothing = Opinions::default();
        Self {
            consulted: authorizers::consult(policies, attributes, own, (&loaded.authorizers, &nothing)),
            trace,
            hints: odd_request(&attributes.target, policies),
            bindings: policies.unmatched(attributes, now).bindings,
        }
    }

    /// For programs.
    pub fn report(&self) -> Explained<'_> {
        Explained::new(&self.consulted, &self.trace, &self.hints)
    }

    /// For people.
    pub fn in_words(&self) -> Lines {
        let words = InWords {
            consulted: &self.consulted,
            trace: &self.trace,
            bindings: self.bindings,
        };
        words.lines()
    }
}

impl<'a> Explained<'a> {
    fn new(consulted: &'a Consulted, trace: &'a Trace, hints: &'a [String]) -> Self {
        Self {
            decision: consulted.authorization.decision,
            reason: consulted.authorization.reason.to_string(),
            trace: &trace.events,
            webhooks: &consulted.turns,
            omitted: trace.omitted,
            hints,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl InWords<'_> {
    /// The decision, its cause, and all that was considered.
    pub fn lines(&self) -> Lines {
        let mut lines = self.decision();
        lines.append(&self.considered());
        lines
    }

    fn considered(&self) -> Lines {
        let Self {
            consulted,
            trace,
            bindings,
        } = self;
        let decision = consulted.authorization.decision;
        let mut lines = considered(trace, decision);
        for turn in &consulted.turns {
            lines.line(format_args!(
                "  Webhook/{}  {}",
                turn.name,
                outcome(&turn.outcome)
            ));
        }
        if !consulted.error.is_empty() {
            lines.line(format_args!("  {}", consulted.error));
        }
        if decision == Decision::NoOpinion && *bindings == 0 {
            lines.line("  no RoleBinding or ClusterRoleBinding applies to this user there");
        }
        lines
    }

    fn decision(&self) -> Lines {
        let mut lines = Lines::new();
        let authorization = &self.consulted.authorization;
        let asked = asked(self.consulted);
        match authorization.decision {
            Decision::NoOpinion if !asked.is_empty() => {
                lines.line(format_args!(
                    "noOpinion: nothing matched here; {asked} would be asked"
                ));
            }
            Decision::NoOpinion => {
                lines.line("noOpinion: nothing matched; the API server asks its next authorizer");
            }
            decision => lines.line(format_args!("{decision}: {}", authorization.reason)),
        }
        if let Some(cause) = &authorization.cause {
            lines.line(format_args!("cause: {}", cause_in_words(cause)));
        }
        for shadow in &authorization.shadow {
            let failed = shadow.error.as_ref();
            let failed = failed.map(|error| format!(", because it failed: {error}"));
            lines.line(format_args!(
                "shadow: {}/{} would say {}{}",
                shadow.kind,
                shadow.name,
                shadow.decision,
                failed.unwrap_or_default()
            ));
        }
        lines
    }
}

/// The names of those of whom nobody knows what they say.
fn asked(consulted: &Consulted) -> String {
    let names: Vec<_> = consulted.unanswered().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

pub fn outcome(outcome: &TurnOutcome) -> String {
    match outcome {
        TurnOutcome::Asked => "would be asked: all matchConditions are true".to_owned(),
        TurnOutcome::Answered { decision } => format!("is asked; the recorded answer is {decision}"),
        TurnOutcome::ConditionFalse { condition } => format!("is skipped: `{condition}` is false"),
        TurnOutcome::ConditionError { error, decision } => {
            format!("is not asked, because a condition failed: {error}; so {decision}")
        }
    }
}

/// `Kind/name` or `Kind/namespace/name`.
pub fn object(kind: impl Display, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{kind}/{name}")
    } else {
        format!("{kind}/{namespace}/{name}")
    }
}

/// The object and the rule within it.
pub fn cause_in_words(cause: &Cause<'_>) -> String {
    let object = object(cause.kind, &cause.namespace, &cause.name);
    match cause.rule {
        Some(rule) => format!("{object}, rule {rule}"),
        None => object,
    }
}

/// Every event on a line of its own, in columns: as they were considered or, where nothing
/// matched, those that came nearest first.
fn considered(trace: &Trace, decision: Decision) -> Lines {
    let mut lines = Lines::new();
    lines.line("");
    if trace.events.is_empty() {
        lines.line("considered: there are no policies");
        return lines;
    }
    let rows = considered_rows(trace, decision);
    let widths = rows.iter().map(|(object, _)| object.chars().count());
    let width = widths.max().unwrap_or_default();
    lines.line("considered:");
    for (object, finding) in rows {
        lines.line(format_args!("  {object:width$}  {finding}"));
    }
    if trace.omitted > 0 {
        lines.line(format_args!("  and {} more", trace.omitted));
    }
    lines
}

/// What was considered, each object with what became of it: in order or, where nothing matched,
/// those that came nearest first.
pub fn considered_rows(trace: &Trace, decision: Decision) -> Vec<(String, String)> {
    let mut events: Vec<&Event> = trace.events.iter().collect();
    if decision == Decision::NoOpinion {
        events.sort_by_key(|event| Reverse(nearness(&event.finding)));
    }
    events
        .into_iter()
        .map(|event| (event_object(event), finding(&event.finding)))
        .collect()
}

/// How near it came to apply: conditions are looked at last, and a role that is missing could
/// allow anything.
const fn nearness(finding: &Finding) -> (u8, Option<Criterion>) {
    match finding {
        Finding::Match { .. } | Finding::NeverDenied { .. } => (4, None),
        Finding::ConditionFalse { .. } | Finding::ConditionError { .. } => (3, None),
        Finding::MissingRole { .. } => (2, None),
        Finding::NoMatch { criterion, .. } => (1, Some(*criterion)),
        Finding::NotInForce => (0, None),
    }
}

/// The object with what it does: `AuthorizationPolicy/a (Deny, Shadow)`, `RoleBinding/n/b -> Role/r`.
fn event_object(event: &Event) -> String {
    let mut text = object(event.kind, &event.namespace, &event.name);
    if let Some(effect) = event.effect {
        let shadow = if event.mode == Some(Mode::Shadow) {
            ", Shadow"
        } else {
            ""
        };
        let _ = write!(text, " ({effect:?}{shadow})");
    }
    if let Some(role) = &event.role {
        let _ = write!(text, " -> {role}");
    }
    text
}

fn finding(finding: &Finding) -> String {
    match finding {
        Finding::Match { rule, decision } => format!("rule {rule} applies: {decision}"),
        // Subjects belong to the whole policy, whichever rule came nearest.
        Finding::NoMatch {
            rule: Some(rule),
            criterion,
        } if !matches!(criterion, Criterion::Subjects | Criterion::ExcludeSubjects) => {
            format!(
                "does not apply: {} (`{criterion}` of rule {rule})",
                misfit(*criterion)
            )
        }
        Finding::NoMatch { criterion, .. } => {
            format!("does not apply: {} (`{criterion}`)", misfit(*criterion))
        }
        Finding::NotInForce => "is not in force at this time: see its `notBefore` and `notAfter`".to_owned(),
        Finding::NeverDenied { rule } => {
            format!("rule {rule} applies, but `neverDeny` names this user or path")
        }
        Finding::ConditionFalse { rule, condition } => {
            format!("rule {rule} would apply, but the condition `{condition}` is false")
        }
        Finding::ConditionError {
            rule,
            condition,
            error,
            decision,
        } => {
            format!("rule {rule} would apply, but the condition `{condition}` failed: {error}; so {decision}")
        }
        Finding::MissingRole { error } => format!("grants nothing: {error}"),
    }
}

const fn misfit(criterion: Criterion) -> &'static str {
    match criterion {
        Criterion::Subjects => "not for this user or any of the groups",
        Criterion::ExcludeSubjects => "leaves this user out",
        Criterion::NamespaceSelector => "not for namespaces with these labels",
        Criterion::Target => "no rule for this type of request",
        Criterion::Verbs => "not this verb",
        Criterion::ApiGroups => "not this API group",
        Criterion::Resources => "not this resource",
        Criterion::Namespaces => "not this namespace",
        Criterion::Names => "not this name",
        Criterion::Selectors => "the request is not narrow enough",
        Criterion::UnlessSelectors => "the request is narrow enough to pass",
        Criterion::Paths => "not this path",
    }
}
