//! Kubeconfig files, as an API server reads them to reach its webhook.

use super::pki::Identity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::PathBuf;

/// How the user of a kubeconfig proves who it is.
pub(crate) enum Credential {
    Certificate(Identity),
    Token(String),
    TokenFile(PathBuf),
    Basic { username: String, password: String },
    None,
}

/// A kubeconfig of one cluster and one user, as JSON, which is YAML.
pub(crate) fn render(server: &str, authority: &[u8], credential: &Credential) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "there", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": "caller", "user": user(credential)}],
        "contexts": [{"name": "call", "context": {"cluster": "there", "user": "caller"}}],
        "current-context": "call",
    })
    .to_string()
}

/// A kubeconfig of users alone, named for the hosts (and ports) that they are
/// shown to: what an API server reads for the webhooks of admission.
pub(crate) fn by_host(users: &[(String, Credential)]) -> String {
    let users: Vec<Value> = users
        .iter()
        .map(|(host, credential)| json!({"name": host, "user": user(credential)}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Config", "users": users}).to_string()
}

fn user(credential: &Credential) -> Value {
    match credential {
        Credential::Certificate(identity) => json!({
            "client-certificate-data": STANDARD.encode(identity.pem()),
            "client-key-data": STANDARD.encode(identity.key_pem()),
        }),
        Credential::Token(token) => json!({"token": token}),
        Credential::TokenFile(path) => json!({"tokenFile": path}),
        Credential::Basic { username, password } => json!({"username": username, "password": password}),
        Credential::None => json!({}),
    }
}
