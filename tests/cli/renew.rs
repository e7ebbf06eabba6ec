//! `portcullis init --renew` and `--renew-ca`.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::x509::X509;
use serde_json::json;

use crate::harness::client::Client;
use crate::harness::pki::Identity;
use crate::harness::process::Process;
use crate::harness::{eventually, ports};
use crate::run::Portcullis;

fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --host gateway.example.com --host 10.0.0.7");
    assert_eq!(run.code, 0, "{run:?}");
    portcullis
}

fn read(portcullis: &Portcullis, path: &str) -> Vec<u8> {
    fs::read(portcullis.path("gateway").join(path)).unwrap()
}

fn certificates(portcullis: &Portcullis, path: &str) -> Vec<X509> {
    X509::stack_from_pem(&read(portcullis, path)).unwrap()
}

fn is_signed_by(portcullis: &Portcullis, path: &str, authority: &X509) -> bool {
    certificates(portcullis, path)[0]
        .verify(&authority.public_key().unwrap())
        .unwrap()
}

const LEAVES: [&str; 3] = ["pki/server.crt", "pki/authorization.crt", "pki/admission.crt"];

/// As if what is there had been written a quarter of an hour ago.
fn wait_a_while(portcullis: &Portcullis) {
    let file = File::options()
        .write(true)
        .open(portcullis.path("gateway/ca/next.crt"))
        .unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(900))
        .unwrap();
}

#[test]
fn files_of_platforms_that_hold_certificates_are_rewritten() {
    for (platform, path) in [
        ("kamaji", "apiserver-secret.yaml"),
        ("talos", "talos.yaml"),
        ("gardener", "gardener.yaml"),
    ] {
        let portcullis = Portcullis::new();
        let run = portcullis.run(&format!(
            "init gateway --host gateway.example.com --for {platform}"
        ));
        assert_eq!(run.code, 0, "{run:?}");
        let holds = |file: &str| {
            let (text, pem) = (read(&portcullis, path), read(&portcullis, file));
            let (text, pem) = (String::from_utf8(text).unwrap(), String::from_utf8(pem).unwrap());
            let lines = pem.lines().collect::<Vec<_>>();
            let unindented: Vec<_> = text.lines().map(str::trim).collect();
            text.contains(&STANDARD.encode(&pem))
                || unindented.windows(lines.len()).any(|window| window == lines)
        };
        let files: &[&str] = match platform {
            "gardener" => &["pki/authorization.crt", "pki/authorization.key", "pki/ca.crt"],
            _ => &[
                "pki/authorization.crt",
                "pki/authorization.key",
                "pki/admission.crt",
                "pki/admission.key",
                "pki/ca.crt",
            ],
        };
        let check = |when: &str| {
            for file in files {
                assert!(holds(file), "{platform}: {file} {when}");
            }
        };
        check("at first");
        let before = read(&portcullis, "pki/authorization.key");
        for renewal in ["--renew", "--renew-ca", "--renew-ca"] {
            let run = portcullis.run(&format!("init gateway {renewal}"));
            assert_eq!(run.code, 0, "{run:?}");
            assert!(
                run.stdout
                    .contains(&format!("get the new certificates by {path}")),
                "{run:?}"
            );
            check(renewal);
            if renewal == "--renew-ca" && portcullis.path("gateway/ca/next.crt").exists() {
                wait_a_while(&portcullis);
            }
        }
        let (before, text) = (String::from_utf8(before).unwrap(), read(&portcullis, path));
        let line = before.lines().nth(1).unwrap().as_bytes();
        assert!(
            !text.windows(line.len()).any(|window| window == line),
            "{platform}"
        );
        let mode = fs::metadata(portcullis.path("gateway").join(path))
            .unwrap()
            .permissions();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
            0o600,
            "{platform}"
        );
    }
}

#[test]
fn renew_issues_certificates_from_the_same_ca_for_the_same_hosts() {
    let portcullis = set_up();
    let before: Vec<_> = LEAVES.map(|path| read(&portcullis, path)).into();
    let authority = read(&portcullis, "pki/ca.crt");
    let run = portcullis.run("init gateway --renew --host new.example.com");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout
            .contains("copy pki/ to the same path on each API server's machine"),
        "{run:?}"
    );
    assert_eq!(read(&portcullis, "pki/ca.crt"), authority);
    let authority = X509::from_pem(&authority).unwrap();
    for (path, before) in LEAVES.iter().zip(before) {
        assert_ne!(read(&portcullis, path), before, "{path}");
        assert!(is_signed_by(&portcullis, path, &authority), "{path}");
        let key = read(&portcullis, &path.replace(".crt", ".key"));
        let key = openssl::pkey::PKey::private_key_from_pem(&key).unwrap();
        let public = certificates(&portcullis, path)[0].public_key().unwrap();
        assert!(public.public_eq(&key), "{path}");
    }
    let server = &certificates(&portcullis, "pki/server.crt")[0];
    let names = server.subject_alt_names().unwrap();
    let names: Vec<&str> = names.iter().filter_map(|name| name.dnsname()).collect();
    assert_eq!(names, ["gateway.example.com", "localhost", "new.example.com"]);
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!run.stdout.contains("certificate"), "{run:?}");
}

