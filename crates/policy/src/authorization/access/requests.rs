//! Requests that represent everything in a rule: one for each verb, group and resource, and for `*`
//! one that no other rule names.

use std::borrow::Cow;

use crate::authorization::index::{IndexedPolicy, IndexedRule, PolicyRule};
use crate::authorization::matching::{ResourcePattern, Wildcard};
use crate::authorization::rbac::{PathPattern, WildcardSet};
use crate::authorization::{AuthorizationPolicy, Binding, PolicySet, Rule};

use super::query::UNNAMED;
use super::{OpenRequest, OpenResource, OpenTarget, Within};

/// The terms of a rule.
#[derive(Clone)]
pub(crate) struct RuleTerms<'s> {
    pub(crate) verbs: Cow<'s, WildcardSet>,
    /// `None` for a non-resource rule.
    pub(crate) groups: Option<Cow<'s, WildcardSet>>,
    /// Each with its subresource.
    resources: Vec<ResourceTerm>,
    pub(crate) paths: Cow<'s, [PathPattern]>,
}

/// A resource and a subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResourceTerm {
    /// `None` for any.
    resource: Option<String>,
    /// Empty for none; `None` for any.
    subresource: Option<String>,
}

/// The maximum of requests for one rule.
const MAX_REQUESTS: usize = 5_000;

// === impl RuleTerms ===

impl<'s> RuleTerms<'s> {
    /// The terms of a role's rule. A RoleBinding does not grant paths.
    pub(crate) fn of_role(rule: &'s Rule, binding: &Binding) -> Self {
        let paths = rule.non_resource_urls.as_slice();
        Self {
            verbs: Cow::Borrowed(&rule.verbs),
            groups: Some(Cow::Borrowed(&rule.api_groups)),
            resources: rule
                .resources
                .as_slice()
                .iter()
                .map(|text| of_rbac(text))
                .collect(),
            paths: Cow::Borrowed(if binding.namespace.is_empty() { paths } else { &[] }),
        }
    }

    pub(crate) fn of_policy(rule: &'s IndexedRule) -> Self {
        match &rule.rule {
            PolicyRule::Resource(rule) => Self {
                verbs: Cow::Borrowed(&rule.verbs),
                groups: Some(Cow::Borrowed(&rule.api_groups)),
                resources: rule.resources.iter().map(of_pattern).collect(),
                paths: Cow::Borrowed(&[]),
            },
            PolicyRule::NonResource(rule) => Self {
                verbs: Cow::Borrowed(&rule.verbs),
                groups: None,
                resources: Vec::new(),
                paths: Cow::Borrowed(&rule.paths),
            },
        }
    }

    /// The parts of the terms that lie within all of `limits`; `None` if there are too many.
    pub(crate) fn within<'l>(
        &self,
        limits: impl Iterator<Item = &'l IndexedPolicy>,
        set: &'l PolicySet,
    ) -> Option<Vec<RuleTerms<'s>>> {
        let of_resources = RuleTerms {
            paths: Cow::Borrowed(&[]),
            ..self.clone()
        };
        let of_paths = RuleTerms {
            resources: Vec::new(),
            ..self.clone()
        };
        let mut parts = vec![of_resources, of_paths];
        for limit in limits {
            let rules = set.policies.deny.rules_of(limit);
            let mut within = Vec::new();
            for part in parts {
                if !limit.policy.limits_requests(part.resources.is_empty()) {
                    within.push(part);
                    continue;
                }
                within.extend(rules.iter().filter_map(|rule| part.shared_with(rule)));
                if within.len() > MAX_REQUESTS {
                    return None;
                }
            }
            parts = within;
        }
        Some(parts)
    }

    /// The terms that both have in common; `None` if there are none.
    fn shared_with(&self, rule: &IndexedRule) -> Option<Self> {
        let other = RuleTerms::of_policy(rule);
        let pairs = self.resources.iter().flat_map(|own| {
            let others = other.resources.iter();
            others.filter_map(move |other| own.shared_with(other))
        });
        let resources: Vec<ResourceTerm> = pairs.collect();
        let pairs = self.paths.iter().flat_map(|own| {
            let others = other.paths.iter();
            others.filter_map(move |other| shared_path(own, other))
        });
        let paths: Vec<PathPattern> = pairs.collect();
        let groups = match (&self.groups, &other.groups) {
            (Some(own), Some(other)) => Some(Cow::Owned(shared_words(own, other))),
            _ => None,
        };
        let verbs = shared_words(&self.verbs, &other.verbs);
        (!resources.is_empty() || !paths.is_empty()).then_some(Self {
            verbs: Cow::Owned(verbs),
            groups,
            resources,
            paths: Cow::Owned(paths),
        })
    }
}

