//! What is saved, change by change, is what holds.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::cluster::saved::{self, SnapshotSaver, UnsavedObjects};
use crate::config::FileScope;

/// What becomes of a store.
#[derive(Debug, Clone)]
enum StoreChange {
    Role(usize, bool),
    /// Faulty: what held before goes on.
    Fault(usize),
    Gone(usize),
    /// These alone are listed.
    Listed(Vec<usize>),
    Policy(usize),
    /// Its kind is watched no more, and then again.
    PoliciesLeft,
    Saved,
}

fn change() -> impl Strategy<Value = StoreChange> {
    prop_oneof![
        4 => (0..6_usize, any::<bool>()).prop_map(|(role, gets)| StoreChange::Role(role, gets)),
        1 => (0..6_usize).prop_map(StoreChange::Fault),
        2 => (0..6_usize).prop_map(StoreChange::Gone),
        1 => vec(0..6_usize, 0..4).prop_map(StoreChange::Listed),
        1 => (0..3_usize).prop_map(StoreChange::Policy),
        1 => Just(StoreChange::PoliciesLeft),
        4 => Just(StoreChange::Saved),
    ]
}

fn role(number: usize, gets: bool) -> ReceivedObject {
    mk_role(&format!("role-{number}"), if gets { "get" } else { "list" })
}

fn make(store: &Store, change: &StoreChange) {
    let roles = kind(ROLES);
    match change {
        StoreChange::Role(number, gets) => {
            store.put(&roles, role(*number, *gets));
        }
        StoreChange::Fault(number) => {
            let faulty = json!({"metadata": {"name": format!("role-{number}")}, "rules": "none"});
            store.put(&roles, received(&roles, faulty));
        }
        StoreChange::Gone(number) => {
            store.delete(&roles, &(String::new(), format!("role-{number}")));
        }
        StoreChange::Listed(numbers) => {
            let numbers: BTreeSet<_> = numbers.iter().collect();
            store.replace(
                &roles,
                numbers.into_iter().map(|number| role(*number, true)).collect(),
            );
        }
        StoreChange::Policy(number) => {
            store.put(&kind(POLICIES), mk_policy(&format!("policy-{number}"), "Deny"));
        }
        StoreChange::PoliciesLeft => {
            let kinds: BTreeSet<WatchedKind> = WatchedKind::fixed(true, false).into_iter().collect();
            let mut others = kinds.clone();
            others.remove(&kind(POLICIES));
            store.set_kinds(&others);
            store.set_kinds(&kinds);
        }
        StoreChange::Saved => {}
    }
}

/// The texts of all that holds.
fn held(store: &Store) -> Vec<String> {
    let known = store.lock();
    let objects = known.kinds.values().flat_map(|kind| kind.objects.values());
    let mut texts: Vec<String> = objects
        .filter_map(|held| Some(held.in_force.as_ref()?.content.text.get().into_owned()))
        .collect();
    texts.sort();
    texts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_saved_change_by_change_is_what_holds(changes in vec(change(), 1..30)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("east.json");
        let (store, mut saver) = (mk_store(), SnapshotSaver::new(path.clone(), FileScope::Anywhere, "east"));
        let mut wholes = 0;
        for change in changes.iter().chain([&StoreChange::Saved]) {
            make(&store, change);
            if !matches!(change, StoreChange::Saved) {
                continue;
            }
            let unsaved = store.unsaved(saver.wants_all());
            wholes += usize::from(matches!(unsaved, UnsavedObjects::All(_)));
            saver.save(&unsaved).unwrap();
            let restored = Store::new("east", saved::read((&path, &FileScope::Anywhere), "east", 64 << 20).unwrap(), Version::NEWEST);
            prop_assert_eq!(held(&restored), held(&store));
        }
        let dropped = changes.iter().filter(|change| matches!(change, StoreChange::PoliciesLeft));
        prop_assert!(wholes <= 1 + 2 * dropped.count(), "the rest is saved as changes");
    }
}
