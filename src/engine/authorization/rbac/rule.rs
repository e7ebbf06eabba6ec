//! Whether one rule allows one request (`RuleAllows` of
//! `plugin/pkg/auth/authorizer/rbac/rbac.go`).

use crate::engine::authorization::{Criterion, Rule};
use crate::engine::{Attributes, ResourceAttributes, Target};

use super::path::non_resource_url_matches;

/// Whether `rule` allows what `attributes` ask.
#[must_use]
pub fn rule_allows(rule: &Rule, attributes: &Attributes<'_>) -> bool {
    rule_mismatch(rule, attributes).is_none()
}

/// The first thing for which `rule` does not allow what `attributes` ask.
#[must_use]
pub fn rule_mismatch(rule: &Rule, attributes: &Attributes<'_>) -> Option<Criterion> {
    match &attributes.target {
        Target::Resource(resource) => resource_miss(rule, resource),
        Target::NonResource { path, verb } => path_miss(rule, path, verb),
    }
}

fn resource_miss(rule: &Rule, request: &ResourceAttributes<'_>) -> Option<Criterion> {
    let named = rule.resource_names.is_empty() || contains(&rule.resource_names, &request.name);
    if rule.resources.is_empty() {
        Some(Criterion::Target)
    } else if !contains_or_all(&rule.verbs, &request.verb) {
        Some(Criterion::Verbs)
    } else if !contains_or_all(&rule.api_groups, &request.group) {
        Some(Criterion::ApiGroups)
    } else if !rule
        .resources
        .iter()
        .any(|one| resource_matches(one, &request.resource, &request.subresource))
    {
        Some(Criterion::Resources)
    } else if !named {
        Some(Criterion::Names)
    } else {
        None
    }
}

fn path_miss(rule: &Rule, path: &str, verb: &str) -> Option<Criterion> {
    if rule.non_resource_urls.is_empty() {
        Some(Criterion::Target)
    } else if !contains_or_all(&rule.verbs, verb) {
        Some(Criterion::Verbs)
    } else if !rule
        .non_resource_urls
        .iter()
        .any(|url| non_resource_url_matches(url, path))
    {
        Some(Criterion::Paths)
    } else {
        None
    }
}

/// `*` is every resource and subresource; `*/sub` the subresource of any.
/// `pods/*` and `*/*` have no meaning of their own.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.strip_suffix(subresource)
        .and_then(|rest| rest.strip_suffix('/'))
        .is_some_and(|base| base == resource || base == "*")
}

fn contains(texts: &[String], wanted: &str) -> bool {
    texts.iter().any(|text| text == wanted)
}

fn contains_or_all(texts: &[String], wanted: &str) -> bool {
    texts.iter().any(|text| text == "*" || text == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::User;

    fn matches(rule: &str, resource: &str, subresource: &str) -> bool {
        resource_matches(rule, resource, subresource)
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
            verbs: vec!["*".into()],
            api_groups: vec!["*".into()],
            resources: vec!["*".into()],
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
        assert_eq!(rule_mismatch(&rule(&["*"]), &named("a")), Some(Criterion::Names));
        assert_eq!(rule_mismatch(&rule(&["a"]), &named("")), Some(Criterion::Names));
    }

    #[test]
    fn a_requested_star_is_only_in_a_star() {
        let rule = |verb: &str, group: &str| Rule {
            verbs: vec![verb.into()],
            api_groups: vec![group.into()],
            resources: vec!["*".into()],
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
        assert_eq!(rule_mismatch(&rule("get", "*"), &asked), Some(Criterion::Verbs));
        assert_eq!(
            rule_mismatch(&rule("*", "apps"), &asked),
            Some(Criterion::ApiGroups)
        );
    }

    #[test]
    fn a_rule_of_resources_says_nothing_of_paths_and_vice_versa() {
        let verbs = vec!["*".to_owned()];
        let stars = || vec!["*".to_owned()];
        let resources = Rule {
            verbs: verbs.clone(),
            api_groups: stars(),
            resources: stars(),
            ..Rule::default()
        };
        let paths = Rule {
            verbs,
            non_resource_urls: stars(),
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
        assert_eq!(rule_mismatch(&resources, &path), Some(Criterion::Target));
        assert_eq!(rule_mismatch(&paths, &resource), Some(Criterion::Target));
        assert!(rule_allows(&paths, &path) && rule_allows(&resources, &resource));
    }
}
