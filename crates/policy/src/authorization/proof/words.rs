//! Describes regions, requests and breaches in words. Several regions are described in one
//! sentence, as the smallest box that contains them, with exceptions.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::WorkLimit;
use super::condition::{Outcomes, Side};
use super::invariant::Breach;
use super::region::Region;
use super::sets::{GroupSet, Patterns, SelectorSet, TextSet};
use super::witness::Witness;
use crate::model::{Attributes, Deadline, LabelSelector, Requirement, Target};

/// The maximum of exceptions in a sentence; more are no easier to read than the regions.
const MAX_EXCEPTIONS: usize = 8;

/// The maximum of regions that are summarised, and of parts in between.
const MAX_PARTS: usize = 256;

/// Exactly the requests of some regions, as a box with exceptions.
#[derive(Debug, Clone)]
pub struct RegionSummary {
    pub(crate) around: Region,
    /// The parts of the box that are in none of the regions.
    pub(crate) except: Vec<Region>,
}

/// The prefix of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

// === impl RegionSummary ===

impl RegionSummary {
    /// Summarises `regions`; `None` if they contain different kinds of requests, depend on
    /// conditions, are no shorter in one sentence, or the deadline passes.
    #[must_use]
    pub fn new(regions: &[&Region], deadline: Deadline<'_>) -> Option<Self> {
        let (first, others) = regions.split_first()?;
        if regions.len() > MAX_PARTS || !regions.iter().all(|one| first.is_alike(one)) {
            return None;
        }
        let limit = WorkLimit {
            parts: MAX_PARTS,
            deadline,
        };
        let mut around = (*first).clone();
        for other in others {
            limit.check_deadline().ok()?;
            around = hull(&around, other);
        }
        let mut except: Vec<Region> = Vec::new();
        for part in around.without(regions, limit).ok()? {
            limit.check_deadline().ok()?;
            let wide = with_fewer_groups(part.widened(&around, regions), regions);
            if !except.iter().any(|known| known.covers(&wide)) {
                except.retain(|known| !wide.covers(known));
                except.push(wide);
            }
        }
        (except.len() <= MAX_EXCEPTIONS && except.len() < regions.len().max(2))
            .then_some(Self { around, except })
    }
}

impl Region {
    /// Whether both differ only in strings and groups, and have no conditions.
    fn is_alike(&self, other: &Self) -> bool {
        self.is_path == other.is_path
            && self.is_service_account == other.is_service_account
            && self.selectors == other.selectors
            && self.period == other.period
            && self.conditions.is_empty()
            && other.conditions.is_empty()
    }
}

/// A box that contains both.
fn hull(one: &Region, other: &Region) -> Region {
    let mut around = one.clone();
    for side in Side::ALL {
        around.set(side, text_hull(one.side(side), other.side(side)));
    }
    around.groups = GroupSet {
        all: common(&one.groups.all, &other.groups.all),
        none: common(&one.groups.none, &other.groups.none),
    };
    around
}

type PatternsOf = fn(&mut GroupSet) -> &mut BTreeSet<Arc<str>>;

/// Removes requirements on the groups of `part` as long as it has nothing in common with `others`.
fn with_fewer_groups(mut part: Region, others: &[&Region]) -> Region {
    let of: [PatternsOf; 4] = [
        |groups| &mut groups.all.exact,
        |groups| &mut groups.all.prefixes,
        |groups| &mut groups.none.exact,
        |groups| &mut groups.none.prefixes,
    ];
    for patterns in of {
        for pattern in patterns(&mut part.groups).clone() {
            let mut wider = part.clone();
            patterns(&mut wider.groups).remove(&pattern);
            if !others.iter().any(|other| other.overlaps(&wider)) {
                part = wider;
            }
        }
    }
    part
}

/// The patterns in both.
fn common(one: &Patterns, other: &Patterns) -> Patterns {
    Patterns {
        exact: one.exact.intersection(&other.exact).cloned().collect(),
        prefixes: one.prefixes.intersection(&other.prefixes).cloned().collect(),
    }
}

