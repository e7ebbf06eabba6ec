//! What is withheld because of the API server's schema, and what its definitions say of scopes.

use std::time::Duration;

use super::*;

const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

/// The definition of AuthorizationPolicies without `notAfter`, which keeps or drops it.
fn older(keeps: bool) -> ReceivedObject {
    let mut definition = mk_definition("authorizationpolicies");
    let spec = definition.pointer_mut(SPEC).unwrap();
    spec["properties"].as_object_mut().unwrap().remove("notAfter");
    spec["x-kubernetes-preserve-unknown-fields"] = keeps.into();
    defining(definition)
}

fn current() -> ReceivedObject {
    defining(mk_definition("authorizationpolicies"))
}

fn define(store: &Store, definition: ReceivedObject) -> bool {
    store.put(&WatchedKind::definitions(), definition)
}

fn mk_written(effect: &str, generation: u64) -> ReceivedObject {
    let metadata = json!({"name": "p", "uid": "u", "generation": generation});
    received(
        &kind(POLICIES),
        json!({"metadata": metadata, "spec": policy_spec(effect)}),
    )
}

/// A store that knows everything but the definitions, with these policies; and how many of
/// the lists changed what holds.
fn mk_without_definitions(policies: impl Fn() -> Vec<ReceivedObject>) -> (Store, usize) {
    let store = Store::new("east", None, Version::NEWEST);
    let kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(false, false).into_iter().collect();
    store.set_kinds(&kinds);
    let definitions = WatchedKind::definitions();
    let others = kinds.iter().filter(|kind| **kind != definitions);
    let changes = others.filter(|kind| {
        let objects = if kind.kind == POLICIES {
            policies()
        } else {
            Vec::new()
        };
        store.replace(kind, objects)
    });
    let changes = changes.count();
    (store, changes)
}

fn fault(store: &Store) -> String {
    let faults = store.status().faults;
    let texts: Vec<String> = faults.iter().map(Faults::to_string).collect();
    texts.join("\n")
}

#[test]
fn an_older_definition_withholds_new_grants_and_takes_denies() {
    for keeps in [true, false] {
        let store = mk_store();
        assert!(!define(&store, older(keeps)));
        assert_eq!(store.status().faulty, 1, "the definition itself");
        let said = fault(&store);
        assert!(
            said.starts_with(
                "cluster east: CustomResourceDefinition/authorizationpolicies.portcullis.dev: Required value: \
                 its schema lacks `spec.notAfter`: "
            ),
            "{said}"
        );
        assert!(!store.put(&kind(POLICIES), mk_policy("a", "Allow")));
        assert!(store.put(&kind(POLICIES), mk_policy("d", "Deny")));
        assert_eq!(names(&store), ["AuthorizationPolicy/d"]);
        assert_eq!(store.status().faulty, 2);
        let said = fault(&store);
        assert!(
            said.contains(
                "AuthorizationPolicy/a: Forbidden: rejected: its CustomResourceDefinition lacks \
                `spec.notAfter`"
            ),
            "{said}"
        );
    }
}

/// A Limit refuses less without a field of its rules, and more than none.
#[test]
fn an_older_definition_takes_new_limits_and_no_other_version_of_one() {
    let limit = |verb: &str| {
        let mut spec = policy_spec("Limit");
        spec["resourceRules"][0]["verbs"] = json!([verb]);
        received(&kind(POLICIES), json!({"metadata": {"name": "p"}, "spec": spec}))
    };
    for (definition, is_taken) in [(older(false), false), (current(), true)] {
        let (store, _) = mk_without_definitions(Vec::new);
        store.replace(&WatchedKind::definitions(), vec![definition]);
        assert!(store.put(&kind(POLICIES), limit("get")));
        assert_eq!(store.put(&kind(POLICIES), limit("list")), is_taken);
        assert_eq!(fault(&store).contains("lacks `spec.notAfter`"), !is_taken);
    }
}

