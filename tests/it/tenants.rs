//! Several administrators write what one gateway serves: none of them changes what another gets.

mod files;
mod removal;
mod starts;
mod webhooks;

use std::fs;

use serde_json::json;

use crate::support::{Builder, Gateway, get, kubeconfig, until, v1};

/// The cluster `east` has manifests and an entry of `clusters` in folders of its own.
fn gateway() -> Gateway {
    builder().start()
}

fn builder() -> Builder {
    Builder::new()
        .callers(
            "\n- {kubeconfig: old.kubeconfig}\n- {kubeconfig: own.kubeconfig}\n\
             - {kubeconfig: east.kubeconfig, cluster: east}\n",
        )
        .file("old.kubeconfig", kubeconfig("old-token"))
        .file("own.kubeconfig", kubeconfig("own-token"))
        .file("east.kubeconfig", kubeconfig("east-token"))
        .file("east/deny.yaml", deny("east-denies", "joe"))
        .file("clusters.d/west/west.yaml", entry("west"))
        .paths("[policies, {path: east, cluster: east}]")
        .clusters("clusters.d")
}

fn deny(name: &str, user: &str) -> String {
    format!(
        "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         effect: Deny\n  subjects: [{{kind: User, name: {user}}}]\n  \
         nonResourceRules: [{{verbs: [get], paths: [/x]}}]\n"
    )
}

fn entry(name: &str) -> String {
    format!("name: {name}\nkubeconfig: k\ncacheFile: {name}.saved\n")
}

/// The status of the answer to who shows `token`, and whether `user` is denied.
fn ask(gateway: &Gateway, token: &str, user: &str) -> (u16, bool) {
    let head = format!(
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}"
    );
    let spec = json!({"user": user, "nonResourceAttributes": {"path": "/x", "verb": "get"}});
    let mut connection = gateway.stranger().connect(gateway.addresses.server);
    let answer = connection.request(&head, v1(&spec.to_string()).as_bytes());
    let is_denied = answer.status == 200 && answer.json()["status"]["denied"] == true;
    (answer.status, is_denied)
}

/// Has `token` accepted no longer, and waits until that is so.
fn revoke(gateway: &Gateway, token: &str, replacement: &str) {
    let text = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let without = text.replace("- {kubeconfig: old.kubeconfig}\n", replacement);
    fs::write(gateway.file("config.yaml"), without).unwrap();
    until("the revocation is in force", || {
        ask(gateway, token, "jane").0 == 401
    });
}

fn faults_of(gateway: &Gateway, cluster: &str) -> Option<f64> {
    gauge_of(gateway, "portcullis_cluster_file_faults", cluster)
}

fn gauge_of(gateway: &Gateway, name: &str, cluster: &str) -> Option<f64> {
    let metrics = get(gateway.addresses.admin, "/metrics").1;
    let series = format!(r#"{name}{{cluster="{cluster}"}} "#);
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.map(|value| value.parse().unwrap())
}
