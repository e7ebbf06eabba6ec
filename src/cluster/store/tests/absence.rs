//! What is absent, and when that is believed.

use std::time::{Duration, Instant};

use super::*;
use crate::cluster::saved::{self, SnapshotSaver};
use crate::config::FileScope;
use crate::state::WatchedWebhookConfigurations;
use portcullis_policy::model::Time;

fn roles(count: usize) -> Vec<ReceivedObject> {
    (0..count)
        .map(|number| mk_role(&format!("role-{number}"), "get"))
        .collect()
}

/// A store with so many roles, listed at version 100.
fn with_roles(count: usize) -> Store {
    let store = mk_store();
    let listed = store.list_of(&kind(ROLES), roles(count), Some(100));
    assert!(matches!(listed, ListOutcome::Taken { doubt: None, .. }));
    store
}

fn doubted(outcome: &ListOutcome) -> bool {
    matches!(
        outcome,
        ListOutcome::Taken { doubt: Some(_), .. } | ListOutcome::Unconfirmed(_)
    )
}

#[test]
fn a_list_that_lacks_most_of_many_takes_nothing_away() {
    let store = with_roles(1_000);
    let mut few = roles(300);
    few.push(mk_role("new", "get"));
    assert!(doubted(&store.list_of(&kind(ROLES), few, Some(200))));
    assert_eq!(names(&store).len(), 1_001, "what is new is taken");
    assert_eq!(store.status().doubts.len(), 1);
    assert!(
        store.status().doubts[0].contains("lacks 700 of the 1000 known objects"),
        "{:?}",
        store.status().doubts
    );
    assert!(
        doubted(&store.list_of(&kind(ROLES), roles(950), Some(300))),
        "once in doubt, any loss is"
    );
    assert!(
        store.delete(&kind(ROLES), &(String::new(), "role-999".to_owned())),
        "a deletion is none"
    );
    let whole = roles(999).into_iter().chain([mk_role("new", "get")]).collect();
    assert!(!doubted(&store.list_of(&kind(ROLES), whole, Some(400))));
    assert!(store.status().doubts.is_empty(), "all are there again");
    assert!(
        !doubted(&store.list_of(&kind(ROLES), roles(900), Some(500))),
        "few went"
    );
    assert_eq!(names(&store).len(), 900);
}

#[test]
fn what_is_older_than_what_is_known_is_not_believed() {
    let store = with_roles(3);
    let (mut other, before) = (roles(2), store.watched(None, false).digest);
    other.push(mk_role("revoked", "get"));
    assert!(matches!(
        store.list_of(&kind(ROLES), other, Some(99)),
        ListOutcome::Unconfirmed(_)
    ));
    assert_eq!(store.watched(None, false).digest, before);
    let doubts = store.status().doubts;
    assert!(
        doubts[0].ends_with("the list is of version 99, and 100 is known"),
        "{doubts:?}"
    );
    assert!(!store.is_newer(&kind(ROLES), Some(99)) && store.is_newer(&kind(ROLES), Some(101)));
    assert!(
        !store.is_newer(&kind(ROLES), None),
        "what cannot be compared may be older"
    );
    assert!(doubted(&store.list_of(&kind(ROLES), roles(2), None)));
    assert_eq!((names(&store).len(), store.newest(&kind(ROLES))), (3, Some(101)));
    let store = with_roles(3);
    assert!(
        !doubted(&store.list_of(&kind(ROLES), roles(3), None)),
        "nothing is lost"
    );
    assert!(
        store.is_newer(&kind(ROLES), None),
        "it numbers no versions any more"
    );
    let store = with_roles(3);
    store.is_newer(&kind(ROLES), Some(101));
    assert!(matches!(
        store.list_of(&kind(ROLES), roles(3), Some(100)),
        ListOutcome::Unconfirmed(_)
    ));
}

