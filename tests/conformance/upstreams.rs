//! How webhooks are called: whose credential is shown to whom, and what goes
//! over the wire.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis::config::kubeconfig::client::{ByHost, by_host};
use portcullis::config::{self, Files, HeldBack};
use portcullis::webhooks::{ConfiguredWebhook, MAX_CALL_TIMEOUT, USER_AGENT, Upstreams};
use portcullis_policy::admission::matching::Constraints;
use portcullis_policy::admission::webhook::{ClientConfig, Webhook, WebhookTarget};
use portcullis_policy::admission::{FailurePolicy, Reinvocation};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};
use crate::tools::pki::Authority;
use crate::tools::webhooks::{Answer, Called, Webhooks};

pub(crate) const CREDENTIALS: Table = &[
    ("clientConfigFor", client_config_for),
    ("clientConfigForService", client_config_for_service),
    ("credentialKinds", credential_kinds),
];

pub(crate) const ENVELOPE: Table = &[("httpEnvelope", http_envelope)];

/// Credentials that are refused when the file is read, where upstream goes on:
/// it would start a program, or fail at the call.
pub(crate) fn is_refused_at_load(case: &Case<'_>) -> bool {
    let credential = case.input()["credential"].as_str().unwrap_or_default();
    credential.contains("exec") || credential.contains("impersonat") || credential == "token and basic"
}

struct Memory(BTreeMap<PathBuf, Vec<u8>>);

