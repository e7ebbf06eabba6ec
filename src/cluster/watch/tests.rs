//! A watch of a server that lies, hangs, fails or has too much to say.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{StatusCode, Uri};
use serde_json::{Value, json};

use super::*;
use crate::cluster::bounded::NegotiatedProtocol;
use crate::cluster::memory::WatchedMemory;
use crate::cluster::tests::fixtures::{TestAnswer, api_server, block_on};
use portcullis_cel::Version;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn roles() -> WatchedKind {
    WatchedKind::of_object(RBAC, "ClusterRole")
}

fn watch(max_list_time: Duration, answer: impl Fn(&Uri) -> TestAnswer + Send + 'static) -> Watch {
    let reporter = Reporter::new("east", Arc::default());
    let reach = ApiServerConnection::new(
        api_server(answer),
        NegotiatedProtocol::default(),
        reporter.clone(),
    );
    Watch {
        kind: roles(),
        reach: Arc::new(reach),
        labels: None,
        store: Arc::new(Store::new("east", None, Version::NEWEST)),
        reporter,
        max_list_time,
        left_out_period: LEFT_OUT_RETRY_INTERVAL,
    }
}

fn ok(answer: Value) -> TestAnswer {
    (StatusCode::OK, answer)
}

/// What is served of RBAC.
fn resources() -> TestAnswer {
    let verbs = ["list", "watch"];
    let roles = json!({"name": "clusterroles", "kind": "ClusterRole", "verbs": verbs});
    ok(json!({"kind": "APIResourceList", "groupVersion": RBAC, "resources": [roles]}))
}

fn role(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": name, "resourceVersion": version},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
    })
}

/// A list of version 100.
fn list(items: &[Value], next: &str) -> TestAnswer {
    let metadata = json!({"resourceVersion": "100", "continue": next});
    ok(json!({"kind": "ClusterRoleList", "apiVersion": RBAC, "metadata": metadata, "items": items}))
}

fn is_list(uri: &Uri) -> bool {
    uri.path().ends_with("/clusterroles")
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("watch=true"))
}

fn not_found() -> TestAnswer {
    (StatusCode::NOT_FOUND, json!("default backend - 404"))
}

/// One whose store has a role, which was listed at version 100.
fn with_a_role(answer: impl Fn(&Uri) -> TestAnswer + Send + 'static) -> Watch {
    let watch = watch(MAX_LIST_TIME, answer);
    let text = role("a", "1").to_string();
    let name = (String::new(), "a".to_owned());
    let received = ReceivedObject::new(&watch.kind, RBAC, name.clone(), text.as_bytes());
    let mut listing = watch.store.begin_list(&watch.kind);
    watch.store.add_listed(&watch.kind, &mut listing, name, received);
    let evidence = ListEvidence {
        version: Some(100),
        no_server: None,
    };
    watch.store.end_list(&watch.kind, listing, &evidence);
    watch
}

