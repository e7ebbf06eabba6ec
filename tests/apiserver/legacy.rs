//! The older flag, `--authorization-webhook-config-file`.

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::harness::folder::Folder;
use crate::scenario::{self, Scenario};

const USERS: [User; 3] = [
    User {
        name: "alice",
        groups: &["devs"],
    },
    User {
        name: "clara",
        groups: &["by-common-name"],
    },
    User {
        name: "dave",
        groups: &[],
    },
];

/// An API server under the gateway of the shared servers, which knows what to
/// say about the users of other tests.
fn start(servers: &Scenario, more: &[&str]) -> Option<Cluster> {
    let webhook = servers.cluster.folder().join("portcullis.kubeconfig");
    let mut flags = vec![
        "--authorization-mode=Webhook,RBAC".to_owned(),
        format!("--authorization-webhook-config-file={}", webhook.display()),
        "--authorization-webhook-cache-authorized-ttl=0s".to_owned(),
        "--authorization-webhook-cache-unauthorized-ttl=0s".to_owned(),
    ];
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    let cluster = Cluster::start(&binaries::find()?, Folder::new("legacy"), &USERS, &flags);
    cluster.create_namespace("kittens");
    Some(cluster)
}

fn assert_ruled(cluster: &Cluster) {
    let pods = "/api/v1/namespaces/kittens/pods";
    let secrets = "/api/v1/namespaces/kittens/secrets";
    assert_eq!(cluster.status("alice", pods), 200, "allowed");
    assert_eq!(
        cluster.status("clara", "/api/v1/namespaces/kittens/configmaps"),
        200,
        "allowed to a group"
    );
    assert_eq!(
        cluster.status("alice", secrets),
        403,
        "no opinion, and none of RBAC"
    );
    cluster.grant_everything("dave");
    assert_eq!(cluster.status("dave", pods), 200, "no opinion, allowed by RBAC");
    assert_eq!(cluster.status("dave", secrets), 403, "denied");
}

pub(crate) fn the_older_flag_asks_in_v1beta1_by_default() {
    let Some(servers) = scenario::shared() else { return };
    let Some(cluster) = start(&servers, &[]) else {
        return;
    };
    assert_ruled(&cluster);
}

pub(crate) fn the_older_flag_asks_in_v1() {
    let Some(servers) = scenario::shared() else { return };
    let Some(cluster) = start(&servers, &["--authorization-webhook-version=v1"]) else {
        return;
    };
    assert_ruled(&cluster);
}