#[test]
fn renew_ca_first_trusts_both_cas_and_then_signs_with_the_new_one() {
    let portcullis = set_up();
    let leaves: Vec<_> = LEAVES.map(|path| read(&portcullis, path)).into();
    let old = certificates(&portcullis, "pki/ca.crt").remove(0);

    let run = portcullis.run("init gateway --renew-ca");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("run this command again"), "{run:?}");
    let trusted = certificates(&portcullis, "pki/ca.crt");
    assert_eq!(trusted.len(), 2);
    assert!(trusted[0] == old);
    let bundle = STANDARD.encode(read(&portcullis, "pki/ca.crt"));
    let registrations = String::from_utf8(read(&portcullis, "webhooks.yaml")).unwrap();
    assert_eq!(registrations.matches(&format!("caBundle: {bundle}\n")).count(), 5);
    for (path, before) in LEAVES.iter().zip(&leaves) {
        assert_eq!(&read(&portcullis, path), before, "not yet: {path}");
    }

    let run = portcullis.run("init gateway --renew-ca");
    assert_eq!(run.code, 2, "nobody has read both yet: {run:?}");
    assert!(run.stderr.contains("seconds ago"), "{run:?}");

    wait_a_while(&portcullis);
    let run = portcullis.run("init gateway --renew-ca");
    assert_eq!(run.code, 0, "{run:?}");
    for path in LEAVES {
        assert!(is_signed_by(&portcullis, path, &trusted[1]), "{path}");
    }
    assert_eq!(certificates(&portcullis, "pki/ca.crt").len(), 2);
    assert!(certificates(&portcullis, "ca/ca.crt")[0] == trusted[1]);
    assert!(!portcullis.path("gateway/ca/next.key").exists());
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!run.stdout.contains("certificate"), "{run:?}");

    let run = portcullis.run("init gateway --renew-ca");
    assert_eq!(run.code, 0, "{run:?}");
    let next = certificates(&portcullis, "pki/ca.crt");
    assert!(next.len() == 2 && next[0] == trusted[1], "the oldest is gone");
}

#[test]
fn a_set_up_without_its_ca_cannot_be_renewed_and_says_what_is_missing() {
    let portcullis = set_up();
    fs::remove_dir_all(portcullis.path("gateway/ca")).unwrap();
    for option in ["--renew", "--renew-ca"] {
        let run = portcullis.run(&format!("init gateway {option}"));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(
            run.stderr.contains("restore the folders `ca` and `pki`"),
            "{run:?}"
        );
    }
    assert_eq!(
        certificates(&portcullis, "pki/ca.crt").len(),
        1,
        "nothing was written"
    );
}

/// A gateway that serves the set-up.
struct Gateway {
    _process: Process,
    server: std::net::SocketAddr,
    admin: std::net::SocketAddr,
    folder: PathBuf,
}

impl Gateway {
    fn start(portcullis: &Portcullis) -> Self {
        let folder = portcullis.path("gateway");
        let (server, admin) = (ports::free(), ports::free());
        let config = fs::read_to_string(folder.join("portcullis.yaml")).unwrap();
        let config = config
            .replace("0.0.0.0:8443", &server.to_string())
            .replace("127.0.0.1:9090", &admin.to_string());
        let path = folder.join("here.yaml");
        fs::write(&path, config).unwrap();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_portcullis"));
        let arguments = ["serve".as_ref(), "--config".as_ref(), path.as_os_str()];
        let gateway = Self {
            _process: Process::start("portcullis", &folder, None, &program, arguments),
            server,
            admin,
            folder,
        };
        let probe = Client::http(admin);
        assert!(eventually(|| probe
            .get("/readyz")
            .is_ok_and(|response| response.status == 200)));
        gateway
    }

    fn identity(&self) -> Identity {
        let read = |name: &str| fs::read(self.folder.join(name)).unwrap();
        Identity::from_pem(&read("pki/authorization.crt"), &read("pki/authorization.key"))
    }

