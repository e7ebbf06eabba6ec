//! Finds the rules of policies that may apply to a request: for each field, an index from each term
//! to the rules that contain it.
//!
//! The field with the fewest matching rules is the starting point, and these rules are looked up in
//! the other fields. So a decision does not visit policies that one of their fields rules out. The
//! result is exact for subjects; for the other fields it may contain too many rules, but never too
//! few.

use std::ops::Range;

use smallvec::SmallVec;

use crate::authorization::interner::FastMap;
use crate::authorization::matching::{ResourcePattern, Wildcard};
use crate::authorization::rbac::WildcardSet;
use crate::authorization::{AuthorizationPolicy, Effect, NonResourceRule, ResourceRule};

use super::{
    NonResourceQuery, PolicyQuery, PolicyTerms, QueriedNamespace, ResourceQuery, SubjectTerm, TermIds,
};

/// The fields of all rules of some policies. Rules are numbered in the order of the policies.
#[derive(Debug, Default)]
pub(crate) struct RuleFields {
    subjects: RuleField,
    exclude_subjects: RuleField,
    verbs: RuleField,
    api_groups: RuleField,
    resources: RuleField,
    namespaces: RuleField,
    /// By the numbers of selectors.
    namespace_selectors: RuleField,
    /// The rules that may apply in a namespace whose labels are unknown, except for its name.
    unknown_labels: Vec<u32>,
    names: RuleField,
    paths: RuleField,
    /// All resource rules.
    resource_rules: Vec<u32>,
    /// All non-resource rules.
    non_resource_rules: Vec<u32>,
}

/// An index of one field: the rules that contain each term, ascending.
#[derive(Debug, Default)]
struct RuleField {
    /// The rules that match any term.
    any: Vec<u32>,
    by_term: FastMap<u32, Vec<u32>>,
}

/// The rules that match a request in one field: the union of these lists.
#[derive(Default)]
pub(crate) struct FieldMatch<'f>(SmallVec<[&'f [u32]; 4]>);

/// The rules that match in several fields.
#[derive(Default)]
struct Intersection<'f>(SmallVec<[FieldMatch<'f>; 8]>);

// === impl RuleFields ===

impl RuleFields {
    /// Adds the subjects of a policy, which has these `rules`.
    pub(crate) fn add_subjects(
        &mut self,
        policy: &AuthorizationPolicy,
        rules: Range<u32>,
        terms: &mut PolicyTerms,
    ) {
        for (field, subjects) in [
            (&mut self.subjects, &policy.subjects),
            (&mut self.exclude_subjects, &policy.exclude_subjects),
        ] {
            for subject in subjects {
                match terms.add_subject(subject) {
                    SubjectTerm::Everyone => rules.clone().for_each(|rule| field.add_any(rule)),
                    SubjectTerm::Id(id) => rules.clone().for_each(|rule| field.add(id, rule)),
                    SubjectTerm::Nobody => {}
                }
            }
        }
    }

    /// Adds the fields of a rule; `selector` is the number of its `namespaceSelector`.
    pub(crate) fn add_resource_rule(
        &mut self,
        number: u32,
        effect: Effect,
        rule: &ResourceRule,
        selector: Option<u32>,
        terms: &mut PolicyTerms,
    ) {
        self.resource_rules.push(number);
        self.verbs.add_words(number, &rule.verbs, terms);
        self.api_groups.add_words(number, &rule.api_groups, terms);
        for pattern in &rule.resources {
            match pattern {
                ResourcePattern::Everything | ResourcePattern::Subresource(Wildcard::Any, _) => {
                    self.resources.add_any(number);
                }
                ResourcePattern::Resource(name) | ResourcePattern::Subresource(Wildcard::Named(name), _) => {
                    self.resources.add(terms.add_text(name), number);
                }
            }
        }
        for pattern in &rule.namespaces {
            self.namespaces.add(terms.add_namespace(pattern), number);
        }
        if rule.namespaces.is_empty() {
            self.namespaces.add_any(number);
        }
        for name in &rule.names {
            self.names.add(terms.add_text(name), number);
        }
        if rule.names.is_empty() {
            self.names.add_any(number);
        }
        match selector {
            Some(selector) => self.namespace_selectors.add(selector, number),
            None => self.namespace_selectors.add_any(number),
        }
        // Unknown labels do not prove that an Allow or Limit applies, nor that a Deny does not.
        let by_name = |rule: &ResourceRule| {
            let selector = rule.namespace_selector.as_ref();
            selector.is_none_or(|selector| selector.requires_only_the_name())
        };
        if effect == Effect::Deny || by_name(rule) {
            self.unknown_labels.push(number);
        }
    }