#[test]
fn what_was_in_force_before_an_older_definition_holds_on() {
    let store = mk_store();
    assert!(store.put(&kind(POLICIES), mk_policy("p", "Allow")));
    let before = store.watched(None, false).digest;
    define(&store, older(true));
    assert!(!store.put(&kind(POLICIES), mk_policy("p", "Allow")));
    assert_eq!(store.watched(None, false).digest, before);
    let mut wider = policy_spec("Allow");
    wider["subjects"] = json!([{"kind": "Group", "name": "*"}]);
    let wider = received(&kind(POLICIES), json!({"metadata": {"name": "p"}, "spec": wider}));
    assert!(!store.put(&kind(POLICIES), wider), "a changed one is new");
    assert_eq!(store.watched(None, false).digest, before);
    assert!(
        store.put(&kind(POLICIES), mk_policy("p", "Deny")),
        "it takes a grant away"
    );
    assert_ne!(store.watched(None, false).digest, before);
    assert!(store.delete(&kind(POLICIES), &(String::new(), "p".into())));
}

#[test]
fn what_was_withheld_is_taken_as_soon_as_the_definition_has_every_field() {
    let store = mk_store();
    define(&store, older(true));
    store.put(&kind(POLICIES), mk_policy("a", "Allow"));
    assert!(define(&store, current()));
    assert_eq!(names(&store), ["AuthorizationPolicy/a"]);
    assert_eq!(store.status().faulty, 0);
}

#[test]
fn what_is_withheld_stays_so_while_it_is_compiled_for_other_versions() {
    let store = mk_store();
    define(&store, older(true));
    let mut spec = policy_spec("Allow");
    spec["conditions"] = json!([{"name": "c", "expression": "request.groups.includes('a')"}]);
    let policy = received(&kind(POLICIES), json!({"metadata": {"name": "a"}, "spec": spec}));
    store.put(&kind(POLICIES), policy);
    store.compile_for(Version::new(36));
    assert!(fault(&store).contains("spec.conditions[0].expression"));
    store.compile_for(Version::NEWEST);
    assert!(fault(&store).contains("a: Forbidden: rejected"));
    assert!(define(&store, current()));
    assert_eq!(names(&store), ["AuthorizationPolicy/a"]);
}

#[test]
fn what_may_have_lost_a_limit_is_withheld_until_it_is_written_anew() {
    let store = mk_store();
    define(&store, older(false));
    assert!(!store.put(&kind(POLICIES), mk_written("Allow", 1)));
    assert!(!define(&store, current()), "nobody knows what was dropped");
    assert!(
        !store.replace(&kind(POLICIES), vec![mk_written("Allow", 1)]),
        "listed again"
    );
    assert_eq!(names(&store), Vec::<String>::new());
    let said = fault(&store);
    assert!(
        said.contains("it was stored while the CustomResourceDefinition lacked fields"),
        "{said}"
    );
    assert!(
        !store.put(&kind(POLICIES), mk_written("Allow", 2)),
        "the API server may not have noticed the newer definition"
    );
    store.lock().definitions.takes_effect = Duration::ZERO;
    assert!(!store.put(&kind(POLICIES), mk_written("Allow", 2)));
    assert!(store.put(&kind(POLICIES), mk_written("Allow", 3)));
    assert_eq!(names(&store), ["AuthorizationPolicy/p"]);
}

#[test]
fn grants_wait_for_the_definitions() {
    let (store, changes) = mk_without_definitions(|| vec![mk_policy("a", "Allow")]);
    assert_eq!(changes, 0);
    assert_eq!(
        (store.status().faulty, store.status().origin),
        (0, Origin::None),
        "nothing is wrong yet"
    );
    assert!(store.replace(&WatchedKind::definitions(), shipped()));
    assert_eq!(names(&store), ["AuthorizationPolicy/a"]);
}

#[test]
fn definitions_that_may_not_be_listed_withhold_grants_and_hold_nothing_else_up() {
    let (store, _) = mk_without_definitions(|| vec![mk_policy("a", "Allow"), mk_policy("d", "Deny")]);
    let definitions = WatchedKind::definitions();
    assert!(store.refused(&definitions), "everything else is known");
    assert_eq!(names(&store), ["AuthorizationPolicy/d"]);
    let said = fault(&store);
    assert!(
        said.contains(
            "AuthorizationPolicy/a: Forbidden: rejected: the gateway may not list customresourcedefinitions"
        ),
        "{said}"
    );
    assert!(store.replace(&definitions, shipped()), "the right came later");
    assert_eq!(names(&store), ["AuthorizationPolicy/a", "AuthorizationPolicy/d"]);
}

