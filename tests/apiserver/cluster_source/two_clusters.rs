//! One gateway that watches two API servers.

use super::servers::{self, CLUSTER, GATEWAY};
use crate::binaries;
use crate::cluster::Cluster;
use crate::harness::client::Client;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Setup};
use crate::harness::pki::Authority;
use crate::harness::ports;
use crate::harness::relay::Relay;
use serde_json::json;

fn policy(effect: &str, path: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: two-{path}}}\n\
         spec:\n  effect: {effect}\n  subjects: [{{kind: Group, name: people}}]\n  \
         nonResourceRules: [{{verbs: [get], paths: [/two/{path}]}}]\n"
    )
}

pub(crate) fn objects_of_two_api_servers_stay_apart() {
    let Some(servers) = servers::shared() else { return };
    let Some(binaries) = binaries::find() else { return };
    let (folder, near, far) = (Folder::new("cluster-two"), Relay::new(), Relay::new());
    let authority = Authority::new("west");
    let west = Cluster::start_as(
        &binaries,
        Folder::new("cluster-west"),
        &authority,
        &[GATEWAY],
        &["--authorization-mode=RBAC".to_owned()],
    );
    near.lead_to(servers.cluster.address());
    far.lead_to(west.address());
    for file in [
        "crd/authorizationpolicies.yaml",
        "crd/admissionexceptions.yaml",
        "cluster/gateway.yaml",
        "cluster/admission.yaml",
    ] {
        servers::apply(&west, &servers::shipped(file));
    }
    assert!(eventually(|| servers::defined(&west)), "{}", west.tails());
    let apply = |cluster: &Cluster, name: &str, text: &str| {
        servers::apply(cluster, &folder.write(name, text));
    };
    apply(&servers.cluster, "east.yaml", &policy("Deny", "east"));
    apply(&servers.cluster, "east-both.yaml", &policy("Deny", "both"));
    apply(&west, "west.yaml", &policy("Deny", "west"));
    apply(&west, "west-both.yaml", &policy("Allow", "both"));

    let caller = servers.keys.clients.client("west", &[]);
    let gateway = Gateway::start(&Setup {
        folder: &folder.path().join("gateway"),
        address: ports::free(),
        keys: &servers.keys,
        callers: vec![json!({"clientCertificate": {"commonNames": ["west"]}, "cluster": "west"})],
        manifests: &[],
        more: json!({"clusters": [
            servers::entry(&folder, CLUSTER, &near, &servers.authority),
            servers::entry(&folder, "west", &far, &authority),
        ]}),
    });
    let (east, west_caller) = (gateway.client(), gateway.client_with(Some(&caller)));
    let decision = |client: &Client, path: &str| servers::outcome(&servers::decision(client, "carol", path));
    for (path, expected) in [
        ("/two/east", ("deny", "noOpinion")),
        ("/two/west", ("noOpinion", "deny")),
        ("/two/both", ("deny", "allow")),
    ] {
        let both = || (decision(&east, path), decision(&west_caller, path));
        assert!(
            eventually(|| both() == expected),
            "{path}: {:?}\n{}",
            both(),
            gateway.tail()
        );
    }

    // One that is out of reach holds nothing up.
    far.cut();
    servers::kubectl(&servers.cluster, &["delete", "authorizationpolicy", "two-both"]);
    assert!(eventually(|| decision(&east, "/two/both") == "noOpinion"));
    assert_eq!(decision(&west_caller, "/two/both"), "allow");
    servers::kubectl(&servers.cluster, &["delete", "authorizationpolicy", "two-east"]);
}