/// A set that contains both, with as many common exceptions as possible.
fn text_hull(one: &TextSet, other: &TextSet) -> TextSet {
    if one.covers(other) {
        return one.clone();
    }
    if other.covers(one) {
        return other.clone();
    }
    let within = TextSet::of(one.within().clone().or(other.within().clone()));
    let left_out = |texts: &TextSet, by: &TextSet| -> Patterns {
        let is_left_out = |pattern: &TextSet| !pattern.meets(by);
        let except = texts.except();
        let exact = except
            .exact
            .iter()
            .filter(|text| is_left_out(&TextSet::exact([(**text).clone()])));
        let prefixes = except
            .prefixes
            .iter()
            .filter(|prefix| is_left_out(&TextSet::of(Patterns::prefixes([(**prefix).clone()]))));
        Patterns {
            exact: exact.cloned().collect(),
            prefixes: prefixes.cloned().collect(),
        }
    };
    let except = left_out(one, other).or(left_out(other, one));
    within.intersection(&TextSet::all_but(except))
}

// === impl Region ===

impl Region {
    /// Its user names. That service accounts are excepted is left out if one of the groups implies
    /// it.
    #[must_use]
    pub fn users_without_accounts(&self) -> TextSet {
        let mut users = self.side(Side::User).clone();
        let is_of_no_account = |group: &&std::sync::Arc<str>| !group.starts_with("system:");
        if !self.is_service_account
            && self
                .groups()
                .all
                .exact
                .iter()
                .any(|group| is_of_no_account(&group))
        {
            users = users.with_prefix(SERVICE_ACCOUNT);
        }
        users
    }

    /// Its conditions, each as an expression that is true for its requests.
    #[must_use]
    pub fn conditions_in_words(&self) -> Vec<String> {
        self.conditions().filter_map(condition).collect()
    }

    /// For example `a namespace whose labels match team in (a)`, if it depends on unknown labels.
    fn labels_in_words(&self) -> Option<String> {
        let asked = self.namespace_labels();
        if asked.is_empty() {
            return None;
        }
        if !asked.may_be_known {
            return Some("in a namespace whose labels are not known".to_owned());
        }
        let listed = |how: &str, selectors: &[&LabelSelector]| {
            let each = selectors.iter().map(|one| format!("{how} {one}"));
            each.collect::<Vec<_>>()
        };
        let said = [
            listed("match", &asked.within),
            listed("do not match", &asked.not_within),
        ]
        .concat();
        let known = match said.is_empty() {
            true => "are known".to_owned(),
            false => said.join(" and "),
        };
        let or_not = if asked.may_be_unknown {
            ", or are not known"
        } else {
            ""
        };
        Some(format!("in a namespace whose labels {known}{or_not}"))
    }
}

/// For example `Group dev: get, list of secrets in the namespace prod where CONDITION`.
impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentence(self))?;
        let conditions = self.conditions_in_words();
        match conditions.is_empty() {
            true => Ok(()),
            false => write!(f, " where {}", conditions.join(" and ")),
        }
    }
}

fn condition((expression, outcomes): (&str, Outcomes)) -> Option<String> {
    match (outcomes.holds, outcomes.fails) {
        (true, false) => Some(expression.to_owned()),
        (false, true) => Some(format!("!({expression})")),
        (false, false) => Some(format!("({expression}) has no result")),
        (true, true) => None,
    }
}

// === impl RegionSummary ===

/// For example `Group dev: get of secrets everywhere, except: Group contractors; list of pods`.
impl fmt::Display for RegionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentence(&self.around))?;
        let except = self.except.iter().map(|part| narrower(part, &self.around));
        match self.except.is_empty() {
            true => Ok(()),
            false => write!(f, ", except: {}", except.collect::<Vec<_>>().join("; ")),
        }
    }
}