    /// The status of the answer to a client that trusts by `authority` and shows `identity`.
    fn ask(&self, authority: &[u8], identity: &Identity) -> Option<u16> {
        let review = crate::harness::reviews::authorization(&json!({
            "user": "jane", "nonResourceAttributes": {"path": "/", "verb": "get"},
        }));
        let client = Client::https(self.server, authority, Some(identity));
        Some(client.post("/authorize", &review).ok()?.status)
    }

    /// The value of a series of certificates.
    fn ends(&self, labels: &str) -> Option<String> {
        let metrics = Client::http(self.admin).get("/metrics").ok()?.text();
        let series = format!(
            "portcullis_certificate_expiry_timestamp_seconds{{file=\"{}/{labels}}} ",
            self.folder.display()
        );
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(&series).map(str::to_owned))
    }
}

#[test]
fn a_gateway_uses_renewed_certificates_and_accepts_old_ones_until_they_expire() {
    let portcullis = set_up();
    let gateway = Gateway::start(&portcullis);
    let authority = read(&portcullis, "pki/ca.crt");
    let before = gateway.identity();
    assert_eq!(gateway.ask(&authority, &before), Some(200));

    assert_eq!(portcullis.run("init gateway --renew").code, 0);
    let renewed = gateway.identity();
    assert!(eventually(|| gateway.ask(&authority, &renewed) == Some(200)));
    assert_eq!(gateway.ask(&authority, &before), Some(200));

    // One that starts now has never seen the certificate before: there are no ten minutes.
    let fresh = Gateway::start(&portcullis);
    assert_eq!(fresh.ask(&authority, &before), Some(200));
}

#[test]
fn nobody_is_rejected_while_the_ca_is_renewed() {
    let portcullis = set_up();
    let gateway = Gateway::start(&portcullis);
    let (old, before) = (read(&portcullis, "pki/ca.crt"), gateway.identity());
    assert_eq!(portcullis.run("init gateway --renew-ca").code, 0);
    assert_eq!(
        gateway.ask(&old, &before),
        Some(200),
        "a client that has read nothing yet"
    );

    wait_a_while(&portcullis);
    assert_eq!(portcullis.run("init gateway --renew-ca").code, 0);
    let renewed = gateway.identity();
    let new = certificates(&portcullis, "pki/ca.crt")[1].to_pem().unwrap();
    // It shows what the new authority signed, and accepts what either did.
    assert!(eventually(|| gateway.ask(&new, &renewed) == Some(200)));
    assert_eq!(
        gateway.ask(&new, &before),
        Some(200),
        "who reads its certificate later"
    );
}

#[test]
fn every_certificate_of_a_set_up_has_a_metric() {
    let portcullis = set_up();
    let gateway = Gateway::start(&portcullis);
    for labels in [
        "pki/server.crt\",name=\"\",use=\"server\"",
        "pki/ca.crt\",name=\"\",use=\"clientCA\"",
        "kubeconfigs/authorization.kubeconfig\",name=\"kube-apiserver\",use=\"caller\"",
        "kubeconfigs/authorization.kubeconfig\",name=\"\",use=\"caller\"",
        "kubeconfigs/admission.kubeconfig\",name=\"gateway.example.com:8443\",use=\"caller\"",
        "kubeconfigs/admission.kubeconfig\",name=\"10.0.0.7:8443\",use=\"caller\"",
    ] {
        assert!(gateway.ends(labels).is_some(), "{labels}");
    }
}

#[test]
fn check_reports_a_host_name_and_a_ca_that_do_not_match() {
    let portcullis = set_up();
    let kubeconfig = portcullis.path("gateway/kubeconfigs/authorization.kubeconfig");
    let text = fs::read_to_string(&kubeconfig).unwrap();
    fs::write(
        &kubeconfig,
        text.replace("gateway.example.com", "other.example.com"),
    )
    .unwrap();
    assert_eq!(portcullis.run("init another").code, 0);
    fs::copy(
        portcullis.path("another/pki/ca.crt"),
        portcullis.path("gateway/pki/other.crt"),
    )
    .unwrap();
    let admission = portcullis.path("gateway/kubeconfigs/admission.kubeconfig");
    let text = fs::read_to_string(&admission).unwrap();
    fs::write(&admission, text.replace("\"10.0.0.7:8443\"", "\"10.0.0.8:8443\"")).unwrap();
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 0, "a warning, since others may be served: {run:?}");
    for said in [
        "the server's certificate is not valid for `other.example.com`, only for `gateway.example.com`",
        "the server's certificate is not valid for `10.0.0.8`, only for",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {run:?}");
    }
    let text = fs::read_to_string(&kubeconfig).unwrap();
    fs::write(&kubeconfig, text.replace("/pki/ca.crt", "/pki/other.crt")).unwrap();
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert!(run.stdout.contains("is not signed by this CA"), "{run:?}");
}