#[test]
fn an_empty_list_of_what_is_no_api_server_is_not_believed() {
    let store = with_roles(1);
    let evidence = |no_server: Option<&str>| ListEvidence {
        version: Some(200),
        no_server: no_server.map(str::to_owned),
    };
    let listing = store.begin_list(&kind(ROLES));
    let outcome = store.end_list(&kind(ROLES), listing, &evidence(Some("it lists no groups")));
    assert!(matches!(outcome, ListOutcome::Unconfirmed(_)), "{outcome:?}");
    assert_eq!(names(&store), ["ClusterRole/role-0"]);
    assert_eq!(store.newest(&kind(ROLES)), Some(100), "nor is its version");
    store.accept_absence();
    let listing = store.begin_list(&kind(ROLES));
    let outcome = store.end_list(&kind(ROLES), listing, &evidence(Some("it lists no groups")));
    assert!(
        doubted(&outcome),
        "an administrator confirms what an API server says"
    );
    let store = with_roles(1);
    let listing = store.begin_list(&kind(ROLES));
    store.end_list(&kind(ROLES), listing, &evidence(Some("it lists no groups")));
    // In doubt, an empty list of a server that is one is no evidence either.
    let listing = store.begin_list(&kind(ROLES));
    assert!(doubted(&store.end_list(&kind(ROLES), listing, &evidence(None))));
    let store = with_roles(1);
    let listing = store.begin_list(&kind(ROLES));
    assert!(!doubted(&store.end_list(&kind(ROLES), listing, &evidence(None))));
    assert_eq!(names(&store), Vec::<String>::new());
}

#[test]
fn what_is_not_watched_for_a_minute_is_not_up_to_date() {
    let (store, start) = (mk_store(), std::time::Instant::now());
    let outdated = |seconds: u64| {
        let now = start + std::time::Duration::from_secs(seconds);
        store.lock().outdated(now)
    };
    store.note_not_followed(&kind(ROLES), "connection refused", start);
    assert!(outdated(59).is_empty());
    let later = start + std::time::Duration::from_secs(50);
    store.note_not_followed(&kind(ROLES), "the list did not end", later);
    assert_eq!(
        outdated(60),
        ["ClusterRole.rbac.authorization.k8s.io: for 60 s: the list did not end"]
    );
    store.note_followed(&kind(ROLES));
    assert!(outdated(1_000).is_empty());
    // A kind that is gone is no more out of date.
    store.note_not_followed(&kind(POLICIES), "it is listed again", start);
    assert!(!store.is_absent(&kind(POLICIES)));
    store
        .not_served(&kind(POLICIES), &AbsenceEvidence::Proven)
        .unwrap();
    assert!(outdated(1_000).is_empty() && store.is_absent(&kind(POLICIES)));
}

#[test]
fn an_administrator_confirms_absence_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("east.json");
    let store = with_roles(500);
    store.put(&kind(POLICIES), mk_policy("p", "Deny"));
    SnapshotSaver::new(path.clone(), FileScope::Anywhere, "east")
        .save(&store.unsaved(true))
        .unwrap();
    let begin = |accepts: bool| {
        let store = Store::new(
            "east",
            saved::read((&path, &FileScope::Anywhere), "east", 64 << 20).unwrap(),
            Version::NEWEST,
        );
        if accepts {
            store.accept_absence();
        }
        store.set_kinds(&WatchedKind::fixed(false, false).into_iter().collect());
        store
    };
    let store = begin(false);
    assert!(
        matches!(
            store.list_of(&kind(ROLES), Vec::new(), Some(5)),
            ListOutcome::Unconfirmed(_)
        ),
        "it was saved"
    );
    assert!(doubted(&store.list_of(&kind(ROLES), Vec::new(), Some(500))));
    assert_eq!(names(&store).len(), 501);

    let store = begin(true);
    assert!(!doubted(&store.list_of(&kind(ROLES), roles(2), Some(5))));
    assert_eq!(names(&store).len(), 3);
    for other in WatchedKind::fixed(false, false) {
        if other.kind != ROLES {
            assert!(!doubted(&store.list_of(&other, Vec::new(), Some(5))));
        }
    }
    assert_eq!((names(&store).len(), store.status().origin), (2, Origin::Live));
    assert!(
        doubted(&store.list_of(&kind(ROLES), Vec::new(), Some(4))),
        "and not again"
    );
}

#[test]
fn a_doubt_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("east.json");
    let store = with_roles(500);
    let mut saver = SnapshotSaver::new(path.clone(), FileScope::Anywhere, "east");
    saver.save(&store.unsaved(saver.wants_all())).unwrap();
    assert!(doubted(&store.list_of(&kind(ROLES), roles(10), Some(200))));
    saver.save(&store.unsaved(saver.wants_all())).unwrap();
    let store = Store::new(
        "east",
        saved::read((&path, &FileScope::Anywhere), "east", 64 << 20).unwrap(),
        Version::NEWEST,
    );
    assert_eq!(store.status().doubts.len(), 1);
    assert!(doubted(&store.list_of(&kind(ROLES), roles(499), Some(300))));
    assert_eq!(names(&store).len(), 500);
}

