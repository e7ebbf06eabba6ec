//! Objects that are too large, or for which there is no room.

use super::*;
use crate::cluster::memory::{OBJECT_BYTES, WatchedMemory};
use crate::cluster::tests::fixtures::logged;

fn binding(name: &str, subjects: usize) -> Value {
    let subject = |number: usize| json!({"kind": "User", "name": format!("user-{number}")});
    json!({
        "metadata": {"name": name, "namespace": "team"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": (0..subjects).map(subject).collect::<Vec<_>>(),
    })
}

fn policy(name: &str, effect: &str, users: usize) -> Value {
    let mut spec = policy_spec(effect);
    let user = |number: usize| json!({"kind": "User", "name": format!("user-{number}")});
    spec["subjects"] = (0..users).map(user).collect();
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Takes what may be too large.
fn put(store: &Store, kind: &WatchedKind, value: &Value) -> bool {
    store.apply(kind, name_of(value), read(kind, value))
}

/// More than any object has.
const TOO_MANY: usize = 60_000;

fn bindings() -> WatchedKind {
    kind("RoleBinding")
}

/// A store whose rooms have so many KiB, half, a quarter and a quarter.
fn mk_bounded(kib: usize) -> (WatchedMemory, Store) {
    let memory = WatchedMemory::default();
    memory.limit(kib << 10);
    let store = Store::sharing(&Arc::default(), memory.cluster(), "east", Version::NEWEST);
    list_all(&store, &WatchedKind::fixed(true, false).into_iter().collect());
    (memory, store)
}

#[test]
fn a_grant_that_is_too_large_grants_nothing_and_leaves_its_kind_alone() {
    let store = mk_store();
    assert!(put(&store, &bindings(), &binding("a", 1)));
    assert!(put(&store, &bindings(), &binding("b", 1)));
    assert!(
        put(&store, &bindings(), &binding("a", TOO_MANY)),
        "its last version does not hold"
    );
    assert_eq!(names(&store), ["RoleBinding/team/b"]);
    assert!(!put(&store, &bindings(), &binding("c", TOO_MANY)));
    assert!(
        store.delete(&bindings(), &("team".to_owned(), "b".to_owned())),
        "deletions are taken"
    );
    assert!(put(&store, &bindings(), &binding("d", 2)));
    let status = store.status();
    assert_eq!((status.left_out.rbac, status.faulty), (2, 2));
    let fault = status.faults[0].to_string();
    assert!(
        fault.starts_with(
            "cluster east: RoleBinding/team/a: Too long: left out, so that it grants nothing: it has "
        ),
        "{fault}"
    );
    assert!(put(&store, &bindings(), &binding("a", 2)), "it fits again");
    assert_eq!(names(&store), ["RoleBinding/team/a", "RoleBinding/team/d"]);
    assert!(
        store.delete(&bindings(), &("team".to_owned(), "c".to_owned())),
        "it is gone"
    );
    assert_eq!(store.status().left_out.rbac, 0);
}

#[test]
fn a_deny_that_becomes_too_large_denies_as_before_and_an_allow_does_not() {
    let store = mk_store();
    let policies = kind(POLICIES);
    put(&store, &policies, &policy("deny", "Deny", 1));
    put(&store, &policies, &policy("allow", "Allow", 1));
    assert_eq!(
        names(&store),
        ["AuthorizationPolicy/allow", "AuthorizationPolicy/deny"]
    );
    assert!(!put(&store, &policies, &policy("deny", "Deny", TOO_MANY)));
    assert!(put(&store, &policies, &policy("allow", "Allow", TOO_MANY)));
    assert_eq!(names(&store), ["AuthorizationPolicy/deny"]);
    assert_eq!(store.status().left_out.policies, 2);
}

#[test]
fn a_parameter_that_is_too_large_is_unknown_by_its_name() {
    let limits = WatchedKind::of_object("example.com/v1", "Limit");
    let store = mk_store();
    let limit = |name: &str, values: usize| json!({"metadata": {"name": name, "namespace": "n"}, "data": vec![0; values]});
    let mut kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(true, false).into_iter().collect();
    kinds.insert(limits.clone());
    store.set_kinds(&kinds);
    let mut listing = store.begin_list(&limits);
    for value in [limit("a", 1), limit("b", 200_000)] {
        store.add_listed(&limits, &mut listing, name_of(&value), read(&limits, &value));
    }
    store.end_list(&limits, listing, &ListEvidence::default());
    let unknown = || {
        let watched = store.watched(None, false);
        let kinds = watched.unknown.unknown_of_known_kinds.values();
        kinds.flatten().map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&store), unknown()),
        (vec!["Limit/n/a".to_owned()], vec!["b".to_owned()])
    );
    assert!(put(&store, &limits, &limit("a", 200_000)));
    assert_eq!(
        (names(&store), unknown()),
        (Vec::new(), vec!["a".to_owned(), "b".to_owned()])
    );
    assert!(store.delete(&limits, &("n".to_owned(), "b".to_owned())));
    assert!(put(&store, &limits, &limit("a", 2)));
    assert_eq!(
        (names(&store), unknown()),
        (vec!["Limit/n/a".to_owned()], Vec::new())
    );
    // One that cannot be read is unknown, too.
    let mut deep = json!(1);
    (0..200).for_each(|_| deep = json!([deep.take()]));
    put(
        &store,
        &limits,
        &json!({"metadata": {"name": "deep", "namespace": "n"}, "data": deep}),
    );
    assert_eq!(unknown(), ["deep"]);
}