/// Follows until there is a doubt, or until that ends.
async fn doubt(watch: &Watch) -> String {
    let doubted = async {
        while watch.store.status().doubts.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let mut history = WatchHistory::default();
    tokio::select! {
        _ = watch.list_and_watch(&mut history) => {}
        () = doubted => {}
    }
    watch.store.status().doubts.concat()
}

#[test]
fn a_list_that_never_ends_is_given_up() {
    let error = block_on(async {
        let watch = watch(Duration::from_millis(20), |uri| match is_list(uri) {
            true => list(&[role("a", "1")], "more"),
            false => resources(),
        });
        watch
            .list_and_watch(&mut WatchHistory::default())
            .await
            .unwrap_err()
    });
    assert!(matches!(error, ApiError::TooLong("the list", _)), "{error}");
}

#[test]
fn definitions_whose_list_never_ends_are_no_evidence() {
    let error = block_on(async {
        let server = |uri: &Uri| match uri.path() {
            "/api" => ok(json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": ""}}]})),
            "/apis" => {
                let names = ["apps", "rbac.authorization.k8s.io", "apiextensions.k8s.io"];
                let groups = names.map(|name| json!({"metadata": {"name": name}}));
                ok(json!({"kind": "APIGroupDiscoveryList", "items": groups}))
            }
            "/apis/apiextensions.k8s.io/v1" => {
                let definitions = json!({"name": "customresourcedefinitions",
                    "kind": "CustomResourceDefinition", "verbs": ["list", "watch"]});
                ok(json!({"kind": "APIResourceList", "resources": [definitions]}))
            }
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => ok(json!({
                "kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1",
                "metadata": {"resourceVersion": "1", "continue": "more"}, "items": [],
            })),
            _ => not_found(),
        };
        let watch = watch(Duration::from_millis(20), server);
        watch
            .list_and_watch(&mut WatchHistory::default())
            .await
            .unwrap_err()
    });
    assert!(
        matches!(error, ApiError::TooLong("the list of definitions", _)),
        "{error}"
    );
}

#[test]
fn a_list_that_is_not_found_is_no_empty_list() {
    for paths in ["the list", "everything"] {
        let doubt = block_on(async {
            let watch = with_a_role(move |uri| match is_list(uri) || paths == "everything" {
                true => not_found(),
                false => resources(),
            });
            doubt(&watch).await
        });
        let expected =
            "ClusterRole.rbac.authorization.k8s.io: it is not served, 1 of its objects are known, and `/api`";
        assert!(doubt.starts_with(expected), "{paths}: {doubt}");
    }
}

#[test]
fn an_empty_list_of_what_lists_no_groups_is_not_believed() {
    let doubt = block_on(async {
        let watch = with_a_role(|uri| match uri.path() {
            "/api" | "/apis" => not_found(),
            _ if is_watch(uri) => ok(json!({})),
            _ if is_list(uri) => list(&[], ""),
            _ => resources(),
        });
        doubt(&watch).await
    });
    assert!(
        doubt.contains("the list is empty, but 1 objects are known, and `/api`"),
        "{doubt}"
    );
}

#[test]
fn an_event_that_is_older_than_what_is_known_is_not_believed() {
    for (sort, version) in [
        ("MODIFIED", "99"),
        ("ADDED", "99"),
        ("DELETED", "99"),
        ("BOOKMARK", "99"),
        ("MODIFIED", "later"),
        ("DELETED", "later"),
        ("BOOKMARK", "later"),
    ] {
        let (error, has_role) = block_on(async {
            let watch = with_a_role(move |uri| match is_list(uri) {
                true if is_watch(uri) => ok(json!({"type": sort, "object": role("a", version)})),
                true => list(&[role("a", "1")], ""),
                false => resources(),
            });
            let error = watch
                .list_and_watch(&mut WatchHistory::default())
                .await
                .unwrap_err();
            (error.to_string(), watch.store.has_any(&watch.kind))
        });
        let expected = match version {
            "99" => "version 99 is older than the known one",
            _ => "version later is not a number, so it may be older than the known one",
        };
        assert!(
            error.contains("the watch of ClusterRole.rbac") && error.ends_with(expected),
            "{sort}: {error}"
        );
        assert!(has_role, "{sort}");
    }
}

#[test]
fn without_numbers_of_versions_a_list_confirms_what_is_deleted() {
    let lists = Arc::new(AtomicUsize::new(0));
    let listed = Arc::clone(&lists);
    let has_role = block_on(async {
        let watch = watch(MAX_LIST_TIME, move |uri| match is_list(uri) {
            true if is_watch(uri) => ok(json!({"type": "DELETED", "object": role("a", "y")})),
            true => {
                listed.fetch_add(1, Ordering::Relaxed);
                let metadata = json!({"resourceVersion": "x"});
                ok(
                    json!({"kind": "ClusterRoleList", "apiVersion": RBAC, "metadata": metadata,
                    "items": [role("a", "x")]}),
                )
            }
            false => resources(),
        });
        watch.list_and_watch(&mut WatchHistory::default()).await.unwrap();
        watch.store.has_any(&watch.kind)
    });
    assert_eq!((lists.load(Ordering::Relaxed), has_role), (1, true));
}

#[test]
fn what_fails_to_be_followed_is_not_up_to_date() {
    block_on(async {
        let watch = with_a_role(|_| (StatusCode::INTERNAL_SERVER_ERROR, json!("no")));
        let minute = Duration::from_secs(60);
        let failed = async {
            while watch.store.outdated_at(Instant::now() + minute).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let mut history = WatchHistory::default();
        let error = watch.list_and_watch(&mut history).await.unwrap_err();
        assert!(watch.store.outdated_at(Instant::now() + minute).is_empty());
        tokio::select! {
            () = watch.handle_failure(&error, &mut history.failures) => {}
            () = failed => {}
        }
        let outdated = watch.store.outdated_at(Instant::now() + minute);
        assert!(outdated.len() == 1 && outdated[0].contains("500"), "{outdated:?}");
    });
}

#[test]
fn an_object_of_which_too_much_is_written_is_left_out() {
    let left_out = block_on(async {
        let mut large = role("large", "2");
        large["metadata"]["annotations"] = json!({"a": "x".repeat(2 << 20)});
        let watch = watch(MAX_LIST_TIME, move |uri| match is_list(uri) {
            true => list(&[large.clone(), role("small", "3")], ""),
            false => resources(),
        });
        let served = ServedKind::find(watch.reach.server(), &watch.kind).await.unwrap();
        watch.list(&served.unwrap()).await.unwrap();
        watch.store.status().left_out.rbac
    });
    assert_eq!(left_out, 1);
}

/// However often something comes, as here all the time.
#[test]
fn what_was_left_out_is_listed_again_once_there_is_room() {
    let (lists, left_out) = block_on(async {
        let memory = Arc::new(WatchedMemory::default());
        memory.limit(1 << 10);
        let requests = Arc::new(Mutex::new((0, 0)));
        let (asked, room) = (Arc::clone(&requests), Arc::clone(&memory));
        let answering = watch(MAX_LIST_TIME, move |uri| {
            let (lists, watches) = &mut *asked.lock().unwrap();
            if !is_list(uri) {
                return resources();
            }
            if is_watch(uri) {
                *watches += 1;
                room.limit(64 << 20);
                let metadata = json!({"resourceVersion": "1000"});
                return ok(json!({"type": "BOOKMARK", "object": {"metadata": metadata}}));
            }
            *lists += 1;
            list(&[role("a", "1")], "")
        });
        let store = Store::sharing(&Arc::default(), memory.cluster(), "east", Version::NEWEST);
        let watch = Watch {
            store: Arc::new(store),
            left_out_period: Duration::ZERO,
            ..answering
        };
        let watches = || requests.lock().unwrap().1;
        let mut history = WatchHistory::default();
        let follow = async { while watch.list_and_watch(&mut history).await.is_ok() {} };
        let listed_again = async {
            while watches() == 0 || watch.store.status().left_out.rbac > 0 && watches() < 20 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = follow => panic!("it failed"),
            () = listed_again => {}
        }
        let lists = requests.lock().unwrap().0;
        (lists, watch.store.status().left_out.rbac)
    });
    assert_eq!((lists, left_out), (2, 0));
}

#[test]
fn what_has_expressions_waits_for_its_turn() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let order = Mutex::new(Vec::new());
    runtime.block_on(async {
        let mut policies = watch(MAX_LIST_TIME, |_| not_found());
        policies.kind =
            WatchedKind::of_object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy");
        let reach = Arc::clone(&policies.reach);
        let roles = Watch {
            reach,
            ..watch(MAX_LIST_TIME, |_| not_found())
        };
        let turn = policies.reach.compile_turn().begin().await;
        let waiting = policies.in_turn(|| order.lock().unwrap().push("policies"));
        let going_on = async {
            roles.in_turn(|| order.lock().unwrap().push("roles")).await;
            drop(turn);
        };
        // The first is polled first.
        tokio::join!(waiting, going_on);
    });
    assert_eq!(*order.lock().unwrap(), ["roles", "policies"]);
}

#[test]
fn who_fills_and_empties_a_part_has_the_kind_listed_less_and_less_often() {
    let (mut retries, start) = (LeftOutRetries::default(), Timer::now());
    let [ann, bob] = ["ann", "bob"].map(RoomOwner::of);
    let minute = Duration::from_secs(60);
    let mut is_due = |shares: &[RoomOwner], minutes: u32| {
        let shares = shares.iter().copied().collect();
        retries.is_due(&shares, minute, start + minute * minutes)
    };
    let lists = (0..120).filter(|&minutes| is_due(&[ann], minutes)).count();
    assert!((8..16).contains(&lists), "{lists}");
    assert!(
        !is_due(&[ann], 120) && is_due(&[ann, bob], 120),
        "bob waits for nobody"
    );
    assert!(!is_due(&[], 121));
    assert!(
        is_due(&[ann], 151) && is_due(&[ann], 153),
        "as if it were the first time"
    );
}
