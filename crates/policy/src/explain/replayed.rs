//! Requests decided again, by other policies: what changes, and what cannot be known.

use std::collections::BTreeMap;

use serde::Serialize;

use super::authorization::object;
use crate::authorization::Authorization;
use crate::engine::admission::Outcome;
use crate::engine::{Cause, Decision, Target};

/// What came of a request that was decided again.
#[derive(Debug)]
pub enum ReplayDecision {
    Known(KnownDecision),
    /// It depends on what is not known: on what.
    Unknown(String),
}

/// A decision.
#[derive(Debug)]
pub struct KnownDecision {
    pub decision: Decision,
    pub reason: String,
    /// The object that decided, as `KIND/NAMESPACE/NAME`; empty where none did.
    pub cause: String,
    /// The JSON Patch of the reply; empty if there is none. `None`: not known.
    pub patch: Option<String>,
}

/// What became of one request; a change with an example of its group.
pub enum ReviewComparison<E> {
    Same,
    Changed(ChangeGroup, E),
    /// It was denied, and whether it still is cannot be said: why.
    Lost(ChangeGroup, String, E),
    /// Why.
    Unknown(String),
}

/// Changes that have one cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChangeGroup {
    pub from: &'static str,
    pub to: &'static str,
    /// What decides now; where nothing does, what decided before. `patch`: what is changed.
    pub cause: String,
    #[serde(skip)]
    pub is_gone: bool,
}

/// All that was decided again.
#[derive(Debug)]
pub struct Replayed<E> {
    /// How many were decided.
    pub decided: u64,
    pub unknown: u64,
    /// How many of each group, and the first of them.
    pub changes: BTreeMap<ChangeGroup, (u64, Option<E>)>,
    /// How many for each reason.
    pub unknown_because: BTreeMap<String, u64>,
}

/// Why something is not known, and of how many requests.
#[derive(Debug, Serialize)]
pub struct UnknownReason {
    pub reason: String,
    pub count: u64,
}

/// What a denial becomes of which nobody knows whether it still is one.
const UNKNOWN: &str = "unknown";

/// The most reasons that are told apart.
const REASONS: usize = 100;

// === impl KnownDecision ===

impl KnownDecision {
    /// A decision about authorization, which has no patch.
    pub fn of_authorization(authorization: &Authorization<'_>) -> Self {
        Self {
            decision: authorization.decision,
            reason: authorization.reason.to_string(),
            cause: Self::cause_in_words(authorization.cause.as_ref()),
            patch: Some(String::new()),
        }
    }

    /// What an admission run ended with.
    pub fn of_admission(outcome: Outcome) -> Self {
        let (decision, reason) = match outcome.denial {
            None => (Decision::Allow, String::new()),
            Some(denial) => (Decision::Deny, denial.message),
        };
        Self {
            decision,
            reason,
            cause: Self::cause_in_words(outcome.cause.as_ref()),
            patch: Some(outcome.patch),
        }
    }

    /// `KIND/NAMESPACE/NAME`; empty where nothing decided.
    fn cause_in_words(cause: Option<&Cause<'_>>) -> String {
        cause.map_or_else(String::new, |cause| {
            object(cause.kind, &cause.namespace, &cause.name)
        })
    }
}

// === impl ChangeGroup ===

impl ChangeGroup {
    pub fn of(before: &KnownDecision, now: &KnownDecision) -> Self {
        let is_gone = now.cause.is_empty();
        let cause = if is_gone { &before.cause } else { &now.cause };
        Self {
            from: before.decision.as_str(),
            to: now.decision.as_str(),
            cause: cause.clone(),
            is_gone,
        }
    }

    /// Of a denial of which it is not known whether it still is one.
    pub fn lost(before: &KnownDecision) -> Self {
        Self {
            from: before.decision.as_str(),
            to: UNKNOWN,
            cause: before.cause.clone(),
            is_gone: true,
        }
    }

    /// Whether what is decided now is not known.
    pub fn is_lost(&self) -> bool {
        self.to == UNKNOWN
    }

    /// What `--allow-changes` looks at.
    pub fn key(&self) -> String {
        format!("{}->{} {}", self.from, self.to, self.cause)
    }
}

// === impl Replayed ===

impl<E> Default for Replayed<E> {
    fn default() -> Self {
        Self {
            decided: 0,
            unknown: 0,
            changes: BTreeMap::new(),
            unknown_because: BTreeMap::new(),
        }
    }
}

impl<E> Replayed<E> {
    pub fn add(&mut self, comparison: ReviewComparison<E>) {
        match comparison {
            ReviewComparison::Same => self.decided += 1,
            ReviewComparison::Changed(group, example) => {
                self.decided += 1;
                self.change(group, example);
            }
            ReviewComparison::Lost(group, why, example) => {
                self.unknown(why);
                self.change(group, example);
            }
            ReviewComparison::Unknown(why) => self.unknown(why),
        }
    }

    fn change(&mut self, group: ChangeGroup, example: E) {
        let (count, first) = self.changes.entry(group).or_default();
        *count += 1;
        first.get_or_insert(example);
    }

    fn unknown(&mut self, why: String) {
        self.unknown += 1;
        if self.unknown_because.len() < REASONS || self.unknown_because.contains_key(&why) {
            *self.unknown_because.entry(why).or_default() += 1;
        }
    }

    /// Why decisions are not known, the most frequent first.
    pub fn unknown_reasons(&self) -> Vec<UnknownReason> {
        let mut reasons: Vec<UnknownReason> = self
            .unknown_because
            .iter()
            .map(|(reason, count)| UnknownReason {
                reason: reason.clone(),
                count: *count,
            })
            .collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        reasons
    }
}

/// What was asked, such as `get pods db-0 in namespace shop`.
pub fn target_in_words(target: &Target<'_>) -> String {
    match target {
        Target::NonResource { path, verb } => format!("{verb} {path}"),
        Target::Resource(asked) => {
            let resource = of_group(&asked.resource, &asked.subresource, &asked.group);
            about(&asked.verb, &resource, &asked.namespace, &asked.name)
        }
    }
}

/// `deployments.apps/scale`.
pub fn of_group(resource: &str, subresource: &str, group: &str) -> String {
    let mut words = resource.to_owned();
    for (sign, part) in [('.', group), ('/', subresource)] {
        if !part.is_empty() {
            words.push(sign);
            words.push_str(part);
        }
    }
    words
}

/// `get pods db-0 in namespace shop`.
pub fn about(verb: &str, resource: &str, namespace: &str, name: &str) -> String {
    let mut words = format!("{verb} {resource}");
    for (before, part) in [(" ", name), (" in namespace ", namespace)] {
        if !part.is_empty() {
            words.push_str(before);
            words.push_str(part);
        }
    }
    words
}
