//! The rules of RBAC: whether a rule allows a request (`RuleAllows` of
//! `plugin/pkg/auth/authorizer/rbac/rbac.go`), and a table of rules by verb, group, resource and
//! name.
//!
//! A rule allows every combination of its verbs, groups, resources and names. The table contains
//! the first rule of each combination. A request is looked up with at most 24 combinations: its
//! verb or `*`, its group or `*`, its resource, `*` or `*/subresource`, and its name or any.

use std::ops::Deref;
use std::slice;

use smallvec::SmallVec;

use super::path::{PathPattern, WildcardSet};
use crate::authorization::interner::{FastMap, Interner, PrefixInterner};
use crate::authorization::{Criterion, RuleMatch};
use crate::model::{Attributes, ResourceAttributes, Target};

/// `PolicyRule` of `rbac.authorization.k8s.io/v1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Exact verbs, or `*`.
    pub verbs: WildcardSet,
    /// Exact groups, or `*`; the core group is the empty string.
    pub api_groups: WildcardSet,
    /// `*`, `pods`, `pods/log`, `*/scale`.
    pub resources: WildcardSet,
    /// Exact names; if empty, any name.
    pub resource_names: Vec<String>,
    /// `*`, exact paths, or prefixes that end in `*`.
    pub non_resource_urls: Vec<PathPattern>,
}

impl Rule {
    /// The number of its verbs, groups, resources, names and paths.
    pub(crate) fn words(&self) -> usize {
        let sets = [&self.verbs, &self.api_groups, &self.resources];
        let sets: usize = sets.into_iter().map(|set| set.as_slice().len()).sum();
        sets + self.resource_names.len() + self.non_resource_urls.len()
    }
}

/// Whether `rule` allows the request.
#[must_use]
pub fn rule_allows(rule: &Rule, attributes: &Attributes<'_>) -> bool {
    compare_rule(rule, attributes).is_match()
}

/// Whether `rule` allows the request, and otherwise the first criterion that is not met.
pub fn compare_rule(rule: &Rule, attributes: &Attributes<'_>) -> RuleMatch {
    match &attributes.target {
        Target::Resource(resource) => compare_resource(rule, resource),
        Target::NonResource { path, verb } => compare_path(rule, path, verb),
    }
}

fn compare_resource(rule: &Rule, request: &ResourceAttributes<'_>) -> RuleMatch {
    let names = &rule.resource_names;
    let is_named = || names.is_empty() || names.iter().any(|name| *name == request.name);
    if rule.resources.is_empty() {
        RuleMatch::Mismatch(Criterion::Target)
    } else if !rule.verbs.includes(&request.verb) {
        RuleMatch::Mismatch(Criterion::Verbs)
    } else if !rule.api_groups.includes(&request.group) {
        RuleMatch::Mismatch(Criterion::ApiGroups)
    } else if !resource_matches(&rule.resources, &request.resource, &request.subresource) {
        RuleMatch::Mismatch(Criterion::Resources)
    } else {
        RuleMatch::when(is_named(), Criterion::Names)
    }
}

fn compare_path(rule: &Rule, path: &str, verb: &str) -> RuleMatch {
    let urls = &rule.non_resource_urls;
    if urls.is_empty() {
        RuleMatch::Mismatch(Criterion::Target)
    } else if !rule.verbs.includes(verb) {
        RuleMatch::Mismatch(Criterion::Verbs)
    } else {
        RuleMatch::when(urls.iter().any(|url| url.matches(path)), Criterion::Paths)
    }
}

/// `*` matches every resource and subresource, and `*/sub` the subresource of any resource.
/// `pods/*` and `*/*` have no special meaning.
fn resource_matches(rules: &WildcardSet, resource: &str, subresource: &str) -> bool {
    if subresource.is_empty() {
        return rules.includes(resource);
    }
    let of_subresource = |rule: &String| {
        rule.strip_suffix(subresource)
            .and_then(|rest| rest.strip_suffix('/'))
            .is_some_and(|base| base == resource || base == "*")
    };
    rules.is_all() || rules.as_slice().iter().any(of_subresource)
}

/// Finds the first of many rules that allows a request. Each rule has an owner, a number that is
/// the result of a search: the index of the rule in its role, or of the binding that grants it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleTable {
    texts: Interner,
    path_prefixes: PrefixInterner,
    count: u32,
    /// The first owner by verb, group, resource, and name or [`ANY_NAME`].
    resources: FastMap<[u32; 4], u32>,
    /// The first owner by verb, and path or prefix.
    paths: FastMap<[u32; 2], u32>,
    /// The owners of rules that do not fit in the table, ascending.
    large: Vec<u32>,
    has_names: bool,
    /// The number of bytes that the table may still grow.
    remaining_bytes: usize,
}