/// Describes `part` by the sides on which it is narrower than `around`.
fn narrower(part: &Region, around: &Region) -> String {
    let mut shown = part.clone();
    for side in Side::ALL {
        if part.side(side) == around.side(side) {
            shown.set(side, TextSet::all());
        }
    }
    let is_new = |patterns: &mut Patterns, known: &Patterns| {
        patterns.exact.retain(|group| !known.exact.contains(group));
        patterns
            .prefixes
            .retain(|prefix| !known.prefixes.contains(prefix));
    };
    is_new(&mut shown.groups.all, &around.groups.all);
    is_new(&mut shown.groups.none, &around.groups.none);
    let is_all = |sides: &[Side]| sides.iter().all(|side| shown.side(*side).is_all());
    let mut said = Vec::new();
    if !is_all(&[Side::User]) || shown.groups != GroupSet::default() {
        said.push(callers(&shown));
    }
    let mut what = Vec::new();
    if !is_all(&[Side::Verb]) {
        what.push(describe_set(shown.side(Side::Verb), "any verb"));
    }
    if !is_all(&[Side::ApiGroup, Side::Resource, Side::Subresource]) {
        what.push(format!(
            "of {}",
            describe_set(shown.side(Side::Resource), "any resource")
        ));
        if !is_all(&[Side::Subresource]) {
            what.push(format!(
                "with subresource {}",
                describe_set(shown.side(Side::Subresource), "any")
            ));
        }
        if !is_all(&[Side::ApiGroup]) {
            what.push(format!(
                "of the API group {}",
                describe_set(shown.side(Side::ApiGroup), "of any name")
            ));
        }
    }
    if !is_all(&[Side::Path]) {
        what.push(format!(
            "of the paths {}",
            describe_set(shown.side(Side::Path), "of any name")
        ));
    }
    if !is_all(&[Side::Namespace]) {
        what.push(place(shown.side(Side::Namespace)).trim_start().to_owned());
    }
    if !is_all(&[Side::Name]) {
        what.push(format!(
            "named {}",
            describe_set(shown.side(Side::Name), "anything")
        ));
    }
    if !what.is_empty() {
        said.push(what.join(" "));
    }
    said.join(", ")
}

// === impl SelectorSet ===

impl SelectorSet {
    /// The selectors that its requests are within, and those that they are not within.
    #[must_use]
    pub fn in_words(&self) -> [Vec<String>; 2] {
        [&self.within, &self.not_within].map(|list| {
            list.iter()
                .map(|one| requirements(&one.field, &one.label))
                .collect()
        })
    }
}

fn requirements(field: &[Requirement<'_>], label: &[Requirement<'_>]) -> String {
    let fields = field.iter().map(|one| format!("field {one}"));
    let labels = label.iter().map(|one| format!("label {one}"));
    fields.chain(labels).collect::<Vec<_>>().join(", ")
}

// === impl Breach ===

/// For example `broken by RoleBinding/prod/dev, rule 1, such as: alice (dev): get secrets in prod`.
impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(witness), Some(cause)) = (&self.witness, &self.cause) else {
            return write!(f, "possibly broken: {}", self.region);
        };
        write!(f, "broken by {cause}")?;
        if self.region.period().not_before.is_some() {
            write!(f, " from {} on", witness.at)?;
        }
        if let Some(end) = self.region.period().not_after {
            write!(f, " until {end}")?;
        }
        write!(f, ", such as: {witness}")
    }
}

// === impl Witness ===

/// For example `somebody (dev): get secrets in prod (a namespace with the labels team=a)`.
impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&request_in_words(&self.attributes))?;
        let Some(labels) = &self.namespace_labels else {
            return Ok(());
        };
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        match labels.as_slice() {
            [] => f.write_str(" (a namespace without labels)"),
            labels => write!(f, " (a namespace with the labels {})", labels.join(",")),
        }
    }
}

