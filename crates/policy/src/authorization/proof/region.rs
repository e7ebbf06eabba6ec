//! Sets of requests: boxes whose sides are sets of names, verbs, and so on.

use std::convert::Infallible;
use std::sync::Arc;

use super::condition::{ConditionTest, Field, Outcomes, RegionCondition, Side, Split, common_text};
use super::sets::{
    GroupSet, NAMESPACE_GROUP, Patterns, SERVICE_ACCOUNT, SERVICE_ACCOUNT_GROUPS, SelectorSet, TextSet,
};
use super::{ProofLimitError, WorkLimit};
use crate::model::Validity;
use portcullis_cel::predicate::TextTest;
use portcullis_cel::regex::StoppedError;

/// This number of strings takes about as much memory as a region without any.
const TEXTS_OF_A_REGION: usize = 64;

/// This number of bytes of conditions takes about as much memory as a string of a side.
const BYTES_OF_A_TEXT: usize = 48;

/// A set of requests, and the period in which they are made.
///
/// A user may have any groups; a service account has those that its name implies, so its groups are
/// not restricted separately. A region contains either resource requests or non-resource requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    /// Whether it contains non-resource requests.
    pub is_path: bool,
    /// Whether it contains requests of service accounts, or of other users.
    pub is_service_account: bool,
    /// Shared with the regions from which it was made, because a side may contain as many strings
    /// as an object does.
    texts: [Arc<TextSet>; Side::COUNT],
    pub(crate) groups: GroupSet,
    pub(crate) selectors: SelectorSet,
    pub(crate) conditions: Vec<(RegionCondition, Outcomes)>,
    pub(crate) period: Validity,
}

// === impl Region ===

impl Region {
    /// All requests of one kind.
    #[must_use]
    pub fn all(is_path: bool, is_service_account: bool) -> Self {
        let every_text = Arc::new(TextSet::all());
        let mut all = Self {
            is_path,
            is_service_account,
            texts: std::array::from_fn(|_| Arc::clone(&every_text)),
            groups: GroupSet::default(),
            selectors: SelectorSet::default(),
            conditions: Vec::new(),
            period: Validity::default(),
        };
        let accounts = Patterns::prefixes([SERVICE_ACCOUNT]);
        let users = match is_service_account {
            true => TextSet::of(accounts),
            false => TextSet::all_but(accounts),
        };
        all.set(Side::User, users);
        all
    }

    /// All requests of each kind of caller.
    pub(crate) fn of_each_caller(is_path: bool) -> [Self; 2] {
        [Self::all(is_path, false), Self::all(is_path, true)]
    }

    /// The strings on a side.
    #[must_use]
    pub fn side(&self, side: Side) -> &TextSet {
        // Destructures the array, so that each side is named exactly once.
        let [
            api_group,
            resource,
            subresource,
            verb,
            namespace,
            name,
            path,
            user,
        ] = &self.texts;
        match side {
            Side::ApiGroup => api_group,
            Side::Resource => resource,
            Side::Subresource => subresource,
            Side::Verb => verb,
            Side::Namespace => namespace,
            Side::Name => name,
            Side::Path => path,
            Side::User => user,
        }
    }

    /// The groups of its users; for service accounts, use their names.
    #[must_use]
    pub const fn groups(&self) -> &GroupSet {
        &self.groups
    }

    /// The selectors of its requests.
    #[must_use]
    pub const fn selectors(&self) -> &SelectorSet {
        &self.selectors
    }

    /// Expressions, with their outcomes for its requests.
    pub fn conditions(&self) -> impl Iterator<Item = (&str, Outcomes)> {
        self.conditions
            .iter()
            .filter(|(condition, _)| condition.selector().is_none())
            .map(|(condition, outcomes)| (&*condition.text, *outcomes))
    }

    /// The period in which the requests are made.
    #[must_use]
    pub const fn period(&self) -> Validity {
        self.period
    }

    pub(crate) fn set(&mut self, side: Side, texts: impl Into<Arc<TextSet>>) {
        let [
            api_group,
            resource,
            subresource,
            verb,
            namespace,
            name,
            path,
            user,
        ] = &mut self.texts;
        *match side {
            Side::ApiGroup => api_group,
            Side::Resource => resource,
            Side::Subresource => subresource,
            Side::Verb => verb,
            Side::Namespace => namespace,
            Side::Name => name,
            Side::Path => path,
            Side::User => user,
        } = texts.into();
    }