#[test]
fn what_the_entry_does_not_select_any_more_is_not_missed() {
    let store = mk_store();
    let bindings = kind("ValidatingAdmissionPolicyBinding");
    let mk_binding = |number: usize| {
        let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
        let metadata = json!({"name": format!("b{number}"), "labels": {"run-by": "gateway"}});
        received(&bindings, json!({"metadata": metadata, "spec": spec}))
    };
    let selector = |value: &str| Selector {
        text: format!("run-by={value}"),
        labels: LabelSelector::compile(&BTreeMap::from([("run-by".to_owned(), value.to_owned())]), &[])
            .unwrap(),
    };
    let all = || (0..300).map(mk_binding).collect::<Vec<_>>();
    assert_eq!(names_for(&store, Some(&selector("gateway"))).len(), 0);
    store.replace(&bindings, all());
    assert_eq!(names_for(&store, Some(&selector("gateway"))).len(), 300);
    assert!(doubted(&store.list_of(&bindings, Vec::new(), None)));
    store.replace(&bindings, all());
    assert_eq!(names_for(&store, Some(&selector("other"))).len(), 0);
    assert!(!doubted(&store.list_of(&bindings, Vec::new(), None)));
}

#[test]
fn a_kind_is_gone_where_that_is_proven() {
    let (proven, undefined) = (AbsenceEvidence::Proven, AbsenceEvidence::Undefined);
    let contradicted = AbsenceEvidence::Contradicted("it lists no groups".to_owned());
    let with = |count: usize| {
        let store = mk_store();
        for number in 0..count {
            store.put(&kind(POLICIES), mk_policy(&format!("p-{number}"), "Deny"));
        }
        store
    };
    let gone = |store: &Store, evidence: &AbsenceEvidence| {
        let outcome = store.not_served(&kind(POLICIES), evidence);
        assert_eq!(outcome.is_err(), !store.status().doubts.is_empty());
        outcome.is_ok() && names(store).is_empty()
    };
    assert!(!gone(&with(3), &contradicted));
    assert!(!gone(&with(3), &undefined));
    assert!(gone(&with(3), &proven));
    assert!(!gone(&with(200), &proven), "so many are not gone at once");
    assert!(gone(&with(0), &undefined), "there was nothing to lose");
    assert!(!gone(&with(0), &contradicted));
    let store = with(200);
    store.accept_absence();
    assert!(
        !gone(&store, &contradicted),
        "the server is none, whatever an administrator says"
    );
    assert!(gone(&store, &undefined));
}

#[test]
fn a_kind_of_every_api_server_is_never_gone() {
    let store = Store::new("east", None, Version::NEWEST);
    store.set_kinds(&WatchedKind::fixed(true, false).into_iter().collect());
    assert!(store.not_served(&kind(ROLES), &AbsenceEvidence::Proven).is_err());
    assert!(
        store
            .not_served(&WatchedKind::definitions(), &AbsenceEvidence::Proven)
            .is_err()
    );
    // Not every version has it.
    let mutating = kind("MutatingAdmissionPolicy");
    assert_eq!(store.not_served(&mutating, &AbsenceEvidence::Proven), Ok(false));
    let store = mk_store();
    store.put(&kind(ROLES), mk_role("a", "get"));
    assert!(store.not_served(&kind(ROLES), &AbsenceEvidence::Proven).is_err());
    assert_eq!(names(&store), ["ClusterRole/a"]);
}