#[test]
fn kinds_of_parameters_take_room_however_few_objects_they_have() {
    let memory = WatchedMemory::default();
    let store = Store::sharing(&Arc::default(), memory.cluster(), "east", Version::NEWEST);
    // A quarter is for parameters: as much as so many kinds take themselves.
    memory.limit(4 * 100 * KIND_BYTES);
    let kinds: BTreeSet<WatchedKind> = (0..100)
        .map(|number| WatchedKind::of_object("example.com/v1", &format!("Limit{number}")))
        .collect();
    let first = WatchedKind::of_object("example.com/v1", "Limit0");
    let value = json!({"metadata": {"name": "a"}});
    store.set_kinds(&[first.clone()].into());
    assert!(put(&store, &first, &value));
    store.set_kinds(&kinds);
    for kind in kinds.iter().filter(|kind| **kind != first) {
        put(&store, kind, &value);
    }
    assert_eq!(store.status().left_out.parameters, 99);
    assert!(store.bytes_of(&first, &name_of(&value)) > 0, "what is held stays");
}

#[test]
fn where_more_parameters_are_left_out_than_are_named_none_is_known() {
    let limits = WatchedKind::of_object("example.com/v1", "Limit");
    let store = mk_store();
    store.replace(&limits, Vec::new());
    for number in 0..1_100 {
        let name = ("n".to_owned(), format!("l-{number}"));
        store.apply(&limits, name, Err(NO_ROOM));
    }
    assert!(
        store
            .watched(None, false)
            .unknown
            .unknown_of_known_kinds
            .is_empty()
    );
    assert_eq!(store.status().left_out.parameters, 1_100);
}

#[test]
fn who_asks_for_much_keeps_out_neither_parameters_nor_what_others_ask_for() {
    let (_memory, store) = mk_bounded(4 << 10);
    let requests = kind("AccessRequest");
    let ask = |user: &str, number: usize| {
        let spec = json!({"role": "edit", "namespaces": ["prod"], "duration": "2h", "reason": "INC-1",
            "requester": {"username": user, "uid": "", "groups": []}});
        let object = json!({"metadata": {"name": format!("{user}-{number}")}, "spec": spec});
        put(&store, &requests, &object);
    };
    let left_out = |user: &str| {
        let before = store.status().left_out.access_requests;
        (0..100).for_each(|number| ask(user, number));
        store.status().left_out.access_requests - before
    };
    let of_ann = left_out("ann");
    assert!((80..100).contains(&of_ann), "{of_ann}");
    assert_eq!(left_out("bob"), of_ann);
    assert!(
        store.left_out_with_room(&requests).is_empty(),
        "what has no room in the part of who asks is not asked for"
    );
    store.delete(&requests, &(String::new(), "bob-0".to_owned()));
    assert_eq!(store.left_out_with_room(&requests), [RoomOwner::of("bob")].into());
    let maps = WatchedKind::of_object("v1", "ConfigMap");
    put(
        &store,
        &maps,
        &json!({"metadata": {"name": "m", "namespace": "n"}, "data": {"a": "x".repeat(10_000)}}),
    );
    assert_eq!(store.status().left_out.parameters, 0);
}

