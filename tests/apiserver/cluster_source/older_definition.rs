//! An API server whose definitions are older than the gateway: what it keeps, what it drops,
//! and what the gateway makes of it.

use super::exceptions::{self, ask};
use super::servers::{self, CLUSTER, GATEWAY};
use crate::binaries;
use crate::cluster::Cluster;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::pki::Authority;
use crate::harness::ports;
use crate::harness::relay::Relay;
use serde_json::{Value, json};

const POLICIES: &str = "/apis/portcullis.dev/v1alpha1/authorizationpolicies";
const EXCEPTIONS: &str = "/apis/portcullis.dev/v1alpha1/admissionexceptions";
const KEEPS: &str = "x-kubernetes-preserve-unknown-fields";

/// An API server, and a gateway that watches it alone.
struct Older {
    cluster: Cluster,
    gateway: Gateway,
    files: Folder,
}

impl Older {
    /// The gateway's user may not list definitions yet.
    fn start() -> Option<Self> {
        let binaries = binaries::find()?;
        let (folder, relay, keys) = (Folder::new("cluster-older"), Relay::new(), Keys::new());
        let authority = Authority::new("older");
        let rbac = "--authorization-mode=RBAC".to_owned();
        let cluster = Cluster::start_as(&binaries, Folder::new("older"), &authority, &[GATEWAY], &[rbac]);
        relay.lead_to(cluster.address());
        let mut entry = servers::entry(&folder, CLUSTER, &relay, &authority);
        entry["acceptExceptions"] = true.into();
        let gateway = Gateway::start_until(
            &Setup {
                folder: &folder.path().join("gateway"),
                address: ports::free(),
                keys: &keys,
                callers: Vec::new(),
                manifests: &[],
                more: json!({"clusters": [entry]}),
            },
            "/livez",
        );
        let older = Self {
            cluster,
            gateway,
            files: folder,
        };
        older.define(|_| {});
        for file in ["cluster/admission.yaml", "cluster/exceptions.yaml"] {
            servers::apply(&older.cluster, &servers::shipped(file));
        }
        let text = std::fs::read_to_string(servers::shipped("cluster/gateway.yaml")).unwrap();
        older.apply(
            "gateway.yaml",
            &text.replace("customresourcedefinitions", "nothings"),
        );
        Some(older)
    }

    fn apply(&self, name: &str, text: &str) {
        servers::apply(&self.cluster, &self.files.write(name, text));
    }

    /// Applies both definitions, changed, and waits until the API server stores by them.
    fn define(&self, change: impl Fn(&mut Value)) {
        for plural in ["authorizationpolicies", "admissionexceptions"] {
            let mut definition = servers::definition(plural);
            change(&mut definition);
            self.apply("definition.yaml", &definition.to_string());
        }
    }

    /// Makes an object as a client does that ignores what the API server warns of, and
    /// shows what is stored.
    fn create(&self, collection: &str, object: &Value) -> Value {
        let path = format!("{collection}?fieldValidation=Ignore");
        let mut last = Value::Null;
        let is_made = eventually(|| {
            let response = self.cluster.admin().post(&path, object).unwrap();
            last = response.json();
            response.status == 201
        });
        assert!(is_made, "{last}");
        last
    }

    fn decision(&self, path: &str) -> &'static str {
        servers::outcome(&servers::decision(&self.gateway.client(), "carol", path))
    }

    fn wait_for(&self, path: &str, expected: &str) {
        let decided = eventually(|| self.decision(path) == expected);
        assert!(decided, "{path}: not {expected}\n{}", self.gateway.tail());
    }

    /// Waits until the gateway has heard of everything that happened to policies before.
    fn hear(&self, marker: &str) {
        self.create(POLICIES, &policy(marker, "Deny", &Value::Null));
        self.wait_for(&format!("/{marker}"), "deny");
    }

    fn detail(&self) -> String {
        self.gateway.probe("/readyz?verbose").text()
    }
}

fn policy(name: &str, effect: &str, not_after: &Value) -> Value {
    let mut spec = json!({
        "effect": effect,
        "subjects": [{"kind": "Group", "name": "people"}],
        "nonResourceRules": [{"verbs": ["get"], "paths": [format!("/{name}")]}],
    });
    if !not_after.is_null() {
        spec["notAfter"] = not_after.clone();
    }
    json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
        "metadata": {"name": name}, "spec": spec})
}

/// Takes `notAfter` out of the definition of policies, and `objectSelector` out of that of
/// exceptions; what is not known is kept or not.
fn older(definition: &mut Value, keeps: bool) {
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let spec = definition.pointer_mut(spec).unwrap();
    let at = |spec: &mut Value, field: &str| {
        spec["properties"].as_object_mut().unwrap().remove(field);
        if !keeps {
            spec.as_object_mut().unwrap().remove(KEEPS);
        }
    };
    if spec["properties"].get("match").is_some() {
        at(&mut spec["properties"]["match"], "objectSelector");
    } else {
        at(spec, "notAfter");
        let rules = spec["x-kubernetes-validations"].as_array_mut().unwrap();
        rules.retain(|rule| !rule["rule"].as_str().unwrap().contains("notAfter"));
    }
}