    /// The memory that it takes, as a number of regions with few strings.
    pub(crate) fn weight(&self) -> usize {
        let sides = self
            .texts
            .iter()
            .map(|texts| texts.within().len() + texts.except().len());
        let groups = self.groups.all.len() + self.groups.none.len();
        let conditions = self.conditions.iter();
        let conditions = conditions.map(|(condition, _)| 1 + condition.bytes() / BYTES_OF_A_TEXT);
        1 + (sides.sum::<usize>() + groups + conditions.sum::<usize>()) / TEXTS_OF_A_REGION
    }

    /// The part with one of `texts` on a side; `None` if it is empty.
    #[must_use]
    pub(crate) fn with(&self, side: Side, texts: &TextSet) -> Option<Self> {
        let texts = self.side(side).intersection(texts);
        if texts.is_empty() {
            return None;
        }
        let mut region = self.clone();
        region.set(side, texts);
        region.with_conditions_applied(side)
    }

    /// Evaluates the conditions on a side if its strings are listed; `None` if no string remains.
    fn with_conditions_applied(mut self, side: Side) -> Option<Self> {
        let field = Field::Side(side);
        if self.tests(field).next().is_none() {
            return Some(self);
        }
        let Some(listed) = self.side(side).listed() else {
            return self.is_possible(field).then_some(self);
        };
        let tests: Vec<_> = self
            .tests(field)
            .map(|(test, holds)| (test.to_function(), holds))
            .collect();
        let passes = |text: &&Arc<str>| tests.iter().all(|(passes, holds)| passes(text) == Some(*holds));
        let texts = TextSet::exact(listed.iter().filter(passes).cloned());
        drop(tests);
        self.conditions.retain(|(condition, _)| !condition.is_of(field));
        self.set(side, texts);
        (!self.side(side).is_empty()).then_some(self)
    }

    /// The tests of a field in conditions, and whether each must pass.
    fn tests(&self, field: Field) -> impl Iterator<Item = (&TextTest, bool)> {
        let conditions = self.conditions.iter();
        conditions.filter_map(move |(condition, outcomes)| match &condition.test {
            Some(ConditionTest::Text(of, test)) if *of == field => Some((&**test, outcomes.holds)),
            _ => None,
        })
    }

    /// Whether a string remains for a field, as far as that can be determined.
    fn is_possible(&self, field: Field) -> bool {
        !matches!(self.possible_text(field), Ok(None))
    }

    /// The shortest string of a field that passes the tests in its conditions.
    pub(crate) fn possible_text(&self, field: Field) -> Result<Option<String>, StoppedError> {
        let every_text;
        let texts = match field {
            Field::Side(side) => self.side(side),
            Field::Uid | Field::Version => {
                every_text = TextSet::all();
                &every_text
            }
        };
        let is_account = self.is_service_account && field == Field::Side(Side::User);
        common_text(texts, self.tests(field), is_account)
    }

    /// Whether `text` passes the tests of a field in conditions.
    pub(crate) fn passes(&self, field: Field, text: &str) -> bool {
        let mut tests = self.tests(field);
        tests.all(|(test, holds)| test.passes(text) == Some(holds))
    }

    /// Whether one of its users may be in `group`, whatever the user's other groups are.
    pub(crate) fn may_be_in(&self, group: &str) -> bool {
        match self.is_service_account {
            true => SERVICE_ACCOUNT_GROUPS.contains(&group) || group.starts_with(NAMESPACE_GROUP),
            false => !self.groups.none.contains(group),
        }
    }

    /// The part whose users' groups are in `groups`.
    pub(crate) fn with_groups(&self, groups: &GroupSet) -> Option<Self> {
        if self.is_service_account {
            return self.with(Side::User, &groups.service_accounts());
        }
        let groups = self.groups.intersection(groups)?;
        Some(Self {
            groups,
            ..self.clone()
        })
    }

    /// The part made by the callers of `by`, whatever its requests are.
    pub(crate) fn by(&self, by: &Self) -> Option<Self> {
        if self.is_service_account != by.is_service_account {
            return None;
        }
        let mut region = self.with(Side::User, by.side(Side::User))?;
        region.groups = self.groups.intersection(&by.groups)?;
        Some(region)
    }