#[test]
fn neither_bindings_nor_parameters_keep_out_a_deny() {
    let (_memory, store) = mk_bounded(2 << 10);
    let maps = WatchedKind::of_object("v1", "ConfigMap");
    for number in 0..200 {
        put(&store, &bindings(), &binding(&format!("b-{number}"), 100));
        let map = json!({"metadata": {"name": format!("m-{number}"), "namespace": "n"},
            "data": {"a": "x".repeat(10_000)}});
        put(&store, &maps, &map);
    }
    let left_out = store.status().left_out;
    assert!(
        left_out.rbac > 100 && left_out.parameters > 100 && left_out.policies == 0,
        "{left_out:?}"
    );
    assert!(put(&store, &kind(POLICIES), &policy("deny", "Deny", 10)));
    let admin = json!({
        "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "root"}],
    });
    assert!(
        put(&store, &kind("ClusterRoleBinding"), &admin),
        "nor bindings of one namespace the others"
    );
    let held = names(&store);
    assert!(held.contains(&"AuthorizationPolicy/deny".to_owned()), "{held:?}");
}

#[test]
fn what_was_left_out_for_want_of_room_is_taken_when_there_is_some() {
    let (_memory, store) = mk_bounded(2 << 10);
    let mut number = 0;
    while store.status().left_out.rbac == 0 {
        put(&store, &bindings(), &binding(&format!("b-{number}"), 100));
        number += 1;
    }
    assert!(store.left_out_with_room(&bindings()).is_empty());
    assert!(store.delete(&bindings(), &("team".to_owned(), "b-0".to_owned())));
    assert!(!store.left_out_with_room(&bindings()).is_empty());
    assert!(
        put(&store, &bindings(), &binding("b-1", 90)),
        "less takes the place of more"
    );
}

#[test]
fn a_list_takes_memory_for_what_changed_alone() {
    let (_memory, store) = mk_bounded(4 << 10);
    let all: Vec<ReceivedObject> = (0..20)
        .map(|number| received(&bindings(), binding(&format!("b-{number}"), 10)))
        .collect();
    store.replace(&bindings(), all.clone());
    let mut listing = store.begin_list(&bindings());
    for received in all {
        store.add_listed(&bindings(), &mut listing, received.name.clone(), Ok(received));
    }
    assert_eq!(listing.objects, 20);
    assert!(listing.is_unchanged());
}

#[test]
fn what_is_kept_of_the_faults_of_an_object_is_bounded() {
    let store = mk_store();
    let mut faulty = policy("p", "Deny", 1);
    for number in 0..5_000 {
        faulty["spec"][format!("unknown-{number}-{}", "x".repeat(300))] = json!(1);
    }
    assert!(!put(&store, &kind(POLICIES), &faulty));
    let faults = &store.status().faults[0];
    assert!(
        faults.len() <= 21 && faults.to_string().len() < 50_000,
        "{}",
        faults.len()
    );
}

/// A policy of which each expression is a fault.
fn faulty(name: &str, expressions: usize) -> Value {
    let mut value = compiled(name, expressions);
    for condition in value["spec"]["conditions"].as_array_mut().unwrap() {
        condition["expression"] = json!("'no bool'");
    }
    value
}

#[test]
fn what_is_faulty_takes_room_of_all_clusters_with_its_faults() {
    let memory = WatchedMemory::default();
    memory.limit(4 << 20);
    let mk_store = |cluster| {
        let store = Store::sharing(&Arc::default(), memory.cluster(), cluster, Version::NEWEST);
        list_all(&store, &WatchedKind::fixed(true, false).into_iter().collect());
        store
    };
    let [east, west] = ["east", "west"].map(mk_store);
    let all = 500;
    for number in 0..all {
        put(&east, &kind(POLICIES), &faulty(&format!("p-{number}"), 20));
    }
    let taken = all - east.status().left_out.policies;
    let bytes = east.bytes_of(&kind(POLICIES), &(String::new(), "p-0".to_owned()));
    assert!(taken > 1 && taken * bytes <= 1 << 20, "{taken} of {bytes} bytes");
    assert!(
        put(&west, &kind(POLICIES), &policy("deny", "Deny", 1)),
        "its own part is left"
    );
    let name = (String::new(), "p-0".to_owned());
    assert!(!east.delete(&kind(POLICIES), &name));
    assert!(
        put(&east, &kind(POLICIES), &policy("deny", "Deny", 1)),
        "what goes makes room"
    );
}

/// A policy whose expressions take much more memory than its text.
fn compiled(name: &str, expressions: usize) -> Value {
    let condition = |number: usize| {
        let text = format!("request.user.startsWith('agent-{number}')");
        json!({"name": format!("c-{number}"), "expression": text})
    };
    let mut value = policy(name, "Deny", 1);
    value["spec"]["conditions"] = (0..expressions).map(condition).collect();
    value
}

