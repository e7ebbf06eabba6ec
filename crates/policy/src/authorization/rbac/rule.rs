//! Rules, and whether one allows a request (`RuleAllows` of
//! `plugin/pkg/auth/authorizer/rbac/rbac.go`).

use crate::authorization::{Criterion, RuleMatch};
use crate::engine::{Attributes, ResourceAttributes, Target};

use super::path::{PathPattern, WildcardSet};

/// `PolicyRule` of `rbac.authorization.k8s.io/v1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Exact verbs, or `*`.
    pub verbs: WildcardSet,
    /// Exact groups, or `*`; the core group is the empty text.
    pub api_groups: WildcardSet,
    /// `*`, `pods`, `pods/log`, `*/scale`.
    pub resources: WildcardSet,
    /// Exact names; empty for any.
    pub resource_names: Vec<String>,
    /// `*`, exact paths, or prefixes that end in `*`.
    pub non_resource_urls: Vec<PathPattern>,
}

impl Rule {
    /// How many verbs, groups, resources, names and paths it has.
    pub(crate) fn words(&self) -> usize {
        let sets = [&self.verbs, &self.api_groups, &self.resources];
        let sets: usize = sets.into_iter().map(|set| set.as_slice().len()).sum();
        sets + self.resource_names.len() + self.non_resource_urls.len()
    }
}

/// Whether `rule` allows what `attributes` ask.
#[must_use]
pub fn rule_allows(rule: &Rule, attributes: &Attributes<'_>) -> bool {
    compare_rule(rule, attributes).is_match()
}

/// Whether `rule` allows what `attributes` ask, and if not, for what first.
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

/// `*` is every resource and subresource; `*/sub` the subresource of any.
/// `pods/*` and `*/*` have no meaning of their own.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::User;

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
