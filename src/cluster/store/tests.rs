mod absence;
mod in_force;
mod left_out;
mod recompile;
mod saved;
mod schema;

use serde_json::{Value, json};

use super::super::object::name_of;
use super::*;
use crate::config::Selector;
use crate::state::WatchedPart;
use portcullis_policy::field::Faults;
use portcullis_policy::model::LabelSelector;

const ROLES: &str = "ClusterRole";
const POLICIES: &str = "AuthorizationPolicy";
const NO_ROOM: LeftOutReason = LeftOutReason::NoRoom {
    bytes: 1,
    share: RoomOwner::NONE,
};

fn kind(name: &str) -> WatchedKind {
    let mut kinds = WatchedKind::fixed(true, false).into_iter();
    kinds.find(|kind| kind.kind == name).unwrap()
}

fn received(kind: &WatchedKind, value: Value) -> ReceivedObject {
    read(kind, &value).unwrap()
}

fn read(kind: &WatchedKind, value: &Value) -> Result<ReceivedObject, LeftOutReason> {
    let api_version = kind.api_version(&kind.versions[0]);
    ReceivedObject::new(kind, &api_version, name_of(value), value.to_string().as_bytes())
}

/// What a test does with a store.
impl Store {
    /// Takes an object that is new or changed.
    fn put(&self, kind: &WatchedKind, received: ReceivedObject) -> bool {
        self.apply(kind, received.name.clone(), Ok(received))
    }

    /// Takes a list of this version. Whether what holds changed.
    fn list_of(&self, kind: &WatchedKind, all: Vec<ReceivedObject>, version: Option<u64>) -> ListOutcome {
        let mut listing = self.begin_list(kind);
        for received in all {
            self.add_listed(kind, &mut listing, received.name.clone(), Ok(received));
        }
        let evidence = ListEvidence {
            version,
            no_server: None,
        };
        self.end_list(kind, listing, &evidence)
    }

    /// The same, which must be believed.
    pub(crate) fn replace(&self, kind: &WatchedKind, all: Vec<ReceivedObject>) -> bool {
        match self.list_of(kind, all, None) {
            ListOutcome::Taken { changed, doubt: None } => changed,
            other => panic!("{other:?}"),
        }
    }
}

/// Objects as they were saved.
fn saved_set(objects: Vec<(WatchedKind, ReceivedObject)>) -> RestoredSet {
    let objects = objects.into_iter();
    RestoredSet {
        objects: Box::new(objects.map(|(kind, received)| (kind, received.name.clone(), Ok(received)))),
        kinds: Vec::new(),
        lacks_changes: false,
    }
}

