//! Which rules and expressions of manifests a run of test suites reached, also in the format of lcov
//! (`man geninfo`), which editors and CI services read.
//!
//! ```text
//! manifests ─▶ items: policies, rules, validations, mutations, matchConditions, each with its line
//!                ▲
//! traces of cases: what was reached, and its result
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use portcullis_policy::authorization::{Finding, PolicySet, Role, Trace};
use portcullis_policy::document::{Document, Node, Value};
use portcullis_policy::explain::Lines;
use portcullis_policy::explain::admission::{TracedStep, TracedValue};
use portcullis_policy::field::FieldPath;
use portcullis_policy::model::LabelSelector;

/// The items of the manifests, and how often the cases of a run reached each: by item, file and line.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    items: BTreeMap<ItemName, BTreeMap<(String, u32), CoveredItem>>,
    /// How many entries were visited: reaching one item must not visit the others.
    #[cfg(test)]
    visited: std::cell::Cell<usize>,
}

/// Where an item is. Sorts by file and line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CoveredPlace<'c> {
    file: &'c str,
    line: u32,
    item: &'c ItemName,
}

/// An item that a test case can reach: an object and one of its parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ItemName {
    kind: String,
    namespace: String,
    name: String,
    part: ItemPart,
}

/// A part of an object that is counted separately.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ItemPart {
    /// The policy as a whole.
    Policy,
    /// A rule, as in [`Cause::rule`](portcullis_policy::model::Cause::rule).
    Rule(usize),
    Validation(usize),
    Mutation(usize),
    MatchCondition(String),
}

/// How often an item was reached, and how often it was true (`held`) or false (`failed`).
#[derive(Debug, Clone, Copy, Default)]
struct CoveredItem {
    reached: u64,
    held: u64,
    failed: u64,
}

/// The coverage of one kind of items.
#[derive(Debug, Default, Serialize)]
struct CoveredPart {
    covered: usize,
    total: usize,
}

/// The coverage of a run, written as text or JSON.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CoverageReport {
    policies: CoveredPart,
    rules: CoveredPart,
    validations: CoveredPart,
    mutations: CoveredPart,
    match_conditions: CoveredPart,
    /// The share of all items that were reached; 100 if there are no items.
    percent: f64,
    /// The items that no case reached.
    missed: Vec<MissedItem>,
    /// Validations and matchConditions that had the same result in every case.
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
    /// For one-sided items, the result that never occurred: `true` or `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    never: Option<bool>,
}

// === impl Coverage ===

impl Coverage {
    /// Adds the items of a manifest. An item that is known already counts once.
    pub(crate) fn add(&mut self, object: &Document) {
        let file = object.file().map(|file| plain(file)).unwrap_or_default();
        for (line, item) in items_of(object) {
            let places = self.items.entry(item).or_default();
            places.entry((file.clone(), line)).or_default();
        }
    }

    /// Counts the items that an authorization decision of `set` reached.
    pub(crate) fn note_access(&mut self, trace: &Trace, set: &PolicySet) {
        for event in &trace.events {
            let rule = match &event.finding {
                Finding::Match { rule, .. } | Finding::WithinLimit { rule } => Some(*rule),
                // A request beyond a Limit matches none of its rules.
                Finding::BeyondLimit { .. } => None,
                Finding::Lifted { rule, .. }
                | Finding::NeverDenied { rule }
                | Finding::ObjectConditions { rule, .. }
                | Finding::ConditionFalse { rule, .. }
                | Finding::ConditionError { rule, .. } => *rule,
                Finding::NoMatch { .. } | Finding::NotInForce | Finding::MissingRole { .. } => continue,
            };
            let mut item = ItemName {
                kind: event.kind.to_string(),
                namespace: String::new(),
                name: event.name.clone(),
                part: rule.map_or(ItemPart::Policy, ItemPart::Rule),
            };
            // The rules of a binding are those of its role.
            if let Some((kind, name)) = event.role.as_deref().and_then(|role| role.split_once('/')) {
                item.kind = kind.to_owned();
                item.name = name.to_owned();
                if kind == "Role" {
                    item.namespace.clone_from(&event.namespace);
                }
            }
            if let Some(rule) = rule {
                self.reach(&item, None);
                for (source, rule) in aggregated_from(set, &item, rule) {
                    let of_source = |part| ItemName {
                        name: source.to_owned(),
                        part,
                        ..item.clone()
                    };
                    self.reach(&of_source(ItemPart::Rule(rule)), None);
                    self.reach(&of_source(ItemPart::Policy), None);
                }
            }
            self.reach(
                &ItemName {
                    part: ItemPart::Policy,
                    ..item
                },
                None,
            );
        }
    }

