//! How an API server and the gateway reach each other: what each is given of the other.

use super::folder::Folder;
use super::gateway::Keys;
use super::kubeconfig::{self, Credential};
use super::pki::Authority;
use super::relay::Relay;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// The flag by which an API server asks the gateway, and then its own RBAC.
pub(crate) fn authorization_flag(folder: &Folder, keys: &Keys, gateway: SocketAddr) -> String {
    let credential = Credential::Certificate(keys.caller.clone());
    let server = format!("https://{gateway}/authorize");
    let kubeconfig = folder.write(
        "authorization.kubeconfig",
        kubeconfig::render(&server, &keys.servers.pem(), &credential),
    );
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    let configuration = authorization_configuration(&[webhook("portcullis", &kubeconfig), rbac]);
    let file = folder.write("authorization.yaml", configuration.to_string());
    format!("--authorization-config={}", file.display())
}

/// An AuthorizationConfiguration with these authorizers, asked in this order.
pub(crate) fn authorization_configuration(authorizers: &[Value]) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": authorizers,
    })
}

/// A webhook of an AuthorizationConfiguration, none of whose answers is cached.
pub(crate) fn webhook(name: &str, kubeconfig: &Path) -> Value {
    json!({
        "type": "Webhook",
        "name": name,
        "webhook": {
            // Far longer than an answer takes, even from an unoptimised build.
            "timeout": "30s",
            "cacheAuthorizedRequests": false,
            "cacheUnauthorizedRequests": false,
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "Deny",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
        },
    })
}

/// An entry of the gateway's `clusters`, whose API server is behind the relay and knows the
/// gateway by a token.
pub(crate) fn watched(
    folder: &Folder,
    name: &str,
    relay: &Relay,
    authority: &Authority,
    token: String,
) -> Value {
    let server = format!("https://{}", relay.address());
    let text = kubeconfig::render(&server, &authority.pem(), &Credential::Token(token));
    json!({
        "name": name,
        "kubeconfig": folder.write(&format!("gateway/{name}.kubeconfig"), text),
        "cacheFile": format!("{name}.json"),
    })
}
