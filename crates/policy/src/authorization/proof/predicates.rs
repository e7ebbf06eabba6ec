//! Splits regions by the outcome of an expression that compares the fields of requests with
//! constants.

use std::cell::Cell;
use std::sync::Arc;

use super::condition::{ConditionTest, Field, Outcomes, RegionCondition, Side};
use super::region::Region;
use super::sets::{GroupSet, Patterns, TextSet};
use super::{ProofLimitError, WorkLimit};
use portcullis_cel::predicate::{Predicate, TextTest, path_expression, predicate};

/// The maximum of parts into which an expression splits a region. An expression that would make
/// more is treated as unknown.
const MAX_PARTS: usize = 64;

/// The maximum weight of these parts, in regions with few strings.
const MAX_WEIGHT: usize = 16 * MAX_PARTS;

/// The maximum number of evaluations of parts of an expression for parts of a region.
const MAX_STEPS: usize = 4_096;

/// What a path in an expression selects in the requests of a region.
enum Selected {
    Field(Field),
    /// Nothing: to select it is an error.
    Absent,
    Other,
}

/// An expression that is parsed once for all regions.
pub(crate) struct RegionExpression {
    predicate: Option<Predicate>,
    /// The whole expression, for regions that it does not split.
    unknown: RegionCondition,
    /// Set if splitting a region took too much, so that no other is tried.
    is_given_up: Cell<bool>,
}

/// Why an expression does not split a region into parts with a known outcome.
enum NotSplitError {
    /// There are too many parts or steps: the expression is treated as unknown.
    TooMuch,
    Limit(ProofLimitError),
}

/// The splitting of one region by one expression.
struct Splitting<'d> {
    limit: WorkLimit<'d>,
    steps_left: Cell<usize>,
}

// === impl RegionExpression ===

impl RegionExpression {
    pub(crate) fn new(expression: &str) -> Self {
        Self {
            predicate: predicate(expression).ok(),
            unknown: RegionCondition::unknown(expression.trim()),
            is_given_up: Cell::new(false),
        }
    }

    /// An expression of which only the text is known.
    pub(crate) fn unknown(text: &str) -> Self {
        Self {
            predicate: None,
            unknown: RegionCondition::unknown(text),
            is_given_up: Cell::new(false),
        }
    }

    /// The disjoint parts of `region` for which the expression has one of `outcomes`.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn parts(
        &self,
        region: &Region,
        outcomes: Outcomes,
        limit: WorkLimit<'_>,
    ) -> Result<Vec<Region>, ProofLimitError> {
        limit.check_deadline()?;
        let splitting = Splitting {
            limit,
            steps_left: Cell::new(MAX_STEPS),
        };
        let known = self.predicate.as_ref().filter(|_| !self.is_given_up.get());
        let known = known.map(|predicate| splitting.parts(region, predicate, outcomes));
        match known {
            Some(Ok(parts)) => Ok(parts),
            Some(Err(NotSplitError::Limit(reached))) => Err(reached),
            not_split => {
                self.is_given_up
                    .set(self.is_given_up.get() || not_split.is_some());
                let whole = region.with_condition(&self.unknown, outcomes);
                Ok(whole.into_iter().collect())
            }
        }
    }
}

// === impl Splitting ===

