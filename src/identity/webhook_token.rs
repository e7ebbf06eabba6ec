//! Service account tokens that API servers present to admission webhooks (KEP-6060, alpha in
//! Kubernetes 1.37).
//!
//! A token is bound to one webhook configuration, made for one URL, and attests the API groups for
//! which its holder may request reviews: for an aggregated API server those that it serves, for
//! kube-apiserver all. Signature, times and audience are checked as for any token
//! ([`jwt`](super::jwt)). This module reads the other claims, which `pkg/serviceaccount/claims.go`
//! and `pkg/registry/core/serviceaccount/storage/token.go` of Kubernetes 1.37 write:
//!
//! ```json
//! {"aud": ["https://portcullis.portcullis.svc:443/validate"],
//!  "kubernetes.io": {"validatingwebhookconfiguration": {"name": "portcullis", "uid": "…"},
//!                    "attestations": {"admissionReviewAPIGroups": ["apps"]}}}
//! ```
//!
//! A token is valid only for the path of its URL, so that a token for `/validate/images` gives no
//! access to other paths; for the kind of configuration to which the path belongs; and as long as
//! that configuration, by name and uid, exists in the cluster.
//! [`Snapshot::authenticate`](crate::state::Snapshot::authenticate) checks the latter.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::path_of_audience;
use portcullis_policy::admission::webhook::WebhookTarget;

/// The name of the attestation of API groups.
const API_GROUPS: &str = "admissionReviewAPIGroups";

/// Attests every API group. Nothing else attests the core group.
const ALL_GROUPS: &str = "*";

/// The calls that a token is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attestation {
    /// The kind of the webhook configuration that it is bound to.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The URL that it is made for.
    pub url: String,
    group: String,
}

/// The relevant claims under `kubernetes.io`.
#[derive(Deserialize)]
struct KubernetesClaims {
    #[serde(rename = "validatingwebhookconfiguration")]
    validating: Option<BoundObject>,
    #[serde(rename = "mutatingwebhookconfiguration")]
    mutating: Option<BoundObject>,
    attestations: Map<String, Value>,
}

#[derive(Deserialize)]
struct BoundObject {
    name: String,
    uid: String,
}

// === impl Attestation ===

impl Attestation {
    /// The attestation in these claims; `None` unless the token is bound to exactly one webhook
    /// configuration, and has one URL, and one group or all. API servers make no other tokens, so
    /// others are not interpreted.
    pub(crate) fn of(claims: &Map<String, Value>) -> Option<Self> {
        let bound = KubernetesClaims::deserialize(claims.get("kubernetes.io")?).ok()?;
        let (kind, object) = match (bound.validating, bound.mutating) {
            (Some(object), None) => ("ValidatingWebhookConfiguration", object),
            (None, Some(object)) => ("MutatingWebhookConfiguration", object),
            _ => return None,
        };
        // An unknown attestation could restrict the token further.
        let group = bound.attestations.get(API_GROUPS).and_then(only)?;
        if bound.attestations.len() > 1 || [&*object.name, &*object.uid, group].contains(&"") {
            return None;
        }
        Some(Self {
            kind,
            name: object.name,
            uid: object.uid,
            url: only(claims.get("aud")?)?.to_owned(),
            group: group.to_owned(),
        })
    }

    /// Whether the token is valid for a request of `path`, which is not decoded.
    #[must_use]
    pub fn is_for(&self, path: &str) -> bool {
        let below = match self.kind {
            "ValidatingWebhookConfiguration" => "/validate",
            _ => "/mutate",
        };
        let rest = path.strip_prefix(below);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            && path_of_audience(&self.url) == Some(path)
    }

    /// Whether `target` has the URL that the token is made for.
    #[must_use]
    pub fn calls(&self, target: &WebhookTarget) -> bool {
        match target {
            WebhookTarget::Url(url) => *url == self.url,
            WebhookTarget::Service {
                namespace,
                name,
                port,
                path,
            } => format!("https://{name}.{namespace}.svc:{port}{path}") == self.url,
        }
    }

    /// Whether the token covers objects of this API group; the core group is the empty string.
    #[must_use]
    pub fn covers(&self, group: &str) -> bool {
        self.group == ALL_GROUPS || (!group.is_empty() && self.group == group)
    }
}