#[test]
fn what_was_saved_holds_whatever_the_definition_lacks() {
    let saved = vec![(kind(POLICIES), mk_policy("a", "Allow"))];
    let store = Store::new("east", Some(saved_set(saved)), Version::NEWEST);
    store.set_kinds(&WatchedKind::fixed(false, false).into_iter().collect());
    store.replace(&WatchedKind::definitions(), vec![older(false)]);
    store.replace(
        &kind(POLICIES),
        vec![mk_policy("a", "Allow"), mk_policy("b", "Allow")],
    );
    assert_eq!(names(&store), ["AuthorizationPolicy/a"]);
}

#[test]
fn without_its_definition_a_grant_is_withheld() {
    let store = mk_store();
    store.delete(
        &WatchedKind::definitions(),
        &(String::new(), "authorizationpolicies.portcullis.dev".into()),
    );
    assert!(!store.put(&kind(POLICIES), mk_policy("a", "Allow")));
    assert!(fault(&store).contains("the API server has no CustomResourceDefinition of its kind"));
}

#[test]
fn exceptions_are_withheld_like_grants() {
    let store = Store::new("east", None, Version::NEWEST);
    let kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(false, true).into_iter().collect();
    list_all(&store, &kinds);
    let mut definition = mk_definition("admissionexceptions");
    let path = format!("{SPEC}/properties/match/properties");
    let properties = definition.pointer_mut(&path).unwrap();
    properties.as_object_mut().unwrap().remove("objectSelector");
    define(&store, defining(definition));
    let exceptions = kinds
        .iter()
        .find(|kind| kind.purpose == WatchPurpose::Exception)
        .unwrap();
    let exception = in_force::mk_exception("x", "2999-01-01T00:00:00Z");
    assert!(!store.put(exceptions, exception.clone()));
    assert!(fault(&store).contains("lacks `spec.match.objectSelector`"));
    assert!(define(&store, defining(mk_definition("admissionexceptions"))));
    assert_eq!(store.watched(None, true).objects().count(), 1);
}

#[test]
fn definitions_tell_which_versions_a_resource_has() {
    let store = mk_store();
    let widgets = |versions: &[&str]| {
        let versions: Vec<Value> = versions.iter().map(|name| json!({ "name": name })).collect();
        defining(
            json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
            "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": versions}}),
        )
    };
    let known = || {
        let resources = store.watched(None, false).custom_resources.clone();
        let known = resources.iter().find(|one| one.resource == "widgets");
        known.map(|one| one.versions().map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(known(), None);
    assert!(define(&store, widgets(&["v1"])));
    assert_eq!(known().unwrap(), ["v1"]);
    let digest = store.watched(None, false).digest;
    assert!(define(&store, widgets(&["v1", "v2"])));
    assert_eq!(known().unwrap(), ["v1", "v2"]);
    assert_ne!(store.watched(None, false).digest, digest);
    assert!(!define(&store, widgets(&["v1", "v2"])), "the same again");
    assert!(store.replace(&WatchedKind::definitions(), shipped()));
    assert_eq!(known(), None);
}

#[test]
fn definitions_tell_of_resources_without_namespace() {
    let store = mk_store();
    let before = store.watched(None, false).digest;
    let widgets = |scope: &str| {
        defining(json!({"metadata": {"name": "widgets.example.com"}, "spec": {
            "group": "example.com", "scope": scope, "names": {"plural": "widgets", "kind": "Widget"}}}))
    };
    let contains = || {
        let watched = store.watched(None, false);
        watched.cluster_scoped.contains("example.com", "widgets")
    };
    assert!(define(&store, widgets("Namespaced")) && !contains());
    assert!(define(&store, widgets("Cluster")) && contains());
    assert_ne!(store.watched(None, false).digest, before);
    assert!(!define(&store, widgets("Cluster")), "the same again");
    let name = (String::new(), "widgets.example.com".to_owned());
    assert!(store.delete(&WatchedKind::definitions(), &name) && !contains());
    assert_eq!(store.watched(None, false).digest, before);
    assert!(define(&store, widgets("Cluster")));
    assert!(store.replace(&WatchedKind::definitions(), shipped()) && !contains());
}
