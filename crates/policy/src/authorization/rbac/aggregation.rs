//! Aggregated ClusterRoles, as the controller manager computes them
//! (`pkg/controller/clusterroleaggregation`).

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::authorization::{Role, Rule};

use super::rule::RuleList;

/// The rules that one pass of the controller gives `role`: for each selector in order, those of
/// every other matching ClusterRole by name, each rule once. `None` if `role` has no aggregation
/// rule.
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

/// Replaces the rules of every aggregated ClusterRole by those that it aggregates.
///
/// The controller runs again whenever a ClusterRole changes, so a role can aggregate other
/// aggregated roles. This function ends where the controller would: when no rule is added any more.
/// Roles that aggregate each other all get the rules that any of them gets from other roles.
///
/// Time and memory are bounded in proportion to the roles. Beyond that, aggregated roles keep the
/// rules that are written in them: in a cluster, those are from its controller. Returns whether all
/// roles have their aggregated rules.
pub fn aggregate(roles: &mut [Arc<Role>]) -> bool {
    let mut budget = AggregationBudget::of(roles);
    let aggregated = in_order(aggregated(roles, &mut budget));
    let is_known = aggregated.len() == roles.iter().filter(|role| role.aggregation.is_some()).count();
    let written: Vec<Arc<Role>> = aggregated
        .iter()
        .filter_map(|one| roles.get(one.at).cloned())
        .collect();
    for one in &aggregated {
        set_rules(roles, one.at, RuleList::default());
    }
    // A role whose sources come later is part of a cycle, which needs more passes.
    let mut finished = 0;
    while let Some(changed) = pass(roles, &aggregated, &mut finished, &mut budget) {
        if !changed {
            return is_known;
        }
    }
    for (one, written) in aggregated.iter().zip(written).skip(finished) {
        if let Some(role) = roles.get_mut(one.at) {
            *role = written;
        }
    }
    false
}

/// An aggregated role, by its index among all roles.
struct AggregatedRole {
    at: usize,
    /// The indexes of the roles that it aggregates, in the order of their rules.
    sources: Vec<usize>,
    /// Whether it is not part of a cycle, and does not depend on one.
    is_ordered: bool,
}

/// What the aggregation of a set may still cost.
struct AggregationBudget {
    /// Comparisons of a ClusterRole with a selector.
    comparisons: usize,
    /// Words of rules that may be visited.
    visited: usize,
    /// Words of rules that aggregated roles may get.
    made: usize,
}

/// The aggregated roles with their sources, until the budget for finding these is exhausted.
fn aggregated(roles: &[Arc<Role>], budget: &mut AggregationBudget) -> Vec<AggregatedRole> {
    let mut others: Vec<(usize, &Role)> = roles.iter().map(|role| &**role).enumerate().collect();
    others.retain(|(_, role)| role.namespace.is_empty());
    others.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let mut found = Vec::new();
    for (at, role) in roles.iter().enumerate() {
        let Some(selectors) = &role.aggregation else {
            continue;
        };
        let comparisons = selectors.len().saturating_mul(others.len());
        let Some(left) = budget.comparisons.checked_sub(comparisons) else {
            continue;
        };
        budget.comparisons = left;
        let (mut sources, mut seen) = (Vec::new(), HashSet::new());
        for selector in selectors {
            let matching = others.iter().filter(|(_, other)| {
                other.name != role.name && selector.matches(|key| other.labels.get(key).map(String::as_str))
            });
            sources.extend(matching.map(|(at, _)| *at).filter(|at| seen.insert(*at)));
        }
        found.push(AggregatedRole {
            at,
            sources,
            is_ordered: false,
        });
    }
    found
}

