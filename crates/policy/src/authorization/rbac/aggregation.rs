//! Aggregated ClusterRoles, as the controller manager computes them
//! (`pkg/controller/clusterroleaggregation`).

use std::borrow::Borrow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::authorization::{Role, Rule};

use super::rule_list::RuleList;

/// The rules that one pass of the controller gives `role`: for each selector
/// in order, those of every other matching ClusterRole by name, each rule once.
/// `None` where `role` is not aggregated.
#[must_use]
pub fn aggregated_rules(role: &Role, roles: &[impl Borrow<Role>]) -> Option<Vec<Rule>> {
    let selectors = role.aggregation.as_ref()?;
    let mut others: Vec<&Role> = roles
        .iter()
        .map(Borrow::borrow)
        .filter(|other| other.namespace.is_empty() && other.name != role.name)
        .collect();
    others.sort_by(|one, other| one.name.cmp(&other.name));
    let (mut rules, mut seen) = (Vec::new(), HashSet::new());
    for selector in selectors {
        for other in &others {
            if selector.matches(|key| other.labels.get(key).map(String::as_str)) {
                rules.extend(other.rules.iter().filter(|rule| seen.insert(*rule)).cloned());
            }
        }
    }
    Some(rules)
}

/// Gives every aggregated ClusterRole its rules, in place of those written.
///
/// The controller runs again whenever a ClusterRole changes, so aggregated
/// roles can be made of aggregated roles; this ends where it would: with
/// nothing more to add. Roles that are made of each other share what either
/// has from others.
pub fn aggregate(roles: &mut [Arc<Role>]) {
    let aggregated: Vec<usize> = roles
        .iter()
        .enumerate()
        .filter(|(_, role)| role.aggregation.is_some())
        .map(|(at, _)| at)
        .collect();
    for &at in &aggregated {
        if let Some(role) = roles.get_mut(at) {
            Arc::make_mut(role).rules = RuleList::default();
        }
    }
    // Each pass completes at least one more role of the longest chain.
    for _ in 0..=aggregated.len() {
        let mut changed = false;
        for &at in &aggregated {
            changed |= refresh(roles, at);
        }
        if !changed {
            return;
        }
    }
}

fn refresh(roles: &mut [Arc<Role>], at: usize) -> bool {
    let Some(rules) = roles.get(at).and_then(|role| aggregated_rules(role, roles)) else {
        return false;
    };
    roles.get_mut(at).is_some_and(|role| {
        let changed = *role.rules != *rules;
        if changed {
            Arc::make_mut(role).rules = rules.into();
        }
        changed
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::LabelSelector;

    fn role(name: &str, labels: &[&str], verbs: &[&str]) -> Role {
        let rule = |verb: &&str| Rule {
            verbs: vec![(*verb).to_owned()].into(),
            ..Rule::default()
        };
        Role {
            name: name.to_owned(),
            labels: labels
                .iter()
                .map(|&label| (label.to_owned(), "true".to_owned()))
                .collect(),
            rules: verbs.iter().map(rule).collect::<Vec<_>>().into(),
            ..Role::default()
        }
    }

    fn of(labels: &[&str], role: Role) -> Role {
        let selector = |label: &&str| {
            let labels = BTreeMap::from([((*label).to_owned(), "true".to_owned())]);
            LabelSelector::compile(&labels, &[]).unwrap()
        };
        Role {
            aggregation: Some(labels.iter().map(selector).collect()),
            ..role
        }
    }

    fn verbs(role: &Role) -> Vec<&str> {
        role.rules
            .iter()
            .flat_map(|rule| rule.verbs.as_slice().iter().map(String::as_str))
            .collect()
    }

    #[test]
    fn rules_come_by_selector_then_name_each_once() {
        let mut roles = [
            of(&["b", "a"], role("all", &["a"], &["written"])),
            role("z", &["b"], &["z"]),
            role("y", &["a"], &["y", "z"]),
            role("x", &["a", "b"], &["x"]),
            Role {
                namespace: "ns".into(),
                ..role("w", &["a"], &["w"])
            },
        ]
        .map(Arc::new);
        aggregate(&mut roles);
        assert_eq!(verbs(&roles[0]), ["x", "z", "y"]);
    }

    #[test]
    fn what_is_aggregated_is_aggregated_on() {
        let mut roles = [
            of(&["to-admin"], role("admin", &[], &[])),
            of(&["to-edit"], role("edit", &["to-admin"], &[])),
            of(&["to-view"], role("view", &["to-edit"], &[])),
            role("pods", &["to-view"], &["get"]),
        ]
        .map(Arc::new);
        aggregate(&mut roles);
        assert_eq!(verbs(&roles[0]), ["get"]);
    }

    #[test]
    fn circles_end_and_grant_only_what_others_have() {
        let mut roles = [
            of(&["l"], role("a", &["l"], &["own-a"])),
            of(&["l"], role("b", &["l"], &["own-b"])),
            role("c", &["l"], &["get"]),
        ]
        .map(Arc::new);
        aggregate(&mut roles);
        assert_eq!((verbs(&roles[0]), verbs(&roles[1])), (vec!["get"], vec!["get"]));
    }

    #[test]
    fn a_role_is_not_made_of_itself_and_no_selector_gives_no_rule() {
        let mut roles = [
            of(&["l"], role("a", &["l"], &["get"])),
            of(&[], role("b", &[], &["get"])),
        ]
        .map(Arc::new);
        aggregate(&mut roles);
        assert!(roles.iter().all(|role| role.rules.is_empty()));
        assert_eq!(aggregated_rules(&role("plain", &[], &["get"]), &roles), None);
    }
}
