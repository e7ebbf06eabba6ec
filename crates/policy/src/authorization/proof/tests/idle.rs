//! What policies say in vain.

use proptest::prelude::*;

use super::{UNLIMITED, cases, instants, objects, targets, users, with_secrets};
use crate::authorization::proof::pieces::RegionsOfSet;
use crate::authorization::proof::{RedundantPart, Region, redundant_parts};
use crate::authorization::{Effect, NeverDeny, Objects, PolicySet, ResourceRule, Subject, fixtures};
use crate::model::{Attributes, Validity};

/// `objects` without what `part` of the policy `name` says.
fn without(objects: &Objects, name: &str, part: &RedundantPart) -> Objects {
    let mut objects = objects.clone();
    let place = objects
        .policies
        .iter()
        .position(|policy| policy.name == name)
        .unwrap();
    let policy = &mut objects.policies[place];
    match part {
        RedundantPart::Rule(rule) if *rule < policy.resource_rules.len() => {
            policy.resource_rules.remove(*rule);
        }
        RedundantPart::Rule(rule) => {
            policy
                .non_resource_rules
                .remove(rule - policy.resource_rules.len());
        }
        RedundantPart::Condition(condition, true) => {
            policy.conditions.remove(*condition);
        }
        RedundantPart::Exclusion(subject) => {
            policy.exclude_subjects.remove(*subject);
        }
        RedundantPart::Deny(_) | RedundantPart::Allow(_) | RedundantPart::Condition(_, false) => {
            objects.policies.remove(place);
        }
    }
    objects
}

/// The policy of `objects` alone, with one rule, for whom it is not about to be decided otherwise.
fn alone(objects: &Objects, name: &str, rule: Option<usize>) -> PolicySet {
    let mut policy = objects
        .policies
        .iter()
        .find(|policy| policy.name == name)
        .unwrap()
        .clone();
    let of_resources = policy.resource_rules.len();
    match rule {
        // A Limit decides as a whole.
        None => {}
        Some(rule) if rule < of_resources => {
            policy.resource_rules = vec![policy.resource_rules[rule].clone()];
            policy.non_resource_rules.clear();
        }
        Some(rule) => {
            policy.non_resource_rules = vec![policy.non_resource_rules[rule - of_resources].clone()];
            policy.resource_rules.clear();
        }
    }
    let objects = Objects {
        policies: vec![policy],
        namespaces: objects.namespaces.clone(),
        ..Objects::default()
    };
    PolicySet::new(objects, &NeverDeny::default())
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn what_is_idle_changes_no_request_and_what_is_not_decides_one(mut objects in objects(), targets in targets()) {
        for (at, policy) in objects.policies.iter_mut().enumerate() {
            policy.name = format!("p{at}");
        }
        let set = PolicySet::new(objects.clone(), &NeverDeny::default());
        let now = instants()[1];
        let found = redundant_parts(&set, now, UNLIMITED).unwrap();
        let reduced: Vec<PolicySet> = found
            .iter()
            .map(|(name, part)| PolicySet::new(without(&objects, name, part), &NeverDeny::default()))
            .collect();
        for user in users() {
            for target in &targets {
                let attributes = Attributes { user: user.clone(), target: target.clone() };
                for at in instants().into_iter().skip(1) {
                    let decision = set.authorize(&attributes, at).decision;
                    for (reduced, part) in reduced.iter().zip(&found) {
                        prop_assert_eq!(reduced.authorize(&attributes, at).decision, decision, "{:?}: {:?}", part, attributes);
                    }
                }
            }
        }
        let pieces = RegionsOfSet::new(&set, None, UNLIMITED).unwrap();
        for pieces_of in pieces.policies() {
            let policy = pieces_of.policy;
            let all = [false, true].into_iter().flat_map(Region::of_each_caller);
            for (rule, regions) in all.flat_map(|all| pieces.rules_of(pieces_of, &all).unwrap()) {
                let is_told = |region: &&Region| region.conditions.iter().all(|(one, _)| one.test.is_some());
                let later = Validity { not_before: Some(now), not_after: None };
                for region in regions.iter().filter_map(|region| region.during(later)).filter(|region| is_told(&region)) {
                    let at = region.period().not_before.unwrap_or(now);
                    // Those of namespaces that are not known are compared where differences are.
                    if region.namespace_labels().possible() != Ok(Some(None)) {
                        continue;
                    }
                    let decision = alone(&objects, &policy.name, rule).authorize(&region.example().unwrap(), at).decision;
                    prop_assert_eq!(decision, policy.effect.decision(), "rule {:?} of {:?}", rule, policy);
                }
            }
        }
    }
}

#[test]
fn what_policies_say_in_vain_is_found() {
    let rule = |verbs: &[&str], resource: &str| ResourceRule {
        verbs: fixtures::words(verbs),
        api_groups: fixtures::words(&[""]),
        resources: vec![resource.to_owned().into()],
        ..ResourceRule::default()
    };
    let policy = |effect, name: &str, rules: Vec<ResourceRule>, conditions: &[&str]| {
        let mut policy = fixtures::policy(effect, name);
        policy.subjects = vec![Subject::group("dev")];
        policy.resource_rules = rules;
        policy.conditions = conditions.iter().map(|text| fixtures::condition(text)).collect();
        policy
    };
    let mut wide = policy(Effect::Deny, "wide", vec![rule(&["*"], "secrets")], &[]);
    wide.exclude_subjects = vec![Subject::group("admins"), Subject::service_account("a", "b")];
    let mut narrow = policy(
        Effect::Deny,
        "narrow",
        vec![rule(&["get"], "secrets"), rule(&["get"], "pods")],
        &[],
    );
    narrow.exclude_subjects = vec![Subject::group("admins")];
    let mut idle = policy(Effect::Deny, "idle", vec![rule(&["get"], "secrets")], &[]);
    idle.exclude_subjects = vec![Subject::group("admins")];
    let policies = vec![
        wide,
        narrow,
        idle,
        policy(Effect::Allow, "granted", vec![rule(&["get"], "secrets")], &[]),
        policy(Effect::Allow, "ungranted", vec![rule(&["list"], "secrets")], &[]),
        policy(
            Effect::Allow,
            "conditions",
            vec![rule(&["create", "update"], "pods")],
            &[
                "request.resourceAttributes.verb.endsWith('te')",
                "request.resourceAttributes.name.endsWith('x')",
            ],
        ),
        policy(
            Effect::Allow,
            "never",
            vec![rule(&["create"], "pods")],
            &["request.nonResourceAttributes.path == '/x'"],
        ),
        policy(
            Effect::Allow,
            "once",
            vec![rule(&["create"], "pods"), rule(&["delete"], "pods")],
            &["request.resourceAttributes.verb == 'create'"],
        ),
    ];
    let set = with_secrets(vec![Subject::group("dev")], policies);
    let mut found = redundant_parts(&set, instants()[0], UNLIMITED).unwrap();
    found.sort();
    let expected = [
        ("conditions", RedundantPart::Condition(0, true)),
        (
            "granted",
            RedundantPart::Allow(vec!["ClusterRoleBinding b".to_owned()]),
        ),
        ("idle", RedundantPart::Deny(vec!["narrow".to_owned()])),
        ("never", RedundantPart::Condition(0, false)),
        ("once", RedundantPart::Rule(1)),
        ("wide", RedundantPart::Exclusion(1)),
    ];
    assert_eq!(found, expected.map(|(name, part)| (name.to_owned(), part)));
}