    /// Counts the items that an admission decision reached.
    pub(crate) fn note_admission(&mut self, trace: &[TracedStep]) {
        let mut policy = None;
        for step in trace {
            match step {
                TracedStep::Policy { kind, name, .. } => {
                    policy = Some(ItemName {
                        kind: kind.to_string(),
                        namespace: String::new(),
                        name: name.clone(),
                        part: ItemPart::Policy,
                    });
                }
                TracedStep::Run { policy: name, .. } => {
                    if let Some(policy) = &mut policy {
                        policy.name.clone_from(name);
                        self.reach(policy, None);
                    }
                }
                TracedStep::Expression { part, result, .. } => {
                    if let (Some(policy), Some(part)) = (&policy, covered_part(part)) {
                        let item = ItemName {
                            part,
                            ..policy.clone()
                        };
                        self.reach(&item, boolean_result(result));
                    }
                }
                _ => {}
            }
        }
    }

    fn reach(&mut self, item: &ItemName, held: Option<bool>) {
        for covered in self
            .items
            .get_mut(item)
            .into_iter()
            .flat_map(BTreeMap::values_mut)
        {
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            covered.reached += 1;
            covered.held += u64::from(held == Some(true));
            covered.failed += u64::from(held == Some(false));
        }
    }

    /// Adds the coverage of another run.
    pub(crate) fn merge(&mut self, other: Self) {
        for (item, places) in other.items {
            let own = self.items.entry(item).or_default();
            for (place, more) in places {
                let own = own.entry(place).or_default();
                own.reached += more.reached;
                own.held += more.held;
                own.failed += more.failed;
            }
        }
    }

