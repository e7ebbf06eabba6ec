//! Candidates: the rules of AuthorizationPolicies that may apply to a request.
//!
//! Rules are in blocks of 512. For each field and each string that occurs in it, a block
//! has a bit set of the rules in which it occurs. The candidates are the intersection
//! over all fields, which costs the same however many of the 512 rules are irrelevant.
//! Subjects are exact; for the other fields the index may return too many candidates but
//! never too few, and each candidate is then compared in full.

use crate::engine::authorization::{AuthorizationPolicy, Effect, NonResourceRule, ResourceRule, Subject};

use super::query::{PathQuery, Query, ResourceQuery};
use super::subjects::Named;
use super::{FastMap, Ids, InNamespace, NamespaceIndex, Subjects, Symbols};

/// The rules of some policies, in the order of the policies.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    resources: Vec<Block>,
    paths: Vec<Block>,
}

/// A rule that may apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The place of its policy in the list that the index was built of.
    pub(crate) policy: usize,
    /// Its place among the policy's rules of its sort.
    pub(crate) rule: usize,
    /// Whether one of the policy's subjects asks.
    pub(crate) is_subject: bool,
    /// Whether one of its excluded subjects asks.
    pub(crate) is_excluded: bool,
    /// Whether it has no `namespaceSelector`, or one that selects the namespace
    /// of the request, which is known.
    pub(crate) is_selected: bool,
}

#[derive(Debug, Default)]
struct Block {
    /// Policy and rule of each bit.
    rules: Vec<(usize, usize)>,
    subjects: CandidateField,
    excluded: CandidateField,
    verbs: CandidateField,
    groups: CandidateField,
    resources: CandidateField,
    namespaces: CandidateField,
    /// By the numbers of selectors.
    selectors: CandidateField,
    /// Rules that may apply in a namespace of which only the name is known.
    unknown: Bits,
    names: CandidateField,
    paths: CandidateField,
}

/// In which rules of a block each text occurs.
#[derive(Debug, Default)]
struct CandidateField {
    /// Rules that fit whatever is asked.
    any: Bits,
    by: FastMap<u32, Bits>,
}

/// One bit for each rule of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bits([u64; Bits::WORDS]);

// === impl Candidates ===

impl Candidates {
    /// The index of `policies`, whose places are numbered from `first`.
    pub(crate) fn new(
        policies: &[AuthorizationPolicy],
        first: usize,
        namespaces: &NamespaceIndex,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        let mut candidates = Self::default();
        for (policy, written) in (first..).zip(policies) {
            let of = |list: &[Subject], subjects: &mut Subjects| -> Vec<Named> {
                list.iter().map(|subject| subjects.matched(subject)).collect()
            };
            let (included, excluded) = (
                of(&written.subjects, subjects),
                of(&written.exclude_subjects, subjects),
            );
            let effect = written.effect;
            for (rule, written) in written.resource_rules.iter().enumerate() {
                let (block, bit) = open(&mut candidates.resources, (policy, rule));
                block.add_subjects(bit, &included, &excluded);
                block.add_resource_rule(bit, written, symbols);
                block.add_selector(bit, effect, written, namespaces);
            }
            for (rule, written) in written.non_resource_rules.iter().enumerate() {
                let (block, bit) = open(&mut candidates.paths, (policy, rule));
                block.add_subjects(bit, &included, &excluded);
                block.add_path_rule(bit, written, symbols);
            }
        }
        candidates
    }