fn mk_role(name: &str, verb: &str) -> ReceivedObject {
    let rules = json!([{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]);
    received(&kind(ROLES), json!({"metadata": {"name": name}, "rules": rules}))
}

fn mk_policy(name: &str, effect: &str) -> ReceivedObject {
    let value = json!({"metadata": {"name": name}, "spec": policy_spec(effect)});
    received(&kind(POLICIES), value)
}

fn policy_spec(effect: &str) -> Value {
    json!({
        "effect": effect,
        "subjects": [{"kind": "Group", "name": "agents"}],
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
    })
}

/// The definition that is shipped of this kind.
fn mk_definition(plural: &str) -> Value {
    let text = match plural {
        "authorizationpolicies" => include_str!("../../../config/crd/authorizationpolicies.yaml"),
        "admissionexceptions" => include_str!("../../../config/crd/admissionexceptions.yaml"),
        _ => include_str!("../../../config/crd/authorizationinvariants.yaml"),
    };
    portcullis_policy::document::parse(None, text).unwrap()[0]
        .root()
        .to_json()
}

fn defining(definition: Value) -> ReceivedObject {
    received(&WatchedKind::definitions(), definition)
}

fn shipped() -> Vec<ReceivedObject> {
    let definitions = ["authorizationpolicies", "admissionexceptions"].map(mk_definition);
    definitions.into_iter().map(defining).collect()
}

/// A store of a cluster whose every kind was listed, without objects but for the shipped
/// definitions.
fn mk_store() -> Store {
    mk_store_of("east")
}

fn mk_store_of(cluster: &str) -> Store {
    let store = Store::new(cluster, None, Version::NEWEST);
    let kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(true, false).into_iter().collect();
    list_all(&store, &kinds);
    store
}

fn list_all(store: &Store, kinds: &BTreeSet<WatchedKind>) {
    store.set_kinds(kinds);
    for kind in kinds {
        let definitions = if kind.purpose == WatchPurpose::Definition {
            shipped()
        } else {
            Vec::new()
        };
        store.replace(kind, definitions);
    }
}

fn names(store: &Store) -> Vec<String> {
    names_for(store, None)
}

fn names_for(store: &Store, selector: Option<&Selector>) -> Vec<String> {
    let watched = store.watched(selector, false);
    let objects = watched.objects();
    let mut names: Vec<String> = objects.map(|object| object.identity().to_string()).collect();
    names.sort();
    names
}

#[test]
fn what_did_not_change_is_given_as_before() {
    let (store, again) = (mk_store(), mk_store());
    let role = |at: usize, verb: &str| mk_role(&format!("role-{at}"), verb);
    for at in 0..500 {
        assert!(store.put(&kind(ROLES), role(at, "get")));
    }
    let before = store.watched(None, false);
    assert!(store.put(&kind(ROLES), role(250, "list")));
    let after = store.watched(None, false);
    let is_new = |part: &&Arc<WatchedPart>| !before.parts.iter().any(|other| Arc::ptr_eq(part, other));
    assert_eq!(after.parts.iter().filter(is_new).count(), 1);
    let (come, gone) = after.difference(&before);
    assert_eq!((come.len(), gone.len()), (1, 1));
    assert_ne!(before.digest, after.digest);
    // The same objects, in another order.
    for at in (0..500).rev() {
        let verb = if at == 250 { "list" } else { "get" };
        again.put(&kind(ROLES), role(at, verb));
    }
    assert_eq!(again.watched(None, false).digest, after.digest);
    assert!(store.delete(&kind(ROLES), &(String::new(), "role-7".to_owned())));
    let (come, gone) = (store.watched(None, false), after);
    let (come, gone) = come.difference(&gone);
    assert_eq!((come.len(), gone.len()), (0, 1));
}

#[test]
fn objects_come_change_and_go() {
    let store = mk_store();
    let none = store.watched(None, false).digest;
    assert!(store.put(&kind(ROLES), mk_role("a", "get")));
    assert!(store.put(&kind(POLICIES), mk_policy("p", "Deny")));
    assert_eq!(names(&store), ["AuthorizationPolicy/p", "ClusterRole/a"]);
    let one = store.watched(None, false).digest;
    assert!(store.put(&kind(ROLES), mk_role("a", "list")), "another version");
    assert!(!store.put(&kind(ROLES), mk_role("a", "list")), "the same again");
    assert_ne!(store.watched(None, false).digest, one);
    assert!(store.delete(&kind(ROLES), &(String::new(), "a".into())));
    assert!(
        !store.delete(&kind(ROLES), &(String::new(), "a".into())),
        "it is gone"
    );
    assert!(store.delete(&kind(POLICIES), &(String::new(), "p".into())));
    assert_eq!(names(&store), Vec::<String>::new());
    assert_eq!(store.watched(None, false).digest, none);
}

#[test]
fn what_the_api_server_notes_beside_an_object_is_no_change() {
    let store = mk_store();
    let noted = |version: &str| {
        let metadata =
            json!({"name": "p", "resourceVersion": version, "managedFields": [{"manager": version}]});
        let spec = policy_spec("Deny");
        let mut value = json!({"metadata": metadata, "spec": spec});
        value["status"] = json!({"seen": version});
        received(&kind(POLICIES), value)
    };
    assert!(store.put(&kind(POLICIES), noted("1")));
    assert!(!store.put(&kind(POLICIES), noted("2")));
}

#[test]
fn the_last_good_version_of_a_faulty_object_holds() {
    let store = mk_store();
    assert!(store.put(&kind(POLICIES), mk_policy("p", "Deny")));
    let before = store.watched(None, false).digest;
    assert!(!store.put(&kind(POLICIES), mk_policy("p", "Nonsense")));
    assert!(!store.put(&kind(POLICIES), mk_policy("new", "Nonsense")));
    assert!(
        store.put(&kind(POLICIES), mk_policy("other", "Deny")),
        "no other is stopped"
    );
    assert_eq!(
        names(&store),
        ["AuthorizationPolicy/other", "AuthorizationPolicy/p"]
    );
    store.delete(&kind(POLICIES), &(String::new(), "other".into()));
    assert_eq!(store.watched(None, false).digest, before);

    let status = store.status();
    assert_eq!((status.objects, status.faulty), (1, 2));
    let faults = status.faults[0].to_string();
    assert!(
        faults.starts_with("cluster east: AuthorizationPolicy/new: spec.effect: "),
        "{faults}"
    );

    assert!(store.put(&kind(POLICIES), mk_policy("p", "Allow")), "mended");
    assert!(!store.put(&kind(POLICIES), mk_policy("p", "Nonsense")));
    assert!(
        !store.put(&kind(POLICIES), mk_policy("p", "Allow")),
        "back to what holds"
    );
    store.delete(&kind(POLICIES), &(String::new(), "new".into()));
    assert_eq!(store.status().faulty, 0);
}

#[test]
fn a_faulty_object_that_is_deleted_is_gone() {
    let store = mk_store();
    store.put(&kind(POLICIES), mk_policy("p", "Deny"));
    store.put(&kind(POLICIES), mk_policy("p", "Nonsense"));
    assert!(store.delete(&kind(POLICIES), &(String::new(), "p".into())));
    assert_eq!((names(&store).len(), store.status().faulty), (0, 0));
}

#[test]
fn a_list_replaces_what_was_known_of_its_kind() {
    let store = mk_store();
    store.put(&kind(POLICIES), mk_policy("p", "Deny"));
    store.put(&kind(ROLES), mk_role("a", "get"));
    store.put(&kind(ROLES), mk_role("b", "get"));
    assert!(store.replace(&kind(ROLES), vec![mk_role("b", "get"), mk_role("c", "get")]));
    assert_eq!(
        names(&store),
        ["AuthorizationPolicy/p", "ClusterRole/b", "ClusterRole/c"]
    );
    assert!(!store.replace(&kind(ROLES), vec![mk_role("c", "get"), mk_role("b", "get")]));
}

#[test]
fn nothing_is_shown_before_every_kind_was_listed() {
    let store = Store::new("east", None, Version::NEWEST);
    let kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(false, false).into_iter().collect();
    store.set_kinds(&kinds);
    let (last, others) = (kind(POLICIES), kinds.iter().filter(|kind| kind.kind != POLICIES));
    for kind in others {
        store.replace(
            kind,
            if kind.kind == ROLES {
                vec![mk_role("a", "get")]
            } else {
                Vec::new()
            },
        );
    }
    assert_eq!(names(&store), Vec::<String>::new());
    assert_eq!(store.status().origin, Origin::None);
    assert!(!store.is_complete());
    assert!(store.replace(&last, vec![mk_policy("p", "Deny")]));
    assert_eq!(names(&store), ["AuthorizationPolicy/p", "ClusterRole/a"]);
    assert_eq!(store.status().origin, Origin::Live);
    assert!(store.is_complete());
}

#[test]
fn a_saved_set_is_shown_until_its_kinds_are_listed() {
    let saved = vec![
        (kind(ROLES), mk_role("a", "get")),
        (kind(POLICIES), mk_policy("p", "Deny")),
    ];
    let store = Store::new("east", Some(saved_set(saved)), Version::NEWEST);
    assert_eq!(names(&store), ["AuthorizationPolicy/p", "ClusterRole/a"]);
    assert_eq!(store.status().origin, Origin::Saved);
    store.set_kinds(&WatchedKind::fixed(false, false).into_iter().collect());
    store.replace(&kind(ROLES), vec![mk_role("b", "get")]);
    assert_eq!(names(&store), ["AuthorizationPolicy/p", "ClusterRole/b"]);
    assert!(!store.is_complete(), "it is not saved over what was complete");
    store.replace(&kind(POLICIES), vec![mk_policy("p", "Nonsense")]);
    assert_eq!(
        names(&store),
        ["AuthorizationPolicy/p", "ClusterRole/b"],
        "as saved, it holds"
    );
}

#[test]
fn policies_of_admission_must_be_selected() {
    let store = mk_store();
    let bindings = kind("ValidatingAdmissionPolicyBinding");
    let mk_binding = |name: &str, label: &str| {
        let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
        received(
            &bindings,
            json!({"metadata": {"name": name, "labels": {"run-by": label}}, "spec": spec}),
        )
    };
    store.put(&bindings, mk_binding("a", "gateway"));
    store.put(&bindings, mk_binding("b", "apiserver"));
    let labels = BTreeMap::from([("run-by".to_owned(), "gateway".to_owned())]);
    let selector = Selector {
        text: "run-by=gateway".into(),
        labels: LabelSelector::compile(&labels, &[]).unwrap(),
    };
    assert_eq!(names(&store), Vec::<String>::new());
    assert_eq!(
        names_for(&store, Some(&selector)),
        ["ValidatingAdmissionPolicyBinding/a"]
    );
}

#[test]
fn parameters_that_may_not_be_listed_hold_nothing_up() {
    let store = mk_store();
    let secrets = WatchedKind::of_object("v1", "Secret");
    let mut kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(true, false).into_iter().collect();
    kinds.insert(secrets.clone());
    store.set_kinds(&kinds);
    assert_eq!(
        (store.status().origin, store.is_complete()),
        (Origin::Live, false)
    );
    store.refused(&secrets);
    assert!(store.is_complete());
    assert!(
        store.set_kinds(&WatchedKind::fixed(true, false).into_iter().collect()),
        "they are dropped"
    );
}

#[test]
fn an_object_that_cannot_be_read_leaves_the_version_before_in_force() {
    let store = mk_store();
    let limits = WatchedKind::of_object("example.com/v1", "Limit");
    let name = || ("n".to_owned(), "a".to_owned());
    let valid = r#"{"metadata":{"namespace":"n","name":"a"},"data":[1]}"#;
    let deep = valid.replace('1', &("[".repeat(500) + &"]".repeat(500)));
    assert!(store.put(
        &limits,
        ReceivedObject::new(&limits, "example.com/v1", name(), valid.as_bytes()).unwrap()
    ));
    assert!(!store.put(
        &limits,
        ReceivedObject::new(&limits, "example.com/v1", name(), deep.as_bytes()).unwrap()
    ));
    assert_eq!(names(&store), ["Limit/n/a"]);
    let status = store.status();
    assert_eq!((status.objects, status.faulty), (1, 1));
    let faults = status.faults[0].to_string();
    assert!(
        faults.starts_with("cluster east: n/a: Unreadable: recursion limit"),
        "{faults}"
    );
}
