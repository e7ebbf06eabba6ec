//! AuthorizationInvariants, by every request of small worlds.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{UNLIMITED, built, cases, instants, labelled, labellings, pairs, targets, users, with_secrets};
use crate::authorization::policy_set::tests::reference::policies;
use crate::authorization::proof::{InvariantProof, Witness};
use crate::authorization::rbac::AlwaysAllowPaths;
use crate::authorization::{
    AuthorizationInvariant, AuthorizationPolicy, Effect, Enforcement, Mode, NeverDeny, Objects, PolicySet,
    ResourceRule, Subject, fixtures,
};
use crate::model::{Attributes, Decision, Selectors, Validity};

/// An invariant of generated rules, and the set that decides nothing but whether it is concerned.
pub(crate) fn invariant(of: AuthorizationPolicy, objects: &Objects) -> (AuthorizationInvariant, PolicySet) {
    let mut forbidden = of;
    forbidden.effect = Effect::Deny;
    forbidden.mode = Mode::Enforce;
    forbidden.conditions.clear();
    forbidden.validity = Validity::default();
    for rule in &mut forbidden.resource_rules {
        rule.selectors = Selectors::default();
    }
    let never_deny = NeverDeny {
        paths: AlwaysAllowPaths::default(),
        ..NeverDeny::default()
    };
    let concerned = Objects {
        policies: vec![forbidden.clone()],
        namespaces: objects.namespaces.clone(),
        ..Objects::default()
    };
    let enforcement = Enforcement::Refuse;
    let invariant = AuthorizationInvariant {
        forbidden,
        enforcement,
    };
    (invariant, PolicySet::new(concerned, &never_deny))
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn an_invariant_is_broken_by_what_every_request_shows(
        (old, mut new) in pairs(),
        of in policies(),
        targets in targets(),
    ) {
        for of in of.into_iter().take(3) {
            let (invariant, concerned) = invariant(of, &new);
            new.invariants = vec![invariant.clone()];
            let [old, new] = [&old, &new].map(|objects| built(objects.clone()));
            let now = instants()[1];
            let of_set = InvariantProof::of_set(&new, now, UNLIMITED).unwrap();
            let of_set = of_set.breaches(&invariant).unwrap();
            let change = InvariantProof::of_change(&old, &new, now, UNLIMITED).unwrap();
            let of_change = change.breaches(&invariant).unwrap();
            let is_breach = |attributes: &Attributes<'_>, labels: Option<&BTreeMap<String, String>>, at, is_change: bool| {
                let sets = labelled([&concerned, &new, &old], attributes, labels);
                let [concerned, new, old] = sets.each_ref().map(|set| set.authorize(attributes, at).decision);
                concerned == Decision::Deny
                    && new == Decision::Allow
                    && !(is_change && old == Decision::Allow)
            };
            for (found, is_change) in [(&of_set, false), (&of_change, true)] {
                for breach in found {
                    match &breach.witness {
                        Some(Witness { attributes, at, namespace_labels }) => prop_assert!(
                            is_breach(attributes, namespace_labels.as_ref(), *at, is_change),
                            "{breach:?}"
                        ),
                        None => prop_assert!(!breach.region.conditions.is_empty(), "{breach:?}"),
                    }
                }
                if !found.is_empty() {
                    continue;
                }
                let mut labellings = labellings().into_iter().cycle();
                for user in users() {
                    for target in &targets {
                        let attributes = Attributes { user: user.clone(), target: target.clone() };
                        let labels = labellings.next().unwrap();
                        for at in instants().into_iter().skip(1) {
                            let is_breach = is_breach(&attributes, labels.as_ref(), at, is_change);
                            prop_assert!(!is_breach, "{attributes:?} at {at}, {labels:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn only_those_named_masters_and_those_never_denied_stand_outside() {
    let mut forbidden = fixtures::policy(Effect::Deny, "secrets");
    forbidden.subjects = vec![Subject::group("*")];
    forbidden.exclude_subjects = vec![Subject::group("vault")];
    forbidden.resource_rules = vec![ResourceRule {
        verbs: fixtures::words(&["*"]),
        api_groups: fixtures::words(&[""]),
        resources: vec!["secrets".to_owned().into()],
        ..ResourceRule::default()
    }];
    let denies = forbidden.clone();
    let invariant = AuthorizationInvariant {
        forbidden,
        enforcement: Enforcement::Refuse,
    };
    let breaches_by = |subjects, policies| {
        let set = with_secrets(subjects, policies);
        let proof = InvariantProof::of_set(&set, instants()[0], UNLIMITED).unwrap();
        proof.breaches(&invariant).unwrap()
    };
    let outside = vec![
        Subject::group("vault"),
        Subject::group("system:masters"),
        Subject::user("system:kube-scheduler"),
        Subject::service_account("kube-system", "namespace-controller"),
    ];
    assert!(breaches_by(outside.clone(), Vec::new()).is_empty());
    let mut others = outside;
    others.push(Subject::user("alice"));
    let found = breaches_by(others.clone(), Vec::new());
    assert_eq!(found.len(), 1);
    let witness = found[0].witness.clone().unwrap().attributes;
    assert_eq!(witness.user.name, "alice");
    assert_eq!(found[0].cause.as_ref().unwrap().name, "b");
    // A Deny that is enforced makes it hold.
    assert!(breaches_by(others, vec![denies]).is_empty());
}
