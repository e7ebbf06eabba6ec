//! The ways in which the shared API server calls its webhook, each taken by
//! the members of one group.

use crate::harness::folder::Folder;
use crate::harness::gateway::Keys;
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::pki::Authority;
use crate::harness::{api_server, jwt, ports};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// One entry of the AuthorizationConfiguration.
pub(crate) struct Route {
    /// Whose requests take it; empty: everyone who takes no other.
    pub(crate) group: &'static str,
    /// What the gateway lists under `callers` for it.
    pub(crate) caller: Option<Value>,
    /// Where it calls.
    pub(crate) address: SocketAddr,
    credential: Credential,
    version: &'static str,
    failure_policy: &'static str,
}

/// Every route; but for those that say otherwise they call the gateway at
/// `gateway`, by its known certificate, in v1, and refuse when that fails.
pub(crate) fn all(keys: &Keys, folder: &Folder, gateway: SocketAddr) -> Vec<Route> {
    let route = |group| Route {
        group,
        caller: None,
        address: gateway,
        credential: Credential::Certificate(keys.caller.clone()),
        version: "v1",
        failure_policy: "Deny",
    };
    // The gateway is given the very kubeconfig that the API server uses.
    let by_kubeconfig = |group, credential| Route {
        credential,
        caller: Some(json!({"kubeconfig": folder.path().join(file_name(group)), "endpoints": ["authorize"]})),
        ..route(group)
    };
    let stranger = || Credential::Certificate(Authority::new("strangers").client("kube-apiserver", &[]));
    let token_file = folder.write("webhook.token", "token-from-a-file\n");
    let issuer = jwt::Issuer::new("https://issuer.example.com");
    let token = issuer.token(json!({"aud": "portcullis", "sub": "apiserver"}));
    let jwks = folder.write("jwks.json", issuer.jwks());

    vec![
        route(""),
        Route {
            version: "v1beta1",
            ..route("via:v1beta1")
        },
        by_kubeconfig(
            "via:pinned",
            Credential::Certificate(keys.clients.client("apiserver-by-kubeconfig", &[])),
        ),
        by_kubeconfig(
            "via:token",
            Credential::Token("token-of-the-api-server".to_owned()),
        ),
        by_kubeconfig("via:token-file", Credential::TokenFile(token_file)),
        by_kubeconfig(
            "via:basic",
            Credential::Basic {
                username: "apiserver".to_owned(),
                password: "open: sesame".to_owned(),
            },
        ),
        Route {
            credential: Credential::Token(token),
            caller: Some(json!({"jwt": {
                "issuer": "https://issuer.example.com",
                "audiences": ["portcullis"],
                "jwks": jwks,
                "algorithms": ["RS256"],
                "claims": {"sub": "apiserver"},
            }})),
            ..route("via:jwt")
        },
        Route {
            failure_policy: "NoOpinion",
            ..route("via:no-opinion")
        },
        Route {
            credential: stranger(),
            ..route("via:stranger-deny")
        },
        Route {
            credential: stranger(),
            failure_policy: "NoOpinion",
            ..route("via:stranger-no-opinion")
        },
        Route {
            address: ports::free(),
            ..route("via:down-deny")
        },
        Route {
            address: ports::free(),
            failure_policy: "NoOpinion",
            ..route("via:down-no-opinion")
        },
    ]
}

/// Writes the kubeconfig of each route.
pub(crate) fn write_kubeconfigs(routes: &[Route], keys: &Keys, folder: &Folder) {
    for route in routes {
        let server = format!("https://{}/authorize", route.address);
        let text = kubeconfig::render(&server, &keys.servers.pem(), &route.credential);
        folder.write(&file_name(route.group), text);
    }
}

/// The AuthorizationConfiguration of these routes, then RBAC.
pub(crate) fn configuration(routes: &[Route], folder: &Folder) -> String {
    let mut authorizers: Vec<Value> = routes.iter().map(|route| authorizer(route, folder)).collect();
    authorizers.push(json!({"type": "RBAC", "name": "rbac"}));
    api_server::authorization_configuration(&authorizers).to_string()
}

fn authorizer(route: &Route, folder: &Folder) -> Value {
    let condition = match route.group {
        "" => "!request.groups.exists(group, group.startsWith('via:'))".to_owned(),
        group => format!("'{group}' in request.groups"),
    };
    let kubeconfig = folder.path().join(file_name(route.group));
    let mut authorizer = api_server::webhook(&name(route.group), &kubeconfig);
    let webhook = &mut authorizer["webhook"];
    webhook["subjectAccessReviewVersion"] = json!(route.version);
    webhook["failurePolicy"] = json!(route.failure_policy);
    webhook["matchConditions"] = json!([{"expression": condition}]);
    authorizer
}

fn name(group: &str) -> String {
    format!("portcullis{}", group.replace(':', "-").replace("via", ""))
}

fn file_name(group: &str) -> String {
    format!("{}.kubeconfig", name(group))
}
