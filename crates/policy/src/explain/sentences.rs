//! Rules as sentences: `get, list secrets in the namespaces prod-*, named tls`.

use std::fmt::Display;

use super::recorded::qualified_resource;
use crate::admission::Operation;
use crate::admission::matching::{Constraints, MatchRule, NoRules, Operations};
use crate::admission::validating::Validation;
use crate::authorization::{AuthorizationPolicy, NonResourceRule, ResourceRule, Rule};

const ALL: &str = "*";

/// The subjects of a policy: `Group dev, User jane, but not Group admins`.
#[must_use]
pub fn subjects(policy: &AuthorizationPolicy) -> String {
    let mut sentence = listed(&policy.subjects);
    if !policy.exclude_subjects.is_empty() {
        sentence += ", but not ";
        sentence += &listed(&policy.exclude_subjects);
    }
    sentence
}

/// The rules of a policy, in the order of their numbers in decisions.
#[must_use]
pub fn policy_rules(policy: &AuthorizationPolicy) -> Vec<String> {
    let resources = policy.resource_rules.iter().map(of_resources);
    let paths = policy.non_resource_rules.iter().map(of_paths);
    resources.chain(paths).collect()
}

/// A rule of a role: `get, list pods, named web`.
#[must_use]
pub fn role_rule(rule: &Rule) -> String {
    let (verbs, groups) = (rule.verbs.as_slice(), rule.api_groups.as_slice());
    let mut parts = Vec::new();
    if !rule.resources.is_empty() {
        let targets = targets(rule.resources.as_slice(), groups);
        parts.push(format!(
            "{} {targets}{}",
            of_verbs(verbs),
            named(&rule.resource_names)
        ));
    }
    if !rule.non_resource_urls.is_empty() {
        let paths = listed(&rule.non_resource_urls);
        parts.push(format!("{} the paths {paths}", of_verbs(verbs)));
    }
    parts.join("; ")
}

/// What an admission policy, an exception or a webhook matches: `CREATE, UPDATE of pods,
/// deployments.apps, where the namespace has the labels tier in (prod)`.
#[must_use]
pub fn constraints(constraints: &Constraints) -> String {
    let rules = |rules: &[MatchRule]| {
        let rules: Vec<String> = rules.iter().map(of_writes).collect();
        rules.join("; ")
    };
    let mut sentence = match (constraints.rules.as_slice(), constraints.no_rules) {
        ([], NoRules::Everything) => "every write".to_owned(),
        ([], NoRules::Nothing) => "nothing".to_owned(),
        (some, _) => rules(some),
    };
    if !constraints.exclude_rules.is_empty() {
        sentence += &format!(", but not {}", rules(&constraints.exclude_rules));
    }
    for (what, selector) in [
        ("namespace", &constraints.namespace_selector),
        ("object", &constraints.object_selector),
    ] {
        let labels = selector.to_string();
        if !labels.is_empty() {
            sentence += &format!(", where the {what} has the labels {labels}");
        }
    }
    sentence
}

/// A validation: its constant message, if it has one, and its expression.
#[must_use]
pub fn validation(validation: &Validation) -> String {
    let expression = validation.expression.text().trim();
    match validation.message.as_str() {
        "" => expression.to_owned(),
        message => format!("{message}: {expression}"),
    }
}

fn of_writes(rule: &MatchRule) -> String {
    let operations = [
        Operation::Create,
        Operation::Update,
        Operation::Delete,
        Operation::Connect,
    ];
    let operations = match rule.operations == Operations::ALL {
        true => "every write".to_owned(),
        false => listed(
            operations
                .into_iter()
                .filter(|operation| rule.operations.contains(*operation))
                .map(Operation::as_str),
        ),
    };
    let targets = targets(&rule.resources, &rule.api_groups);
    format!("{operations} of {targets}{}", named(&rule.resource_names))
}

fn of_resources(rule: &ResourceRule) -> String {
    let resources: Vec<String> = rule.resources.iter().map(ToString::to_string).collect();
    let mut sentence = format!(
        "{} {}",
        of_verbs(rule.verbs.as_slice()),
        targets(&resources, rule.api_groups.as_slice())
    );
    let (within, excluded) = (namespaces(&rule.namespaces), namespaces(&rule.exclude_namespaces));
    sentence += &match (within.as_str(), excluded.as_str()) {
        ("", "") => String::new(),
        ("", excluded) => format!(" in all namespaces but {excluded}"),
        (within, "") => format!(" in the namespaces {within}"),
        (within, excluded) => format!(" in the namespaces {within}, but not in {excluded}"),
    };
    if let Some(selector) = &rule.namespace_selector {
        sentence += &format!(", where the namespace has the labels {selector}");
    }
    sentence += &named(&rule.names);
    for (kind, requirements) in [("field", &rule.selectors.field), ("label", &rule.selectors.label)] {
        if !requirements.is_empty() {
            sentence += &format!(", by the {kind} selector {}", listed(requirements));
        }
    }
    sentence
}