    /// Calls `found` with each candidate in order. With `all`, every rule of
    /// the sort that is asked for is one.
    pub(crate) fn each(
        &self,
        who: &Ids,
        query: &Query<'_>,
        all: bool,
        mut found: impl FnMut(Candidate) -> std::ops::ControlFlow<()>,
    ) {
        let blocks = match query {
            Query::Resource(_) => &self.resources,
            Query::Path(_) => &self.paths,
        };
        for block in blocks {
            let subjects = block.subjects.of_any(who.as_slice());
            if !all && subjects.is_empty() {
                continue;
            }
            let excluded = block.excluded.of_any(who.as_slice());
            let selected = block.selected(query);
            let fitting = if all {
                Bits::ALL
            } else {
                subjects.and(excluded.not()).and(block.fitting(query))
            };
            let mut bits = fitting.ones();
            while let Some(bit) = bits.next().filter(|&bit| bit < block.rules.len()) {
                let Some(&(policy, rule)) = block.rules.get(bit) else {
                    break;
                };
                let (is_subject, is_excluded) = (subjects.has(bit), excluded.has(bit));
                let is_selected = selected.has(bit);
                if found(Candidate {
                    policy,
                    rule,
                    is_subject,
                    is_excluded,
                    is_selected,
                })
                .is_break()
                {
                    return;
                }
            }
        }
    }
}

/// The block to which the next rule belongs, and its bit there.
fn open(blocks: &mut Vec<Block>, rule: (usize, usize)) -> (&mut Block, usize) {
    if blocks.last().is_none_or(|block| block.rules.len() == Bits::COUNT) {
        blocks.push(Block::default());
    }
    let last = blocks.len() - 1;
    #[expect(
        clippy::indexing_slicing,
        reason = "there is a last block: one was pushed if there was none"
    )]
    let block = &mut blocks[last];
    block.rules.push(rule);
    let bit = block.rules.len() - 1;
    (block, bit)
}

// === impl Block ===

impl Block {
    fn add_subjects(&mut self, bit: usize, included: &[Named], excluded: &[Named]) {
        for (field, list) in [(&mut self.subjects, included), (&mut self.excluded, excluded)] {
            for named in list {
                match *named {
                    Named::Anyone => field.any.set(bit),
                    Named::Id(id) => field.add(id, bit),
                    Named::Nobody => {}
                }
            }
        }
    }

    fn add_resource_rule(&mut self, bit: usize, rule: &ResourceRule, symbols: &mut Symbols) {
        self.verbs.add_texts(bit, &rule.verbs, symbols);
        self.groups.add_texts(bit, &rule.api_groups, symbols);
        for pattern in &rule.resources {
            match pattern
                .split_once('/')
                .map_or(pattern.as_str(), |(resource, _)| resource)
            {
                "*" => self.resources.any.set(bit),
                resource => self.resources.add(symbols.intern(resource), bit),
            }
        }
        for pattern in &rule.namespaces {
            let id = match pattern.strip_suffix('*') {
                Some(prefix) => symbols.intern_prefix(prefix),
                None => symbols.intern(pattern),
            };
            self.namespaces.add(id, bit);
        }
        if rule.namespaces.is_empty() {
            self.namespaces.any.set(bit);
        }
        for name in &rule.names {
            self.names.add(symbols.intern(name), bit);
        }
        if rule.names.is_empty() {
            self.names.any.set(bit);
        }
    }

    fn add_selector(&mut self, bit: usize, effect: Effect, rule: &ResourceRule, namespaces: &NamespaceIndex) {
        let Some(selector) = &rule.namespace_selector else {
            self.selectors.any.set(bit);
            return self.unknown.set(bit);
        };
        if let Some(number) = namespaces.number(selector) {
            self.selectors.add(number, bit);
        }
        // Labels that are not known prove nothing, and may be anything.
        if effect == Effect::Deny || selector.asks_for_the_name_alone() {
            self.unknown.set(bit);
        }
    }

    fn add_path_rule(&mut self, bit: usize, rule: &NonResourceRule, symbols: &mut Symbols) {
        self.verbs.add_texts(bit, &rule.verbs, symbols);
        for path in &rule.paths {
            let id = if path.ends_with('*') {
                symbols.intern_prefix(path.trim_end_matches('*'))
            } else {
                symbols.intern(path)
            };
            self.paths.add(id, bit);
        }
    }

    fn fitting(&self, query: &Query<'_>) -> Bits {
        match query {
            Query::Resource(query) => self.fitting_resource(query),
            Query::Path(query) => self.fitting_path(query),
        }
    }