/// Stands for any name; no string has this number.
const ANY_NAME: u32 = u32::MAX;

/// Rules with more combinations than this are not in the table but compared one by one.
const MAX_COMBINATIONS: usize = 1024;

/// The number of bytes of a combination, and of a string in addition to its own bytes, in maps that
/// are half full.
const COMBINATION_BYTES: usize = 48;
const TEXT_BYTES: usize = 80;

impl RuleTable {
    /// A table of at most about `room` bytes. Without a limit, a few objects that a user may write
    /// could exhaust the memory: a rule has as many combinations as the product of its fields, and
    /// is in the table of each subject to whom its role is bound.
    pub(crate) fn within(room: usize) -> Self {
        Self {
            remaining_bytes: room,
            ..Self::default()
        }
    }

    /// Adds a rule. Owners must be added in ascending order.
    pub(crate) fn add(&mut self, rule: &Rule, owner: u32) {
        let combinations = combinations(rule);
        let bytes = combinations.saturating_mul(COMBINATION_BYTES) + string_bytes(rule);
        if combinations > MAX_COMBINATIONS || bytes > self.remaining_bytes {
            if self.large.last() != Some(&owner) {
                self.large.push(owner);
            }
            return;
        }
        self.remaining_bytes -= bytes;
        let verbs = self.intern(rule.verbs.as_slice());
        let groups = self.intern(rule.api_groups.as_slice());
        let resources = self.intern(rule.resources.as_slice());
        let mut names = self.intern(&rule.resource_names);
        if names.is_empty() {
            names.push(ANY_NAME);
        } else {
            self.has_names = true;
        }
        for &verb in &verbs {
            for &group in &groups {
                for &resource in &resources {
                    for &name in &names {
                        let combination = [verb, group, resource, name];
                        self.resources.entry(combination).or_insert(owner);
                    }
                }
            }
        }
        for url in &rule.non_resource_urls {
            let path = match url.prefix() {
                Some(prefix) => self.path_prefixes.intern(prefix, &mut self.count),
                None => self.texts.intern(url.text(), &mut self.count),
            };
            for &verb in &verbs {
                self.paths.entry([verb, path]).or_insert(owner);
            }
        }
    }

    fn intern(&mut self, texts: &[String]) -> Vec<u32> {
        let texts = texts.iter();
        texts
            .map(|text| self.texts.intern(text, &mut self.count))
            .collect()
    }

    /// The first owner of a rule that allows the request. `compare` returns whether an owner has
    /// such a rule; `visited` counts the rules found.
    pub(crate) fn first_allowing(
        &self,
        attributes: &Attributes<'_>,
        compare: impl Fn(u32, &mut usize) -> bool,
        visited: &mut usize,
    ) -> Option<u32> {
        let mut first = match &attributes.target {
            Target::Resource(request) => self.first_for_resource(request, visited),
            Target::NonResource { path, verb } => self.first_for_path(path, verb, visited),
        };
        for &owner in &self.large {
            if first.is_some_and(|first| first <= owner) {
                break;
            }
            if compare(owner, visited) {
                first = Some(owner);
            }
        }
        first
    }

    fn first_for_resource(&self, request: &ResourceAttributes<'_>, visited: &mut usize) -> Option<u32> {
        let verbs = self.or_star(&request.verb);
        let groups = self.or_star(&request.group);
        let resources = self.resources_of(request);
        let mut names = SmallVec::<[u32; 2]>::from_slice(&[ANY_NAME]);
        if self.has_names {
            names.extend(self.texts.get(&request.name));
        }
        let mut first = None;
        for &verb in &verbs {
            for &group in &groups {
                for &resource in &resources {
                    for &name in &names {
                        let found = self.resources.get(&[verb, group, resource, name]);
                        keep_earliest(&mut first, found, visited);
                    }
                }
            }
        }
        first
    }

    fn first_for_path(&self, path: &str, verb: &str, visited: &mut usize) -> Option<u32> {
        let verbs = self.or_star(verb);
        let exact = self.texts.get(path).into_iter();
        let mut first = None;
        for path in exact.chain(self.path_prefixes.prefixes_of(path)) {
            for &verb in &verbs {
                keep_earliest(&mut first, self.paths.get(&[verb, path]), visited);
            }
        }
        first
    }

