//! Reports about authorization: a decision with everything that was evaluated.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Lines, LoadedPolicies};
use crate::authorization::authorizer::{Authorizer, Consultation, NamedOpinion, Opinion, Relevance};
use crate::authorization::{
    Authorization, Criterion, Finding, Mode, PolicySet, SubjectAccessReviewVersion, Trace, TraceEntry,
};
use crate::field::FieldPath;
use crate::manifest::odd_request;
use crate::model::{Attributes, Deadline, Decision, Time};

/// A decision as JSON.
#[derive(Debug, Serialize)]
pub struct DecisionExplanation<'a> {
    decision: Decision,
    reason: String,
    trace: &'a [TraceEntry],
    /// The other authorizers that come into play.
    #[serde(skip_serializing_if = "<[ConsultedAuthorizer]>::is_empty")]
    webhooks: &'a [ConsultedAuthorizer],
    /// The number of events that are left out of a very long trace.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: usize,
    /// Suggestions for an unknown verb, group or resource.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    hints: &'a [String],
}

/// The decision on a request, with everything that was evaluated.
pub struct AuthorizationAnswer {
    pub consulted: ConsultationReport,
    pub trace: Trace,
    /// Suggestions for an unknown verb, group or resource, and assumptions of the answer.
    pub hints: Vec<String>,
    /// The number of bindings that apply to the user in the namespace of the request.
    pub bindings: usize,
}

/// A decision as text.
pub struct InWords<'a> {
    pub consulted: &'a ConsultationReport,
    pub trace: &'a Trace,
    /// The number of bindings that apply to the user in the namespace of the request.
    pub bindings: usize,
}

impl AuthorizationAnswer {
    /// Decides a request of `cluster` by `loaded` as of `now`. Other authorizers are not called.
    pub fn new(loaded: &LoadedPolicies, cluster: &str, attributes: &Attributes<'_>, now: Time) -> Self {
        let policies = loaded.policies.for_cluster(cluster);
        let (own, trace) = policies.explain(attributes, now);
        let nothing = Opinions::default();
        let mut hints = odd_request(&attributes.target, policies);
        hints.extend(policies.assumption(&own));
        Self {
            consulted: consult(policies, attributes, own, (&loaded.authorizers, &nothing)),
            trace,
            hints,
            bindings: policies.unmatched(attributes, now).bindings,
        }
    }

    /// The report as JSON.
    pub fn report(&self) -> DecisionExplanation<'_> {
        DecisionExplanation::new(&self.consulted, &self.trace, &self.hints)
    }

    /// The report as text.
    pub fn in_words(&self) -> Lines {
        let words = InWords {
            consulted: &self.consulted,
            trace: &self.trace,
            bindings: self.bindings,
        };
        words.lines()
    }
}

