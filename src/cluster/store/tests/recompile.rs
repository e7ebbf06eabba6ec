//! Expressions of what is held, compiled for another version.

use super::*;
use portcullis_policy::authorization::AuthorizationPolicy;

fn mk_conditional(name: &str, expression: &str) -> ReceivedObject {
    let mut spec = policy_spec("Deny");
    spec["conditions"] = json!([{"name": "c", "expression": expression}]);
    received(&kind(POLICIES), json!({"metadata": {"name": name}, "spec": spec}))
}

fn held(store: &Store) -> Vec<Arc<portcullis_policy::manifest::ValidatedObject>> {
    let watched = store.watched(None, false);
    let mut held: Vec<_> = watched.objects().cloned().collect();
    held.sort_by_key(|object| object.identity().to_string());
    held
}

/// What 1.37 added.
const NEW: &str = "request.groups.includes('a')";

#[test]
fn what_does_not_compile_for_another_version_holds_on_and_is_reported() {
    let store = mk_store();
    store.put(&kind(POLICIES), mk_conditional("new", NEW));
    store.put(&kind(POLICIES), mk_conditional("old", "'a' in request.groups"));
    store.put(&kind(ROLES), mk_role("a", "get"));
    let before = held(&store);
    store.compile_for(Version::NEWEST);
    assert!(
        before
            .iter()
            .zip(held(&store))
            .all(|(one, other)| Arc::ptr_eq(one, &other)),
        "the same version again"
    );

    store.compile_for(Version::new(36));
    assert_eq!(
        names(&store),
        [
            "AuthorizationPolicy/new",
            "AuthorizationPolicy/old",
            "ClusterRole/a"
        ]
    );
    let after = held(&store);
    let same: Vec<bool> = before
        .iter()
        .zip(&after)
        .map(|(one, other)| Arc::ptr_eq(one, other))
        .collect();
    assert_eq!(same, [true, false, true], "only what compiles is compiled again");
    let status = store.status();
    assert_eq!((status.objects, status.faulty), (3, 1));
    let faults = status.faults[0].to_string();
    assert!(
        faults.contains("AuthorizationPolicy/new: spec.conditions[0].expression"),
        "{faults}"
    );

    store.compile_for(Version::NEWEST);
    assert_eq!(store.status().faulty, 0);
}

#[test]
fn what_was_faulty_holds_as_soon_as_it_compiles() {
    let store = mk_store();
    store.compile_for(Version::new(36));
    store.put(&kind(POLICIES), mk_policy("p", "Deny"));
    assert!(!store.put(&kind(POLICIES), mk_conditional("p", NEW)));
    assert!(!store.put(&kind(POLICIES), mk_policy("faulty", "Nonsense")));
    let digest = store.watched(None, false).digest;
    let conditions = || {
        let held = held(&store);
        held[0]
            .authorization_policy()
            .map_or(0, |policy: &AuthorizationPolicy| policy.conditions.len())
    };
    assert_eq!((conditions(), store.status().faulty), (0, 2));

    store.compile_for(Version::NEWEST);
    assert_eq!(names(&store), ["AuthorizationPolicy/p"]);
    assert_eq!((conditions(), store.status().faulty), (1, 1));
    assert_ne!(store.watched(None, false).digest, digest);
}
