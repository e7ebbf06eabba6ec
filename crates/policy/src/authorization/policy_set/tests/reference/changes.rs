//! A set that came about by changes decides and explains as one that is built from nothing.

use std::sync::Arc;

use super::*;
use crate::authorization::{Binding, ChangedPolicies, PolicySetChange, Role};

/// What changes at once: all bindings, and perhaps roles, policies or namespaces.
type SetStep = (
    Vec<Binding>,
    Option<Vec<Role>>,
    Option<Vec<AuthorizationPolicy>>,
    Option<NamespaceLabels>,
);

fn step() -> BoxedStrategy<SetStep> {
    (
        bindings(),
        prop::option::weighted(0.3, roles()),
        prop::option::weighted(0.3, policies()),
        prop::option::weighted(0.3, namespaces()),
    )
        .boxed()
}

/// The set of `objects`, which those of before become by what is different in them. Where it
/// `shares` policies, it takes their index from another set.
fn changed(
    before: &PolicySet,
    objects: &mut SharedObjects,
    (bindings, roles, policies, namespaces): SetStep,
    shares: bool,
) -> Option<PolicySet> {
    let is_in =
        |binding: &Binding, bindings: &[Arc<Binding>]| bindings.iter().any(|other| **other == *binding);
    let bindings: Vec<Arc<Binding>> = bindings.into_iter().map(Arc::new).collect();
    let (kept, removed_bindings): (Vec<_>, Vec<_>) = objects
        .bindings
        .drain(..)
        .partition(|binding| is_in(binding, &bindings));
    let added_bindings: Vec<_> = bindings
        .into_iter()
        .filter(|binding| !is_in(binding, &kept))
        .collect();
    objects.bindings = [kept, added_bindings.clone()].concat();
    let roles: Option<Vec<_>> = roles.map(|roles| roles.into_iter().map(Arc::new).collect());
    if let Some(roles) = &roles {
        objects.roles.clone_from(roles);
    }
    let policies: Option<Vec<_>> = policies.map(|policies| policies.into_iter().map(Arc::new).collect());
    if let Some(policies) = &policies {
        objects.policies.clone_from(policies);
    }
    let other = SharedObjects {
        policies: objects.policies.clone(),
        ..SharedObjects::default()
    };
    let other = PolicySet::new(other, &NeverDeny::default());
    let policies = policies.map(|policies| match shares {
        true => ChangedPolicies::SharedWith(&other),
        false => ChangedPolicies::Objects(policies, Vec::new()),
    });
    if let Some(namespaces) = &namespaces {
        objects.namespaces.clone_from(namespaces);
    }
    before.with_change(PolicySetChange {
        removed_bindings,
        added_bindings,
        roles,
        policies,
        namespaces,
        access_requests: None,
        cluster_scoped: objects.cluster_scoped.clone(),
    })
}

proptest! {
    #![proptest_config(crate::authorization::fixtures::cases(500))]

    #[test]
    fn a_changed_set_decides_as_one_built_from_nothing(
        roles in roles(),
        first in step(),
        (shared, is_over) in (bindings(), any::<bool>()),
        steps in prop::collection::vec(step(), 1..5),
        asked in prop::collection::vec((asked(), instant()), 8),
    ) {
        let objects = Objects {
            roles,
            bindings: first.0,
            policies: first.2.unwrap_or_default(),
            namespaces: first.3.unwrap_or_default(),
            ..Objects::default()
        };
        let mut objects = SharedObjects::from(objects);
        // Beside a set that all share, with bindings of its own, or from nothing.
        let bindings = shared.into_iter().map(Arc::new).collect();
        let namespaces = NamespaceLabels::default();
        let shared = SharedObjects { bindings, namespaces, ..objects.clone() };
        let shared = PolicySet::new(shared, &NeverDeny::default());
        let mut set = if is_over {
            shared.with_same_policies(objects.clone())
        } else {
            PolicySet::new(objects.clone(), &NeverDeny::default())
        };
        prop_assert_eq!(set.shares_policies(&shared), is_over);
        for step in std::iter::once(None).chain(steps.into_iter().map(Some)) {
            if let Some(step) = step {
                set = changed(&set, &mut objects, step, is_over).unwrap();
            }
            let rebuilt = PolicySet::new(objects.clone(), &NeverDeny::default());
            let bindings = |set: &PolicySet| set.bindings().cloned().collect::<Vec<_>>();
            prop_assert_eq!(bindings(&set), bindings(&rebuilt));
            let policies = |set: &PolicySet| set.policies().map(|(_, name)| name.to_string()).collect::<Vec<_>>();
            prop_assert_eq!(policies(&set), policies(&rebuilt));
            for (asked, now) in &asked {
                let told = |set: &PolicySet| {
                    let (explained, trace) = set.explain(asked, *now);
                    format!("{:?} {explained:?} {trace:?} {:?}", set.authorize(asked, *now), set.unmatched(asked, *now))
                };
                prop_assert_eq!(told(&set), told(&rebuilt), "{:?}", asked);
            }
        }
    }
}
