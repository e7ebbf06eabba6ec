//! The registrations that `portcullis init --static` writes, which an API server reads from its
//! disk: kube-apiserver 1.37 and later.

use crate::binaries::{self, Binaries};
use crate::cluster::Cluster;
use crate::control_plane::servers::SetUp;
use crate::harness::client::Response;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use crate::lease::{Lease, Logs};
use serde_json::{Value, json};
use std::sync::LazyLock;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// `guard` is static, `ordinary` is not; both are about what configures admission.
const POLICIES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: guard.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [admissionregistration.k8s.io], apiVersions: ['*'], operations: ['*'], resources: ['*']}]}
  validations: [{expression: \"!request.name.startsWith('guarded')\", message: guarded configurations are not written}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: guard.static.k8s.io}
spec: {policyName: guard.static.k8s.io, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: ordinary}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ['', admissionregistration.k8s.io], apiVersions: ['*'], operations: ['*'], resources: ['*']}]}
  validations: [{expression: \"!request.name.startsWith('refused')\", message: the ordinary policy refuses this}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: ordinary}
spec: {policyName: ordinary, validationActions: [Deny]}
";

/// An API server with the set-up of `init --static`, and its gateway.
struct Servers {
    cluster: Cluster,
    set_up: SetUp,
    gateway: Process,
}

static SHARED: LazyLock<Servers> = LazyLock::new(|| Servers::start(&binaries::find().unwrap()));

/// The shared servers; `None` without the programs, or with older ones.
fn shared() -> Option<Lease<Servers>> {
    binaries::since(1, 37)?;
    Lease::of(&SHARED)
}

impl Servers {
    fn start(binaries: &Binaries) -> Self {
        let folder = Folder::new("static-manifests");
        let set_up = SetUp::init(&folder.path().join("set-up"), &["--static"]);
        std::fs::write(set_up.path("policies/policies.yaml"), POLICIES).unwrap();
        let gateway = set_up.serve();
        assert!(set_up.is_ready(), "{}", gateway.tail());
        let cluster = Cluster::start(binaries, folder, &[], &[admission(&set_up)]);
        // The API server makes it when it has started.
        assert!(eventually(|| cluster
            .status("admin", "/api/v1/namespaces/default")
            == 200));
        Self {
            cluster,
            set_up,
            gateway,
        }
    }

    /// Creates an object of this name, in a collection of this group or of the core.
    fn create(&self, collection: &str, name: &str, object: Value) -> Response {
        let mut object = object;
        object["metadata"] = json!({"name": name});
        self.cluster.admin().post(collection, &object).unwrap()
    }

    fn create_config_map(&self, name: &str) -> Response {
        self.create(
            CONFIG_MAPS,
            name,
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        )
    }

    /// The endpoints of the gateway to which the request about this object came, in order.
    fn asked_about(&self, name: &str) -> Vec<String> {
        let log = self.gateway.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let about = lines.filter(|line| line["attributes"]["name"] == name);
        about
            .map(|line| line["endpoint"].as_str().unwrap().to_owned())
            .collect()
    }

    /// How often the API server failed to read the static registrations that validate.
    fn failed_reads(&self) -> f64 {
        let metrics = self.cluster.admin().get("/metrics").unwrap().text();
        let failed = metrics.lines().filter(|line| {
            line.contains("automatic_reloads_total{")
                && line.contains("ValidatingAdmissionWebhook")
                && line.contains("status=\"failure\"")
        });
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        failed.map(value).sum()
    }
}

impl Logs for Servers {
    fn logs(&self) -> String {
        format!("{}{}", self.gateway.tail(), self.cluster.tails())
    }
}

fn admission(set_up: &SetUp) -> String {
    format!(
        "--admission-control-config-file={}",
        set_up.path("admission-configuration.yaml")
    )
}

fn assert_refused(response: &Response, by: &str) {
    assert!(response.status >= 400, "{}", response.text());
    assert!(response.text().contains(by), "{}", response.text());
}

pub(crate) fn static_registrations_cannot_be_removed_through_the_api() {
    let Some(servers) = shared() else { return };
    let admin = servers.cluster.admin();
    for kind in ["Validating", "Mutating"] {
        let collection = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
        let listed = admin.get(&collection).unwrap().json();
        let of_gateway = |item: &Value| item["metadata"]["name"] == "portcullis.static.k8s.io";
        assert!(
            !listed["items"].as_array().unwrap().iter().any(of_gateway),
            "{listed}"
        );
        let one = format!("{collection}/portcullis.static.k8s.io");
        assert_eq!(admin.delete(&one).unwrap().status, 404);
        // Nor can one of that name be put beside it.
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"),
            "webhooks": [],
        });
        let response = servers.create(&collection, "portcullis.static.k8s.io", object);
        assert_eq!(response.status, 422, "{}", response.text());
        assert_refused(&response, "reserved for static manifest-based configurations");
    }
    let refused = servers.create_config_map("refused-after-deletion");
    assert_refused(&refused, "the ordinary policy refuses this");
}