/// Sorts the roles so that each comes after its sources, and those in or after a cycle come last.
fn in_order(roles: Vec<AggregatedRole>) -> Vec<AggregatedRole> {
    let places: HashMap<usize, usize> = (0..).zip(&roles).map(|(place, role)| (role.at, place)).collect();
    let (mut awaited, mut users) = (vec![0_usize; roles.len()], HashMap::<usize, Vec<usize>>::new());
    for (place, awaited) in awaited.iter_mut().enumerate() {
        let sources = roles.get(place).into_iter().flat_map(|role| &role.sources);
        for source in sources.filter_map(|source| places.get(source)) {
            users.entry(*source).or_default().push(place);
            *awaited += 1;
        }
    }
    let ready = awaited.iter().enumerate().filter(|(_, awaited)| **awaited == 0);
    let mut order: Vec<usize> = ready.map(|(place, _)| place).collect();
    let mut next = 0;
    while let Some(place) = order.get(next) {
        next += 1;
        for user in users.remove(place).into_iter().flatten() {
            if let Some(awaited) = awaited.get_mut(user) {
                *awaited -= 1;
                if *awaited == 0 {
                    order.push(user);
                }
            }
        }
    }
    let mut roles: Vec<Option<AggregatedRole>> = roles.into_iter().map(Some).collect();
    let mut ordered: Vec<AggregatedRole> = order
        .into_iter()
        .filter_map(|place| roles.get_mut(place)?.take())
        .collect();
    ordered.iter_mut().for_each(|role| role.is_ordered = true);
    ordered.extend(roles.into_iter().flatten());
    ordered
}

/// Computes the rules of each role that is not `finished`. Returns whether any changed; `None` if
/// the budget is exhausted.
fn pass(
    roles: &mut [Arc<Role>],
    aggregated: &[AggregatedRole],
    finished: &mut usize,
    budget: &mut AggregationBudget,
) -> Option<bool> {
    let mut changed = false;
    for one in aggregated.iter().skip(*finished) {
        let rules = budget.rules_of(one, roles)?;
        if one.is_ordered {
            *finished += 1;
            set_rules(roles, one.at, rules.into());
        } else if roles.get(one.at).is_some_and(|role| *role.rules != *rules) {
            changed = true;
            set_rules(roles, one.at, rules.into());
        }
    }
    Some(changed)
}

fn set_rules(roles: &mut [Arc<Role>], at: usize, rules: RuleList) {
    if let Some(role) = roles.get_mut(at) {
        Arc::make_mut(role).rules = rules;
    }
}

// === impl AggregationBudget ===

impl AggregationBudget {
    fn of(roles: &[Arc<Role>]) -> Self {
        let rules = roles.iter().flat_map(|role| &role.rules);
        let words: usize = rules.map(|rule| rule.words() + 1).sum();
        let made = words.saturating_mul(16);
        Self {
            comparisons: 4_000_000,
            visited: made + 1_000_000,
            made,
        }
    }

    fn rules_of(&mut self, aggregated: &AggregatedRole, roles: &[Arc<Role>]) -> Option<Vec<Rule>> {
        let (mut rules, mut seen) = (Vec::new(), HashSet::new());
        let sources = aggregated.sources.iter().filter_map(|at| roles.get(*at));
        for rule in sources.flat_map(|role| &role.rules) {
            let words = rule.words() + 1;
            self.visited = self.visited.checked_sub(words)?;
            if seen.insert(rule) {
                self.made = self.made.checked_sub(words)?;
                rules.push(rule.clone());
            }
        }
        Some(rules)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::LabelSelector;

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
    fn roles_that_make_too_much_of_others_are_as_they_are_written() {
        let of_all = |name: String| of(&["l"], role(&name, &[], &["written"]));
        let others = |name: String| role(&name, &["l"], &[&*name]);
        let aggregated = (0..300).map(|at| of_all(format!("a{at:03}")));
        let mut roles: Vec<_> = aggregated
            .chain((0..300).map(|at| others(format!("o{at:03}"))))
            .map(Arc::new)
            .collect();
        aggregate(&mut roles);
        let counts: Vec<usize> = roles.iter().take(300).map(|role| role.rules.len()).collect();
        assert_eq!((counts[0], counts[299]), (300, 1));
        assert_eq!(verbs(&roles[299]), ["written"]);
        let made: usize = counts.iter().sum();
        assert!(made <= 17 * 600, "{made}");
    }

    #[test]
    fn a_chain_of_roles_takes_one_pass_in_whatever_order_they_come() {
        // With a pass for each role, the budget would not suffice.
        let labels: Vec<String> = (0..=3_000).map(|at| format!("l{at}")).collect();
        let link = |at: usize| {
            let name = format!("a{at:04}");
            of(&[&labels[at + 1]], role(&name, &[&labels[at]], &["written"]))
        };
        let mut roles: Vec<_> = (0..1_500).map(|at| Arc::new(link(at))).collect();
        roles.push(Arc::new(role("end", &["l1500"], &["get"])));
        aggregate(&mut roles);
        assert!(roles.iter().all(|role| verbs(role) == ["get"]));
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
