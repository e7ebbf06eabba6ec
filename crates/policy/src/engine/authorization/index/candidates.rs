//! Candidates: the rules of AuthorizationPolicies that may apply to a request.
//!
//! Rules are in blocks of 4096. For each field and each string that occurs in it, a block
//! has a set of the rules in which it occurs, as words of 64 bits and a summary: which
//! words there are. The summaries of all fields are intersected first, and then those
//! words alone that are left, which costs the same however many of the rules are irrelevant.
//! Each candidate is then compared in full. It comes with its rule and policy: nothing is
//! left to look up, so nothing can fail to be found.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::engine::authorization::listed_policy::ListedPolicy;
use crate::engine::authorization::matching::{compare_path_rule, compare_resource_rule};
use crate::engine::authorization::{Effect, NonResourceRule, ResourceRule, RuleMatch, Subject};

use super::Ids;
use super::candidate_field::FieldQuery;
use super::fields::BlockFields;
use super::namespaces::NamespaceSelectors;
use super::query::{PathQuery, ResourceQuery};
use super::rule_set::{RuleSet, ones};
use super::subjects::{Named, Subjects};
use super::symbols::Symbols;

/// The rules of some policies, in the order of the policies.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    pub(crate) resources: RuleBlocks<ResourceRule>,
    pub(crate) paths: RuleBlocks<NonResourceRule>,
}

/// The rules of one sort.
#[derive(Debug)]
pub(crate) struct RuleBlocks<T>(Vec<RuleBlock<T>>);

/// A rule that may apply.
#[derive(Debug)]
pub(crate) struct Candidate<'s, T> {
    pub(crate) listed: &'s ListedPolicy,
    pub(crate) rule: &'s T,
    /// The rule's number among all of its policy's, the non-resource ones last.
    pub(crate) number: usize,
    /// Whether one of the policy's subjects asks.
    pub(crate) is_subject: bool,
    /// Whether one of its excluded subjects asks.
    pub(crate) is_excluded: bool,
    /// Whether it has no `namespaceSelector`, or one that selects the namespace
    /// of the request, which is known.
    pub(crate) is_selected: bool,
}

/// A request for what rules of one sort are about.
pub(crate) trait RuleQuery {
    /// The sort.
    type Rule;

    /// Which rules of a block may apply, those that all that `of` gives of the fields has in
    /// common: too many perhaps, never too few.
    fn fitting(&self, fields: &BlockFields, of: impl Fn(FieldQuery<'_>) -> u64) -> u64;

    /// Those whose selector selects the namespace of the request, or that have none.
    fn selected<'f>(&'f self, fields: &'f BlockFields) -> FieldQuery<'f>;

    /// Whether a rule applies; `is_selected` as the candidate says.
    fn compare(&self, effect: Effect, rule: &Self::Rule, is_selected: bool) -> RuleMatch;
}

/// At most [`RuleSet::MAX_RULES`] rules.
#[derive(Debug)]
struct RuleBlock<T> {
    /// The rule of each bit.
    rules: Vec<IndexedRule<T>>,
    fields: BlockFields,
}

#[derive(Debug)]
struct IndexedRule<T> {
    listed: Arc<ListedPolicy>,
    rule: T,
    number: usize,
}

// === impl Candidates ===

impl Candidates {
    /// The index of `policies`.
    pub(crate) fn new(
        policies: &[Arc<ListedPolicy>],
        selectors: &mut NamespaceSelectors,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        let mut candidates = Self::default();
        for listed in policies {
            let policy = &listed.policy;
            let mut of = |list: &[Subject]| -> Vec<Named> {
                list.iter().map(|subject| subjects.matched(subject)).collect()
            };
            let (included, excluded) = (of(&policy.subjects), of(&policy.exclude_subjects));
            for (number, rule) in policy.resource_rules.iter().enumerate() {
                let (fields, bit) = candidates.resources.add(listed, number, rule);
                fields.add_subjects(bit, &included, &excluded);
                fields.add_resource_rule(bit, policy.effect, rule, selectors, symbols);
            }
            let before = policy.resource_rules.len();
            for (number, rule) in policy.non_resource_rules.iter().enumerate() {
                let (fields, bit) = candidates.paths.add(listed, before + number, rule);
                fields.add_subjects(bit, &included, &excluded);
                fields.add_path_rule(bit, rule, symbols);
            }
        }
        candidates
    }

    /// The places of the policies that are about a user; some more than once.
    pub(crate) fn about(&self, who: &Ids) -> impl Iterator<Item = usize> + use<> {
        let mut places: Vec<usize> = Vec::new();
        places.extend(self.resources.about(who).iter().map(|(listed, ..)| listed.place));
        places.extend(self.paths.about(who).iter().map(|(listed, ..)| listed.place));
        places.into_iter()
    }
}

// === impl RuleBlocks ===

impl<T> Default for RuleBlocks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> RuleBlocks<T> {
    /// Adds a rule to the last block, or to a new one: the fields of that block, and the
    /// rule's bit there.
    fn add(&mut self, listed: &Arc<ListedPolicy>, number: usize, rule: &T) -> (&mut BlockFields, usize) {
        if self
            .0
            .last()
            .is_none_or(|block| block.rules.len() == RuleSet::MAX_RULES)
        {
            self.0.push(RuleBlock {
                rules: Vec::new(),
                fields: BlockFields::default(),
            });
        }
        let last = self.0.len() - 1;
        #[expect(
            clippy::indexing_slicing,
            reason = "there is a last block: one was pushed if there was none"
        )]
        let block = &mut self.0[last];
        let bit = block.rules.len();
        block.rules.push(IndexedRule {
            listed: Arc::clone(listed),
            rule: rule.clone(),
            number,
        });
        (&mut block.fields, bit)
    }
}

