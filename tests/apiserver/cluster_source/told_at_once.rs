//! The set-up of `init`, whose gateway watches the API server that it decides for: who writes
//! a policy or an exception is told at once what is wrong with it, and what an exception
//! lets pass is in the audit log.
//!
//! The API server leaves the policies that it stores to the gateway: its own plugin for
//! them is switched off.

use super::admission::selected;
use super::exceptions;
use super::servers::{self, GATEWAY};
use crate::binaries;
use crate::cluster::{ADMISSION_PLUGINS, Cluster};
use crate::control_plane::servers::SetUp;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use serde_json::{Value, json};
use std::fs;

const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
";

const CONFIGMAPS: &str = "/api/v1/namespaces/excused/configmaps";

struct Servers {
    cluster: Cluster,
    set_up: SetUp,
    gateway: Option<Process>,
}

impl Servers {
    fn start() -> Option<Self> {
        let binaries = binaries::find()?;
        let folder = Folder::new("told-at-once");
        let set_up = SetUp::make(&folder.path().join("set-up"));
        let audit = folder.write("audit-policy.yaml", AUDIT_POLICY);
        let [authorization, admission] = set_up.api_server_flags();
        let flags = [
            authorization,
            admission,
            format!("--audit-policy-file={}", audit.display()),
            format!("--audit-log-path={}", audit.with_file_name("audit.log").display()),
            format!("{ADMISSION_PLUGINS}ServiceAccount,ValidatingAdmissionPolicy"),
        ];
        let gateway = set_up.serve();
        let cluster = Cluster::start(&binaries, folder, &[GATEWAY], &flags);
        let servers = Self {
            cluster,
            set_up,
            gateway: Some(gateway),
        };
        servers.watch();
        Some(servers)
    }

    fn watch(&self) {
        let cluster = &self.cluster;
        for file in [
            "crd/authorizationpolicies.yaml",
            "crd/admissionexceptions.yaml",
            "crd/authorizationinvariants.yaml",
            "cluster/gateway.yaml",
            "cluster/admission.yaml",
            "cluster/exceptions.yaml",
        ] {
            servers::apply(cluster, &servers::shipped(file));
        }
        let entry = json!({
            "name": servers::CLUSTER,
            "kubeconfig": cluster.kubeconfig(GATEWAY.name),
            "cacheFile": "default.json",
            "selector": {"matchLabels": selected()},
            "acceptExceptions": true,
        });
        self.set_up
            .rewrite("portcullis.yaml", |text| format!("{text}clusters: [{entry}]\n"));
        cluster.create_namespace("excused");
        let webhooks = self.set_up.path("webhooks.yaml");
        servers::kubectl(cluster, &["apply", "--validate=false", "-f", &webhooks]);
        self.apply("guard.yaml", &exceptions::refusing("guard", &selected()));
    }

    fn write(&self, name: &str, text: &str) -> String {
        let file = self.cluster.folder().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn apply(&self, name: &str, text: &str) -> String {
        servers::kubectl(&self.cluster, &["apply", "-f", &self.write(name, text)])
    }

    /// Whether `kubectl apply` succeeds, and what it says on the side.
    fn try_apply(&self, object: &Value) -> (bool, String) {
        let file = self.write("object.yaml", &object.to_string());
        let run = self.cluster.kubectl("admin", &["apply", "-f", &file]);
        (
            run.status.success(),
            String::from_utf8_lossy(&run.stderr).into_owned(),
        )
    }

    /// Makes a ConfigMap, with the label or without; whether the policy refused it.
    fn is_refused(&self, is_legacy: bool) -> Option<bool> {
        let labels = if is_legacy {
            json!({"legacy": "true"})
        } else {
            json!({})
        };
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"generateName": "object-", "labels": labels}});
        let response = self.cluster.admin().post(CONFIGMAPS, &object).unwrap();
        match response.status {
            201 => Some(false),
            _ => response.text().contains("'guard'").then_some(true),
        }
    }

    fn logs(&self) -> String {
        let gateway = self.gateway.as_ref().map(Process::tail);
        gateway.unwrap_or_default() + &self.cluster.tails()
    }

    /// What the audit log says was excused.
    fn excused(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.cluster.folder().join("audit.log")).unwrap();
        let key = "validate.portcullis.dev/exceptions.portcullis.dev";
        let annotation = |line: &str| {
            let event: Value = serde_json::from_str(line).ok()?;
            serde_json::from_str(event["annotations"].get(key)?.as_str()?).ok()
        };
        log.lines().filter_map(annotation).collect()
    }
}

