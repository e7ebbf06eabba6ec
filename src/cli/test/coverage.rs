//! Which rules and expressions of manifests a run of test suites reached.
//!
//! ```text
//! manifests ─▶ items: policies, rules, validations, mutations, matchConditions, each with its line
//!                ▲
//! traces of cases: what was reached, and what it came to
//! ```

mod items;
mod lcov;

use std::collections::BTreeMap;

use serde::Serialize;

use portcullis_policy::authorization::{Finding, Trace};
use portcullis_policy::document::Document;
use portcullis_policy::explain::Lines;
use portcullis_policy::explain::admission::{Traced, TracedValue};

pub(crate) use lcov::lcov;

/// What the cases of a run reached, in the order of files and lines.
#[derive(Debug, Default)]
pub(crate) struct Coverage(BTreeMap<CoveredPlace, CoveredItem>);

/// Where something that can be reached is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CoveredPlace {
    file: String,
    line: u32,
    item: ItemName,
}

/// Something that can be reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ItemName {
    kind: String,
    namespace: String,
    name: String,
    part: ItemPart,
}

/// What of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ItemPart {
    /// The policy as a whole.
    Policy,
    /// A rule, as in [`Cause::rule`](portcullis_policy::engine::Cause::rule).
    Rule(usize),
    Validation(usize),
    Mutation(usize),
    MatchCondition(String),
}

/// How often something was reached, and what it came to.
#[derive(Debug, Clone, Copy, Default)]
struct CoveredItem {
    reached: u64,
    held: u64,
    failed: u64,
}

/// The result for one sort of items.
#[derive(Debug, Default, Serialize)]
struct CoveredPart {
    covered: usize,
    total: usize,
}

/// The result, for people and programs.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CoverageReport {
    policies: CoveredPart,
    rules: CoveredPart,
    validations: CoveredPart,
    mutations: CoveredPart,
    match_conditions: CoveredPart,
    /// Of all; 100 where there is nothing to reach.
    percent: f64,
    /// What no case reached.
    missed: Vec<MissedItem>,
    /// Validations and matchConditions that came to the same in every case.
    one_sided: Vec<MissedItem>,
}

#[derive(Debug, Serialize)]
struct MissedItem {
    file: String,
    line: u32,
    /// `Kind/name` or `Kind/namespace/name`.
    object: String,
    /// The field, such as `spec.validations[0]`.
    field: String,
    /// Of what is one-sided: that it was never `true` or never `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    never: Option<bool>,
}

// === impl Coverage ===

impl Coverage {
    /// Adds what there is to reach in a manifest; what is known already counts once.
    pub(crate) fn add(&mut self, object: &Document) {
        for place in items::of(object) {
            self.0.entry(place).or_default();
        }
    }

    /// Notes what a decision about access reached.
    pub(crate) fn note_access(&mut self, trace: &Trace) {
        for event in &trace.events {
            let rule = match &event.finding {
                Finding::Match { rule, .. }
                | Finding::NeverDenied { rule }
                | Finding::ConditionFalse { rule, .. }
                | Finding::ConditionError { rule, .. } => *rule,
                Finding::NoMatch { .. } | Finding::NotInForce | Finding::MissingRole { .. } => continue,
            };
            let mut item = ItemName {
                kind: event.kind.to_string(),
                namespace: String::new(),
                name: event.name.clone(),
                part: ItemPart::Rule(rule),
            };
            // A binding's rules are its role's.
            if let Some((kind, name)) = event.role.as_deref().and_then(|role| role.split_once('/')) {
                item.kind = kind.to_owned();
                item.name = name.to_owned();
                if kind == "Role" {
                    item.namespace.clone_from(&event.namespace);
                }
            }
            self.reach(&item, None);
            self.reach(
                &ItemName {
                    part: ItemPart::Policy,
                    ..item
                },
                None,
            );
        }
    }

    /// Notes what an admission decision reached.
    pub(crate) fn note_admission(&mut self, trace: &[Traced]) {
        let mut policy = None;
        for step in trace {
            match step {
                Traced::Policy { kind, name, .. } => {
                    policy = Some(ItemName {
                        kind: kind.to_string(),
                        namespace: String::new(),
                        name: name.clone(),
                        part: ItemPart::Policy,
                    });
                }
                Traced::Run { policy: name, .. } => {
                    if let Some(policy) = &mut policy {
                        policy.name.clone_from(name);
                        self.reach(policy, None);
                    }
                }
                Traced::Expression { part, result, .. } => {
                    if let (Some(policy), Some(part)) = (&policy, items::part(part)) {
                        let item = ItemName {
                            part,
                            ..policy.clone()
                        };
                        self.reach(&item, held(result));
                    }
                }
                _ => {}
            }
        }
    }