#[test]
fn parameters_of_a_kind_that_is_not_served_are_unknown() {
    let limits = WatchedKind::of_object("example.com/v1", "Limit");
    let store = mk_store();
    let mut kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(true, false).into_iter().collect();
    kinds.insert(limits.clone());
    store.set_kinds(&kinds);
    let limit = || received(&limits, json!({"metadata": {"name": "a", "namespace": "n"}}));
    let is_known = |store: &Store| {
        !store
            .watched(None, false)
            .unknown
            .unknown_of_known_kinds
            .is_empty()
    };
    store.replace(&limits, vec![limit()]);
    assert!(is_known(&store));
    assert!(
        store
            .not_served(&limits, &AbsenceEvidence::Contradicted("no".to_owned()))
            .is_err()
    );
    assert!(!is_known(&store));
    assert_eq!(names(&store), ["Limit/n/a"], "what is there is there");
    store.replace(&limits, vec![limit()]);
    assert_eq!(store.not_served(&limits, &AbsenceEvidence::Proven), Ok(true));
    assert!(!is_known(&store) && names(&store).is_empty());
    assert!(store.is_complete(), "nothing waits for it");
    // A policy may name a kind that never was.
    assert_eq!(
        store.not_served(&limits, &AbsenceEvidence::Contradicted("no".to_owned())),
        Ok(false)
    );
}

/// A store whose parameters of `kind` were listed.
fn with_parameters(kind: &WatchedKind, all: Vec<ReceivedObject>) -> Store {
    let store = mk_store();
    let mut kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(true, false).into_iter().collect();
    kinds.insert(kind.clone());
    store.set_kinds(&kinds);
    assert!(matches!(
        store.list_of(kind, all, Some(100)),
        ListOutcome::Taken { doubt: None, .. }
    ));
    store
}

#[test]
fn parameters_are_unknown_while_their_list_is_doubted() {
    let limits = WatchedKind::of_object("example.com/v1", "Limit");
    let all = |count: usize| -> Vec<ReceivedObject> {
        let limit = |number: usize| json!({"metadata": {"name": format!("l-{number}"), "namespace": "n"}});
        (0..count)
            .map(|number| received(&limits, limit(number)))
            .collect()
    };
    let is_known = |store: &Store| {
        !store
            .watched(None, false)
            .unknown
            .unknown_of_known_kinds
            .is_empty()
    };
    for (count, version) in [(1, 101), (300, 99)] {
        let store = with_parameters(&limits, all(300));
        assert!(is_known(&store));
        assert!(doubted(&store.list_of(&limits, all(count), Some(version))));
        assert!(!is_known(&store), "of version {version}");
        store.list_of(&limits, all(300), Some(101));
        assert!(is_known(&store));
    }
}

#[test]
fn what_was_saved_in_part_is_not_all_that_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("east.json");
    let limits = WatchedKind::of_object("example.com/v1", "Limit");
    for is_whole in [true, false] {
        let store = with_parameters(&limits, Vec::new());
        let limit = received(&limits, json!({"metadata": {"name": "a", "namespace": "n"}}));
        store.put(&limits, limit);
        if !is_whole {
            let name = ("n".to_owned(), "b".to_owned());
            store.apply(&limits, name, Err(NO_ROOM));
        }
        SnapshotSaver::new(path.clone(), FileScope::Anywhere, "east")
            .save(&store.unsaved(true))
            .unwrap();
        let saved = saved::read((&path, &FileScope::Anywhere), "east", 64 << 20).unwrap();
        let store = Store::new("east", saved, Version::NEWEST);
        let known = store.watched(None, false).unknown.unknown_of_known_kinds.len();
        assert_eq!(
            (names(&store), known),
            (vec!["Limit/n/a".to_owned()], usize::from(is_whole))
        );
    }
}

#[test]
fn a_kind_that_is_not_served_is_asked_for_again_while_that_is_doubted() {
    let store = mk_store();
    let contradicted = AbsenceEvidence::Contradicted("it lists no groups".to_owned());
    assert!(store.not_served(&kind(POLICIES), &contradicted).is_err());
    assert!(!store.is_absent(&kind(POLICIES)));
    store
        .not_served(&kind(POLICIES), &AbsenceEvidence::Proven)
        .unwrap();
    assert!(store.is_absent(&kind(POLICIES)));
}

#[test]
fn what_was_left_out_of_a_kind_goes_with_the_kind() {
    let store = mk_store();
    let name = (String::new(), "a".to_owned());
    store.apply(&kind(POLICIES), name, Err(NO_ROOM));
    assert_eq!(store.status().left_out.policies, 1);
    store
        .not_served(&kind(POLICIES), &AbsenceEvidence::Proven)
        .unwrap();
    assert_eq!(store.status().left_out.policies, 0);
}