    pub(crate) fn with_selectors(&self, selectors: &SelectorSet) -> Option<Self> {
        let selectors = self.selectors.intersection(selectors)?;
        Some(Self {
            selectors,
            ..self.clone()
        })
    }

    /// The part for which `condition` has one of `outcomes`.
    pub(crate) fn with_condition(&self, condition: &RegionCondition, outcomes: Outcomes) -> Option<Self> {
        let (field, test) = match &condition.test {
            None => return self.with_outcomes(condition, outcomes),
            Some(ConditionTest::Text(field, test)) => (field, test),
            Some(_) => return self.with_possible(condition, outcomes),
        };
        // The comparison of a string is never an error.
        let outcomes = outcomes.intersection(Outcomes::DECIDED);
        if outcomes.is_empty() {
            return None;
        }
        if outcomes == Outcomes::DECIDED {
            return Some(self.clone());
        }
        if let Field::Side(side) = field
            && let Some(listed) = self.side(*side).listed()
        {
            let passes = test.to_function();
            let passing = listed.iter().filter(|text| passes(text) == Some(outcomes.holds));
            return self.with(*side, &TextSet::exact(passing.cloned()));
        }
        let region = self.with_outcomes(condition, outcomes)?;
        if !region.is_possible(*field) {
            return None;
        }
        let others = outcomes.others().intersection(Outcomes::DECIDED);
        let others = self.with_outcomes(condition, others);
        match others.is_some_and(|others| others.is_possible(*field)) {
            true => Some(region),
            // The condition is true for all requests.
            false => Some(self.clone()),
        }
    }

    /// Does this for a condition on the labels of the namespace, or on the user's `extra`.
    fn with_possible(&self, condition: &RegionCondition, outcomes: Outcomes) -> Option<Self> {
        let may_be = |outcomes: Outcomes| {
            let region = self.with_outcomes(condition, outcomes)?;
            let is_impossible = match condition.extra() {
                Some((key, _)) => matches!(region.extra(key).possible(), Ok(None)),
                None => matches!(region.namespace_labels().possible(), Ok(None)),
            };
            (!is_impossible).then_some(region)
        };
        let region = may_be(outcomes)?;
        match may_be(outcomes.others()) {
            Some(_) => Some(region),
            // The condition is true for all requests.
            None => Some(self.clone()),
        }
    }

    fn with_outcomes(&self, condition: &RegionCondition, outcomes: Outcomes) -> Option<Self> {
        let mut region = self.clone();
        let conditions = &mut region.conditions;
        match conditions.iter_mut().find(|(known, _)| known == condition) {
            Some((_, known)) => *known = known.intersection(outcomes),
            None => conditions.push((condition.clone(), outcomes)),
        }
        conditions
            .iter()
            .all(|(_, outcomes)| !outcomes.is_empty())
            .then_some(region)
    }

    pub(crate) fn during(&self, period: Validity) -> Option<Self> {
        let period = self.period.intersection(period)?;
        Some(Self {
            period,
            ..self.clone()
        })
    }