    /// Rules without selector, and those whose selector selects the namespace of
    /// the request, as far as it is known.
    fn selected(&self, query: &Query<'_>) -> Bits {
        match query {
            Query::Resource(query) => match query.in_namespace {
                InNamespace::Known(numbers) => self.selectors.of_any(numbers),
                InNamespace::None | InNamespace::Unknown => self.selectors.any,
            },
            Query::Path(_) => Bits::ALL,
        }
    }

    fn fitting_resource(&self, query: &ResourceQuery<'_>) -> Bits {
        let namespaces = if query.all_namespaces {
            Bits::ALL
        } else {
            self.namespaces
                .of(query.namespace)
                .or(self.namespaces.of_any(query.namespace_prefixes.as_slice()))
        };
        let selectors = match query.in_namespace {
            InNamespace::Known(numbers) => self.selectors.of_any(numbers),
            InNamespace::Unknown => self.unknown,
            InNamespace::None if query.all_namespaces => Bits::ALL,
            InNamespace::None => self.selectors.any,
        };
        let names = if query.all_names {
            Bits::ALL
        } else {
            self.names.of(query.name)
        };
        self.verbs
            .touched(query.verb)
            .and(self.groups.touched(query.group))
            .and(self.resources.touched(query.resource))
            .and(namespaces)
            .and(selectors)
            .and(names)
    }

    fn fitting_path(&self, query: &PathQuery) -> Bits {
        let paths = self
            .paths
            .touched(query.path)
            .or(self.paths.of_any(query.prefixes.as_slice()));
        self.verbs.touched(query.verb).and(paths)
    }
}

// === impl Field ===

impl CandidateField {
    fn add(&mut self, id: u32, bit: usize) {
        self.by.entry(id).or_default().set(bit);
    }

    fn add_texts(&mut self, bit: usize, texts: &[String], symbols: &mut Symbols) {
        for text in texts {
            match text.as_str() {
                "*" => self.any.set(bit),
                text => self.add(symbols.intern(text), bit),
            }
        }
    }

    fn of(&self, id: u32) -> Bits {
        self.by.get(&id).map_or(self.any, |bits| self.any.or(*bits))
    }

    /// As [`CandidateField::of`], but a requested `*` may touch anything.
    fn touched(&self, id: u32) -> Bits {
        if id == Symbols::STAR {
            Bits::ALL
        } else {
            self.of(id)
        }
    }

    fn of_any(&self, ids: &[u32]) -> Bits {
        if self.by.is_empty() {
            return self.any;
        }
        ids.iter()
            .filter_map(|id| self.by.get(id))
            .fold(self.any, |all, bits| all.or(*bits))
    }
}

// === impl Bits ===

impl Bits {
    const WORDS: usize = 8;
    const COUNT: usize = Self::WORDS * 64;
    const ALL: Self = Self([u64::MAX; Self::WORDS]);

    #[expect(
        clippy::indexing_slicing,
        reason = "the place is below the number of words; no bit is passed over in silence"
    )]
    const fn set(&mut self, bit: usize) {
        self.0[bit / 64 % Self::WORDS] |= 1 << (bit % 64);
    }

    #[expect(clippy::indexing_slicing, reason = "the place is below the number of words")]
    const fn has(self, bit: usize) -> bool {
        self.0[bit / 64 % Self::WORDS] >> (bit % 64) & 1 == 1
    }

    fn and(mut self, other: Self) -> Self {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(word, other)| *word &= other);
        self
    }

    fn or(mut self, other: Self) -> Self {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(word, other)| *word |= other);
        self
    }

    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    fn is_empty(self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The bits that are set, ascending.
    fn ones(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(place, mut word)| {
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros() as usize;
                    word &= word - 1;
                    place * 64 + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_kept_and_listed_in_order() {
        let mut bits = Bits::default();
        let set = [0, 1, 63, 64, 200, 511];
        set.iter().for_each(|&bit| bits.set(bit));
        assert_eq!(bits.ones().collect::<Vec<_>>(), set);
        assert!(bits.has(200) && !bits.has(201) && bits.not().has(201));
        assert!(bits.and(bits.not()).is_empty());
        assert_eq!(bits.or(bits.not()), Bits::ALL);
    }
}