    /// All items, in the order of files and lines.
    fn in_order(&self) -> Vec<(CoveredPlace<'_>, &CoveredItem)> {
        let all = self.items.iter().flat_map(|(item, places)| {
            places.iter().map(move |((file, line), covered)| {
                let line = *line;
                (CoveredPlace { file, line, item }, covered)
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all
    }

    /// The coverage of all items added so far.
    pub(crate) fn report(&self) -> CoverageReport {
        let mut report = CoverageReport::default();
        for (place, covered) in self.in_order() {
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

/// The ClusterRoles from which an aggregated one has the rule, and the index of the rule in each.
fn aggregated_from<'s>(
    set: &'s PolicySet,
    item: &ItemName,
    rule: usize,
) -> impl Iterator<Item = (&'s str, usize)> {
    let cluster_roles = || set.roles().iter().filter(|role| role.namespace.is_empty());
    let mut roles = cluster_roles().filter(|_| item.kind == "ClusterRole");
    let role = roles.find(|role| role.name == item.name && role.aggregation.is_some());
    let found = role.and_then(|role| Some((role, role.aggregation.as_ref()?, role.rules.get(rule)?)));
    found.into_iter().flat_map(move |(role, selectors, rule)| {
        let is_selected = |other: &&Arc<Role>| {
            let selects = |selector: &LabelSelector| selector.matches(|key| other.labels.get(key));
            other.name != role.name && selectors.iter().any(selects)
        };
        cluster_roles().filter(is_selected).filter_map(move |other| {
            let place = other.rules.iter().position(|own| own == rule)?;
            Some((other.name.as_str(), place))
        })
    })
}

/// The result of an expression, if it is `true` or `false`.
fn boolean_result(result: &TracedValue) -> Option<bool> {
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

impl CoveredPlace<'_> {
    fn missed(self, never: Option<bool>) -> MissedItem {
        let item = self.item;
        MissedItem {
            file: self.file.to_owned(),
            line: self.line,
            object: portcullis_policy::explain::authorization::object(
                &item.kind,
                &item.namespace,
                &item.name,
            ),
            field: field_of_part(&item.kind, &item.part),
            // Only one result occurred: if that was true, it was never false.
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
    /// The share of all items that were reached.
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
    /// The report as text: the items that were not covered, and the totals.
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

/// Which part an item of a list is, given its index.
type PartOf = fn(usize, &Node) -> Option<ItemPart>;

/// The items of `object`, each with its line.
fn items_of(object: &Document) -> Vec<(u32, ItemName)> {
    let kind = object.text("kind").unwrap_or_default().to_owned();
    let lists: &[(&[&str], PartOf)] = match kind.as_str() {
        "Role" | "ClusterRole" => &[(&["rules"], rule)],
        "AuthorizationPolicy" => &[
            (&["spec", "resourceRules"], rule),
            (&["spec", "nonResourceRules"], rule),
        ],
        "ValidatingAdmissionPolicy" => &[
            (&["spec", "matchConditions"], condition),
            (&["spec", "validations"], |index, _| {
                Some(ItemPart::Validation(index))
            }),
        ],
        "MutatingAdmissionPolicy" => &[
            (&["spec", "matchConditions"], condition),
            (&["spec", "mutations"], |index, _| Some(ItemPart::Mutation(index))),
        ],
        _ => return Vec::new(),
    };
    let metadata = |field| object.root().get("metadata")?.get(field)?.as_str();
    let is_namespaced = kind == "Role";
    let place = |path: FieldPath, part| {
        let namespace = metadata("namespace").filter(|_| is_namespaced);
        let item = ItemName {
            kind: kind.clone(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: metadata("name").unwrap_or_default().to_owned(),
            part,
        };
        (object.place(path).line, item)
    };
    let mut found = Vec::new();
    if kind.ends_with("Policy") {
        found.push(place(FieldPath::root(), ItemPart::Policy));
    }
    let mut before = 0;
    for (path, part_of) in lists {
        let at = path.iter().fold(FieldPath::root(), |path, name| path.field(name));
        let items = items(object, path);
        for (index, item) in items.iter().enumerate() {
            // Rules for paths are numbered after those for resources.
            let number = if *path == ["spec", "nonResourceRules"] {
                before + index
            } else {
                index
            };
            found.extend(part_of(number, item).map(|part| place(at.index(index), part)));
        }
        before = items.len();
    }
    found
}

fn items<'o>(object: &'o Document, path: &[&str]) -> &'o [Node] {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    match node.map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn rule(index: usize, _: &Node) -> Option<ItemPart> {
    Some(ItemPart::Rule(index))
}

fn condition(_: usize, item: &Node) -> Option<ItemPart> {
    let name = item.get("name")?.as_str()?;
    Some(ItemPart::MatchCondition(name.to_owned()))
}

/// Resolves `.` and `..`, so that a file counts once if several suites name it differently.
fn plain(file: &str) -> String {
    let mut path = PathBuf::new();
    for component in Path::new(file).components() {
        let is_folder = matches!(path.components().next_back(), Some(Component::Normal(_)));
        match component {
            Component::ParentDir if is_folder => {
                path.pop();
            }
            Component::CurDir => {}
            component => path.push(component),
        }
    }
    path.display().to_string()
}

/// The part that a step of a trace names.
fn covered_part(written: &str) -> Option<ItemPart> {
    let (kind, which) = written.split_once(' ')?;
    match kind {
        "validation" => which.parse().ok().map(ItemPart::Validation),
        "mutation" => which.parse().ok().map(ItemPart::Mutation),
        "matchCondition" => Some(ItemPart::MatchCondition(which.to_owned())),
        _ => None,
    }
}

/// The field of a part, such as `spec.validations[0]`.
fn field_of_part(kind: &str, part: &ItemPart) -> String {
    match part {
        ItemPart::Policy => "no case applies it".to_owned(),
        ItemPart::Rule(index) if kind == "AuthorizationPolicy" => format!("rule {index}"),
        ItemPart::Rule(index) => format!("rules[{index}]"),
        ItemPart::Validation(index) => format!("spec.validations[{index}]"),
        ItemPart::Mutation(index) => format!("spec.mutations[{index}]"),
        ItemPart::MatchCondition(name) => format!("spec.matchConditions `{name}`"),
    }
}

/// The coverage in lcov's format: a record for each file, with its lines, and two branches for each
/// item that is true or false.
pub(crate) fn lcov(coverage: &Coverage) -> String {
    let mut files: BTreeMap<&str, Vec<(CoveredPlace<'_>, &CoveredItem)>> = BTreeMap::new();
    for (place, item) in coverage.in_order() {
        files.entry(place.file).or_default().push((place, item));
    }
    let mut text = String::new();
    for (file, items) in files {
        // Writing to a string does not fail.
        let _ = write!(text, "TN:\nSF:{file}\n");
        branches(&mut text, &items);
        lines(&mut text, &items);
        text.push_str("end_of_record\n");
    }
    text
}

fn branches(text: &mut String, items: &[(CoveredPlace<'_>, &CoveredItem)]) {
    let sided = items.iter().filter(|(place, _)| place.item.part.has_two_sides());
    let (mut found, mut hit) = (0, 0);
    for (block, (place, item)) in sided.enumerate() {
        for (branch, taken) in [item.held, item.failed].into_iter().enumerate() {
            let count = if item.reached == 0 {
                "-".to_owned()
            } else {
                taken.to_string()
            };
            let _ = writeln!(text, "BRDA:{},{block},{branch},{count}", place.line);
            found += 1;
            hit += usize::from(taken > 0);
        }
    }
    if found > 0 {
        let _ = write!(text, "BRF:{found}\nBRH:{hit}\n");
    }
}

/// If a line has several items, the one that was reached least often counts.
fn lines(text: &mut String, items: &[(CoveredPlace<'_>, &CoveredItem)]) {
    let mut lines: BTreeMap<u32, u64> = BTreeMap::new();
    for (place, item) in items {
        let least = lines.entry(place.line).or_insert(item.reached);
        *least = (*least).min(item.reached);
    }
    for (line, reached) in &lines {
        let _ = writeln!(text, "DA:{line},{reached}");
    }
    let hit = lines.values().filter(|reached| **reached > 0).count();
    let _ = write!(text, "LF:{}\nLH:{hit}\n", lines.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::document;

    #[test]
    fn what_is_reached_is_found_without_a_look_at_the_rest() {
        let policy = |name: usize| {
            format!(
                "---\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: p{name}}}\n\
                 spec: {{validations: [{{expression: 'true'}}]}}\n"
            )
        };
        let mut coverage = Coverage::default();
        let count = 300;
        let text: String = (0..count).map(policy).collect();
        for object in document::parse(None, &text).unwrap() {
            coverage.add(&object);
        }
        for name in 0..count {
            for part in [ItemPart::Policy, ItemPart::Validation(0), ItemPart::Validation(1)] {
                let item = ItemName {
                    kind: "ValidatingAdmissionPolicy".to_owned(),
                    namespace: String::new(),
                    name: format!("p{name}"),
                    part,
                };
                coverage.reach(&item, Some(true));
            }
        }
        assert_eq!(coverage.report().percent, 100.0);
        assert_eq!(coverage.visited.get(), 2 * count);
    }
}