    /// The requests in both regions.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if !self.overlaps(other) {
            return None;
        }
        let mut both = self.with_selectors(&other.selectors)?;
        both.groups = self.groups.intersection(&other.groups)?;
        both.period = self.period.intersection(other.period)?;
        for side in Side::ALL {
            both.set(side, self.side(side).intersection(other.side(side)));
        }
        for (condition, outcomes) in &other.conditions {
            both = both.with_condition(condition, *outcomes)?;
        }
        Side::ALL
            .into_iter()
            .try_fold(both, Self::with_conditions_applied)
    }

    /// Whether both regions have requests in common. May count requests that nobody can make.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_path == other.is_path
            && self.is_service_account == other.is_service_account
            && Split::all().all(|split| self.meets_on(split, other))
    }

    /// The requests that are in none of `others`, in disjoint parts.
    ///
    /// # Errors
    /// The limit is reached: nothing is known about the remaining requests.
    pub fn without(&self, others: &[&Self], limit: WorkLimit<'_>) -> Result<Vec<Self>, ProofLimitError> {
        self.split_off(others, |parts| match parts > limit.parts {
            true => Err(ProofLimitError::Parts),
            false => limit.check_deadline(),
        })
    }

    /// Like [`without`](Self::without) but without a limit, for regions whose number is bounded by
    /// the size of one object.
    pub(crate) fn without_unlimited(&self, others: &[&Self]) -> Vec<Self> {
        let Ok(left) = self.split_off(others, |_| Ok::<(), Infallible>(()));
        left
    }

    /// The requests that are in none of `others`. `step` is called with the weight of the parts so
    /// far, and may end the computation.
    ///
    /// Splits by users last: for fixed values of the other sides, the users of `others` are a list
    /// of names and groups, whose complement is one part. Splitting by groups first would double
    /// the number of parts with each group.
    fn split_off<E>(&self, others: &[&Self], step: impl Fn(usize) -> Result<(), E>) -> Result<Vec<Self>, E> {
        let mut left = Vec::new();
        let meeting = filter_regions(others, |other| self.overlaps(other), || step(0))?;
        if find_region(&meeting, |other| other.covers(self), || step(0))?.is_some() {
            return Ok(left);
        }
        let mut open = vec![(self.clone(), meeting, 0)];
        let mut weight = 0;
        while let Some((region, others, done)) = open.pop() {
            step(weight)?;
            if others.is_empty() {
                weight += region.weight();
                left.push(region);
                continue;
            }
            // On the sides before `done`, each of the others contains all of the region.
            let mut next = None;
            for (place, split) in Split::all().enumerate().skip(done) {
                let by = find_region(&others, |other| !region.is_within(split, other), || step(weight))?;
                if let Some(by) = by {
                    next = Some((place, split, by));
                    break;
                }
            }
            let Some((done, split, by)) = next else { continue };
            for part in region.split(split, by) {
                let meeting = filter_regions(&others, |other| part.meets_on(split, other), || step(weight))?;
                // If many others do not overlap the part, it is probably not covered.
                let may_cover = meeting.len() <= others.len() / 2;
                let covers = |other: &Self| other.covers(&part);
                if !may_cover || find_region(&meeting, covers, || step(weight))?.is_none() {
                    open.push((part, meeting, done));
                }
            }
        }
        step(weight)?;
        Ok(left)
    }

    /// The widest region that contains this one, lies within `all` and has nothing in common with
    /// `others`, because it can be described in fewer words. Widened parts may overlap.
    pub(crate) fn widened(&self, all: &Self, others: &[&Self]) -> Self {
        let mut widened = self.clone();
        // Conditions on labels apply only to namespaces whose labels are unknown, so namespace and
        // name must not be widened.
        let asks_for_labels = self
            .conditions
            .iter()
            .any(|(condition, _)| condition.selector().is_some());
        let is_place = |split: &Split| matches!(split, Split::Text(Side::Namespace | Side::Name));
        for split in Split::all().filter(|split| !(asks_for_labels && is_place(split))) {
            let mut wider = widened.clone();
            match split {
                Split::Period => wider.period = all.period,
                Split::Text(side) => wider.set(side, all.side(side).clone()),
                Split::Selectors => wider.selectors.clone_from(&all.selectors),
                Split::Conditions => wider.conditions.clone_from(&all.conditions),
                Split::Groups => wider.groups.clone_from(&all.groups),
            }
            if !others.iter().any(|other| other.overlaps(&wider)) {
                widened = wider;
            }
        }
        widened
    }

    /// Whether it certainly contains all of `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.is_path == other.is_path
            && self.is_service_account == other.is_service_account
            && Split::all().all(|split| other.is_within(split, self))
    }

    /// Whether `other` contains all of this region on a side.
    fn is_within(&self, split: Split, other: &Self) -> bool {
        match split {
            Split::Period => self.period.intersection(other.period) == Some(self.period),
            Split::Text(side) => other.side(side).covers(self.side(side)),
            Split::Selectors => other.selectors.covers(&self.selectors),
            Split::Conditions => other
                .conditions
                .iter()
                .all(|(condition, outcomes)| match condition {
                    RegionCondition { test: None, .. } => outcomes.cover(self.outcomes(condition)),
                    _ => self.with_condition(condition, outcomes.others()).is_none(),
                }),
            Split::Groups => other.groups.covers(&self.groups),
        }
    }

    /// Whether both overlap on a side.
    fn meets_on(&self, split: Split, other: &Self) -> bool {
        match split {
            Split::Period => self.period.intersection(other.period).is_some(),
            Split::Text(side) => self.side(side).meets(other.side(side)),
            Split::Selectors => self.selectors.intersection(&other.selectors).is_some(),
            Split::Conditions => other.conditions.is_empty() || self.meets_conditions_of(other),
            Split::Groups => self.groups.intersection(&other.groups).is_some(),
        }
    }

    fn meets_conditions_of(&self, other: &Self) -> bool {
        let with = |region: Self, (condition, outcomes): &(RegionCondition, Outcomes)| {
            region.with_condition(condition, *outcomes)
        };
        other.conditions.iter().try_fold(self.clone(), with).is_some()
    }

    fn outcomes(&self, condition: &RegionCondition) -> Outcomes {
        let mut conditions = self.conditions.iter();
        let known = conditions.find(|(known, _)| known == condition);
        known.map_or(Outcomes::ANY, |(_, outcomes)| *outcomes)
    }

    /// The part of this region that `by` contains on a side, and the parts that it does not
    /// contain.
    fn split(&self, split: Split, by: &Self) -> Vec<Self> {
        match split {
            Split::Period => self.split_period(by.period),
            Split::Text(side) => {
                let outside = self.side(side).difference(by.side(side)).into_iter();
                let inside = self.side(side).intersection(by.side(side));
                let parts = outside
                    .chain([inside])
                    .filter_map(|texts| self.with(side, &texts));
                parts.collect()
            }
            Split::Selectors => {
                let literals = by.selectors.literals();
                self.split_by(literals, |region, (selectors, is_within)| {
                    region.with_selectors(&SelectorSet::of(selectors, is_within))
                })
            }
            Split::Conditions => {
                let literals = by.conditions.iter().map(|condition| (condition, true));
                self.split_by(literals, |region, ((condition, outcomes), holds)| {
                    region.with_condition(condition, if holds { *outcomes } else { outcomes.others() })
                })
            }
            Split::Groups => self.split_by(by.groups.literals(), |region, (group, is)| {
                region.with_groups(&GroupSet::of(group, is))
            }),
        }
    }

    /// The part for which all `literals` hold, and for each literal the part for which it is the
    /// first that does not hold.
    fn split_by<L: Copy>(
        &self,
        literals: impl Iterator<Item = (L, bool)>,
        part: impl Fn(&Self, (L, bool)) -> Option<Self>,
    ) -> Vec<Self> {
        let (mut parts, mut inside) = (Vec::new(), Some(self.clone()));
        for (literal, is_positive) in literals {
            let Some(all_before) = inside else { break };
            parts.extend(part(&all_before, (literal, !is_positive)));
            inside = part(&all_before, (literal, is_positive));
        }
        parts.extend(inside);
        parts
    }

    fn split_period(&self, by: Validity) -> Vec<Self> {
        let before = by.not_before.map(|start| Validity {
            not_before: None,
            not_after: Some(start),
        });
        let after = by.not_after.map(|end| Validity {
            not_before: Some(end),
            not_after: None,
        });
        let parts = [before, Some(by), after].into_iter().flatten();
        parts.filter_map(|period| self.during(period)).collect()
    }
}

/// The regions for which `is_one` holds. For regions with conditions this may take long, so `step`
/// may end it.
fn filter_regions<'r, E>(
    regions: &[&'r Region],
    is_one: impl Fn(&Region) -> bool,
    step: impl Fn() -> Result<(), E>,
) -> Result<Vec<&'r Region>, E> {
    let mut found = Vec::new();
    for region in regions {
        if !region.conditions.is_empty() {
            step()?;
        }
        if is_one(region) {
            found.push(*region);
        }
    }
    Ok(found)
}

/// The first region for which `is_one` holds.
fn find_region<'r, E>(
    regions: &[&'r Region],
    is_one: impl Fn(&Region) -> bool,
    step: impl Fn() -> Result<(), E>,
) -> Result<Option<&'r Region>, E> {
    for region in regions {
        if !region.conditions.is_empty() {
            step()?;
        }
        if is_one(region) {
            return Ok(Some(*region));
        }
    }
    Ok(None)
}
