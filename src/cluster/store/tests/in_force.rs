//! What the status of an object is to say.

use super::*;
use portcullis_policy::model::Time;

const NOW: &str = "2026-06-01T00:00:00Z";

pub(crate) fn mk_exception(name: &str, end: &str) -> ReceivedObject {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["pods"], "resourceNames": ["a"]});
    let spec = json!({"policies": ["p"], "match": {"resourceRules": [rule]}, "notAfter": end, "reason": "r"});
    received(
        &WatchedKind::reported_only(),
        json!({"metadata": {"name": name}, "spec": spec}),
    )
}

fn mk_timed(name: &str, field: &str, time: &str, mode: &str) -> ReceivedObject {
    let mut spec = policy_spec("Deny");
    spec[field] = time.into();
    spec["mode"] = mode.into();
    received(&kind(POLICIES), json!({"metadata": {"name": name}, "spec": spec}))
}

/// Each object with the condition that it is to have: `name: status reason`.
fn said(store: &Store) -> Vec<String> {
    let (wanted, _) = store.conditions(Time::parse(NOW).unwrap());
    let said = wanted.into_iter().map(|wanted| {
        let condition = wanted.condition;
        format!("{}: {} {}", wanted.name, condition.is_true, condition.reason)
    });
    said.collect()
}

fn put_in_force(store: &Store) {
    store.watched(None, true);
    store.record_in_force(BTreeSet::new());
}

#[test]
fn a_version_is_in_force_once_decisions_are_made_by_it() {
    let store = mk_store();
    store.put(&kind(POLICIES), mk_policy("p", "Deny"));
    assert_eq!(said(&store), Vec::<String>::new(), "it is on its way");
    store.watched(None, false);
    assert_eq!(said(&store), Vec::<String>::new(), "it is still on its way");
    store.record_in_force(BTreeSet::new());
    assert_eq!(said(&store), ["p: true InForce"]);
    store.put(&kind(POLICIES), mk_policy("p", "Allow"));
    assert_eq!(said(&store), Vec::<String>::new(), "the next is on its way");
    store.put(&kind(POLICIES), mk_policy("p", "Deny"));
    assert_eq!(said(&store), ["p: true InForce"], "taken back");
    store.delete(&kind(POLICIES), &(String::new(), "p".into()));
    assert_eq!(said(&store), Vec::<String>::new());
}

#[test]
fn what_does_not_hold_says_why() {
    let store = mk_store();
    let policies = kind(POLICIES);
    store.put(&policies, mk_policy("faulty", "Nonsense"));
    store.put(&policies, mk_policy("worse", "Deny"));
    store.put(&policies, mk_policy("worse", "Nonsense"));
    store.put(
        &policies,
        mk_timed("early", "notBefore", "2026-06-02T00:00:00Z", "Enforce"),
    );
    store.put(&policies, mk_timed("late", "notAfter", NOW, "Enforce"));
    store.put(
        &policies,
        mk_timed("shadow", "notAfter", "2026-07-01T00:00:00Z", "Shadow"),
    );
    put_in_force(&store);
    assert_eq!(
        said(&store),
        [
            "early: false NotYetValid",
            "faulty: false Faulty",
            "late: false Expired",
            "shadow: true Shadow",
            "worse: false Faulty",
        ]
    );
    let (wanted, next) = store.conditions(Time::parse(NOW).unwrap());
    assert_eq!(next, Time::parse("2026-06-02T00:00:00Z"));
    let message = |index: usize| wanted[index].condition.message.as_str();
    assert!(
        message(1).starts_with("spec.effect: Unsupported value: `Nonsense`"),
        "{}",
        message(1)
    );
    assert!(
        message(4).ends_with("; the version before stays in force"),
        "{}",
        message(4)
    );
}

#[test]
fn an_object_that_stands_in_the_files_too_says_so() {
    let store = mk_store();
    store.put(&kind(POLICIES), mk_policy("p", "Deny"));
    let identity = store
        .watched(None, false)
        .objects()
        .next()
        .unwrap()
        .identity()
        .clone();
    store.record_in_force(BTreeSet::from([identity]));
    assert_eq!(said(&store), ["p: false InFiles"]);
}

#[test]
fn an_exception_that_is_not_taken_says_so() {
    let store = Store::new("east", None, Version::NEWEST);
    let reported_only = WatchedKind::reported_only();
    let fixed = WatchedKind::fixed(false, false).into_iter();
    let kinds: BTreeSet<WatchedKind> = fixed.chain([reported_only.clone()]).collect();
    store.set_kinds(&kinds);
    for kind in kinds.iter().filter(|kind| **kind != reported_only) {
        store.replace(kind, Vec::new());
    }
    assert_eq!(store.status().origin, Origin::Live, "it is not waited for");
    store.replace(&reported_only, vec![mk_exception("x", "2999-01-01T00:00:00Z")]);
    assert_eq!(store.watched(None, false).objects().count(), 0);
    assert_eq!(store.watched(None, true).objects().count(), 0);
    assert_eq!(said(&store), ["x: false ExceptionsNotTaken"]);
}

#[test]
fn a_withheld_grant_says_so() {
    let store = mk_store();
    store.replace(&WatchedKind::definitions(), Vec::new());
    store.put(&kind(POLICIES), mk_policy("p", "Allow"));
    assert_eq!(said(&store), ["p: false Withheld"]);
}

#[test]
fn nothing_is_said_before_everything_is_known() {
    let saved = vec![(kind(POLICIES), mk_policy("p", "Deny"))];
    let store = Store::new("east", Some(saved_set(saved)), Version::NEWEST);
    put_in_force(&store);
    assert_eq!(said(&store), Vec::<String>::new());
}

#[test]
fn what_stands_in_a_status_decides_nothing_and_is_known() {
    let store = mk_store();
    let with = |status: Value| {
        let mut value =
            json!({"metadata": {"name": "p", "uid": "u", "generation": 7}, "spec": policy_spec("Deny")});
        value["status"] = status;
        received(&kind(POLICIES), value)
    };
    assert!(store.put(&kind(POLICIES), with(json!(null))));
    put_in_force(&store);
    let now = Time::parse(NOW).unwrap();
    let wanted = store.conditions(now).0.remove(0);
    assert_eq!((wanted.uid.as_str(), wanted.condition.generation), ("u", 7));
    assert!(!wanted.condition.is_noted(wanted.noted.as_ref()));
    let written = wanted.condition.to_json(None, NOW.to_owned());
    let noted = with(json!({"conditions": [written]}));
    assert!(!store.put(&kind(POLICIES), noted), "no change");
    let wanted = store.conditions(now).0.remove(0);
    assert!(wanted.condition.is_noted(wanted.noted.as_ref()));
    let forged = with(json!({"conditions": [{"type": "InForce", "status": "False"}]}));
    assert!(!store.put(&kind(POLICIES), forged));
    assert_eq!(said(&store), ["p: true InForce"]);
}