fn shared_words(own: &WildcardSet, other: &WildcardSet) -> WildcardSet {
    match (own.is_all(), other.is_all()) {
        (true, _) => other.clone(),
        (false, true) => own.clone(),
        (false, false) => {
            let shared = own.named().filter(|word| other.includes(word));
            shared.map(str::to_owned).collect::<Vec<String>>().into()
        }
    }
}

/// The narrower of both, if one contains the other.
fn shared_path(own: &PathPattern, other: &PathPattern) -> Option<PathPattern> {
    let is_within = |narrow: &PathPattern, wide: &PathPattern| match (narrow.prefix(), wide.prefix()) {
        (Some(narrow), Some(wide)) => narrow.starts_with(wide),
        (Some(_), None) => false,
        (None, _) => wide.matches(narrow.text()),
    };
    match (is_within(own, other), is_within(other, own)) {
        (true, _) => Some(own.clone()),
        (false, true) => Some(other.clone()),
        (false, false) => None,
    }
}

/// RBAC supports `*`, `pods`, `pods/log` and `*/scale`.
fn of_rbac(text: &str) -> ResourceTerm {
    let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
    ResourceTerm {
        resource: (resource != "*").then(|| resource.to_owned()),
        subresource: Some(subresource.to_owned()),
    }
}

fn of_pattern(pattern: &ResourcePattern) -> ResourceTerm {
    let named = |wildcard: &Wildcard| match wildcard {
        Wildcard::Any => None,
        Wildcard::Named(name) => Some(name.clone()),
    };
    match pattern {
        ResourcePattern::Everything => ResourceTerm {
            resource: None,
            subresource: Some(String::new()),
        },
        ResourcePattern::Resource(name) => ResourceTerm {
            resource: Some(name.clone()),
            subresource: Some(String::new()),
        },
        ResourcePattern::Subresource(resource, subresource) => ResourceTerm {
            resource: named(resource),
            subresource: named(subresource),
        },
    }
}

/// Requests for all terms of a rule: if the rule allows anything, it allows one of these.
pub(crate) fn requests_of_rule<'a>(
    terms: &'a RuleTerms<'_>,
    within: &'a Within,
    set: &'a PolicySet,
) -> impl Iterator<Item = OpenRequest> + 'a {
    let verbs = named_or(&terms.verbs, &[UNNAMED]);
    let mut targets: Vec<OpenTarget> = Vec::new();
    for group in terms
        .groups
        .iter()
        .flat_map(|groups| named_or(groups, &[UNNAMED]))
    {
        for pattern in &terms.resources {
            let resource = pattern.resource.as_deref().unwrap_or(UNNAMED);
            targets.push(resource_of(&group, resource, pattern.subresource(), within));
        }
    }
    // A rule for all resources also includes cluster-scoped ones, which other rules may treat
    // differently.
    for (group, resource) in set.cluster_scoped.known() {
        let is_group = terms.groups.as_ref().is_some_and(|groups| groups.includes(group));
        let is_any = |pattern: &&ResourceTerm| pattern.resource.as_deref().is_none_or(|own| own == resource);
        let patterns = terms.resources.iter().filter(|_| is_group).filter(is_any);
        targets.extend(patterns.map(|pattern| resource_of(group, resource, pattern.subresource(), within)));
    }
    targets.extend(paths(&terms.paths, &set.never_deny().paths.patterns()));
    product(verbs, targets).map(|request| request.normalized(&set.cluster_scoped))
}

/// Requests for the terms that a rule and a Deny policy have in common: if the policy touches
/// anything that the rule allows, it touches one of these.
pub(crate) fn shared_requests<'a>(
    terms: &'a RuleTerms<'_>,
    deny: &'a AuthorizationPolicy,
    within: &'a Within,
    set: &'a PolicySet,
) -> impl Iterator<Item = OpenRequest> + 'a {
    let scoped = set.cluster_scoped.known();
    let scoped: Vec<(String, String)> = scoped
        .map(|(group, resource)| (group.to_owned(), resource.to_owned()))
        .collect();
    let of_resources = deny.resource_rules.iter().flat_map(move |rule| {
        let verbs = common_words(&terms.verbs, &rule.verbs, &["list"]);
        let mut targets = Vec::new();
        let groups = terms.groups.as_ref();
        let groups = groups.map(|groups| common_words(groups, &rule.api_groups, &[]));
        for group in groups.iter().flatten() {
            for own in &terms.resources {
                for denied in rule.resources.iter().map(of_pattern) {
                    let (resource, subresource) = own.both(&denied);
                    targets.push(resource_of(group, &resource, &subresource, within));
                }
            }
        }
        // The policy may touch cluster-scoped resources even if it touches no others.
        for (group, resource) in &scoped {
            let has_group = |groups: &Cow<'_, WildcardSet>| groups.includes(group);
            let is_group = terms.groups.as_ref().is_some_and(has_group) && rule.api_groups.includes(group);
            for pattern in terms.resources.iter().filter(|_| is_group) {
                if pattern.resource.is_none() {
                    targets.push(resource_of(group, resource, pattern.subresource(), within));
                }
            }
        }
        product(verbs, targets)
    });
    let of_paths = deny.non_resource_rules.iter().flat_map(|rule| {
        let verbs = common_words(&terms.verbs, &rule.verbs, &[]);
        let denied: Vec<String> = rule.paths.iter().flat_map(examples_of).collect();
        product(verbs, paths(&terms.paths, &denied).collect())
    });
    let all = of_resources.chain(of_paths);
    all.map(|request| request.normalized(&set.cluster_scoped))
}