fn policy(name: &str, more: &Value) -> Value {
    let mut spec = json!({
        "effect": "Deny",
        "subjects": [{"kind": "Group", "name": "people"}],
        "nonResourceRules": [{"verbs": ["get"], "paths": ["/told", "/told/*"]}],
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
        "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn who_writes_policies_and_exceptions_is_told_at_once() {
    let Some(mut servers) = Servers::start() else {
        return;
    };
    let refused = || servers.is_refused(true) == Some(true) && servers.is_refused(false) == Some(true);
    assert!(eventually(refused), "{}", servers.logs());
    exceptions_are_audited(&servers);
    faults_and_warnings_are_told(&servers);
    what_breaks_an_invariant_is_refused(&servers);
    servers.gateway = None;
    nothing_is_held_up_without_gateway(&servers);
    servers.gateway = Some(servers.set_up.serve());
    assert!(servers.set_up.is_ready(), "{}", servers.logs());
    a_status_is_not_judged(&servers);
}

fn exceptions_are_audited(servers: &Servers) {
    assert_eq!(servers.excused(), Vec::<Value>::new());
    servers.apply(
        "exception.yaml",
        &exceptions::exception("excused", &["guard"]).to_string(),
    );
    assert!(
        eventually(|| servers.is_refused(true) == Some(false)),
        "{}",
        servers.logs()
    );
    assert_eq!(servers.is_refused(false), Some(true));
    let expected = json!([{"name": "excused", "policy": "guard", "reason": "SEC-123"}]);
    let excused = || servers.excused();
    assert!(eventually(|| excused().contains(&expected)), "{:?}", excused());
}

fn faults_and_warnings_are_told(servers: &Servers) {
    let faulty = json!({"conditions": [{"name": "c", "expression": "request.user = 7"}]});
    let reported = r#"The AuthorizationPolicy "told" is invalid: "#;
    // When it is made, and when it is changed.
    for sound_before in [false, true] {
        if sound_before {
            assert_eq!(
                servers.try_apply(&policy("told", &json!({}))),
                (true, String::new())
            );
        }
        let (is_stored, said) = servers.try_apply(&policy("told", &faulty));
        assert!(!is_stored, "{said}");
        assert!(
            said.starts_with(reported) && said.contains("spec.conditions[0].expression: Invalid value: "),
            "{said}"
        );
    }
    let mut exception = exceptions::exception("told", &["guard"]);
    let limits = exception["spec"]["match"].as_object_mut().unwrap();
    limits.remove("namespaceSelector");
    let (is_stored, said) = servers.try_apply(&exception);
    assert!(!is_stored, "{said}");
    let place = "spec.match.resourceRules[0].resourceNames: Required value: ";
    assert!(
        said.contains(r#"The AdmissionException "told" is invalid: "#) && said.contains(place),
        "{said}"
    );

    let rules = json!([{"verbs": ["get"], "paths": ["/told/*"]}]);
    let (is_stored, said) = servers.try_apply(&policy("warned", &json!({"nonResourceRules": rules})));
    assert!(is_stored, "{said}");
    assert!(
        said.starts_with("Warning: spec.nonResourceRules[0].paths[0]: "),
        "{said}"
    );
}

/// `kubectl` as somebody who may do everything by a binding: nobody judges system:masters.
fn what_breaks_an_invariant_is_refused(servers: &Servers) {
    let kubectl = |arguments: &[&str]| {
        let as_somebody = ["--as=jane", "--as-group=platform"];
        let run = servers
            .cluster
            .kubectl("admin", &[arguments, &as_somebody].concat());
        let said = [run.stdout, run.stderr].concat();
        (run.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let admin = |arguments: &[&str]| servers::kubectl(&servers.cluster, arguments);
    admin(&[
        "create",
        "clusterrolebinding",
        "platform",
        "--clusterrole=cluster-admin",
        "--group=platform",
    ]);
    admin(&[
        "create",
        "clusterrole",
        "read-secrets",
        "--verb=get",
        "--resource=secrets",
    ]);
    admin(&[
        "create",
        "rolebinding",
        "viewers",
        "--clusterrole=view",
        "--group=viewers",
        "-n",
        "excused",
    ]);
    servers.apply(
        "invariant.yaml",
        &json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationInvariant",
        "metadata": {"name": "excused-secrets"},
        "spec": {
            "only": [{"kind": "Group", "name": "vault"}, {"kind": "Group", "name": "platform"}],
            "subjects": [{"kind": "Group", "name": "dev"}, {"kind": "Group", "name": "viewers"}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"],
                "namespaces": ["excused"]}],
            "enforcement": "Refuse",
            "reason": "SEC-7",
        }})
        .to_string(),
    );
    let bind = [
        "create",
        "rolebinding",
        "dev",
        "--clusterrole=read-secrets",
        "--group=dev",
        "-n",
        "excused",
    ];
    let is_refused = || {
        let (is_stored, said) = kubectl(&[&bind[..], &["--dry-run=server"]].concat());
        !is_stored
            && said.contains("AuthorizationInvariant/excused-secrets: broken by RoleBinding/excused/dev")
    };
    assert!(eventually(is_refused), "{:?}\n{}", kubectl(&bind), servers.logs());
    let (is_stored, said) = kubectl(&bind);
    assert!(!is_stored && said.contains("(SEC-7)"), "{said}");
    // Elsewhere, and for others.
    let mut elsewhere = bind;
    elsewhere[6] = "default";
    assert!(kubectl(&elsewhere).0);
    let mut for_vault = bind;
    for_vault[4] = "--group=vault";
    assert!(kubectl(&for_vault).0);
    // The label that brings it into `view`, which viewers have.
    let label = "rbac.authorization.k8s.io/aggregate-to-view=true";
    let (is_stored, said) = kubectl(&["label", "clusterrole", "read-secrets", label]);
    assert!(
        !is_stored && said.contains("RoleBinding/excused/viewers"),
        "{said}"
    );
    assert!(kubectl(&["delete", "authorizationinvariant", "excused-secrets"]).0);
    let is_admitted = || kubectl(&["label", "--overwrite", "clusterrole", "read-secrets", label]).0;
    assert!(eventually(is_admitted), "{}", servers.logs());
}

fn nothing_is_held_up_without_gateway(servers: &Servers) {
    // A condition that no version of the gateway can read.
    let faulty = json!({"conditions": [{"name": "c", "expression": "request.user = 7"}]});
    assert!(servers.try_apply(&policy("unseen", &faulty)).0);
    servers::kubectl(&servers.cluster, &["delete", "azp", "told"]);
}

fn a_status_is_not_judged(servers: &Servers) {
    let condition = json!({"type": "InForce", "status": "Unknown", "reason": "Test", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = |part: &str, patch: Value| {
        let arguments = [
            "patch",
            "azp",
            "unseen",
            "--type=merge",
            part,
            "-p",
            &patch.to_string(),
        ];
        let run = servers.cluster.kubectl("admin", &arguments);
        (
            run.status.success(),
            String::from_utf8_lossy(&run.stderr).into_owned(),
        )
    };
    let refused = || !patch("--subresource=", json!({"spec": {"reason": "changed"}})).0;
    assert!(eventually(refused), "what it says is judged again");
    let (is_stored, said) = patch(
        "--subresource=status",
        json!({"status": {"conditions": [condition]}}),
    );
    assert!(is_stored, "{said}");
}