    /// The numbers of `text` and `*`, as far as rules contain them.
    fn or_star(&self, text: &str) -> SmallVec<[u32; 2]> {
        let text = Some(text).filter(|text| *text != WildcardSet::ALL);
        let texts = text.into_iter().chain([WildcardSet::ALL]);
        texts.filter_map(|text| self.texts.get(text)).collect()
    }

    /// The numbers of `*`, `pods/log` and `*/log`, as far as rules contain them.
    fn resources_of(&self, request: &ResourceAttributes<'_>) -> SmallVec<[u32; 3]> {
        if request.subresource.is_empty() {
            return self.or_star(&request.resource).into_iter().collect();
        }
        let all = self.texts.get(WildcardSet::ALL);
        let own = self.subresource(&request.resource, &request.subresource);
        let any = self.subresource(WildcardSet::ALL, &request.subresource);
        [all, own, any].into_iter().flatten().collect()
    }

    fn subresource(&self, resource: &str, subresource: &str) -> Option<u32> {
        // Long enough to join most names without an allocation.
        let mut joined = SmallVec::<[u8; 96]>::from_slice(resource.as_bytes());
        joined.push(b'/');
        joined.extend_from_slice(subresource.as_bytes());
        self.texts.get(std::str::from_utf8(&joined).ok()?)
    }
}

fn combinations(rule: &Rule) -> usize {
    let [verbs, groups, resources] =
        [&rule.verbs, &rule.api_groups, &rule.resources].map(|set| set.as_slice().len());
    let factors = [groups, resources, rule.resource_names.len().max(1)];
    let of_resources = factors.into_iter().fold(1, usize::saturating_mul);
    verbs.saturating_mul(of_resources.saturating_add(rule.non_resource_urls.len()))
}

/// The number of bytes of a rule's strings, including those that other rules contain, too.
fn string_bytes(rule: &Rule) -> usize {
    let sets = [&rule.verbs, &rule.api_groups, &rule.resources].map(WildcardSet::as_slice);
    let words = sets.into_iter().flatten().chain(&rule.resource_names);
    let paths = rule.non_resource_urls.iter().map(PathPattern::text);
    let texts = words.map(String::as_str).chain(paths);
    texts.map(|text| text.len() + TEXT_BYTES).sum()
}

fn keep_earliest(first: &mut Option<u32>, found: Option<&u32>, visited: &mut usize) {
    if let Some(&owner) = found {
        *visited += 1;
        *first = Some(first.map_or(owner, |first| first.min(owner)));
    }
}

// The rules of a role.

/// The rules of a role. If there are many words to compare, they have a table, which all sets with
/// this role share.
#[derive(Debug, Clone, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
    table: Option<Box<RuleTable>>,
}

/// Rules with more words than this have a table; comparing fewer words takes no longer than the
/// lookups. In tests the limit is low enough for random roles of both kinds.
const MAX_WORDS_TO_COMPARE: usize = if cfg!(test) { 16 } else { 64 };

/// The number of bytes of a table for each word. Rules with too many combinations for this are
/// compared one by one.
const BYTES_OF_WORD: usize = 320;

impl RuleList {
    /// The index of the first rule that allows the request. `visited` counts the rules that are
    /// compared.
    #[must_use]
    pub fn first_allowing(&self, attributes: &Attributes<'_>, visited: &mut usize) -> Option<usize> {
        let allows = |rule: &Rule, visited: &mut usize| {
            *visited += 1;
            rule_allows(rule, attributes)
        };
        let Some(table) = &self.table else {
            return self.rules.iter().position(|rule| allows(rule, visited));
        };
        let compare = |rule: u32, visited: &mut usize| {
            let rule = self.rules.get(rule as usize);
            rule.is_some_and(|rule| allows(rule, visited))
        };
        table
            .first_allowing(attributes, compare, visited)
            .map(|rule| rule as usize)
    }
}

impl From<Vec<Rule>> for RuleList {
    fn from(rules: Vec<Rule>) -> Self {
        let words: usize = rules.iter().map(Rule::words).sum();
        let table = (words > MAX_WORDS_TO_COMPARE).then(|| {
            let mut table = RuleTable::within(words * BYTES_OF_WORD);
            (0..).zip(&rules).for_each(|(at, rule)| table.add(rule, at));
            Box::new(table)
        });
        Self { rules, table }
    }
}

impl Deref for RuleList {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.rules
    }
}

impl<'r> IntoIterator for &'r RuleList {
    type Item = &'r Rule;
    type IntoIter = slice::Iter<'r, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.rules.iter()
    }
}