pub(crate) fn a_request_comes_to_the_gateway_once_for_each_phase() {
    let Some(servers) = shared() else { return };
    assert!(!std::path::Path::new(&servers.set_up.path("webhooks.yaml")).exists());
    assert_eq!(servers.create_config_map("once").status, 201);
    assert!(eventually(|| servers.asked_about("once").len() >= 2));
    // What came later is written later.
    assert_eq!(servers.create_config_map("afterwards").status, 201);
    assert!(eventually(|| servers.asked_about("afterwards").len() >= 2));
    assert_eq!(servers.asked_about("once"), ["mutate", "validate"]);
}

pub(crate) fn only_static_policies_of_the_gateway_judge_policies_and_bindings() {
    let Some(servers) = shared() else { return };
    let bind = |name: &str| {
        let collection = format!("{GROUP}/validatingadmissionpolicybindings");
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": "none", "validationActions": ["Deny"]},
        });
        servers.create(&collection, name, object)
    };
    assert_refused(&bind("guarded-binding"), "guarded configurations are not written");
    let unseen = bind("refused-binding");
    assert_eq!(unseen.status, 201, "{}", unseen.text());
    // As in the API server, policies of any name see configurations of webhooks.
    let register = |name: &str| {
        let collection = format!("{GROUP}/validatingwebhookconfigurations");
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "webhooks": [],
        });
        servers.create(&collection, name, object)
    };
    assert_refused(
        &register("guarded-webhooks"),
        "guarded configurations are not written",
    );
    assert_refused(&register("refused-webhooks"), "the ordinary policy refuses this");
}

/// The API server looks once a minute, and whenever the system tells it of a change.
pub(crate) fn a_changed_registration_is_read_again_and_a_faulty_one_changes_nothing() {
    let Some(servers) = shared() else { return };
    let file = "static/validating/portcullis.yaml";
    let namespace = "unasked";
    servers.cluster.create_namespace(namespace);
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let create = |name: &str| {
        servers.create(
            &collection,
            name,
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        )
    };
    assert_refused(&create("refused-before"), "the ordinary policy refuses this");

    let left_out = |text: String| text.replace("values: [kube-system]", "values: [kube-system, unasked]");
    servers.set_up.rewrite(file, left_out);
    assert!(eventually(|| create("refused-no-more").status != 422));
    assert_eq!(
        servers
            .cluster
            .status("admin", &format!("{collection}/refused-no-more")),
        200
    );

    let before = servers.failed_reads();
    let of_service =
        |text: String| text.replace("    url: https://", "    service: {name: a, namespace: b}\n    #");
    let mut good = String::new();
    servers.set_up.rewrite(file, |text| {
        good.clone_from(&text);
        of_service(text)
    });
    assert!(eventually(|| servers.failed_reads() > before));
    assert_eq!(create("refused-still-unasked").status, 201);
    let refused = servers.create_config_map("refused-elsewhere");
    assert_refused(&refused, "the ordinary policy refuses this");
    servers.set_up.rewrite(file, |_| good);
}

pub(crate) fn an_api_server_starts_with_static_registrations_while_no_gateway_answers() {
    let Some(binaries) = binaries::since(1, 37) else {
        return;
    };
    let folder = Folder::new("static-start");
    let set_up = SetUp::init(&folder.path().join("set-up"), &["--static"]);
    let cluster = Cluster::start(&binaries, folder, &[], &[admission(&set_up)]);
    let class = "/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical";
    assert!(eventually(|| cluster.status("admin", class) == 200));
    assert!(eventually(|| cluster
        .status("admin", "/api/v1/namespaces/default")
        == 200));
    // It asks about everybody else's writes, and in vain.
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "waits"}});
    let create = || cluster.admin().post(CONFIG_MAPS, &object).unwrap();
    assert_refused(&create(), "failed calling webhook");
    // The way out: without their files, the registrations are gone.
    for phase in ["mutating", "validating"] {
        std::fs::remove_file(set_up.path(&format!("static/{phase}/portcullis.yaml"))).unwrap();
    }
    assert!(eventually(|| create().status == 201));
}
