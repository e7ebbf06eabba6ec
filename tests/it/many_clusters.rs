//! Many API servers at once. They are stand-ins: some of them hang, or never end.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::api_servers::{ApiServers, Asked, Behaviour};
use crate::harness::pki::Authority;
use crate::support::process::Process;
use crate::support::{Builder, get, kubeconfig, until, v1};

/// A gateway, and what it watches.
struct Fleet {
    servers: ApiServers,
    gateway: Process,
    count: usize,
}

/// What is stored in the API server of this number: `user-N` may get pods, and some more.
fn objects(cluster: usize) -> Vec<Arc<str>> {
    let more = (0..20).map(|index| binding(&format!("more-{index}"), &format!("somebody-{index}")));
    let own = [role(), binding("own", &format!("user-{cluster}"))];
    let all = own.into_iter().chain(more);
    all.map(|object| object.to_string().into()).collect()
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "getters", "resourceVersion": "1"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    })
}

fn binding(name: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": "team", "resourceVersion": "1"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "getters"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// A policy that denies `user` everything.
fn deny(user: &str) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": format!("no-{user}"), "resourceVersion": "1"},
        "spec": {
            "effect": "Deny",
            "subjects": [{"kind": "User", "name": user}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        },
    })
}

impl Fleet {
    /// So many API servers, which answer at first as `behaviours` say, in their order.
    fn start(count: usize, behaviours: &[Behaviour]) -> Self {
        let servers = ApiServers::start(&Authority::new("clusters"), count, objects);
        for (cluster, behaviour) in behaviours.iter().enumerate() {
            servers.behave(cluster, *behaviour);
        }
        let (mut builder, mut callers) = (Builder::new(), String::new());
        for cluster in 0..count {
            let entry = format!("name: c{cluster}\nkubeconfig: c{cluster}.kubeconfig\n");
            builder = builder
                .file(&format!("clusters.d/c{cluster}.yaml"), entry)
                .file(
                    &format!("clusters.d/c{cluster}.kubeconfig"),
                    servers.kubeconfig(cluster),
                )
                .file(
                    &format!("caller-{cluster}.kubeconfig"),
                    kubeconfig(&format!("caller-{cluster}")),
                );
            callers += &format!("- {{kubeconfig: caller-{cluster}.kubeconfig, cluster: c{cluster}}}\n");
        }
        let gateway = builder.callers(callers).clusters("clusters.d").spawn();
        Self {
            servers,
            gateway,
            count,
        }
    }

