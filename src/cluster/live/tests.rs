//! Against a stand-in for an API server, which answers in plain HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::*;

/// What was asked: request lines, each with the header `authorization` behind it.
type Asked = Arc<Mutex<Vec<String>>>;

const DISCOVERY: &str = r#"{"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": ""}, "versions": [
    {"version": "v1", "resources": [
        {"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced", "verbs": ["create", "get", "list"]},
        {"resource": "secrets", "responseKind": {"kind": "Secret"}, "scope": "Namespaced", "verbs": ["list"]}
    ]}]}]}"#;

const ADMISSION: &str = r#"{"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "admissionregistration.k8s.io"},
    "versions": [{"version": "v1", "resources": [{"resource": "validatingadmissionpolicies",
        "responseKind": {"kind": "ValidatingAdmissionPolicy"}, "scope": "Cluster", "verbs": ["create", "get", "list"]}]}]}]}"#;

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "managedFields": [{"manager": "m"}]}})
}

/// The status and body for a target.
fn answer(target: &str) -> (u16, String) {
    let list = |next: &str, pods: &[&str]| {
        let items: Vec<Value> = pods.iter().map(|name| pod(name)).collect();
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": next}, "items": items})
            .to_string()
    };
    match target {
        "/version" => (200, r#"{"major": "1", "minor": "36+"}"#.to_owned()),
        "/api" => (200, DISCOVERY.to_owned()),
        "/apis" => (200, ADMISSION.to_owned()),
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?limit=500" => {
            let policy = json!({"metadata": {"name": "p"}, "spec": {
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
                "validations": [{"expression": "['a'].includes(object.metadata.name)"}]}});
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [policy]});
            (200, list.to_string())
        }
        "/api/v1/pods?limit=500" => (200, list("a/b=", &["one"])),
        "/api/v1/pods?limit=500&continue=a%2Fb%3D" => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                "reason": "Expired", "message": "too old", "metadata": {"continue": "c"}});
            (410, status.to_string())
        }
        "/api/v1/pods?limit=500&continue=c" => (200, list("", &["two", "three"])),
        _ => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason":
                "Forbidden", "message": "secrets is forbidden: User \"bob\" cannot list resource \"secrets\""});
            (403, status.to_string())
        }
    }
}

/// Serves until the test ends.
fn serve() -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let heard = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let heard = Arc::clone(&heard);
            thread::spawn(move || one(stream.unwrap(), &heard));
        }
    });
    (address, asked)
}

fn one(mut stream: TcpStream, asked: &Asked) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut authorization) = (String::new(), String::new());
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("authorization: ") {
            authorization = value.trim().to_owned();
        }
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    asked.lock().unwrap().push(format!("{target} {authorization}"));
    let (status, body) = answer(target);
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap();
}

/// Leads every CONNECT to where it says.
fn proxy() -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let heard = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split(' ').nth(1).unwrap().to_owned();
            heard.lock().unwrap().push(target.clone());
            let mut upstream = TcpStream::connect(target).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut from, mut to) = (stream.try_clone().unwrap(), upstream.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || std::io::copy(&mut upstream, &mut stream));
        }
    });
    (address, asked)
}

fn kubeconfig(server: SocketAddr, cluster: &Value, user: &Value) -> tempfile::NamedTempFile {
    let mut cluster = cluster.clone();
    cluster["server"] = json!(format!("http://{server}"));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
            {"name": "other", "context": {"cluster": "c", "user": "u"}},
        ],
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(config.to_string().as_bytes()).unwrap();
    file
}

fn names(cluster: &LiveCluster) -> Vec<String> {
    let mut names = Vec::new();
    let pods = cluster
        .resources()
        .iter()
        .find(|one| one.resource == "pods")
        .unwrap();
    cluster
        .list(pods, ListedPlace::Everywhere, |page| {
            for object in page {
                assert_eq!(
                    (&object["apiVersion"], &object["kind"]),
                    (&json!("v1"), &json!("Pod"))
                );
                assert_eq!(object["metadata"]["managedFields"], Value::Null);
                names.push(object["metadata"]["name"].as_str().unwrap().to_owned());
            }
            Ok::<_, LiveError>(())
        })
        .unwrap();
    names
}

#[test]
fn a_list_goes_on_where_its_place_has_expired() {
    let (server, asked) = serve();
    let file = kubeconfig(server, &json!({}), &json!({"token": "t"}));
    let cluster = LiveCluster::connect(Some(file.path()), None).unwrap();
    assert_eq!(cluster.namespace(), "shop");
    assert_eq!(names(&cluster), ["one", "two", "three"]);
    assert!(
        asked
            .lock()
            .unwrap()
            .iter()
            .all(|asked| asked.ends_with(" bearer t"))
    );
    let other = LiveCluster::connect(Some(file.path()), Some("other")).unwrap();
    assert_eq!(other.namespace(), "default");
}

#[test]
fn credentials_of_exec_and_proxies_are_those_of_kubectl() {
    let (server, asked) = serve();
    let (address, tunnels) = proxy();
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "from-exec"}});
    let user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo",
        "args": [credential.to_string()], "interactiveMode": "Never"}});
    let file = kubeconfig(server, &json!({"proxy-url": format!("http://{address}")}), &user);
    let cluster = LiveCluster::connect(Some(file.path()), None).unwrap();
    assert_eq!(names(&cluster), ["one", "two", "three"]);
    let asked = asked.lock().unwrap();
    assert!(
        asked.iter().all(|asked| asked.ends_with(" bearer from-exec")),
        "{asked:?}"
    );
    let tunnels = tunnels.lock().unwrap();
    assert!(
        !tunnels.is_empty() && tunnels.iter().all(|target| *target == server.to_string()),
        "{tunnels:?}"
    );
}

#[test]
fn who_lacks_which_permission_is_said() {
    let (server, _) = serve();
    let file = kubeconfig(server, &json!({}), &json!({"token": "t"}));
    let cluster = LiveCluster::connect(Some(file.path()), None).unwrap();
    let kind = ParamKind {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
    };
    assert_eq!(
        cluster.all(&kind).unwrap_err().to_string(),
        "secrets is forbidden: User \"bob\" cannot list resource \"secrets\": allow this user to get and list `secrets`"
    );
    let missing = LiveCluster::connect(Some(file.path()), Some("nowhere"))
        .err()
        .unwrap();
    assert!(missing.to_string().contains("`--context`"), "{missing}");
}

#[test]
fn expressions_are_compiled_for_the_version_of_the_api_server() {
    let (server, _) = serve();
    let file = kubeconfig(server, &json!({}), &json!({"token": "t"}));
    let mut cluster = LiveCluster::connect(Some(file.path()), None).unwrap();
    assert_eq!(cluster.minor_version(), Some(36));
    for (minor, compiled) in [
        (Some(36), Version::new(36)),
        (Some(37), Version::new(37)),
        (Some(20), Version::new(34)),
        (Some(99), Version::NEWEST),
        (None, Version::NEWEST),
    ] {
        cluster.minor_version = minor;
        assert_eq!(cluster.cel_version(), compiled, "{minor:?}");
        // 1.37 added `includes`.
        let found = cluster.policies("c", LivePurpose::Admission).unwrap();
        let is_known = compiled >= Version::new(37);
        assert_eq!(
            found.objects.len(),
            usize::from(is_known),
            "{minor:?}: {}",
            found.faults
        );
        assert_eq!(
            found.faults.has_errors(),
            !is_known,
            "{minor:?}: {}",
            found.faults
        );
    }
}