impl Splitting<'_> {
    /// The parser of expressions bounds the depth of this recursion.
    fn parts(
        &self,
        region: &Region,
        predicate: &Predicate,
        outcomes: Outcomes,
    ) -> Result<Vec<Region>, NotSplitError> {
        if outcomes.is_empty() {
            return Ok(Vec::new());
        }
        self.step()?;
        let one = |region: Option<Region>| region.into_iter().collect();
        let found = match predicate {
            Predicate::Constant(holds) => constant(region, *holds, outcomes),
            Predicate::Not(opposite) => self.parts(region, opposite, outcomes.negated())?,
            Predicate::All(of) => self.all(region, of, true, outcomes)?,
            // `a || b` is `!(!a && !b)`.
            Predicate::Any(of) => self.all(region, of, false, outcomes.negated())?,
            Predicate::Text(path, test) => text(region, path, test, outcomes),
            Predicate::Element(path, test) => element(region, path, test, outcomes),
            Predicate::Present(path) => present(region, path, outcomes),
            Predicate::Other(text) => one(region.with_condition(&RegionCondition::unknown(text), outcomes)),
        };
        check_number(found)
    }

    /// Counts each evaluation, because nested expressions are evaluated repeatedly.
    fn step(&self) -> Result<(), NotSplitError> {
        let left = self.steps_left.get().checked_sub(1);
        self.steps_left.set(left.ok_or(NotSplitError::TooMuch)?);
        self.limit.check_deadline().map_err(NotSplitError::Limit)
    }

    /// The parts where all predicates have the value `are`. One with the other value decides,
    /// otherwise one with an error does (CEL's `&&`, or `||` with opposite outcomes).
    fn all(
        &self,
        region: &Region,
        of: &[Predicate],
        are: bool,
        outcomes: Outcomes,
    ) -> Result<Vec<Region>, NotSplitError> {
        let (mut found, mut rest) = (Vec::new(), vec![region.clone()]);
        let split = |from: &[Region], by: &Predicate, outcomes: Outcomes| {
            let outcomes = if are { outcomes } else { outcomes.negated() };
            let mut split = Vec::new();
            for region in from {
                split.extend(self.parts(region, by, outcomes)?);
            }
            check_number(split)
        };
        for one in of {
            if outcomes.fails {
                found.extend(split(&rest, one, Outcomes::FAILS)?);
            }
            rest = split(&rest, one, Outcomes::DOES_NOT_FAIL)?;
        }
        if outcomes.holds && outcomes.errors {
            found.extend(rest);
            return Ok(found);
        }
        for one in of {
            if outcomes.errors {
                found.extend(split(&rest, one, Outcomes::ERRORS)?);
            }
            rest = split(&rest, one, Outcomes::HOLDS)?;
        }
        if outcomes.holds {
            found.extend(rest);
        }
        Ok(found)
    }
}

fn check_number(parts: Vec<Region>) -> Result<Vec<Region>, NotSplitError> {
    let weight: usize = parts.iter().map(Region::weight).sum();
    match parts.len() > MAX_PARTS || weight > MAX_WEIGHT {
        true => Err(NotSplitError::TooMuch),
        false => Ok(parts),
    }
}

fn constant(region: &Region, holds: bool, outcomes: Outcomes) -> Vec<Region> {
    let is_one = if holds { outcomes.holds } else { outcomes.fails };
    is_one.then(|| region.clone()).into_iter().collect()
}

fn text(region: &Region, path: &[String], test: &TextTest, outcomes: Outcomes) -> Vec<Region> {
    let expression = || test.expression(&path_expression(path));
    let field = match selected(region, path) {
        Selected::Field(field) => field,
        Selected::Absent => return outcomes.errors.then(|| region.clone()).into_iter().collect(),
        Selected::Other => {
            let unknown = RegionCondition::unknown(&expression());
            return region.with_condition(&unknown, outcomes).into_iter().collect();
        }
    };
    if let (Field::Side(side), Some(texts)) = (field, patterns(test)) {
        let passing = outcomes.holds.then(|| TextSet::of(texts.clone()));
        let others = outcomes.fails.then(|| TextSet::all_but(texts));
        let sets = passing.into_iter().chain(others);
        return sets.filter_map(|set| region.with(side, &set)).collect();
    }
    let test = ConditionTest::Text(field, Arc::new(test.clone()));
    let condition = RegionCondition::of(&expression(), test);
    region.with_condition(&condition, outcomes).into_iter().collect()
}

/// The strings that pass, if these are a list, or all with a prefix.
fn patterns(test: &TextTest) -> Option<Patterns> {
    match test {
        TextTest::Is(texts) => Some(Patterns::exact(texts.iter().map(String::as_str))),
        TextTest::StartsWith(text) => Some(Patterns::prefixes([text.as_str()])),
        _ => None,
    }
}