/// For example `Group dev: get, list of secrets in the namespace prod`.
fn sentence(region: &Region) -> String {
    let verbs = describe_set(region.side(Side::Verb), "any verb");
    let mut sentence = format!("{}: {verbs} of ", callers(region));
    if region.is_path {
        sentence += &format!(
            "the paths {}",
            describe_set(region.side(Side::Path), "of any name")
        );
    } else {
        sentence += &resources(region);
        sentence += &place(region.side(Side::Namespace));
        let names = region.side(Side::Name);
        if !names.is_all() {
            sentence += &format!(", named {}", describe_set(names, "anything"));
        }
    }
    let [within, not_within] = region.selectors().in_words();
    for (how, selectors) in [("", within), ("not ", not_within)] {
        for selector in selectors {
            sentence += &format!(", {how}by the selector {selector}");
        }
    }
    if let Some(labels) = region.labels_in_words() {
        sentence += &format!(", {labels}");
    }
    let period = region.period();
    for (word, time) in [("from", period.not_before), ("until", period.not_after)] {
        if let Some(time) = time {
            sentence += &format!(", {word} {time}");
        }
    }
    sentence
}

fn callers(region: &Region) -> String {
    let users = region.users_without_accounts();
    let is_everybody = users.within().prefixes.contains("");
    let users = match (users.is_all(), region.is_service_account) {
        (true, _) => None,
        (false, true) => Some(describe_set(&users, "any").replace(SERVICE_ACCOUNT, "service account ")),
        (false, false) if is_everybody => return callers_but(region, &users),
        (false, false) => Some(format!("User {}", describe_set(&users, "any"))),
    };
    let groups = region.groups();
    let mut all = membership(&groups.all);
    all.extend(users);
    let mut callers = if all.is_empty() {
        "everybody".to_owned()
    } else {
        all.join(" and ")
    };
    let none = membership(&groups.none);
    if !none.is_empty() {
        callers += &format!(" without {}", none.join(", "));
    }
    callers
}

/// Describes callers with exceptions. Service accounts are always excepted here, because they are
/// described separately.
fn callers_but(region: &Region, users: &TextSet) -> String {
    let mut but = users.except().clone();
    but.prefixes.remove(SERVICE_ACCOUNT);
    let groups = region.groups();
    let mut callers = match membership(&groups.all) {
        all if all.is_empty() => "all users".to_owned(),
        all => all.join(" and "),
    };
    let mut without = membership(&groups.none);
    if !but.is_empty() {
        without.push(format!("User {}", describe_set(&TextSet::of(but), "any")));
    }
    if !without.is_empty() {
        callers += &format!(" without {}", without.join(", "));
    }
    callers
}

/// For example `Group a`, `Group b*`.
fn membership(patterns: &Patterns) -> Vec<String> {
    let exact = patterns.exact.iter().map(|group| format!("Group {group}"));
    let prefixes = patterns.prefixes.iter().map(|prefix| format!("Group {prefix}*"));
    exact.chain(prefixes).collect()
}

fn resources(region: &Region) -> String {
    let mut sentence = describe_set(region.side(Side::Resource), "any resource");
    let (subresources, groups) = (region.side(Side::Subresource), region.side(Side::ApiGroup));
    if subresources.is_all() {
        sentence += " and their subresources";
    } else if subresources.within().exact.iter().any(|text| !text.is_empty()) || !subresources.contains("") {
        sentence += &format!(", subresource {}", describe_set(subresources, "any"));
    }
    if !groups.contains("") || groups.is_all() {
        sentence += &format!(" of the API group {}", describe_set(groups, "of any name"));
    }
    sentence
}

fn place(namespaces: &TextSet) -> String {
    let is_none = !namespaces.is_all()
        && namespaces.within().exact.contains("")
        && namespaces.within().prefixes.is_empty();
    match namespaces.is_all() {
        true => " everywhere".to_owned(),
        false if is_none && namespaces.within().exact.len() == 1 => " in no namespace".to_owned(),
        false => format!(" in the namespace {}", describe_set(namespaces, "of any name")),
    }
}

