//! Service account tokens that are bound to a webhook configuration of a cluster that is watched (KEP-6060).

use std::sync::Arc;

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use portcullis::cluster::Clusters;
use serde_json::{Value, json};

use crate::harness::api_servers::{ApiServers, Behaviour};
use crate::harness::jwt::{Issuer, encode};
use crate::harness::pki::Authority;
use crate::harness::reviews::{creation_of_pod, with};
use crate::support::client::Connection;
use crate::support::{Builder, Gateway, JANE_GETS, until};

const ISSUER: &str = "https://kubernetes.default.svc";
const KEYS: &str = "openid/v1/jwks";
const HOST: &str = "https://localhost:8443";

const CALLERS: &str = "
- {clientCertificate: {commonNames: [kube-apiserver]}}
- webhookToken:
    issuer: https://kubernetes.default.svc
    audiences: ['https://localhost:8443/validate', 'https://localhost:8443/validate/not-here', 'https://localhost:8443/mutate']
";

const POLICIES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: not-here}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods]}]}
  validations: [{expression: \"object.metadata.namespace != 'closed'\"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: not-here}
spec: {policyName: not-here, validationActions: [Deny]}
";

/// A gateway that fetches the keys of its API server and watches three webhook configurations there.
struct Watched {
    servers: ApiServers,
    gateway: Gateway,
    issuer: Issuer,
}

impl Watched {
    fn start() -> Self {
        let issuer = Issuer::new(ISSUER);
        let servers = ApiServers::start(&Authority::new("clusters"), 1, |_| Vec::new());
        servers.publish(0, KEYS, issuer.jwks());
        let gateway = Builder::new()
            .manifests(POLICIES)
            .callers(CALLERS)
            .file("own.kubeconfig", servers.kubeconfig(0))
            .clusters("[{name: default, kubeconfig: own.kubeconfig, admission: Watched}]")
            .source(Arc::new(Clusters::new()))
            .start();
        let watched = Self {
            servers,
            gateway,
            issuer,
        };
        watched.put("ValidatingWebhookConfiguration", "portcullis", "1", "/validate");
        watched.put(
            "ValidatingWebhookConfiguration",
            "other",
            "2",
            "/validate/not-here",
        );
        watched.put("MutatingWebhookConfiguration", "portcullis", "3", "/mutate");
        let trigger = watched.gateway.reloader.trigger();
        watched.gateway.state.start_source(trigger).unwrap();
        until("the keys and configurations are known", || {
            watched.status("/validate", &watched.token(json!({}))) == 200
        });
        watched
    }

    fn put(&self, kind: &str, name: &str, uid: &str, path: &str) {
        let webhook = json!({
            "name": "validate.portcullis.dev",
            "clientConfig": {"url": format!("{HOST}{path}")},
            "rules": [{
                "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"], "scope": "*",
            }],
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "webhooks": [webhook],
        });
        self.servers.put(0, &configuration);
    }

    /// A token with these claims in place of those of a good one for `/validate`.
    fn token(&self, changes: Value) -> String {
        self.issuer.token(claims(changes))
    }

    fn post(&self, path: &str, token: &str, body: &Value) -> (u16, String) {
        let mut connection: Connection = self.gateway.stranger().connect(self.gateway.addresses.server);
        let head = format!(
            "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}"
        );
        let response = connection.request(&head, body.to_string().as_bytes());
        (response.status, response.json()["message"].to_string())
    }

    /// What the review of a pod gets.
    fn status(&self, path: &str, token: &str) -> u16 {
        self.post(path, token, &pod()).0
    }
}

fn pod() -> Value {
    creation_of_pod("open", &json!({"metadata": {"name": "p", "namespace": "open"}}))
}

/// The claims of a good token for `/validate`, with these in place of its own.
fn claims(changes: Value) -> Value {
    let good = json!({
        "sub": "system:serviceaccount:kube-system:webhook-auth",
        "aud": [format!("{HOST}/validate")],
        "kubernetes.io": bound("validatingwebhookconfiguration", "portcullis", "1", "*"),
    });
    with(good, &changes)
}

fn bound(kind: &str, name: &str, uid: &str, group: &str) -> Value {
    json!({kind: {"name": name, "uid": uid}, "attestations": {"admissionReviewAPIGroups": [group]}})
}

#[test]
fn a_token_is_for_one_configuration_and_one_path() {
    let watched = Watched::start();
    let of = |kind: &str, name: &str, uid: &str, path: &str| {
        watched.token(json!({"aud": [format!("{HOST}{path}")], "kubernetes.io": bound(kind, name, uid, "*")}))
    };
    let (validating, mutating) = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration");
    let good = of(validating, "portcullis", "1", "/validate");
    let named = of(validating, "other", "2", "/validate/not-here");
    let mutates = of(mutating, "portcullis", "3", "/mutate");
    for (path, token, expected) in [
        ("/validate?timeout=10s", &good, 200),
        ("/validate/not-here", &named, 200),
        ("/mutate", &mutates, 200),
        // Each of them elsewhere.
        ("/validate/not-here", &good, 401),
        ("/mutate", &good, 401),
        ("/%76alidate", &good, 401),
        ("/validate", &named, 401),
        ("/validate", &mutates, 401),
        (&format!("/t/{good}/validate"), &good, 401),
        // Of a configuration that is not there, is another, or does not call this.
        ("/validate", &of(validating, "portcullis", "2", "/validate"), 401),
        ("/validate", &of(validating, "gone", "1", "/validate"), 401),
        ("/validate", &of(mutating, "portcullis", "3", "/validate"), 401),
        ("/validate", &of(validating, "other", "2", "/validate"), 401),
        ("/mutate", &of(validating, "portcullis", "1", "/mutate"), 401),
    ] {
        let answered = watched.post(path, token, &pod());
        assert_eq!(answered.0, expected, "{path}: {answered:?}");
    }
    let review: Value = serde_json::from_str(JANE_GETS).unwrap();
    assert_eq!(watched.post("/authorize", &good, &review).0, 401);

    // Deleted and created again, it is another; while nobody knows which there are, there is none.
    watched.put("ValidatingWebhookConfiguration", "portcullis", "4", "/validate");
    until("the old one counts no more", || {
        watched.status("/validate", &good) == 401
    });
    let newer = of(validating, "portcullis", "4", "/validate");
    until("the new one counts", || {
        watched.status("/validate", &newer) == 200
    });
    watched.servers.behave(0, Behaviour::EmptyListsWithoutGroups);
    until("none counts", || watched.status("/validate", &newer) == 401);
}

#[test]
fn a_token_is_for_the_groups_that_it_attests() {
    let watched = Watched::start();
    let of = |group: &str| {
        let bound = bound("validatingwebhookconfiguration", "portcullis", "1", group);
        watched.token(json!({"kubernetes.io": bound}))
    };
    let (apps, all, empty) = (of("apps"), of("*"), of(""));
    let review = |resource: &str, asked: &str| {
        let mut review = pod();
        let request = &mut review["request"];
        request["resource"]["group"] = resource.into();
        request["requestResource"] = with(request["resource"].clone(), &json!({"group": asked}));
        review
    };
    for (token, resource, asked, expected) in [
        (&all, "", "", 200),
        (&all, "apps", "extensions", 200),
        (&apps, "apps", "apps", 200),
        (&apps, "", "", 403),
        (&apps, "batch", "batch", 403),
        // Equivalent: what was asked for counts as much as what it became.
        (&apps, "apps", "extensions", 403),
        (&apps, "extensions", "apps", 403),
        (&empty, "", "", 401),
    ] {
        let answered = watched.post("/validate", token, &review(resource, asked));
        assert_eq!(answered.0, expected, "{resource} {asked}: {answered:?}");
    }
    let (_, message) = watched.post("/validate", &apps, &review("batch", "batch"));
    assert!(
        message.contains("does not attest the API group `batch`"),
        "{message}"
    );
}

#[test]
fn a_token_that_no_api_server_of_the_cluster_made_is_refused() {
    let watched = Watched::start();
    let stranger = Issuer::new(ISSUER);
    let elsewhere = Issuer::new("https://other.example.com");
    let message = |algorithm: &str, claims: &Value| {
        let header = json!({"alg": algorithm, "kid": "one"}).to_string();
        format!("{}.{}", encode(header), encode(claims.to_string()))
    };
    let whole = with(
        claims(json!({})),
        &json!({"iss": ISSUER, "exp": 4_102_444_800_u64}),
    );
    let unsigned = message("none", &whole);
    let with_public_key = {
        let message = message("HS256", &whole);
        let key = PKey::hmac(watched.issuer.jwks().as_bytes()).unwrap();
        let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
        let signature = signer.sign_oneshot_to_vec(message.as_bytes()).unwrap();
        format!("{message}.{}", encode(signature))
    };
    let good = watched.token(json!({}));
    let bound = |change: Value| {
        let bound = bound("validatingwebhookconfiguration", "portcullis", "1", "*");
        watched.token(json!({"kubernetes.io": with(bound, &change)}))
    };
    for (what, token) in [
        ("keys of another cluster", stranger.token(claims(json!({})))),
        ("another issuer", elsewhere.token(claims(json!({})))),
        (
            "another audience",
            watched.token(json!({"aud": ["https://other.example.com/validate"]})),
        ),
        (
            "the audience of the API server",
            watched.token(json!({"aud": [ISSUER]})),
        ),
        (
            "two audiences",
            watched.token(json!({"aud": [format!("{HOST}/validate"), ISSUER]})),
        ),
        ("no audience", watched.token(json!({"aud": []}))),
        ("expired", watched.token(json!({"exp": 1_700_000_000}))),
        ("no end", watched.token(json!({"exp": null}))),
        ("not yet", watched.token(json!({"nbf": 4_000_000_000_u64}))),
        ("none", format!("{unsigned}.")),
        ("no signature", format!("{}.", good.rsplit_once('.').unwrap().0)),
        ("HS256 with the public key", with_public_key),
        ("no claim", watched.token(json!({"kubernetes.io": {}}))),
        (
            "of a pod",
            watched.token(json!({"kubernetes.io": {"pod": {"name": "p", "uid": "1"}}})),
        ),
        ("no attestation", bound(json!({"attestations": {}}))),
        (
            "two groups",
            bound(json!({"attestations": {"admissionReviewAPIGroups": ["apps", "*"]}})),
        ),
        (
            "bound twice",
            bound(json!({"mutatingwebhookconfiguration": {"name": "portcullis", "uid": "3"}})),
        ),
    ] {
        let answered = watched.post("/validate", &token, &pod());
        assert_eq!(answered, (401, "\"Unauthorized\"".to_owned()), "{what}");
    }
    assert_eq!(watched.status("/validate", &good), 200);
    let asked = watched.servers.asked(0);
    assert!(
        asked.iter().filter(|asked| asked.path == KEYS).count() <= 2,
        "strangers have keys fetched"
    );
}
