//! `portcullis` and `portcullis serve`, as another program sees them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::json;

use crate::harness::client::Client;
use crate::harness::pki::Identity;
use crate::harness::reviews;
use crate::run::Portcullis;

/// A gateway that runs until it is dropped.
struct Gateway {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Gateway {
    fn start(portcullis: &Portcullis, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(arguments)
            .current_dir(portcullis.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// What it says, up to the line that holds `last`.
    fn said_until(&mut self, last: &str) -> String {
        let mut said = String::new();
        while !said.contains(last) {
            let read = self.stdout.read_line(&mut said).unwrap();
            assert!(read > 0, "it ended before it said `{last}`: {said}");
        }
        said
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id();
        let kill = Command::new("sh")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status();
        assert!(kill.unwrap().success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The development set-up, at ports that are free.
fn development() -> Portcullis {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init .portcullis --examples").code, 0);
    let path = portcullis.path(".portcullis/portcullis.yaml");
    let configuration = std::fs::read_to_string(&path).unwrap();
    let anywhere = configuration.replace(":8443", ":0").replace(":9090", ":0");
    portcullis.write(".portcullis/portcullis.yaml", &anywhere);
    portcullis
}

/// The status and body of a plain GET.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn admin_address(said: &str) -> String {
    let (_, rest) = said.split_once("curl http://").unwrap();
    rest.split_once("/metrics").unwrap().0.to_owned()
}

#[test]
fn what_is_logged_stays_within_its_line() {
    let portcullis = development();
    let name = "\"a\\n2026-12-01T00:00:00Z  INFO forged\\r\\e[31m\\u202e\"";
    // `check` warns of it, and so does the start.
    let policy = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\n\
         rules: [{{verbs: [gett], apiGroups: [''], resources: [pods]}}]\n"
    );
    portcullis.write(".portcullis/policies/hostile.yaml", &policy);
    let configuration = std::fs::read_to_string(portcullis.path(".portcullis/portcullis.yaml")).unwrap();
    let console = "console: {address: 127.0.0.1:0}\n";
    portcullis.write(".portcullis/portcullis.yaml", &(configuration + console));
    let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .current_dir(portcullis.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains(" serving ") {
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        said.contains("ClusterRole/a\\n2026-12-01T00:00:00Z  INFO forged\\r"),
        "{said}"
    );
    assert!(said.contains(" console=127.0.0.1:"), "{said}");
    let is_acting = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!said.contains(is_acting), "{said:?}");
}

#[test]
fn it_says_what_to_try_and_serves_until_sigterm() {
    let portcullis = development();
    let mut gateway = Gateway::start(&portcullis, &[]);
    let said = gateway.said_until(" init DIR --host NAME");
    let absolute = portcullis.path(".portcullis").canonicalize().unwrap();
    for expected in [
        "serving https://127.0.0.1:",
        "curl --cacert .portcullis/pki/ca.crt",
        &format!(
            "--authorization-config={}/authorization-configuration.yaml",
            absolute.display()
        ),
        "--authorization-webhook-config-file=",
    ] {
        assert!(said.contains(expected), "`{expected}`: {said}");
    }
    let admin = admin_address(&said);
    assert!(get(&admin, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(get(&admin, "/metrics").contains("portcullis_build_info"));
    gateway.signal("TERM");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_commands_that_it_says_to_try_exist_and_show_what_an_example_would_decide() {
    let portcullis = development();
    let said = Gateway::start(&portcullis, &[]).said_until(" init DIR --host NAME");
    let command = said
        .lines()
        .find(|line| line.contains(" authorize --user"))
        .unwrap();
    let run = Command::new("sh")
        .args(["-c", command])
        .current_dir(portcullis.path(""))
        .output()
        .unwrap();
    let shown = String::from_utf8(run.stdout).unwrap();
    assert!(shown.starts_with("noOpinion: "), "{shown}");
    assert!(shown.contains("AuthorizationPolicy/agents-own-node"), "{shown}");
    let (_, review) = said.split_once("-d '").unwrap();
    let (review, _) = review.split_once('\'').unwrap();
    let run = portcullis.run_with(&["authorize", "--review", "-"], review);
    assert!(run.stdout.starts_with("noOpinion: "), "{run:?}");
    assert!(
        run.stdout.contains("AuthorizationPolicy/production-guard"),
        "{run:?}"
    );
}

#[test]
fn sighup_reads_the_files_again() {
    let portcullis = development();
    let mut gateway = Gateway::start(&portcullis, &[]);
    let admin = admin_address(&gateway.said_until(" init DIR --host NAME"));
    gateway.signal("HUP");
    let reloaded = || get(&admin, "/metrics").contains("portcullis_reloads_total{result=\"success\"} 1\n");
    until("the files were read again", reloaded);
}

fn until(what: &str, mut happens: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if happens() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("not within 30 s: {what}");
}

/// An AuthorizationPolicy that keeps joe from `/x`.
const JOE_MAY_NOT: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: joe-may-not}
spec:
  effect: Deny
  subjects: [{kind: User, name: joe}]
  nonResourceRules: [{verbs: [get], paths: [/x]}]
";

#[test]
fn metrics_and_readiness_say_whether_the_files_on_disk_are_in_force_and_what_changed() {
    let portcullis = development();
    let mut gateway = Gateway::start(&portcullis, &[]);
    let admin = admin_address(&gateway.said_until("portcullis init DIR"));
    let metrics = || get(&admin, "/metrics");
    let successful = |value| metrics().contains(&format!("portcullis_last_reload_successful {value}\n"));
    assert!(successful(1));
    assert!(metrics().contains("\nprocess_open_fds "));

    portcullis.write(".portcullis/policies/joe.yaml", JOE_MAY_NOT);
    until("the reload", || {
        get(&admin, "/readyz?verbose")
            .contains("the last reload: 1 object added (AuthorizationPolicy/joe-may-not)")
    });
    // The metric follows what is in force.
    until("the metric", || {
        let verbose = get(&admin, "/readyz?verbose");
        let (_, revision) = verbose.split_once("revision ").unwrap();
        let (revision, _) = revision.split_once(' ').unwrap();
        let wanted = format!("portcullis_configuration_info{{revision=\"{revision}\"}} 1");
        let info = metrics();
        let lines: Vec<_> = info
            .lines()
            .filter(|line| line.starts_with("portcullis_configuration_info{"))
            .collect();
        lines == [wanted.as_str()]
    });

    portcullis.write(".portcullis/policies/wrong.yaml", "kind: Pod\n");
    until("the fault", || successful(0));
    assert!(
        get(&admin, "/readyz?verbose").contains("the files on disk are not in force: they have 1 error;")
    );

    std::fs::remove_file(portcullis.path(".portcullis/policies/wrong.yaml")).unwrap();
    portcullis.write(".portcullis/policies/joe.yaml", "# none\n");
    until("the mended files", || successful(1));
    until("the Deny is gone", || {
        get(&admin, "/readyz?verbose").contains(
            "Denies, validating policies and webhooks that are no longer in force: AuthorizationPolicy/joe-may-not\n",
        )
    });
}

#[test]
fn a_start_beside_faulty_files_serves_what_was_last_in_force_and_says_so() {
    let portcullis = development();
    let path = portcullis.path(".portcullis/portcullis.yaml");
    let configuration = std::fs::read_to_string(path).unwrap();
    portcullis.write(
        ".portcullis/portcullis.yaml",
        &format!("{configuration}\nreload: {{lastGood: state/last-good}}\n"),
    );
    portcullis.write(".portcullis/policies/joe.yaml", JOE_MAY_NOT);
    let arguments = ["serve", "--config", ".portcullis/portcullis.yaml", "-o", "json"];
    let serving = |gateway: &mut Gateway| gateway.said_until("}");
    serving(&mut Gateway::start(&portcullis, &arguments));

    portcullis.write(".portcullis/policies/joe.yaml", "kind: Pod\n");
    let mut gateway = Gateway::start(&portcullis, &arguments);
    let said: serde_json::Value = serde_json::from_str(&serving(&mut gateway)).unwrap();
    let admin = said["admin"].as_str().unwrap();
    assert!(get(admin, "/metrics").contains("portcullis_last_reload_successful 0\n"));
    assert!(get(admin, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(get(admin, "/readyz?verbose").contains("the files on disk are not in force"));
    assert!(
        get(admin, "/metrics")
            .contains("{kind=\"AuthorizationPolicy\",name=\"joe-may-not\",result=\"match\"}"),
        "the Deny is in force"
    );

    portcullis.write(".portcullis/policies/joe.yaml", "# none\n");
    until("the mended files", || {
        get(admin, "/metrics").contains("portcullis_last_reload_successful 1\n")
    });

    drop(gateway);
    portcullis.write(".portcullis/policies/joe.yaml", "kind: Pod\n");
    portcullis.write(".portcullis/state/last-good", "not what was written\n");
    let run = portcullis.run("serve --config .portcullis/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("joe.yaml"), "{run:?}");
}

#[test]
fn a_faulty_configuration_is_not_served() {
    let portcullis = development();
    portcullis.write(".portcullis/policies/wrong.yaml", "kind: Pod\n");
    for arguments in ["", "serve --config .portcullis/portcullis.yaml"] {
        let run = portcullis.run(arguments);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("wrong.yaml"), "{run:?}");
    }
    assert_eq!(portcullis.run("serve --config absent.yaml").code, 2);
}

#[test]
fn absence_is_accepted_of_clusters_that_are_watched_alone() {
    let portcullis = development();
    let run = portcullis.run("serve --config .portcullis/portcullis.yaml --accept-absence east");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .contains("--accept-absence: `east` is not a cluster in `clusters`"),
        "{run:?}"
    );
}

#[test]
fn nobody_to_call_is_nothing_to_serve() {
    let portcullis = development();
    let path = portcullis.path(".portcullis/portcullis.yaml");
    let configuration = std::fs::read_to_string(path).unwrap();
    let (before, after) = configuration.split_once("callers:").unwrap();
    let (_, after) = after.split_once("manifests:").unwrap();
    portcullis.write(
        ".portcullis/portcullis.yaml",
        &format!("{before}manifests:{after}"),
    );
    let run = portcullis.run("serve --config .portcullis/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("callers"), "{run:?}");
}

#[test]
fn a_dash_writes_each_decision_to_standard_output() {
    let portcullis = development();
    let mut gateway = Gateway::start(
        &portcullis,
        &["serve", "--config", ".portcullis/portcullis.yaml", "-o", "json"],
    );
    let said: serde_json::Value = serde_json::from_str(&gateway.said_until("}")).unwrap();
    let server = said["server"].as_str().unwrap().parse().unwrap();
    let read = |name: &str| std::fs::read(portcullis.path(".portcullis/pki").join(name)).unwrap();
    let caller = Identity::from_pem(&read("authorization.crt"), &read("authorization.key"));
    let review = reviews::authorization(
        &json!({"user": "jane", "nonResourceAttributes": {"path": "/x", "verb": "get"}}),
    );
    assert_eq!(
        Client::https(server, &read("ca.crt"), Some(&caller))
            .post("/authorize", &review)
            .unwrap()
            .status,
        200
    );
    let line: serde_json::Value = serde_json::from_str(gateway.said_until("durationSeconds").trim()).unwrap();
    assert_eq!(
        (&line["user"], &line["decision"]),
        (&json!("jane"), &json!("noOpinion"))
    );
}