fn of_paths(rule: &NonResourceRule) -> String {
    let verbs = of_verbs(rule.verbs.as_slice());
    format!("{verbs} the paths {}", listed(&rule.paths))
}

fn of_verbs(verbs: &[String]) -> String {
    match verbs.iter().any(|verb| verb == ALL) {
        true => "any verb on".to_owned(),
        false => listed(verbs),
    }
}

/// `pods, deployments.apps`, `every resource of apps`.
fn targets(resources: &[String], groups: &[String]) -> String {
    if groups.iter().any(|group| group == ALL) {
        return match resources.iter().any(|resource| resource == ALL) {
            true => "every resource".to_owned(),
            false => format!("{} of any API group", listed(resources)),
        };
    }
    let target = |group: &str, resource: &str| match (resource, group) {
        (ALL, "") => "every resource of the core group".to_owned(),
        (ALL, group) => format!("every resource of {group}"),
        (resource, group) => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            qualified_resource(resource, subresource, group)
        }
    };
    let targets = groups
        .iter()
        .flat_map(|group| resources.iter().map(move |resource| target(group, resource)));
    listed(targets)
}

fn namespaces(patterns: &[impl Display]) -> String {
    let patterns = patterns.iter().map(|pattern| match pattern.to_string() {
        none if none.is_empty() => "none (cluster-scoped)".to_owned(),
        pattern => pattern,
    });
    listed(patterns)
}

fn named(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(", named {}", listed(names)),
    }
}

fn listed(words: impl IntoIterator<Item = impl Display>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::matching::RuleScope;
    use crate::manifest::{self, Options, Source};

    fn policy(spec: &str) -> AuthorizationPolicy {
        let text = format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: p}}\nspec: {spec}\n"
        );
        let source = Source {
            file: "p.yaml".to_owned(),
            text,
            cluster: None,
        };
        let (objects, faults) = manifest::read(&[source], &Options::default());
        let objects = objects.unwrap_or_else(|| panic!("{faults}"));
        let found = objects
            .objects()
            .find_map(|object| object.authorization_policy().cloned());
        found.unwrap()
    }

    #[test]
    fn a_policy_is_told_rule_by_rule() {
        let policy = policy(
            "{effect: Deny, subjects: [{kind: Group, name: dev}, {kind: ServiceAccount, name: bot, namespace: ci}], \
             excludeSubjects: [{kind: User, name: jane}], resourceRules: [\
             {verbs: [get, list], apiGroups: ['', apps], resources: [secrets, deployments/scale], \
             namespaces: ['prod-*'], excludeNamespaces: [prod-1], names: [tls]}, \
             {verbs: ['*'], apiGroups: ['*'], resources: ['*'], excludeNamespaces: [shop]}, \
             {verbs: [get], apiGroups: ['*'], resources: [nodes], namespaces: ['']}, \
             {verbs: [get], apiGroups: ['', apps], resources: ['*']}], \
             nonResourceRules: [{verbs: [get], paths: [/metrics, '/logs/*']}]}",
        );
        assert_eq!(
            subjects(&policy),
            "Group dev, ServiceAccount ci/bot, but not User jane"
        );
        assert_eq!(
            policy_rules(&policy),
            [
                "get, list secrets, deployments/scale, secrets.apps, deployments.apps/scale in the namespaces \
                 prod-*, but not in prod-1, named tls",
                "any verb on every resource in all namespaces but shop",
                "get nodes of any API group in the namespaces none (cluster-scoped)",
                "get every resource of the core group, every resource of apps",
                "get the paths /metrics, /logs/*",
            ]
        );
    }

    #[test]
    fn what_is_judged_is_told_with_what_is_left_out() {
        let rule = |operations: &[&str], resource: &str| MatchRule {
            operations: Operations::of(operations),
            api_groups: vec!["apps".to_owned()],
            api_versions: vec!["*".to_owned()],
            resources: vec![resource.to_owned()],
            scope: RuleScope::default(),
            resource_names: Vec::new(),
        };
        let all = Constraints::default();
        assert_eq!(constraints(&all), "every write");
        let none = Constraints {
            no_rules: NoRules::Nothing,
            ..Constraints::default()
        };
        assert_eq!(constraints(&none), "nothing");
        let some = Constraints {
            rules: vec![rule(&["CREATE", "DELETE"], "deployments"), rule(&["*"], "*")],
            exclude_rules: vec![rule(&["DELETE"], "replicasets")],
            ..Constraints::default()
        };
        assert_eq!(
            constraints(&some),
            "CREATE, DELETE of deployments.apps; every write of every resource of apps, but not DELETE of \
             replicasets.apps"
        );
    }
}