#[test]
fn what_expressions_are_compiled_to_takes_room_as_long_as_the_object_holds() {
    let (memory, store) = mk_bounded(4 << 10);
    let (policies, value) = (kind(POLICIES), compiled("deny", 20));
    let received = read(&policies, &value).unwrap();
    let written = OBJECT_BYTES + received.bytes;
    assert!(put(&store, &policies, &value));
    let whole = store.bytes_of(&policies, &received.name);
    assert!(whole > written, "{whole} {written}");
    assert!(store.delete(&policies, &received.name));
    // A quarter is for policies.
    memory.limit(4 * (whole - 1));
    assert!(!put(&store, &policies, &value), "its text alone has room");
    assert_eq!(
        (
            store.status().left_out.policies,
            store.left_out_with_room(&policies).len()
        ),
        (1, 0)
    );
    assert!(
        put(&store, &policies, &policy("small", "Deny", 1)),
        "it is left out alone"
    );
    assert!(store.delete(&policies, &("".to_owned(), "small".to_owned())));
    memory.limit(4 * whole);
    assert!(!store.left_out_with_room(&policies).is_empty());
    assert!(put(&store, &policies, &value));
    assert!(
        !put(&store, &policies, &policy("small", "Deny", 1)),
        "nothing is left"
    );
    // Another version of the same size takes its place.
    let mut other = value.clone();
    other["spec"]["subjects"][0]["name"] = json!("user-1");
    assert!(put(&store, &policies, &other));
    for version in [Version::new(36), Version::NEWEST] {
        store.compile_for(version);
        assert_eq!(store.bytes_of(&policies, &received.name), whole);
    }
    assert!(store.delete(&policies, &received.name));
    assert!(put(&store, &policies, &policy("small", "Deny", 1)));
}