/// For example `a, b* but not c`.
fn describe_set(set: &TextSet, all: &str) -> String {
    let list = |patterns: &Patterns| {
        let exact = patterns.exact.iter().map(|text| {
            if text.is_empty() {
                "\"\"".to_owned()
            } else {
                text.to_string()
            }
        });
        exact
            .chain(patterns.prefixes.iter().map(|prefix| format!("{prefix}*")))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut words = match set.within().prefixes.contains("") {
        true => all.to_owned(),
        false => list(set.within()),
    };
    if !set.except().is_empty() {
        words += &format!(" but not {}", list(set.except()));
    }
    words
}

/// Describes a request, for example `somebody (dev): get secrets in prod`.
#[must_use]
pub fn request_in_words(attributes: &Attributes<'_>) -> String {
    let user = &attributes.user;
    let groups = match user.groups.is_empty() {
        true => String::new(),
        false => format!(" ({})", user.groups.join(", ")),
    };
    let what = match &attributes.target {
        Target::NonResource { path, verb } => format!("{verb} {path}"),
        Target::Resource(request) => {
            let joined = |sign: &str, text: &str| {
                if text.is_empty() {
                    String::new()
                } else {
                    format!("{sign}{text}")
                }
            };
            format!(
                "{} {}{}{}{}{}",
                request.verb,
                request.resource,
                joined(".", &request.group),
                joined("/", &request.subresource),
                joined(" ", &request.name),
                joined(" in ", &request.namespace)
            )
        }
    };
    format!("{}{groups}: {what}", user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(verbs: &[&str], namespaces: TextSet) -> Region {
        let mut region = Region::all(false, false);
        region.set(Side::Verb, TextSet::exact(verbs.iter().copied()));
        region.set(Side::Namespace, namespaces);
        region
    }

    fn is_exact(summary: &RegionSummary, regions: &[&Region]) -> bool {
        let except: Vec<&Region> = summary.except.iter().collect();
        let rest = summary.around.without_unlimited(&except);
        rest.iter().all(|part| part.without_unlimited(regions).is_empty())
            && regions
                .iter()
                .all(|one| one.without_unlimited(&rest.iter().collect::<Vec<_>>()).is_empty())
    }

    #[test]
    fn a_box_less_a_part_of_it_is_said_at_once() {
        let prod = TextSet::of(Patterns::prefixes(["prod-"]));
        let all = region(&["get", "delete"], prod.clone());
        let mut taken = region(&["delete"], prod);
        taken.set(Side::Resource, TextSet::exact(["pods"]));
        taken.groups = GroupSet {
            all: Patterns::exact(["dev"]),
            none: Patterns::default(),
        };
        let parts = all.without_unlimited(&[&taken]);
        let parts: Vec<&Region> = parts.iter().collect();
        assert!(parts.len() > 2, "{parts:?}");
        let summary = RegionSummary::new(&parts, Deadline::NEVER).unwrap();
        assert!(is_exact(&summary, &parts));
        assert_eq!(summary.except.len(), 1, "{summary:?}");
        assert_eq!(
            summary.to_string(),
            "all users: delete, get of any resource and their subresources of the API group of any name in the \
             namespace prod-*, except: Group dev, delete of pods"
        );
    }

    #[test]
    fn what_is_not_summarised_in_time_is_not_summarised() {
        let parts = [
            region(&["get"], TextSet::all()),
            region(&["list"], TextSet::all()),
        ];
        let parts: Vec<&Region> = parts.iter().collect();
        assert!(RegionSummary::new(&parts, Deadline::NEVER).is_some());
        assert!(RegionSummary::new(&parts, Deadline::new(&|| true)).is_none());
    }

    #[test]
    fn what_has_too_many_gaps_is_not_summarised() {
        let parts: Vec<Region> = ["get", "list", "watch", "create"]
            .into_iter()
            .enumerate()
            .map(|(at, verb)| region(&[verb], TextSet::exact([format!("n{at}")])))
            .collect();
        let parts: Vec<&Region> = parts.iter().collect();
        assert!(RegionSummary::new(&parts, Deadline::NEVER).is_none(), "{parts:?}");
    }
}