/// A webhook configuration that was created at the second `created`, and written then or at `written`.
fn registration(
    name: &str,
    created: u32,
    written: Option<u32>,
    webhooks: Value,
) -> (WatchedKind, ReceivedObject) {
    let [kind, _] = WatchedKind::registrations();
    let time = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
    let entries: Vec<Value> = written
        .into_iter()
        .map(|second| json!({"manager": "kubectl", "time": time(second)}))
        .collect();
    let object = json!({
        "metadata": {
            "name": name,
            "creationTimestamp": time(created),
            "generation": if written.is_some() { 2 } else { 1 },
            "managedFields": entries,
        },
        "webhooks": webhooks,
    });
    let received = received(&kind, object);
    (kind, received)
}

/// Since which second of 2026 each is as it is; why they are not known, if they are not.
fn registrations(store: &Store, now: Instant) -> Result<Vec<Option<u32>>, String> {
    let known = store.lock().registrations(now).expect("they are watched");
    let second = |since: Time| {
        let start = Time::parse("2026-01-01T00:00:00Z").unwrap();
        (0..60)
            .find(|second| start.plus_seconds(i64::from(*second)) == since)
            .unwrap()
    };
    match &*known {
        WatchedWebhookConfigurations::Known(all) => Ok(all.iter().map(|one| one.since.map(second)).collect()),
        WatchedWebhookConfigurations::Unproven(why) => Err(why.to_string()),
    }
}

#[test]
fn registrations_are_known_only_while_that_is_certain() {
    let store = Store::new("east", None, Version::NEWEST);
    let now = Instant::now();
    assert_eq!(store.lock().registrations(now), None);
    let kinds = WatchedKind::registrations();
    store.set_kinds(&kinds.iter().cloned().collect());
    let [validating, mutating] = &kinds;
    store.replace(validating, Vec::new());
    assert!(
        registrations(&store, now)
            .unwrap_err()
            .contains("MutatingWebhookConfiguration have not been listed")
    );
    store.refused(mutating);
    assert!(
        registrations(&store, now)
            .unwrap_err()
            .contains("may not list MutatingWebhookConfiguration")
    );
    store.replace(mutating, Vec::new());
    assert_eq!(registrations(&store, now), Ok(Vec::new()));
    store.note_not_followed(validating, "no connection", now);
    assert_eq!(
        registrations(&store, now + Duration::from_secs(59)),
        Ok(Vec::new())
    );
    let stale = registrations(&store, now + Duration::from_secs(60)).unwrap_err();
    assert!(
        stale.contains("not been listed or watched for a minute: no connection"),
        "{stale}"
    );
    store.note_followed(validating);
    assert_eq!(
        registrations(&store, now + Duration::from_secs(60)),
        Ok(Vec::new())
    );
    // An API server serves them: one that does not is none.
    assert!(store.not_served(validating, &AbsenceEvidence::Proven).is_err());
    assert!(
        registrations(&store, now)
            .unwrap_err()
            .contains("every API server serves it")
    );
    store.await_all();
    assert!(registrations(&store, now).is_err());
}

#[test]
fn a_registration_is_as_old_as_its_last_write_and_its_last_version_counts_alone() {
    let store = Store::new("east", None, Version::NEWEST);
    let kinds = WatchedKind::registrations();
    store.set_kinds(&kinds.iter().cloned().collect());
    for kind in &kinds {
        store.replace(kind, Vec::new());
    }
    let now = Instant::now();
    let put = |created, written, webhooks: Value| {
        let (kind, received) = registration("a", created, written, webhooks);
        store.put(&kind, received)
    };
    assert!(put(5, None, json!([])));
    assert_eq!(registrations(&store, now), Ok(vec![Some(5)]));
    assert!(!put(5, None, json!([])), "nothing changed");
    // The same under the same name, but created or written later.
    assert!(put(7, None, json!([])));
    assert_eq!(registrations(&store, now), Ok(vec![Some(7)]));
    assert!(put(7, Some(9), json!([])));
    assert_eq!(registrations(&store, now), Ok(vec![Some(9)]));
    assert!(put(7, Some(9), json!([{"name": "faulty"}])));
    assert_eq!(
        registrations(&store, now),
        Ok(Vec::new()),
        "the version before does not hold on"
    );
    assert!(put(7, Some(11), json!([])));
    assert_eq!(registrations(&store, now), Ok(vec![Some(11)]));
}