impl Files for Memory {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        self.0
            .get(path)
            .cloned()
            .ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// Reads `kubeconfig` beside the files `token`, `cert` and `key`.
fn read(kubeconfig: &Value, token: &str) -> Result<ByHost, String> {
    let files = [
        ("/k/config", kubeconfig.to_string()),
        ("/k/token", token.to_owned()),
        ("/k/cert", "CERT".to_owned()),
        ("/k/key", "KEY".to_owned()),
    ];
    let files = files.map(|(path, text)| (path.into(), text.into_bytes()));
    let (read, faults) = by_host(&Memory(files.into()), Path::new("/k/config"));
    if faults.has_errors() {
        return Err(faults.to_string());
    }
    Ok(read)
}

fn shown_to(case: &Case<'_>, target: &str) -> Result<(), Mismatch> {
    let users = match &case.input()["users"] {
        Value::Object(users) => users.keys().cloned().collect(),
        users => serde_json::from_value::<Vec<String>>(users.clone()).unwrap(),
    };
    let users: Vec<Value> = users
        .iter()
        .map(|name| json!({"name": name, "user": {"token": "t"}}))
        .collect();
    let mut kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": users});
    if let Some(current) = case.input()["currentContextUser"].as_str() {
        kubeconfig["current-context"] = json!("c");
        kubeconfig["contexts"] = json!([{"name": "c", "context": {"cluster": "", "user": current}}]);
    }
    let read = read(&kubeconfig, "").map_err(Mismatch::new)?;
    let shown = read.user_for(target).map(|user| user.name.as_str());
    case.same("user", &shown, &case.expect()["user"].as_str())
}

fn client_config_for(case: &Case<'_>) -> Result<(), Mismatch> {
    shown_to(case, case.input()["hostPort"].as_str().unwrap())
}

fn client_config_for_service(case: &Case<'_>) -> Result<(), Mismatch> {
    let service = &case.input()["service"];
    let text = |field: &str| service[field].as_str().unwrap();
    let target = format!("{}.{}.svc:{}", text("name"), text("namespace"), service["port"]);
    shown_to(case, &target)
}

fn credential_kinds(case: &Case<'_>) -> Result<(), Mismatch> {
    let credential = case.input()["credential"].as_str().unwrap();
    let has = |word: &str| credential.contains(word);
    let fails = case.expect()["error"].as_bool() == Some(true);
    let mut user = json!({});
    if credential.split(' ').any(|word| word == "token") {
        user["token"] = json!("t");
    }
    if has("tokenfile") || has("token file") {
        let is_read = !fails && !has("token plus");
        user["tokenFile"] = json!(if is_read { "token" } else { "gone" });
    }
    if has("cert") {
        user["client-certificate"] = json!("cert");
        user["client-key"] = json!("key");
    }
    if has("basic") {
        user["username"] = json!("u");
    }
    if has("basic") || has("password") {
        user["password"] = json!("p");
    }
    if has("auth provider") {
        user["auth-provider"] = json!({"name": "gcp"});
    }
    let token = case.expect()["bearer"].as_str().unwrap_or_default();
    let read = read(&json!({"users": [{"name": "u", "user": user}]}), token);
    if fails {
        return case.same("error", &read.is_err(), &true);
    }
    let read = read.map_err(Mismatch::new)?;
    let user = &read.users[0];
    let secret = |secret: &config::Secret| String::from_utf8(secret.reveal().to_vec()).unwrap();
    let bearer = user.bearer.as_ref().map(|bearer| secret(&bearer.token));
    let basic = user
        .basic
        .as_ref()
        .map(|basic| (basic.username.clone(), secret(&basic.password)));
    let expect = case.expect();
    // What upstream holds without a name is never sent.
    let expected = expect["username"].as_str().filter(|name| !name.is_empty());
    let expected = expected.map(|name| (name.to_owned(), expect["password"].as_str().unwrap().to_owned()));
    case.same("bearer", &bearer.unwrap_or_default(), &token.to_owned())?;
    case.same("basic", &basic, &expected)?;
    case.same(
        "cert",
        &user.certificate.is_some(),
        &expect["cert"].as_bool().unwrap(),
    )?;
    case.same(
        "timeout",
        &json!(MAX_CALL_TIMEOUT.as_secs()),
        &expect["timeoutSeconds"],
    )?;
    case.same("user agent", &Some(USER_AGENT), &expect["userAgent"].as_str())
}

fn http_envelope(case: &Case<'_>) -> Result<(), Mismatch> {
    let authority = Authority::new("upstreams");
    let path = case.expect()["path"].as_str().unwrap();
    let server = Webhooks::of(&authority, &[])
        .on(path, |_| Answer::http(200, "{}"))
        .start();
    let port = server.address().port().to_string();
    let url = case.input()["clientConfigURL"].as_str().unwrap();
    let target = WebhookTarget::Url(url.replace("PORT", &port));
    let timeout = Duration::from_secs(case.input()["timeoutSeconds"].as_u64().unwrap());
    call(target, authority.pem(), timeout)?;
    let called = server.calls().pop().ok_or_else(|| Mismatch::new("no call"))?;
    let expect = case.expect();
    case.same("path", &Some(called.path.as_str()), &expect["path"].as_str())?;
    case.same("query", &Some(called.query.as_str()), &expect["query"].as_str())?;
    case.same("method", &Some("POST"), &expect["method"].as_str())?;
    case.same("protocol", &protocol(&called), &expect["proto"].as_str())?;
    for (name, values) in expect["headers"].as_object().unwrap() {
        let sent = called.header(&name.to_ascii_lowercase());
        case.same(name, &sent, &values[0].as_str())?;
    }
    Ok(())
}

fn protocol(called: &Called) -> Option<&'static str> {
    match called.tls.protocol.as_deref() {
        Some("http/1.1") => Some("HTTP/1.1"),
        _ => None,
    }
}

fn call(target: WebhookTarget, ca_bundle: Vec<u8>, timeout: Duration) -> Result<(), Mismatch> {
    let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
                server: {tls: {certificate: s.crt, privateKey: s.key}}\n";
    let (config, faults) = config::parse(Path::new("gateway.yaml"), text, Path::new("/"));
    let config = config.ok_or_else(|| Mismatch::new(faults.to_string()))?;
    let webhook = Arc::new(Webhook {
        configuration: "config".to_owned(),
        name: "hook.example.com".to_owned(),
        client: ClientConfig { target, ca_bundle },
        constraints: Constraints::default(),
        match_conditions: Vec::new(),
        failure_policy: FailurePolicy::Fail,
        timeout,
        side_effects: None,
        version: None,
        reinvocation: Reinvocation::Never,
    });
    let upstreams = Upstreams::read(&config, None, &mut HeldBack::new())
        .0
        .with([ConfiguredWebhook::everywhere(&webhook)], None);
    let called = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(upstreams.call(("default", &webhook), "{}", timeout, None, None, None));
    called
        .map(|_| ())
        .map_err(|failure| Mismatch::new(failure.to_string()))
}