/// The string that `value` is, or the only string in its list.
fn only(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(items) => match items.as_slice() {
            [Value::String(text)] => Some(text),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const URL: &str = "https://portcullis.portcullis.svc:443/validate";

    fn claims(changes: &[(&str, Value)]) -> Map<String, Value> {
        let mut claims = json!({"aud": [URL], "kubernetes.io": {
            "namespace": "kube-system", "serviceaccount": {"name": "webhook-auth", "uid": "1"},
            "validatingwebhookconfiguration": {"name": "portcullis", "uid": "2"},
            "attestations": {"admissionReviewAPIGroups": ["apps"]},
        }});
        for (pointer, value) in changes {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            claims.pointer_mut(parent).unwrap()[name] = value.clone();
        }
        claims.as_object().unwrap().clone()
    }

    #[test]
    fn only_what_an_api_server_makes_is_a_token_of_one() {
        let at = |name: &str| format!("/kubernetes.io/{name}");
        let groups = |value: Value| vec![(at("attestations"), json!({ API_GROUPS: value }))];
        let reference = json!({"name": "portcullis", "uid": "2"});
        let bound = |value: Value| vec![(at("validatingwebhookconfiguration"), value)];
        let refused = [
            groups(json!([])),
            groups(json!([""])),
            groups(json!(["apps", "batch"])),
            groups(json!([1])),
            groups(Value::Null),
            vec![(at("attestations"), json!({}))],
            vec![(at("attestations"), Value::Null)],
            vec![(
                at("attestations"),
                json!({API_GROUPS: ["*"], "verbs": ["create"]}),
            )],
            vec![(at("mutatingwebhookconfiguration"), reference.clone())],
            bound(Value::Null),
            bound(json!({"name": "portcullis"})),
            bound(json!({"name": "portcullis", "uid": ""})),
            bound(json!({"name": "", "uid": "2"})),
            bound(json!("portcullis")),
            vec![("/kubernetes.io".to_owned(), Value::Null)],
            vec![("/kubernetes.io".to_owned(), json!([]))],
            vec![("/aud".to_owned(), json!([URL, "other"]))],
            vec![("/aud".to_owned(), json!([]))],
        ];
        for changes in refused {
            let changes: Vec<_> = changes.iter().map(|(at, value)| (&**at, value.clone())).collect();
            let read = Attestation::of(&claims(&changes));
            assert_eq!(read, None, "{changes:?}");
        }
        let read = Attestation::of(&claims(&[("/aud", json!(URL))])).unwrap();
        assert_eq!(
            (read.kind, &*read.name),
            ("ValidatingWebhookConfiguration", "portcullis")
        );
        let mutating = [
            ("/kubernetes.io/validatingwebhookconfiguration", Value::Null),
            ("/kubernetes.io/mutatingwebhookconfiguration", reference),
        ];
        let read = Attestation::of(&claims(&mutating)).unwrap();
        assert_eq!(read.kind, "MutatingWebhookConfiguration");
    }

    #[test]
    fn a_group_covers_itself_and_only_the_star_the_core_group() {
        let of = |group: &str| {
            let groups = json!({ API_GROUPS: [group] });
            Attestation::of(&claims(&[("/kubernetes.io/attestations", groups)])).unwrap()
        };
        for (attested, group, expected) in [
            ("apps", "apps", true),
            ("apps", "", false),
            ("apps", "*", false),
            ("apps", "Apps", false),
            ("apps", "apps.example.com", false),
            ("*", "", true),
            ("*", "apps", true),
        ] {
            assert_eq!(of(attested).covers(group), expected, "{attested}: {group}");
        }
    }

    #[test]
    fn it_is_for_the_path_of_its_url_and_its_kind_of_configuration() {
        let of = |url: &str, kind| Attestation {
            kind,
            url: url.to_owned(),
            ..Attestation::of(&claims(&[])).unwrap()
        };
        let (validating, mutating) = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration");
        for (url, kind, path, expected) in [
            (URL, validating, "/validate", true),
            (URL, validating, "/validate/", false),
            (URL, validating, "/validate/limits", false),
            (URL, validating, "/%76alidate", false),
            (URL, validating, "/mutate", false),
            (URL, validating, "/authorize", false),
            (URL, validating, "", false),
            (URL, mutating, "/validate", false),
            ("https://h/validate/limits", validating, "/validate/limits", true),
            ("https://h/validate/limits", validating, "/validate", false),
            ("https://h:8443/mutate", mutating, "/mutate", true),
            ("https://h/validated", validating, "/validated", false),
            ("https://h/authorize", validating, "/authorize", false),
            ("https://h/t/x/validate", validating, "/t/x/validate", false),
            ("https:///validate", validating, "/validate", false),
            ("http://h/validate", validating, "/validate", false),
            ("https://h", validating, "", false),
        ] {
            assert_eq!(of(url, kind).is_for(path), expected, "{url} {kind} {path}");
        }
    }

    #[test]
    fn it_is_for_the_webhook_that_calls_its_url() {
        let service = |name: &str, port| WebhookTarget::Service {
            namespace: "portcullis".to_owned(),
            name: name.to_owned(),
            port,
            path: "/validate".to_owned(),
        };
        let token = Attestation::of(&claims(&[])).unwrap();
        assert!(token.calls(&service("portcullis", 443)));
        assert!(!token.calls(&service("portcullis", 8443)));
        assert!(!token.calls(&service("other", 443)));
        assert!(token.calls(&WebhookTarget::Url(URL.to_owned())));
        assert!(!token.calls(&WebhookTarget::Url(URL.to_uppercase())));
    }
}