    pub(crate) fn add_non_resource_rule(
        &mut self,
        number: u32,
        rule: &NonResourceRule,
        terms: &mut PolicyTerms,
    ) {
        self.non_resource_rules.push(number);
        self.verbs.add_words(number, &rule.verbs, terms);
        for pattern in &rule.paths {
            self.paths.add(terms.add_path(pattern), number);
        }
    }

    /// The rules that have the user with these `ids` among their policy's subjects.
    pub(crate) fn including_user(&self, ids: &[u32]) -> FieldMatch<'_> {
        self.subjects.find(ids)
    }

    /// The rules that have the user with these `ids` among their policy's excluded subjects.
    pub(crate) fn excluding_user(&self, ids: &[u32]) -> FieldMatch<'_> {
        self.exclude_subjects.find(ids)
    }

    /// The rules that may apply to `query` of the user with these `ids`, in order. `ids` is called
    /// only if all other fields have a matching rule.
    pub(crate) fn candidates<'i>(
        &self,
        query: &PolicyQuery<'_, '_>,
        ids: impl FnOnce() -> &'i [u32],
    ) -> TermIds {
        let Some(mut found) = self.matching(query) else {
            return TermIds::new();
        };
        let ids = ids();
        if found.add(self.subjects.find(ids)).is_none() {
            return TermIds::new();
        }
        let mut rules = found.rules();
        let excluded = self.exclude_subjects.find(ids);
        rules.retain(|rule| !excluded.contains(*rule));
        rules
    }

    /// The rules that may apply to `query`, disregarding subjects, in order.
    pub(crate) fn candidates_for_anyone(&self, query: &PolicyQuery<'_, '_>) -> TermIds {
        self.matching(query)
            .map(|found| found.rules())
            .unwrap_or_default()
    }

    #[inline]
    fn matching(&self, query: &PolicyQuery<'_, '_>) -> Option<Intersection<'_>> {
        match query {
            PolicyQuery::Resource(query) => self.fitting_resource(query),
            PolicyQuery::NonResource(query) => self.fitting_path(query),
        }
    }

    /// Adds the most selective fields first.
    fn fitting_resource(&self, query: &ResourceQuery<'_, '_>) -> Option<Intersection<'_>> {
        let mut found = Intersection::default();
        found.add(match query.resource.ids() {
            Some(ids) => self.resources.find(ids),
            None => FieldMatch::of(&self.resource_rules),
        })?;
        if !query.all_namespaces {
            found.add_terms(&self.namespaces, &query.namespaces)?;
        }
        match query.in_namespace {
            QueriedNamespace::Known(selectors) => found.add_terms(&self.namespace_selectors, selectors)?,
            // The labels are compared with the selector of each rule later.
            QueriedNamespace::Labelled(_) => {}
            QueriedNamespace::Unknown => found.add(FieldMatch::of(&self.unknown_labels))?,
            QueriedNamespace::None if query.all_namespaces => {}
            QueriedNamespace::None => found.add(FieldMatch::of(&self.namespace_selectors.any))?,
        }
        if let Some(ids) = query.verb.ids() {
            found.add_terms(&self.verbs, ids)?;
        }
        if let Some(ids) = query.group.ids() {
            found.add_terms(&self.api_groups, ids)?;
        }
        if !query.all_names {
            found.add_terms(&self.names, query.name.as_slice())?;
        }
        Some(found)
    }

    fn fitting_path(&self, query: &NonResourceQuery<'_>) -> Option<Intersection<'_>> {
        let mut found = Intersection::default();
        found.add(if query.path == WildcardSet::ALL {
            FieldMatch::of(&self.non_resource_rules)
        } else {
            self.paths.find(&query.paths)
        })?;
        if let Some(ids) = query.verb_term.ids() {
            found.add_terms(&self.verbs, ids)?;
        }
        Some(found)
    }
}

