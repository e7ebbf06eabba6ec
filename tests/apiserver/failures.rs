//! The API server's behaviour if the gateway does not answer: its own `failurePolicy`.

use crate::cluster::User;
use crate::harness::pki::{Authority, Identity};
use crate::harness::reviews;
use crate::scenario::{self, Part};
use serde_json::json;

pub(crate) const PART: Part = Part {
    name: "failures",
    users: &[
        User {
            name: "sid",
            groups: &["via:stranger-deny"],
        },
        User {
            name: "sue",
            groups: &["via:stranger-no-opinion"],
        },
        User {
            name: "dan",
            groups: &["via:down-deny"],
        },
        User {
            name: "dina",
            groups: &["via:down-no-opinion"],
        },
    ],
    policies: "",
};

const KITTENS: &str = "/api/v1/namespaces/kittens/configmaps";
const PUPPIES: &str = "/api/v1/namespaces/puppies/configmaps";

/// A call that failed under `failurePolicy: Deny` is the user's error 500.
const REFUSED: u16 = 500;

pub(crate) fn who_shows_no_known_certificate_is_refused() {
    let Some(servers) = scenario::shared() else { return };
    let review = reviews::authorization(&json!({
        "user": "alice", "nonResourceAttributes": {"path": "/version", "verb": "get"},
    }));
    let ask = |identity: Option<&Identity>| servers.gateway.client_with(identity).post("/authorize", &review);

    assert_eq!(ask(None).unwrap().status, 401);
    let stranger = Authority::new("strangers").client("kube-apiserver", &[]);
    // Either the handshake fails or the request does.
    assert!(ask(Some(&stranger)).map_or(true, |answer| answer.status == 401));
}

pub(crate) fn a_certificate_of_another_authority_is_refused_and_fails_under_deny() {
    let Some(servers) = scenario::shared() else { return };
    servers.cluster.bind_everything("sid");
    assert_eq!(servers.cluster.status("sid", PUPPIES), REFUSED);
}

pub(crate) fn a_certificate_of_another_authority_is_refused_and_falls_through_under_no_opinion() {
    let Some(servers) = scenario::shared() else { return };
    servers.cluster.grant_everything("sue");
    assert_eq!(servers.cluster.status("sue", PUPPIES), 200, "RBAC allows it");
    // Config maps of `kittens` would be allowed to this route by a policy, and
    // services denied, had the gateway accepted the caller.
    let services = servers
        .cluster
        .status("sue", "/api/v1/namespaces/kittens/services");
    assert_eq!(services, 200, "no policy is heard");
}

pub(crate) fn a_gateway_that_is_down_fails_under_deny() {
    let Some(servers) = scenario::shared() else { return };
    let gateway = servers.gateway_of_route("via:down-deny");
    assert_eq!(servers.cluster.status("dan", KITTENS), 200);
    assert_eq!(servers.cluster.status("dan", PUPPIES), 403);
    drop(gateway);
    assert_eq!(servers.cluster.status("dan", KITTENS), REFUSED);
    let gateway = servers.gateway_of_route("via:down-deny");
    assert_eq!(
        servers.cluster.status("dan", KITTENS),
        200,
        "it is asked again once it is back"
    );
    drop(gateway);
}

pub(crate) fn a_gateway_that_is_down_falls_through_under_no_opinion() {
    let Some(servers) = scenario::shared() else { return };
    let services = "/api/v1/namespaces/kittens/services";
    let gateway = servers.gateway_of_route("via:down-no-opinion");
    servers.cluster.grant_everything("dina");
    assert_eq!(servers.cluster.status("dina", PUPPIES), 200);
    assert_eq!(
        servers.cluster.status("dina", services),
        403,
        "denied by a policy"
    );
    drop(gateway);
    assert_eq!(servers.cluster.status("dina", services), 200, "RBAC allows it");
}