/// Ignores the table, which depends on the rules only.
impl PartialEq for RuleList {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl Eq for RuleList {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::User;

    fn all() -> WildcardSet {
        ["*"].into_iter().collect()
    }

    fn matches(rule: &str, resource: &str, subresource: &str) -> bool {
        resource_matches(&[rule].into_iter().collect(), resource, subresource)
    }

    #[test]
    fn resources_match_as_upstream() {
        for (rule, resource, subresource) in [
            ("*", "pods", ""),
            ("*", "pods", "log"),
            ("*", "*", ""),
            ("pods", "pods", ""),
            ("pods/log", "pods", "log"),
            ("pods/log", "pods/log", ""),
            ("*/scale", "deployments", "scale"),
            ("*/scale", "*", "scale"),
            ("pods/*", "pods", "*"),
            ("*/*", "*", "*"),
            ("", "", ""),
        ] {
            assert!(
                matches(rule, resource, subresource),
                "{rule} {resource} {subresource}"
            );
        }
        for (rule, resource, subresource) in [
            ("pods", "pods", "log"),
            ("pods", "*", ""),
            ("pods", "Pods", ""),
            ("pods/*", "pods", "log"),
            ("pods/*", "pods", ""),
            ("*/*", "pods", "log"),
            ("*/scale", "scale", ""),
            ("*/scale", "deployments", ""),
            ("*/scale", "deployments/scale", ""),
            ("*/scale", "deployments", "xscale"),
            ("*/xscale", "deployments", "scale"),
            ("pods/log", "pods", "exec"),
            ("podslog", "pods", "log"),
        ] {
            assert!(
                !matches(rule, resource, subresource),
                "{rule} {resource} {subresource}"
            );
        }
    }

    #[test]
    fn resource_names_are_exact_and_the_empty_name_is_one() {
        let rule = |names: &[&str]| Rule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            resource_names: names.iter().map(|&name| name.into()).collect(),
            ..Rule::default()
        };
        let named = |name: &'static str| {
            let target = ResourceAttributes {
                verb: "get".into(),
                name: name.into(),
                ..Default::default()
            };
            Attributes {
                user: User::default(),
                target: Target::Resource(Box::new(target)),
            }
        };
        assert!(rule_allows(&rule(&[]), &named("")));
        assert!(rule_allows(&rule(&["a", "b"]), &named("b")));
        assert!(rule_allows(&rule(&[""]), &named("")));
        assert_eq!(
            compare_rule(&rule(&["*"]), &named("a")),
            RuleMatch::Mismatch(Criterion::Names)
        );
        assert_eq!(
            compare_rule(&rule(&["a"]), &named("")),
            RuleMatch::Mismatch(Criterion::Names)
        );
    }

    #[test]
    fn a_requested_star_is_only_in_a_star() {
        let rule = |verb: &str, group: &str| Rule {
            verbs: [verb].into_iter().collect(),
            api_groups: [group].into_iter().collect(),
            resources: all(),
            ..Rule::default()
        };
        let target = ResourceAttributes {
            verb: "*".into(),
            group: "*".into(),
            ..Default::default()
        };
        let asked = Attributes {
            user: User::default(),
            target: Target::Resource(Box::new(target)),
        };
        assert!(rule_allows(&rule("*", "*"), &asked));
        assert_eq!(
            compare_rule(&rule("get", "*"), &asked),
            RuleMatch::Mismatch(Criterion::Verbs)
        );
        assert_eq!(
            compare_rule(&rule("*", "apps"), &asked),
            RuleMatch::Mismatch(Criterion::ApiGroups)
        );
    }

    #[test]
    fn a_rule_of_resources_says_nothing_of_paths_and_vice_versa() {
        let resources = Rule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..Rule::default()
        };
        let paths = Rule {
            verbs: all(),
            non_resource_urls: vec!["*".into()],
            ..Rule::default()
        };
        let target = Target::NonResource {
            path: "/x".into(),
            verb: "get".into(),
        };
        let path = Attributes {
            user: User::default(),
            target,
        };
        let target = Target::Resource(Box::default());
        let resource = Attributes {
            user: User::default(),
            target,
        };
        assert_eq!(
            compare_rule(&resources, &path),
            RuleMatch::Mismatch(Criterion::Target)
        );
        assert_eq!(
            compare_rule(&paths, &resource),
            RuleMatch::Mismatch(Criterion::Target)
        );
        assert!(rule_allows(&paths, &path) && rule_allows(&resources, &resource));
    }
}