impl<'a> DecisionExplanation<'a> {
    fn new(consulted: &'a ConsultationReport, trace: &'a Trace, hints: &'a [String]) -> Self {
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
    /// The decision, its cause, and everything that was evaluated.
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
                    "noOpinion: nothing matched here; {asked} would be called"
                ));
            }
            Decision::NoOpinion => {
                lines.line("noOpinion: nothing matched; the API server asks its next authorizer");
            }
            decision => lines.line(format_args!("{decision}: {}", authorization.reason)),
        }
        if let Some(cause) = &authorization.cause {
            lines.line(format_args!("cause: {}", cause));
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

/// The names of the authorizers whose decisions are not known.
fn asked(consulted: &ConsultationReport) -> String {
    let names: Vec<_> = consulted.unanswered().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

pub fn outcome(outcome: &ConsultationResult) -> String {
    match outcome {
        ConsultationResult::Asked => "would be called: all matchConditions are true".to_owned(),
        ConsultationResult::Answered { decision } => {
            format!("is called; the recorded response is {decision}")
        }
        ConsultationResult::ConditionFalse { condition } => format!("is skipped: `{condition}` is false"),
        ConsultationResult::ConditionError { error, decision } => {
            format!("is not called, because a condition failed: {error}; so {decision}")
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

/// One line for each event, in columns: in the order of evaluation or, if nothing matched, the
/// nearest ones first.
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

/// The evaluated objects with their findings: in the order of evaluation or, if nothing matched,
/// the nearest ones first.
pub fn considered_rows(trace: &Trace, decision: Decision) -> Vec<(String, String)> {
    let mut events: Vec<&TraceEntry> = trace.events.iter().collect();
    if decision == Decision::NoOpinion {
        events.sort_by_key(|event| Reverse(nearness(&event.finding)));
    }
    events
        .into_iter()
        .map(|event| (event_object(event), finding(&event.finding)))
        .collect()
}

/// How close a policy is to matching. Conditions are evaluated last, and a missing role could allow
/// anything.
const fn nearness(finding: &Finding) -> (u8, Option<Criterion>) {
    match finding {
        Finding::Match { .. }
        | Finding::BeyondLimit { .. }
        | Finding::Lifted { .. }
        | Finding::NeverDenied { .. } => (4, None),
        Finding::ObjectConditions { .. }
        | Finding::ConditionFalse { .. }
        | Finding::ConditionError { .. } => (3, None),
        Finding::MissingRole { .. } => (2, None),
        Finding::NoMatch { criterion, .. } => (1, Some(*criterion)),
        Finding::WithinLimit { .. } | Finding::NotInForce => (0, None),
    }
}

/// The object with its effect: `AuthorizationPolicy/a (Deny, Shadow)`, `RoleBinding/n/b -> Role/r`.
fn event_object(event: &TraceEntry) -> String {
    let mut text = object(event.kind, &event.namespace, &event.name);
    if let Some(effect) = event.effect {
        let shadow = if event.mode == Some(Mode::Shadow) {
            ", Shadow"
        } else {
            ""
        };
        let _ = write!(text, " ({effect}{shadow})");
    }
    if let Some(role) = &event.role {
        let _ = write!(text, " -> {role}");
    }
    text
}

fn finding(finding: &Finding) -> String {
    match finding {
        Finding::Match { rule, decision } => format!("rule {rule} applies: {decision}"),
        // Subjects belong to the whole policy and not to a rule.
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
        Finding::WithinLimit { rule } => format!("rule {rule} covers the request: within this limit"),
        Finding::BeyondLimit {
            rule: Some(rule),
            criterion,
            decision,
        } => format!(
            "no rule covers the request: {decision}; nearest is rule {rule}: {} (`{criterion}`)",
            misfit(*criterion)
        ),
        Finding::BeyondLimit { decision, .. } => format!("no rule covers the request: {decision}"),
        Finding::Lifted { rule, by } => {
            format!("{}, but AccessRequest/{by} lifts it", applies(*rule, "applies"))
        }
        Finding::NeverDenied { rule } => {
            format!(
                "{}, but `neverDeny` names this user or path",
                applies(*rule, "applies")
            )
        }
        Finding::ObjectConditions { rule, why } => {
            let applies = applies(*rule, "applies");
            format!("{applies}, but has objectConditions: {why}")
        }
        Finding::ConditionFalse { rule, condition } => {
            let applies = applies(*rule, "would apply");
            format!("{applies}, but the condition `{condition}` is false")
        }
        Finding::ConditionError {
            rule,
            condition,
            error,
            decision,
        } => {
            let applies = applies(*rule, "would apply");
            format!("{applies}, but the condition `{condition}` failed: {error}; so {decision}")
        }
        Finding::MissingRole { error } => format!("grants nothing: {error}"),
    }
}

/// A Limit applies to requests that no rule matches.
fn applies(rule: Option<usize>, applies: &str) -> String {
    match rule {
        Some(rule) => format!("rule {rule} {applies}"),
        None => "no rule covers the request".to_owned(),
    }
}

const fn misfit(criterion: Criterion) -> &'static str {
    match criterion {
        Criterion::Subjects => "not for this user or any of the groups",
        Criterion::ExcludeSubjects => "leaves this user out",
        Criterion::NamespaceSelector => "not for namespaces with these labels",
        Criterion::Target => {
            "no rule for requests of this type (resources: `resourceRules`; paths: `nonResourceRules`)"
        }
        Criterion::Verbs => "not this verb",
        Criterion::ApiGroups => "not this API group",
        Criterion::Resources => "not this resource",
        Criterion::Namespaces => "not this namespace",
        Criterion::ExcludeNamespaces => "leaves this namespace out",
        Criterion::Names => "not this name",
        Criterion::Selectors => "the request is not narrow enough",
        Criterion::UnlessSelectors => "the request is narrow enough to pass",
        Criterion::Paths => "not this path",
    }
}

// Other authorizers, offline: which ones would be called for a request, and the effect of recorded
// responses.

/// The recorded responses of authorizers, by name.
#[derive(Debug, Default)]
pub struct Opinions(BTreeMap<String, Opinion>);

/// The result of consulting all authorizers.
pub struct ConsultationReport {
    pub authorization: Authorization<'static>,
    /// `evaluationError`; empty if there was no error.
    pub error: String,
    /// The authorizers that were consulted.
    pub turns: Vec<ConsultedAuthorizer>,
}

/// An authorizer that was consulted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsultedAuthorizer {
    pub name: String,
    #[serde(flatten)]
    pub outcome: ConsultationResult,
}

/// The result of consulting one authorizer.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum ConsultationResult {
    /// It would be called, and no response is recorded.
    Asked,
    /// It would be called, and this decision is recorded.
    Answered { decision: Decision },
    /// It is skipped, because this condition is false.
    ConditionFalse { condition: String },
    /// A condition failed, and this is the decision of `failurePolicy`.
    ConditionError { error: String, decision: Decision },
}

impl ConsultationReport {
    /// The names of the authorizers that would be called, and have no recorded response.
    pub fn unanswered(&self) -> impl Iterator<Item = &str> {
        let asked = |turn: &&ConsultedAuthorizer| matches!(turn.outcome, ConsultationResult::Asked);
        self.turns.iter().filter(asked).map(|turn| turn.name.as_str())
    }
}

/// Decides by `policies` and, if they have no opinion, by the `recorded` responses of
/// `authorizers`, up to the first without one.
pub fn consult(
    policies: &PolicySet,
    attributes: &Attributes<'_>,
    own: Authorization<'_>,
    (authorizers, recorded): (&[Authorizer], &Opinions),
) -> ConsultationReport {
    let mut turns = Vec::new();
    let is_open = own.decision == Decision::NoOpinion;
    let mut consultation = Consultation::new(own, policies.is_protected(attributes));
    let mut is_known = true;
    for authorizer in authorizers.iter().filter(|_| is_open) {
        let (outcome, opinion) = turn(authorizer, attributes, recorded);
        is_known &= !matches!(outcome, ConsultationResult::Asked);
        turns.push(ConsultedAuthorizer {
            name: authorizer.name.clone(),
            outcome,
        });
        let decides = opinion.is_some_and(|opinion| is_known && consultation.take(&authorizer.name, opinion));
        if decides {
            break;
        }
    }
    let (authorization, error) = consultation.finish();
    ConsultationReport {
        authorization,
        error,
        turns,
    }
}

fn turn(
    authorizer: &Authorizer,
    attributes: &Attributes<'_>,
    Opinions(recorded): &Opinions,
) -> (ConsultationResult, Option<Opinion>) {
    match (
        authorizer.relevance(attributes, Deadline::NEVER),
        recorded.get(&authorizer.name),
    ) {
        (Relevance::Skipped(condition), _) => (ConsultationResult::ConditionFalse { condition }, None),
        (Relevance::Failed(error), _) => {
            let opinion = authorizer.failed(error.as_str());
            let decision = opinion.decision;
            (
                ConsultationResult::ConditionError { error, decision },
                Some(opinion),
            )
        }
        (Relevance::Called, None) => (ConsultationResult::Asked, None),
        (Relevance::Called, Some(opinion)) => {
            let decision = opinion.decision;
            (ConsultationResult::Answered { decision }, Some(opinion.clone()))
        }
    }
}

// === impl Opinions ===

impl Opinions {
    /// Reads a mapping of names to the `status` of their responses.
    pub fn read(written: &Value, path: &FieldPath, fault: &mut dyn FnMut(FieldPath, String)) -> Self {
        let Some(entries) = written.as_object() else {
            fault(path.clone(), "must be a mapping of names".to_owned());
            return Self::default();
        };
        let mut opinions = BTreeMap::new();
        for (name, status) in entries {
            let reply = json!({"status": status}).to_string();
            match SubjectAccessReviewVersion::V1.verify(reply.as_bytes()) {
                Ok(opinion) => drop(opinions.insert(name.clone(), opinion)),
                Err(error) => fault(path.key(name), error.to_string()),
            }
        }
        Self(opinions)
    }

    /// The recorded responses; of several by one authorizer, the first.
    pub fn of(recorded: Vec<NamedOpinion>) -> Self {
        let mut opinions = BTreeMap::new();
        for NamedOpinion { name, opinion } in recorded {
            opinions.entry(name).or_insert(opinion);
        }
        Self(opinions)
    }

    /// The names that are not among `authorizers`.
    pub fn unknown_names<'a>(&'a self, authorizers: &'a [Authorizer]) -> impl Iterator<Item = &'a str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| authorizers.iter().all(|authorizer| authorizer.name != *name))
    }
}