// === impl RuleField ===

impl RuleField {
    /// Adds a rule that matches any term. Rules must be added in ascending order.
    fn add_any(&mut self, rule: u32) {
        push_once(&mut self.any, rule);
    }

    /// Adds a rule that contains `term`. Rules must be added in ascending order.
    fn add(&mut self, term: u32, rule: u32) {
        push_once(self.by_term.entry(term).or_default(), rule);
    }

    fn add_words(&mut self, rule: u32, words: &WildcardSet, terms: &mut PolicyTerms) {
        if words.is_all() {
            self.add_any(rule);
        }
        for word in words.named() {
            self.add(terms.add_text(word), rule);
        }
    }

    #[inline]
    fn find(&self, terms: &[u32]) -> FieldMatch<'_> {
        let mut found = FieldMatch::of(&self.any);
        for rules in terms.iter().filter_map(|term| self.by_term.get(term)) {
            found.0.push(rules);
        }
        found
    }
}

fn push_once(rules: &mut Vec<u32>, rule: u32) {
    if rules.last() != Some(&rule) {
        rules.push(rule);
    }
}

// === impl FieldMatch ===

impl<'f> FieldMatch<'f> {
    #[inline]
    fn of(rules: &'f [u32]) -> Self {
        let mut found = Self::default();
        if !rules.is_empty() {
            found.0.push(rules);
        }
        found
    }

    /// An upper bound of the number of rules.
    fn len(&self) -> usize {
        self.0.iter().map(|rules| rules.len()).sum()
    }

    /// The union of both.
    pub(crate) fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    pub(crate) fn contains(&self, rule: u32) -> bool {
        self.0.iter().any(|rules| rules.binary_search(&rule).is_ok())
    }

    /// The rules, ascending.
    pub(crate) fn rules(&self) -> TermIds {
        let mut all: TermIds = self.0.iter().copied().flatten().copied().collect();
        if self.0.len() > 1 {
            all.sort_unstable();
            all.dedup();
        }
        all
    }
}

// === impl Intersection ===

impl<'f> Intersection<'f> {
    /// Adds a field; `None` if no rule matches in it.
    #[inline]
    fn add(&mut self, field: FieldMatch<'f>) -> Option<()> {
        if field.0.is_empty() {
            return None;
        }
        self.0.push(field);
        Some(())
    }

    /// Adds the rules of `field` that match one of `terms`, unless no rule restricts this field.
    #[inline]
    fn add_terms(&mut self, field: &'f RuleField, terms: &[u32]) -> Option<()> {
        if field.by_term.is_empty() {
            return Some(());
        }
        self.add(field.find(terms))
    }

    /// The rules that match in all fields, ascending.
    fn rules(&self) -> TermIds {
        let fields = self.0.iter().enumerate();
        let Some((fewest, field)) = fields.min_by_key(|(_, field)| field.len()) else {
            return TermIds::new();
        };
        let mut rules = field.rules();
        let (before, after) = self.0.split_at(fewest);
        // Subjects, which were added last, rule out most rules.
        let others = || before.iter().chain(after.iter().skip(1)).rev();
        rules.retain(|rule| others().all(|field| field.contains(*rule)));
        rules
    }
}
