//! Many regions in one sentence: the smallest box around them, less what they leave out of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::group_set::GroupSet;
use super::limit::WorkLimit;
use super::region::Region;
use super::side::Side;
use super::text_set::{Patterns, TextSet};
use crate::engine::Deadline;

/// The most parts that a sentence leaves out; more are no easier to read than the regions.
const MAX_EXCEPTIONS: usize = 8;

/// The most regions that are summarised, and the most parts on the way.
const MAX_PARTS: usize = 256;

/// Exactly the requests of some regions.
#[derive(Debug, Clone)]
pub struct RegionSummary {
    pub(crate) around: Region,
    /// What of it is in none of the regions.
    pub(crate) except: Vec<Region>,
}

// === impl RegionSummary ===

impl RegionSummary {
    /// The summary of `regions`; `None` where they are of different sorts, depend on conditions, or are
    /// no shorter in one sentence.
    #[must_use]
    pub fn new(regions: &[&Region]) -> Option<Self> {
        let (first, others) = regions.split_first()?;
        if regions.len() > MAX_PARTS || !regions.iter().all(|one| first.is_alike(one)) {
            return None;
        }
        let mut around = (*first).clone();
        for other in others {
            around = hull(&around, other);
        }
        let limit = WorkLimit {
            parts: MAX_PARTS,
            deadline: Deadline::NEVER,
        };
        let mut except: Vec<Region> = Vec::new();
        for part in around.without(regions, limit).ok()? {
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
    /// Whether both differ in texts and groups alone, and depend on no condition.
    fn is_alike(&self, other: &Self) -> bool {
        self.is_path == other.is_path
            && self.is_service_account == other.is_service_account
            && self.selectors == other.selectors
            && self.period == other.period
            && self.conditions.is_empty()
            && other.conditions.is_empty()
    }
}

/// A box that holds both.
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

/// The same without what `part` says of groups, where it still has nothing in common with `others`.
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
            if !others.iter().any(|other| other.meets(&wider)) {
                part = wider;
            }
        }
    }
    part
}

/// What is said by both.
fn common(one: &Patterns, other: &Patterns) -> Patterns {
    Patterns {
        exact: one.exact.intersection(&other.exact).cloned().collect(),
        prefixes: one.prefixes.intersection(&other.prefixes).cloned().collect(),
    }
}

/// A set that holds both, and of what both leave out as little as can be said.
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
        let rest = summary.around.less(&except);
        rest.iter().all(|part| part.less(regions).is_empty())
            && regions
                .iter()
                .all(|one| one.less(&rest.iter().collect::<Vec<_>>()).is_empty())
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
        let parts = all.less(&[&taken]);
        let parts: Vec<&Region> = parts.iter().collect();
        assert!(parts.len() > 2, "{parts:?}");
        let summary = RegionSummary::new(&parts).unwrap();
        assert!(is_exact(&summary, &parts));
        assert_eq!(summary.except.len(), 1, "{summary:?}");
        assert_eq!(
            summary.to_string(),
            "all users: delete, get of any resource and their subresources of the API group of any name in the \
             namespace prod-*, except: Group dev, delete of pods"
        );
    }

    #[test]
    fn what_has_too_many_gaps_is_not_summarised() {
        let parts: Vec<Region> = ["get", "list", "watch", "create"]
            .into_iter()
            .enumerate()
            .map(|(at, verb)| region(&[verb], TextSet::exact([format!("n{at}")])))
            .collect();
        let parts: Vec<&Region> = parts.iter().collect();
        assert!(RegionSummary::new(&parts).is_none(), "{parts:?}");
    }
}