    /// The value of a series of the metrics, for this cluster.
    fn metric(&self, family: &str, cluster: usize) -> Option<f64> {
        let metrics = get(self.gateway.admin, "/metrics").1;
        let series = format!(r#"portcullis_cluster_{family}{{cluster="c{cluster}"}} "#);
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
        line.map(|value| value.parse().unwrap())
    }

    fn is_synced(&self, cluster: usize) -> bool {
        self.metric("synced", cluster) == Some(1.0)
    }

    /// Whether `user` may get pods in the cluster of this number.
    fn allows(&self, cluster: usize, user: &str) -> bool {
        self.decision(cluster, user)["allowed"].as_bool().unwrap()
    }

    fn denies(&self, cluster: usize, user: &str) -> bool {
        self.decision(cluster, user)["denied"] == true
    }

    /// What is said to `user`, who wants to get pods.
    fn decision(&self, cluster: usize, user: &str) -> Value {
        let ask = v1(&json!({
            "user": user,
            "groups": ["system:authenticated"],
            "resourceAttributes": {"verb": "get", "version": "v1", "resource": "pods", "namespace": "team"},
        })
        .to_string());
        let head = format!(
            "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer caller-{cluster}"
        );
        let mut connection = self.gateway.stranger().connect(self.gateway.server);
        let answer = connection.request(&head, ask.as_bytes());
        // Of a cluster of which nothing is known yet.
        if answer.status == 503 {
            return json!({"allowed": false});
        }
        assert_eq!(answer.status, 200);
        answer.json()["status"].clone()
    }

    /// Of how many kinds absence is not believed.
    fn doubts(&self, cluster: usize) -> f64 {
        self.metric("unconfirmed_absences", cluster).unwrap()
    }

    /// Two clusters, each with a Deny on mallory, who may get pods but for it.
    fn denying(extra: u32) -> Self {
        let fleet = Self::start(2, &[]);
        for cluster in 0..2 {
            fleet.servers.put(cluster, &binding("mallory", "mallory"));
            fleet.servers.put(cluster, &deny("mallory"));
            for number in 0..extra {
                fleet
                    .servers
                    .put(cluster, &binding(&format!("extra-{number}"), "extra"));
            }
        }
        until("the Denies hold", || {
            (0..2).all(|cluster| fleet.denies(cluster, "mallory") && fleet.allows(cluster, "somebody-3"))
        });
        until("everything is there", || {
            extra == 0 || (0..2).all(|cluster| fleet.allows(cluster, "extra"))
        });
        fleet
    }

    /// The clusters in which `user` may get pods.
    fn allowing(&self, user: &str) -> Vec<usize> {
        (0..self.count)
            .filter(|cluster| self.allows(*cluster, user))
            .collect()
    }

    /// The connections that were used to ask.
    fn connections(&self, cluster: usize) -> BTreeSet<usize> {
        let asked = self.servers.asked(cluster);
        asked.iter().map(|asked| asked.connection).collect()
    }
}

#[test]
fn each_of_fifty_clusters_decides_by_its_own_objects() {
    let fleet = Fleet::start(50, &[]);
    until("all are listed", || {
        (0..fleet.count).all(|cluster| fleet.is_synced(cluster))
    });
    until("they are in force", || {
        (0..fleet.count).all(|cluster| fleet.allows(cluster, &format!("user-{cluster}")))
    });
    for cluster in [0, 7, 49] {
        assert_eq!(fleet.allowing(&format!("user-{cluster}")), [cluster]);
        assert_eq!(
            fleet.connections(cluster).len(),
            1,
            "its watches share a connection"
        );
    }
    fleet.servers.put(7, &binding("new", "newcomer"));
    until("the new binding is in force", || fleet.allows(7, "newcomer"));
    assert_eq!(fleet.allowing("newcomer"), [7]);
    fleet.servers.delete(7, "rolebindings", "team", "own");
    until("the old one is gone", || !fleet.allows(7, "user-7"));
    assert_eq!(fleet.allowing("user-8"), [8]);
    assert_eq!(fleet.allowing("somebody-3").len(), fleet.count);

    let series = || {
        let metrics = get(fleet.gateway.admin, "/metrics").1;
        let lines = metrics.lines();
        lines
            .filter(|line| line.starts_with("portcullis_cluster_"))
            .count()
    };
    assert_eq!(series(), 12 * fleet.count);
    let asked = fleet.connections(9);
    std::fs::remove_file(fleet.gateway.file("clusters.d/c8.yaml")).unwrap();
    until("the cluster has gone", || series() == 12 * (fleet.count - 1));
    until("its objects have gone", || !fleet.allows(8, "user-8"));
    assert!(fleet.allows(9, "user-9"));
    assert_eq!(fleet.connections(9), asked, "the others are left alone");
}

#[test]
fn hostile_api_servers_cost_the_others_nothing() {
    const HOSTILE: [Behaviour; 6] = [
        Behaviour::Hangs,
        Behaviour::EndlessLists,
        Behaviour::EndlessBodies,
        Behaviour::EndlessEvents,
        Behaviour::EndsWatches,
        Behaviour::WrongEvents,
    ];
    let fleet = Fleet::start(HOSTILE.len() + 2, &HOSTILE);
    let honest = [HOSTILE.len(), HOSTILE.len() + 1];
    until("the others are listed", || {
        honest.iter().all(|cluster| fleet.is_synced(*cluster))
    });
    for cluster in honest {
        until("they decide", || {
            fleet.allows(cluster, &format!("user-{cluster}"))
        });
    }
    // The list is whole, whatever comes after it.
    until("what was listed decides", || {
        (3..6).all(|cluster| fleet.allows(cluster, &format!("user-{cluster}")))
    });
    until("watches that end are begun again", || {
        let asked = fleet.servers.asked(4);
        let watches = asked.iter().filter(|asked| asked.query.contains("watch=true"));
        watches
            .filter(|asked| asked.path.ends_with("/rolebindings"))
            .count()
            >= 3
    });
    for cluster in honest {
        fleet.servers.put(cluster, &binding("new", "newcomer"));
        until("a change holds", || fleet.allows(cluster, "newcomer"));
    }
    assert_eq!(fleet.allowing("newcomer"), honest);
    // One that recovers is watched again.
    fleet.servers.behave(1, Behaviour::Serves);
    fleet.servers.behave(4, Behaviour::Serves);
    fleet.servers.put(4, &binding("new", "newcomer"));
    until("it is watched again", || fleet.allows(4, "newcomer"));
}

#[test]
fn a_connection_that_is_not_to_be_used_any_more_is_replaced_and_nothing_is_missed() {
    let fleet = Fleet::start(2, &[]);
    until("they decide", || {
        (0..2).all(|cluster| fleet.allows(cluster, &format!("user-{cluster}")))
    });
    let before = fleet.connections(0);
    fleet.servers.say_farewell();
    fleet.servers.put(0, &binding("new", "newcomer"));
    until("the watches that run go on", || fleet.allows(0, "newcomer"));
    // Watches end, and begin again where they stopped.
    fleet.servers.behave(0, Behaviour::Serves);
    fleet.servers.put(0, &binding("newer", "successor"));
    until("the next ones tell what is new", || fleet.allows(0, "successor"));
    let after = fleet.connections(0);
    assert_eq!(
        after.difference(&before).count(),
        1,
        "one connection more: {before:?} {after:?}"
    );
    let is_list = |asked: &&Asked| asked.path.ends_with("/rolebindings") && asked.query.contains("limit=");
    let asked = fleet.servers.asked(0);
    assert_eq!(
        asked.iter().filter(is_list).count(),
        1,
        "nothing was listed again"
    );
    assert_eq!(fleet.metric("watch_failures_total", 0), Some(0.0));
}

#[test]
fn what_is_not_found_holds_on_until_it_is_proven_to_be_gone() {
    let behaviours = [
        Behaviour::NotFound,
        Behaviour::LacksPolicies,
        Behaviour::OlderDiscovery,
    ];
    for behaviour in behaviours {
        let fleet = Fleet::denying(0);
        fleet.servers.behave(0, behaviour);
        until("it is doubted", || fleet.doubts(0) > 0.0);
        assert!(fleet.denies(0, "mallory"), "{behaviour:?}");
        assert!(fleet.allows(0, "somebody-3"), "{behaviour:?}");
        let detail = get(fleet.gateway.admin, "/readyz?verbose").1;
        assert!(
            detail.contains("objects are missing without evidence") && detail.contains("--accept-absence c0"),
            "{detail}"
        );
        until("it is logged", || {
            fleet
                .gateway
                .log()
                .contains("objects are missing without evidence")
        });
        assert_eq!(fleet.doubts(1), 0.0, "the other cluster is as it was");
        fleet.servers.behave(0, Behaviour::Serves);
        until("all is there again", || fleet.doubts(0) == 0.0);
        fleet.servers.delete(0, "authorizationpolicies", "", "no-mallory");
        until("a deletion is one", || fleet.allows(0, "mallory"));
    }
}

#[test]
fn policies_go_with_their_definition() {
    let fleet = Fleet::denying(0);
    fleet.servers.behave(0, Behaviour::DefinitionDeleted);
    until("the Deny is gone", || fleet.allows(0, "mallory"));
    assert_eq!(fleet.doubts(0), 0.0);
    assert!(fleet.allows(0, "somebody-3") && fleet.denies(1, "mallory"));
}

#[test]
fn lists_that_lack_what_was_known_take_nothing_away() {
    for (behaviour, extra) in [(Behaviour::AnotherEtcd, 0), (Behaviour::EmptyLists, 200)] {
        let fleet = Fleet::denying(extra);
        fleet.servers.behave(0, behaviour);
        until("it is doubted", || fleet.doubts(0) > 0.0);
        let in_force = fleet.metric("objects", 0).unwrap();
        assert!(in_force >= 20.0 + f64::from(extra), "{behaviour:?}: {in_force}");
        if behaviour == Behaviour::AnotherEtcd {
            assert!(fleet.denies(0, "mallory") && fleet.allows(0, "somebody-3"));
        }
        assert_eq!(fleet.doubts(1), 0.0);
    }
}

#[test]
fn what_answers_in_place_of_an_api_server_does_not_outlast_it() {
    let fleet = Fleet::denying(0);
    fleet.servers.behave(0, Behaviour::EmptyListsWithoutGroups);
    until("it is doubted", || fleet.doubts(0) > 0.0);
    assert!(fleet.denies(0, "mallory") && fleet.allows(0, "somebody-3"));
    fleet.servers.put(0, &deny("somebody-3"));
    fleet.servers.behave(0, Behaviour::Serves);
    until("what changed meanwhile is taken", || {
        fleet.denies(0, "somebody-3")
    });
    until("nothing is doubted", || fleet.doubts(0) == 0.0);
}

#[test]
fn an_object_that_is_too_large_is_left_out_and_its_kind_goes_on() {
    let fleet = Fleet::denying(0);
    let mut large = binding("large", "large");
    large["metadata"]["annotations"] = json!({"example.com/padding": "x".repeat(2 << 20)});
    fleet.servers.put(0, &large);
    let left_out = || {
        let metrics = get(fleet.gateway.admin, "/metrics").1;
        metrics.contains(r#"portcullis_cluster_left_out_objects{cluster="c0",purpose="rbac"} 1"#)
    };
    until("it is left out", left_out);
    fleet.servers.delete(0, "rolebindings", "team", "own");
    until("a deletion takes access away", || !fleet.allows(0, "user-0"));
    assert!(!fleet.allows(0, "large"), "what is left out grants nothing");
    fleet.servers.put(0, &binding("large", "large"));
    until("it is taken when it is smaller", || {
        fleet.allows(0, "large") && !left_out()
    });
}