    fn reach(&mut self, item: &ItemName, held: Option<bool>) {
        for (_, covered) in self.0.iter_mut().filter(|(place, _)| place.item == *item) {
            covered.reached += 1;
            covered.held += u64::from(held == Some(true));
            covered.failed += u64::from(held == Some(false));
        }
    }

    /// Adds what the suites of another run reached.
    pub(crate) fn merge(&mut self, other: Self) {
        for (place, more) in other.0 {
            let own = self.0.entry(place).or_default();
            own.reached += more.reached;
            own.held += more.held;
            own.failed += more.failed;
        }
    }

    /// The result.
    pub(crate) fn report(&self) -> CoverageReport {
        let mut report = CoverageReport::default();
        for (place, covered) in &self.0 {
            let part = match place.item.part {
                ItemPart::Policy => &mut report.policies,
                ItemPart::Rule(_) => &mut report.rules,
                ItemPart::Validation(_) => &mut report.validations,
                ItemPart::Mutation(_) => &mut report.mutations,
                ItemPart::MatchCondition(_) => &mut report.match_conditions,
            };
            part.total += 1;
            part.covered += usize::from(covered.reached > 0);
            if covered.reached == 0 {
                report.missed.push(place.missed(None));
            } else if place.item.part.has_two_sides() && (covered.held == 0 || covered.failed == 0) {
                report.one_sided.push(place.missed(Some(covered.held > 0)));
            }
        }
        let (covered, total) = report.sums();
        report.percent = percent(covered, total);
        report
    }
}

/// What an expression came to, if it came to true or false.
fn held(result: &TracedValue) -> Option<bool> {
    match result {
        TracedValue::Value(value) => value.get().parse().ok(),
        TracedValue::Error(_) => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "no manifests have 2^52 rules")]
fn percent(covered: usize, total: usize) -> f64 {
    if total == 0 {
        return 100.0;
    }
    100.0 * covered as f64 / total as f64
}

impl CoveredPlace {
    fn missed(&self, never: Option<bool>) -> MissedItem {
        let item = &self.item;
        MissedItem {
            file: self.file.clone(),
            line: self.line,
            object: portcullis_policy::explain::authorization::object(
                &item.kind,
                &item.namespace,
                &item.name,
            ),
            field: items::field(&item.kind, &item.part),
            // It held: so it was never false.
            never: never.map(|held| !held),
        }
    }
}

impl ItemPart {
    const fn has_two_sides(&self) -> bool {
        matches!(self, Self::Validation(_) | Self::MatchCondition(_))
    }
}

// === impl CoverageReport ===

impl CoverageReport {
    /// Of all that can be reached.
    pub(crate) const fn percent(&self) -> f64 {
        self.percent
    }

    const fn parts(&self) -> [(&'static str, &CoveredPart); 5] {
        [
            ("policies", &self.policies),
            ("rules", &self.rules),
            ("validations", &self.validations),
            ("mutations", &self.mutations),
            ("matchConditions", &self.match_conditions),
        ]
    }

    fn sums(&self) -> (usize, usize) {
        let parts = self.parts();
        let sum = |of: fn(&CoveredPart) -> usize| parts.iter().map(|(_, part)| of(part)).sum();
        (sum(|part| part.covered), sum(|part| part.total))
    }
}

impl CoverageReport {
    /// What was not covered, and how much was.
    pub(crate) fn in_words(&self) -> Lines {
        let mut lines = Lines::new();
        for MissedItem {
            file,
            line,
            object,
            field,
            ..
        } in &self.missed
        {
            lines.line(format_args!("not covered: {file}:{line}: {object}: {field}"));
        }
        for item in &self.one_sided {
            let MissedItem {
                file,
                line,
                object,
                field,
                ..
            } = item;
            let never = item.never.unwrap_or_default();
            lines.line(format_args!("never {never}: {file}:{line}: {object}: {field}"));
        }
        let parts: Vec<String> = self
            .parts()
            .into_iter()
            .filter(|(_, part)| part.total > 0)
            .map(|(name, part)| format!("{name} {}/{}", part.covered, part.total))
            .collect();
        lines.line(format_args!(
            "coverage: {:.1} % ({})",
            self.percent,
            parts.join(", ")
        ));
        lines
    }
}