/// Takes a list that has these, and what may be too large among them.
fn list(store: &Store, kind: &WatchedKind, all: &[Value]) -> bool {
    let mut listing = store.begin_list(kind);
    for value in all {
        store.add_listed(kind, &mut listing, name_of(value), read(kind, value));
    }
    match store.end_list(kind, listing, &ListEvidence::default()) {
        ListOutcome::Taken { changed, doubt: None } => changed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grant_that_a_list_has_too_large_grants_nothing() {
    let store = mk_store();
    put(&store, &bindings(), &binding("a", 1));
    put(&store, &bindings(), &binding("b", 1));
    assert!(list(
        &store,
        &bindings(),
        &[binding("a", TOO_MANY), binding("b", 1)]
    ));
    assert_eq!(names(&store), ["RoleBinding/team/b"]);
}

#[test]
fn what_becomes_of_parameters_that_are_left_out_is_a_change() {
    let limits = WatchedKind::of_object("example.com/v1", "Limit");
    let store = mk_store();
    let limit = |name: &str, values: usize| json!({"metadata": {"name": name, "namespace": "n"}, "data": vec![0; values]});
    list(&store, &limits, &[limit("a", 1)]);
    assert!(!list(&store, &limits, &[limit("a", 1)]));
    assert!(
        list(&store, &limits, &[limit("a", 1), limit("new", 200_000)]),
        "a list has one"
    );
    assert!(!list(&store, &limits, &[limit("a", 1), limit("new", 200_000)]));
    assert!(list(&store, &limits, &[limit("a", 1)]), "and has it no more");
    assert!(put(&store, &limits, &limit("new", 200_000)), "an event has one");
}

#[test]
fn each_object_that_is_left_out_is_logged_once() {
    let store = mk_store_of("logged");
    let large = |names: &[&str]| -> Vec<Value> { names.iter().map(|name| binding(name, TOO_MANY)).collect() };
    let lines = logged(|| {
        list(&store, &bindings(), &large(&["a"]));
        list(&store, &bindings(), &large(&["a", "b"]));
        put(&store, &bindings(), &binding("c", TOO_MANY));
    });
    let expected = [
        "RoleBinding/team/a: ",
        "RoleBinding/team/b: ",
        "RoleBinding/team/c: ",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(
            line.contains("ERROR") && line.contains(expected) && line.contains("left out"),
            "{line}"
        );
    }
}

#[test]
fn of_many_objects_that_a_list_leaves_out_some_are_named_in_the_log() {
    let store = mk_store_of("logged-list");
    let lines = logged(|| {
        let mut listing = store.begin_list(&bindings());
        for number in 0..500 {
            let name = ("team".to_owned(), format!("b-{number}"));
            let reason = NO_ROOM;
            store.add_listed(&bindings(), &mut listing, name, Err(reason));
        }
        store.end_list(&bindings(), listing, &ListEvidence::default());
    });
    assert_eq!(lines.len(), 11, "{lines:?}");
    assert!(
        lines[10].contains("more objects are left out than are named here")
            && lines[10].contains("objects=500")
    );
}

#[test]
fn a_definition_that_is_too_large_is_none() {
    let store = mk_store();
    let definition = |scope: &str| {
        let version = json!({"name": "v1", "served": true, "storage": true});
        json!({"metadata": {"name": "limits.example.com"}, "spec": {
            "group": "example.com", "names": {"kind": "Limit", "plural": "limits"}, "scope": scope, "versions": [version],
        }})
    };
    let definitions = WatchedKind::definitions();
    assert!(put(&store, &definitions, &definition("Cluster")));
    assert_eq!(store.watched(None, false).cluster_scoped.iter().count(), 1);
    let name = name_of(&definition("Cluster"));
    assert!(store.apply(
        &definitions,
        name,
        Err(LeftOutReason::TooLarge { bytes: 2, max: 1 })
    ));
    assert_eq!(store.watched(None, false).cluster_scoped.iter().count(), 0);
}

#[test]
fn no_more_definitions_are_known_than_are_bounded() {
    let store = mk_store();
    let definitions = WatchedKind::definitions();
    let definition = |number: usize| {
        let version = json!({"name": "v1", "served": true, "storage": true});
        let names = json!({"kind": format!("K{number}"), "plural": format!("k{number}")});
        json!({"metadata": {"name": format!("k{number}.example.com")}, "spec": {
            "group": "example.com", "names": names, "scope": "Cluster", "versions": [version],
        }})
    };
    let known = |store: &Store| store.watched(None, false).custom_resources.iter().count();
    let all: Vec<Value> = (0..10_500).map(definition).collect();
    list(&store, &definitions, &all);
    assert_eq!(known(&store), 10_000);
    assert!(
        !put(&store, &definitions, &definition(20_000)),
        "an event adds none"
    );
    assert_eq!(known(&store), 10_000);
    store.accept_absence();
    list(&store, &definitions, &[definition(20_000)]);
    assert_eq!(known(&store), 1, "what goes makes room");
}

fn widgets(at: usize, versions: usize) -> Value {
    let version = |version: usize| json!({"name": format!("v{version}"), "served": true});
    json!({"metadata": {"name": format!("w{at}.example.com")}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": format!("w{at}"), "kind": "Widget"},
        "versions": (0..versions).map(version).collect::<Vec<_>>(),
    }})
}

#[test]
fn definitions_take_room_and_beyond_it_nothing_is_known_of_their_resources() {
    let definitions = WatchedKind::definitions();
    let known = |store: &Store| store.watched(None, false).cluster_scoped.iter().count();
    let (_memory, store) = mk_bounded(256);
    let before = known(&store);
    for at in 0..200 {
        put(&store, &definitions, &widgets(at, 1));
    }
    let taken = known(&store) - before;
    assert!((60..130).contains(&taken), "{taken} of 128 KiB");
    assert_eq!(store.status().left_out.rbac, 200 - taken);
    let fault = store.status().faults[0].to_string();
    assert!(fault.contains("nothing is known of its resource"), "{fault}");
    // One that goes makes room for another, and one that is too large does not stay as it was.
    assert!(store.delete(&definitions, &name_of(&widgets(0, 1))));
    assert!(put(&store, &definitions, &widgets(199, 1)));
    assert!(put(&store, &definitions, &widgets(199, 90)));
    assert_eq!(known(&store) - before, taken - 1);
    // A list of the same takes nothing more.
    let mut listing = store.begin_list(&definitions);
    for at in 1..taken {
        store.add_listed(
            &definitions,
            &mut listing,
            name_of(&widgets(at, 1)),
            read(&definitions, &widgets(at, 1)),
        );
    }
    store.end_list(&definitions, listing, &ListEvidence::default());
    assert_eq!(store.status().left_out.rbac, 0);
}

#[test]
fn a_definition_has_a_bounded_number_of_versions() {
    let definitions = WatchedKind::definitions();
    let store = mk_store();
    assert!(put(&store, &definitions, &widgets(0, 100)));
    assert!(
        put(&store, &definitions, &widgets(0, 101)),
        "nothing is known of it"
    );
    assert!(!put(&store, &definitions, &widgets(1, 101)));
}
