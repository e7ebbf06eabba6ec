//! A gateway behind a Service, with two replicas. An API server that routes to endpoints itself
//! (`--enable-aggregator-routing`) spreads calls over them from 1.37 on.

use crate::admission::servers as admission;
use crate::binaries;
use crate::cluster::Cluster;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::webhooks::{Review, Webhooks};
use crate::harness::{eventually, ports};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr, UdpSocket};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const NAMESPACE: &str = "gate";
const CALLS: usize = 40;

const POLICIES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refused}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: ['*'], operations: ['*'], resources: [configmaps]}]}
  validations: [{expression: \"request.name != 'refused'\", message: refused behind the service}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refused}
spec: {policyName: refused, validationActions: [Deny]}
";

/// An address of this machine that endpoints may have: none of loopback.
pub(crate) fn routable() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    if address.is_loopback() || address.is_unspecified() {
        return None;
    }
    Some(address)
}

fn service(cluster: &Cluster, name: &str, endpoints: &[SocketAddr]) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 443, "protocol": "TCP"}]},
    });
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/services"), &service);
    for (number, endpoint) in endpoints.iter().enumerate() {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{name}-{number}"), "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [endpoint.ip().to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "", "port": endpoint.port(), "protocol": "TCP"}],
        });
        cluster.create(
            &format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"),
            &slice,
        );
    }
}

/// A webhook that validates config maps, behind the Service `name`.
fn webhook(name: &str, authority: &[u8]) -> Value {
    json!({
        "name": format!("{name}.portcullis.dev"),
        "clientConfig": {
            "service": {"namespace": NAMESPACE, "name": name, "path": "/validate"},
            "caBundle": STANDARD.encode(authority),
        },
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 30,
    })
}

fn decided(gateway: &Gateway) -> usize {
    let series = r#"portcullis_admission_decisions_total{decision="allow",phase="validate"}"#;
    gateway.metric(series).unwrap_or_default() as usize
}

pub(crate) fn an_api_server_spreads_its_calls_over_the_replicas_behind_a_service() {
    let Some(binaries) = binaries::since(1, 37) else {
        return;
    };
    let Some(ip) = routable() else {
        crate::trials::ignore("IPv4 address besides loopback", None);
        return;
    };
    let folder = Folder::new("services");
    let keys = Keys::new();
    let names = ["gateway.gate.svc", "observer.gate.svc"];
    let identity = keys.servers.server_named(&names);
    let replica = |name: &str| {
        let folder = folder.path().join(name);
        let address = SocketAddr::new(ip, ports::free().port());
        std::fs::create_dir_all(&folder).unwrap();
        let write = |file: &str, bytes: Vec<u8>| {
            let path = folder.join(file);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        Gateway::start(&Setup {
            folder: &folder,
            address,
            keys: &keys,
            callers: Vec::new(),
            manifests: &[("policies.yaml", POLICIES)],
            more: json!({"server": {"address": address.to_string(), "tls": {
                "certificate": write("service.crt", identity.pem()),
                "privateKey": write("service.key", identity.key_pem()),
                "clientCA": write("service-clients.crt", keys.clients.pem()),
            }}}),
        })
    };
    let replicas = [replica("one"), replica("two")];
    // It tells how it is called, which a gateway does not.
    let observer = Webhooks::with(&keys.servers, identity.clone())
        .client_authority(&keys.clients)
        .http2()
        .always("/validate", Review::allow())
        .start_at(SocketAddr::new(ip, ports::free().port()));
    let certificate = || Credential::Certificate(keys.caller.clone());
    let users = kubeconfig::by_host(&names.map(|name| (name.to_owned(), certificate())));
    let users = folder.write("webhooks.kubeconfig", users);
    let configuration = folder.write("admission.yaml", admission::configuration(&users, &users));
    let flags = [
        format!("--admission-control-config-file={}", configuration.display()),
        "--enable-aggregator-routing=true".to_owned(),
    ];
    let cluster = Cluster::start(&binaries, folder, &[], &flags);
    cluster.create_namespace(NAMESPACE);
    service(&cluster, "gateway", &replicas.each_ref().map(Gateway::address));
    service(&cluster, "observer", &[observer.address()]);
    let webhooks = ["gateway", "observer"].map(|name| webhook(name, &keys.servers.pem()));
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "portcullis"},
        "webhooks": webhooks,
    });
    cluster.create(&format!("{GROUP}/validatingwebhookconfigurations"), &registration);

    let create = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        cluster.admin().post(&collection, &object).unwrap()
    };
    let heard = || create("refused").text().contains("refused behind the service");
    assert!(eventually(heard), "{}", cluster.tails());
    let before = replicas.each_ref().map(decided);
    for number in 0..CALLS {
        let created = create(&format!("c-{number}"));
        assert_eq!(created.status, 201, "{}", created.text());
    }
    let after = replicas.each_ref().map(decided);
    let calls = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(calls[0] + calls[1], CALLS, "{calls:?}");
    // By chance, all of them come to one replica once in 2^39 runs.
    assert!(calls.iter().all(|calls| *calls > 0), "{calls:?}");

    for call in observer.calls() {
        assert_eq!(call.tls.server_name.as_deref(), Some("observer.gate.svc"));
        assert_eq!(call.tls.protocol.as_deref(), Some("http/1.1"));
        assert_eq!(call.tls.client.as_deref(), Some("kube-apiserver"));
        let host = call.headers.iter().find(|(name, _)| name == "host");
        assert_eq!(host.unwrap().1, "observer.gate.svc:443");
    }
    assert!(observer.calls().len() >= CALLS);
}