/// Whether one of the user's groups passes, or one of the values of a key in `extra`.
fn element(region: &Region, path: &[String], test: &TextTest, outcomes: Outcomes) -> Vec<Region> {
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    let condition = match (names.as_slice(), patterns(test), test) {
        (["request", "groups"], Some(groups), _) => return of_groups(region, groups, outcomes),
        (["request", "extra"], _, TextTest::Is(keys)) if keys.len() == 1 => {
            return has_extra(region, &keys.concat(), outcomes);
        }
        (["request", "extra", key], ..) => {
            let expression = format!("{}.exists(x, {})", path_expression(path), test.expression("x"));
            let test = ConditionTest::ExtraValue((*key).into(), Arc::new(test.clone()));
            RegionCondition::of(&expression, test)
        }
        _ => {
            let expression = format!("{}.exists(x, {})", path_expression(path), test.expression("x"));
            RegionCondition::unknown(&expression)
        }
    };
    region.with_condition(&condition, outcomes).into_iter().collect()
}

/// Whether the user's `extra` has a key.
fn has_extra(region: &Region, key: &str, outcomes: Outcomes) -> Vec<Region> {
    let test = TextTest::Is(vec![key.to_owned()]);
    let expression = test.expression("x");
    let expression = format!("request.extra.exists(x, {expression})");
    let condition = RegionCondition::of(&expression, ConditionTest::ExtraKey(key.into()));
    region.with_condition(&condition, outcomes).into_iter().collect()
}

fn of_groups(region: &Region, groups: Patterns, outcomes: Outcomes) -> Vec<Region> {
    let exact = groups.exact.into_iter().map(|group| Patterns::exact([group]));
    let prefixes = groups
        .prefixes
        .into_iter()
        .map(|prefix| Patterns::prefixes([prefix]));
    let (mut found, mut none) = (Vec::new(), Patterns::default());
    for group in exact.chain(prefixes) {
        if outcomes.holds {
            let first = GroupSet {
                all: group.clone(),
                none: none.clone(),
            };
            found.extend(region.with_groups(&first));
        }
        none = none.or(group);
    }
    if outcomes.fails {
        let all = Patterns::default();
        found.extend(region.with_groups(&GroupSet { all, none }));
    }
    found
}

fn present(region: &Region, path: &[String], outcomes: Outcomes) -> Vec<Region> {
    let path_of: Vec<&str> = path.iter().map(String::as_str).collect();
    let is_there = match path_of.as_slice() {
        ["request", "extra", key] => return has_extra(region, key, outcomes),
        ["request", "user" | "uid" | "groups" | "extra"] => true,
        ["request", "resourceAttributes"] => !region.is_path,
        ["request", "nonResourceAttributes"] => region.is_path,
        _ => match selected(region, path) {
            Selected::Field(_) => true,
            Selected::Absent => return outcomes.errors.then(|| region.clone()).into_iter().collect(),
            Selected::Other => {
                let unknown = RegionCondition::unknown(&format!("has({})", path_expression(path)));
                return region.with_condition(&unknown, outcomes).into_iter().collect();
            }
        },
    };
    constant(region, is_there, outcomes)
}

/// Like the spec of a SubjectAccessReview in CEL, in which every string field is present even if it
/// is empty.
fn selected(region: &Region, path: &[String]) -> Selected {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let field = match path.as_slice() {
        ["request", "user"] => Field::Side(Side::User),
        ["request", "uid"] => Field::Uid,
        ["request", "resourceAttributes", ..] if region.is_path => return Selected::Absent,
        ["request", "nonResourceAttributes", ..] if !region.is_path => return Selected::Absent,
        ["request", "resourceAttributes", "namespace"] => Field::Side(Side::Namespace),
        ["request", "resourceAttributes", "group"] => Field::Side(Side::ApiGroup),
        ["request", "resourceAttributes", "resource"] => Field::Side(Side::Resource),
        ["request", "resourceAttributes", "subresource"] => Field::Side(Side::Subresource),
        ["request", "resourceAttributes", "name"] => Field::Side(Side::Name),
        ["request", "resourceAttributes", "version"] => Field::Version,
        ["request", "nonResourceAttributes", "path"] => Field::Side(Side::Path),
        ["request", "resourceAttributes" | "nonResourceAttributes", "verb"] => Field::Side(Side::Verb),
        _ => return Selected::Other,
    };
    Selected::Field(field)
}