impl<T> RuleBlocks<T> {
    /// Every rule with its policy and number, in order.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&ListedPolicy, &T, usize)> {
        let rules = self.0.iter().flat_map(|block| &block.rules);
        rules.map(|indexed| (&*indexed.listed, &indexed.rule, indexed.number))
    }

    /// Those that are about a user: one of the policy's subjects, and none that it excludes.
    pub(crate) fn about(&self, who: &Ids) -> Vec<(&ListedPolicy, &T, usize)> {
        let mut found = Vec::new();
        for block in &self.0 {
            let (subjects, excluded) = (block.fields.subjects(who), block.fields.excluded(who));
            for word in ones(subjects.summary()) {
                let rules = block.rules_of(word, subjects.word(word) & !excluded.word(word));
                found.extend(rules.map(|(_, indexed)| (&*indexed.listed, &indexed.rule, indexed.number)));
            }
        }
        found
    }

    /// Calls `found` with the policy and number of each rule that applies to `query`, whoever asks.
    pub(crate) fn applying<'s>(
        &'s self,
        query: &impl RuleQuery<Rule = T>,
        found: &mut impl FnMut(&'s ListedPolicy, usize),
    ) {
        for block in &self.0 {
            let selected = query.selected(&block.fields);
            for word in ones(query.fitting(&block.fields, |field| field.summary())) {
                let selected = selected.word(word);
                let fitting = query.fitting(&block.fields, |field| field.word(word));
                for (bit, indexed) in block.rules_of(word, fitting) {
                    let effect = indexed.listed.policy.effect;
                    if query
                        .compare(effect, &indexed.rule, selected >> bit & 1 == 1)
                        .is_match()
                    {
                        found(&indexed.listed, indexed.number);
                    }
                }
            }
        }
    }

    /// Calls `found` with each candidate in order. With `all`, every rule is one.
    #[inline]
    pub(crate) fn each<'s>(
        &'s self,
        who: &Ids,
        query: &impl RuleQuery<Rule = T>,
        all: bool,
        mut found: impl FnMut(Candidate<'s, T>) -> ControlFlow<()>,
    ) {
        for block in &self.0 {
            let mut words = u64::MAX;
            if !all {
                words = query.fitting(&block.fields, |field| field.summary());
            }
            if words == 0 {
                continue;
            }
            let subjects = block.fields.subjects(who);
            if !all {
                words &= subjects.summary();
            }
            for word in ones(words) {
                let subjects = subjects.word(word);
                let excluded = block.fields.excluded(who).word(word);
                let fitting = if all {
                    u64::MAX
                } else {
                    subjects & !excluded & query.fitting(&block.fields, |field| field.word(word))
                };
                if fitting == 0 {
                    continue;
                }
                let selected = query.selected(&block.fields).word(word);
                for (bit, indexed) in block.rules_of(word, fitting) {
                    let candidate = Candidate {
                        listed: &indexed.listed,
                        rule: &indexed.rule,
                        number: indexed.number,
                        is_subject: subjects >> bit & 1 == 1,
                        is_excluded: excluded >> bit & 1 == 1,
                        is_selected: selected >> bit & 1 == 1,
                    };
                    if found(candidate).is_break() {
                        return;
                    }
                }
            }
        }
    }
}

// === impl RuleBlock ===

impl<T> RuleBlock<T> {
    /// The rules of the bits of one word, each with its bit.
    fn rules_of(&self, word: usize, bits: u64) -> impl Iterator<Item = (usize, &IndexedRule<T>)> {
        // Bits ascend, and those beyond the last rule stand for none.
        ones(bits).map_while(move |bit| Some((bit, self.rules.get(word * 64 + bit)?)))
    }
}

// === impl ResourceQuery and PathQuery ===

impl RuleQuery for ResourceQuery<'_, '_> {
    type Rule = ResourceRule;

    #[inline]
    fn fitting(&self, fields: &BlockFields, of: impl Fn(FieldQuery<'_>) -> u64) -> u64 {
        fields.fitting_resource(self, of)
    }

    fn selected<'f>(&'f self, fields: &'f BlockFields) -> FieldQuery<'f> {
        fields.selected(self)
    }

    fn compare(&self, effect: Effect, rule: &ResourceRule, is_selected: bool) -> RuleMatch {
        let selected = |selector: &_| {
            self.in_namespace
                .selected_by(selector, self.namespace_of_labels, is_selected)
        };
        compare_resource_rule(
            effect,
            rule,
            self.request,
            selected,
            &self.narrowness,
            self.scoped,
        )
    }
}

impl RuleQuery for PathQuery<'_> {
    type Rule = NonResourceRule;

    #[inline]
    fn fitting(&self, fields: &BlockFields, of: impl Fn(FieldQuery<'_>) -> u64) -> u64 {
        fields.fitting_path(self, of)
    }

    /// No rule for paths has a selector.
    fn selected<'f>(&'f self, _: &'f BlockFields) -> FieldQuery<'f> {
        FieldQuery::All
    }

    fn compare(&self, effect: Effect, rule: &NonResourceRule, _: bool) -> RuleMatch {
        compare_path_rule(effect, rule, self.asked_path, self.asked_verb)
    }
}