pub(crate) fn no_limit_that_an_older_definition_drops_widens_a_grant_or_an_exception() {
    let Some(older_server) = Older::start() else {
        return;
    };
    let server = &older_server;
    let (ended, far) = (json!("2001-01-01T00:00:00Z"), json!("2999-01-01T00:00:00Z"));

    // Nobody knows what the definitions say: Denies are taken, grants are not.
    server.create(POLICIES, &policy("early", "Allow", &Value::Null));
    server.hear("heard-1");
    assert_eq!(server.decision("/early"), "noOpinion");
    let detail = server.detail();
    assert!(
        detail.contains("AuthorizationPolicy/early: Forbidden: rejected: the gateway may not list"),
        "{detail}"
    );
    let notices = server
        .gateway
        .tail()
        .matches("may not be listed; without them")
        .count();
    assert_eq!(notices, 1, "{}", server.gateway.tail());

    // With the right, and the definitions of this version, they are.
    servers::apply(&server.cluster, &servers::shipped("cluster/gateway.yaml"));
    server.wait_for("/early", "allow");
    server.create(POLICIES, &policy("in-force", "Allow", &Value::Null));
    server.wait_for("/in-force", "allow");
    server.apply(
        "refusing.yaml",
        &exceptions::refusing("guard", &super::admission::selected()),
    );
    server.cluster.create_namespace("excused");
    let allowed = |is_legacy: bool| ask(&server.gateway.client(), is_legacy)["allowed"] == true;
    assert!(eventually(|| !allowed(true)));

    // An older definition that keeps what it does not know.
    server.define(|definition| older(definition, true));
    let lacks = |field: &str| eventually(|| server.detail().contains(&format!("its schema lacks `{field}`")));
    assert!(
        lacks("spec.notAfter") && lacks("spec.match.objectSelector"),
        "{}",
        server.detail()
    );
    let kept = server.create(POLICIES, &policy("kept", "Allow", &far));
    assert_eq!(kept["spec"]["notAfter"], far);
    server.create(EXCEPTIONS, &exceptions::exception("kept", &["guard"]));
    server.hear("heard-2");
    assert_eq!(server.decision("/kept"), "noOpinion");
    assert_eq!(server.decision("/in-force"), "allow", "what was in force stays");
    let detail = server.detail();
    for object in ["AuthorizationPolicy/kept", "AdmissionException/kept"] {
        let expected = format!("{object}: Forbidden: rejected: its CustomResourceDefinition lacks");
        assert!(eventually(|| server.detail().contains(&expected)), "{detail}");
    }
    assert!(!allowed(true));
    let faulty = server
        .gateway
        .metric(r#"portcullis_cluster_invalid_objects{cluster="default"}"#);
    assert_eq!(faulty, Some(4.0), "two definitions, two objects");

    // With the definitions of this version they are taken, with their limits.
    server.define(|_| {});
    server.wait_for("/kept", "allow");
    assert!(
        eventually(|| allowed(true)) && !allowed(false),
        "{}",
        server.detail()
    );
    servers::kubectl(&server.cluster, &["delete", "admissionexception", "kept"]);
    assert!(eventually(|| !allowed(true)));

    // An older definition that drops what it does not know.
    server.define(|definition| older(definition, false));
    assert!(
        lacks("spec.notAfter") && lacks("spec.match.objectSelector"),
        "{}",
        server.detail()
    );
    let dropped = || {
        let made = server.create(POLICIES, &policy("dropped", "Allow", &ended));
        let is_dropped = made["spec"].get("notAfter").is_none();
        if !is_dropped {
            servers::kubectl(&server.cluster, &["delete", "azp", "dropped"]);
        }
        is_dropped
    };
    assert!(
        eventually(dropped),
        "the API server stores by the older definition"
    );
    let dropped = || {
        let made = server.create(EXCEPTIONS, &exceptions::exception("dropped", &["guard"]));
        let is_dropped = made["spec"]["match"].get("objectSelector").is_none();
        if !is_dropped {
            servers::kubectl(&server.cluster, &["delete", "adx", "dropped"]);
        }
        is_dropped
    };
    assert!(eventually(dropped), "of exceptions too");
    let mut denies = policy("dropped-deny", "Deny", &ended);
    denies["spec"]["failurePolicy"] = "Deny".into();
    server.create(POLICIES, &denies);
    server.wait_for("/dropped-deny", "deny");
    assert_eq!(server.decision("/dropped"), "noOpinion", "it would hold for ever");
    assert_eq!(server.decision("/in-force"), "allow", "what was in force stays");
    let expected = "AdmissionException/dropped: Forbidden: rejected";
    assert!(
        eventually(|| server.detail().contains(expected)),
        "{}",
        server.detail()
    );
    assert!(
        !allowed(true) && !allowed(false),
        "it would excuse what has no label"
    );

    // A newer definition brings nothing back.
    server.define(|_| {});
    assert!(
        eventually(|| !server.detail().contains("its schema lacks")),
        "{}",
        server.detail()
    );
    server.hear("heard-3");
    assert_eq!(server.decision("/dropped"), "noOpinion");
    assert!(!allowed(true) && !allowed(false));
    let detail = server.detail();
    assert!(
        detail.contains("AuthorizationPolicy/dropped: Forbidden: rejected: it was stored while"),
        "{detail}"
    );

    // Written again it is what it says, once the API server stores by the newer definition.
    let whole = exceptions::exception("dropped", &["guard"]).to_string();
    let file = server.files.write("whole.yaml", whole);
    let written = || {
        servers::kubectl(
            &server.cluster,
            &["replace", "--force", "-f", file.to_str().unwrap()],
        );
        assert!(!allowed(false), "{}", server.detail());
        (0..100).any(|_| allowed(true))
    };
    assert!(eventually(written), "{}", server.detail());
    assert!(!allowed(false));
}
