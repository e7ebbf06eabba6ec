//! `portcullis` and `portcullis serve`, as far as a program outside sees them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

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
fn the_first_start_makes_a_development_set_up() {
    let portcullis = Portcullis::new();
    let mut gateway = Gateway::start(&portcullis, &[]);
    gateway.said_until("made a development set-up in .portcullis");
    drop(gateway);
    assert!(portcullis.path(".portcullis/portcullis.yaml").is_file());
    let run = portcullis.run("check");
    assert_eq!((run.code, run.stdout.as_str()), (0, "sound\n"), "{run:?}");
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
    let mut looks = 0;
    while !reloaded() {
        looks += 1;
        assert!(looks < 3000, "the files were not read again");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
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