// === impl ResourceTerm ===

impl ResourceTerm {
    fn subresource(&self) -> &str {
        self.subresource.as_deref().unwrap_or(UNNAMED)
    }

    /// Whether this is every resource with its subresources.
    fn is_everything(&self) -> bool {
        self.resource.is_none() && self.subresource.as_deref() == Some("")
    }

    /// The resources and subresources that both contain; `None` if there are none.
    fn shared_with(&self, other: &Self) -> Option<Self> {
        if self.is_everything() || other.is_everything() {
            let narrow = if self.is_everything() { other } else { self };
            return Some(narrow.clone());
        }
        let resource = match (&self.resource, &other.resource) {
            (Some(own), Some(other)) if own != other => return None,
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        let subresource = match (&self.subresource, &other.subresource) {
            (Some(own), Some(other)) if own != other => return None,
            // "Any subresource" does not include the resource itself.
            (Some(named), None) | (None, Some(named)) if named.is_empty() => return None,
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        Some(Self {
            resource,
            subresource,
        })
    }

    /// A resource and subresource that both contain, if there are any.
    fn both(&self, other: &Self) -> (String, String) {
        let either = |own: &Option<String>, other: &Option<String>| {
            let named = own.as_ref().or(other.as_ref());
            named.cloned().unwrap_or_else(|| UNNAMED.to_owned())
        };
        // `*` also includes all subresources.
        let subresource = match (self.is_everything(), other.is_everything()) {
            (true, false) => either(&other.subresource, &None),
            _ => either(&self.subresource, &other.subresource),
        };
        (either(&self.resource, &other.resource), subresource)
    }
}

fn resource_of(group: &str, resource: &str, subresource: &str, within: &Within) -> OpenTarget {
    OpenTarget::Resource(OpenResource {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        name: None,
        within: within.clone(),
    })
}

/// A path for each pattern, and those of `others` that match one.
fn paths<'a>(patterns: &'a [PathPattern], others: &[String]) -> impl Iterator<Item = OpenTarget> + use<'a> {
    let others: Vec<String> = others
        .iter()
        .map(|path| path.trim_end_matches('*').to_owned())
        .collect();
    let all = patterns.iter().flat_map(move |pattern| {
        let within = others.iter().filter(|path| pattern.matches(path)).cloned();
        let within: Vec<String> = within.collect();
        examples_of(pattern).chain(within)
    });
    all.map(OpenTarget::Path)
}

fn examples_of(pattern: &PathPattern) -> impl Iterator<Item = String> + use<> {
    let text = pattern.text().to_owned();
    let longer = pattern.prefix().map(|prefix| format!("{prefix}{UNNAMED}"));
    longer.into_iter().chain([text])
}

/// The named words; `others` too if `*` is among them.
fn named_or(terms: &WildcardSet, others: &[&str]) -> Vec<String> {
    let others = others.iter().filter(|_| terms.is_all()).copied();
    others.chain(terms.named()).map(str::to_owned).collect()
}

/// Words that may be in both. If `own` contains `*`, these are the words of `denied`, `others`, and
/// one that no rule contains.
fn common_words(own: &WildcardSet, denied: &WildcardSet, others: &[&str]) -> Vec<String> {
    let mut terms: Vec<String> = own.named().map(str::to_owned).collect();
    if own.is_all() {
        terms.extend(denied.named().chain(others.iter().copied()).map(str::to_owned));
        terms.push(UNNAMED.to_owned());
    }
    terms
}

fn product(verbs: Vec<String>, targets: Vec<OpenTarget>) -> impl Iterator<Item = OpenRequest> {
    let all = targets.into_iter().flat_map(move |target| {
        let of = move |verb: String| OpenRequest {
            verb,
            target: target.clone(),
        };
        verbs.clone().into_iter().map(of)
    });
    all.take(MAX_REQUESTS)
}
