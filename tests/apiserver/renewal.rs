//! Certificates are renewed under load, and no request is lost.
//!
//! Users' requests, each of which the API server must ask about, and writes, for which it
//! calls the admission webhooks, continue while `init` renews. When the API server picks
//! up a new client certificate, client-go closes the connections with the old one, even
//! if it waits for a response: such a request fails with an error that says so, which no
//! gateway can prevent. Those are counted separately; any other failure fails the test.

use crate::binaries::{self, Binaries};
use crate::cluster::{Cluster, User};
use crate::control_plane::servers::SetUp;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const USERS: [User; 1] = [User {
    name: "load",
    groups: &[],
}];

/// How many ask at once.
const THREADS: usize = 4;

/// How long each rests between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// What client-go logs when it takes up a new certificate.
const ROTATED: &str = "Certificate rotation detected";

/// What it says of a request whose connection it closed itself: of the one that found it closed
/// when it wrote, and of the others of that connection.
const CUT: [&str; 2] = [
    "use of closed network connection",
    "client connection force closed via ClientConn.Close",
];

struct Servers {
    cluster: Cluster,
    set_up: SetUp,
    gateway: Process,
}

impl Servers {
    /// An API server that looks for new client certificates so often.
    fn start(binaries: Binaries, refresh: &str) -> Self {
        let folder = Folder::new("renewal");
        let set_up = SetUp::make(&folder.path().join("set-up"));
        let gateway = set_up.serve();
        assert!(set_up.is_ready(), "{}", gateway.tail());
        let binaries = Binaries {
            kube_apiserver: with_refresh(&folder, &binaries.kube_apiserver, refresh),
            ..binaries
        };
        let [authorization, admission] = set_up.api_server_flags();
        let flags = [authorization, admission, "--v=1".to_owned()];
        let cluster = Cluster::start(&binaries, folder, &USERS, &flags);
        cluster.grant_everything("load");
        let servers = Self {
            cluster,
            set_up,
            gateway,
        };
        servers.register();
        servers
    }

    fn register(&self) {
        let file = self.set_up.path("webhooks.yaml");
        let arguments = ["apply", "--validate=false", "-f", &file];
        let output = self.cluster.kubectl("admin", &arguments);
        assert!(output.status.success(), "{output:?}");
    }

    fn init(&self, option: &str) {
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .arg("init")
            .arg(self.set_up.path(""))
            .arg(option)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// How often the API server took up a new certificate.
    fn rotations(&self) -> usize {
        let log = self.cluster.folder().join("apiserver/kube-apiserver.log");
        fs::read_to_string(log).unwrap().matches(ROTATED).count()
    }

    /// Has `act` run while requests go on, and fails if one was lost.
    fn under_load(&self, act: impl FnOnce(&Load)) {
        let load = Load::default();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let load = &load;
                scope.spawn(move || self.ask(thread, load));
            }
            // Also when `act` panics: the scope waits for its threads.
            let _stop = Stop(&load.stop);
            act(&load);
        });
        let (answered, cut) = (load.answered.into_inner(), load.cut.into_inner());
        let lost = load.lost.into_inner().unwrap();
        eprintln!(
            "{answered} requests answered, {cut} cut by client-go, {} lost",
            lost.len()
        );
        assert!(
            lost.is_empty(),
            "{} of {answered} lost: {:#?}\n{}{}",
            lost.len(),
            &lost[..lost.len().min(3)],
            self.gateway.tail(),
            self.cluster.tails()
        );
        // At most what each thread awaited at each moment of closing.
        assert!(cut <= THREADS * self.rotations(), "{cut} requests were cut");
    }

    /// Every request is another one, so that no answer is remembered.
    fn ask(&self, thread: usize, load: &Load) {
        let user = self.cluster.user("load");
        let collection = "/api/v1/namespaces/default/configmaps";
        let mut number = 0;
        while !load.stop.load(Ordering::Relaxed) {
            number += 1;
            let name = format!("load-{thread}-{number}");
            let (expected, response) = if number % 4 == 0 {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                (201, user.post(collection, &object))
            } else {
                (404, user.get(&format!("{collection}/{name}")))
            };
            match response {
                Ok(response) if response.status == expected => {
                    load.answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(response) if CUT.iter().any(|cut| response.text().contains(cut)) => {
                    load.cut.fetch_add(1, Ordering::Relaxed);
                }
                Ok(response) => load.lose(format!("{}: {}", response.status, response.text())),
                Err(error) => load.lose(error.to_string()),
            }
            thread::sleep(PAUSE);
        }
    }
}

/// What became of requests.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    answered: AtomicUsize,
    cut: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

/// Ends the load when it is dropped.
struct Stop<'l>(&'l AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Load {
    fn lose(&self, why: String) {
        self.lost.lock().unwrap().push(why);
    }

    /// Waits until so many more were answered.
    fn wait_for_answers(&self, more: usize) {
        let goal = self.answered.load(Ordering::Relaxed) + more;
        assert!(eventually(|| self.answered.load(Ordering::Relaxed) >= goal));
    }
}

/// A program that is this API server, told how often to look.
fn with_refresh(folder: &Folder, program: &Path, refresh: &str) -> std::path::PathBuf {
    let script = format!(
        "#!/bin/sh\nCLIENT_CERTIFICATE_REFRESH={refresh} exec '{}' \"$@\"\n",
        program.display()
    );
    let path = folder.write("kube-apiserver", script);
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

pub(crate) fn certificates_are_renewed_under_load_without_losing_a_request() {
    let Some(binaries) = binaries::find() else { return };
    let servers = Servers::start(binaries, "2s");
    servers.under_load(|load| {
        load.wait_for_answers(100);
        for round in 1..=2 {
            let before = servers.rotations();
            servers.init("--renew");
            // Authorization's connections and admission's.
            assert!(
                eventually(|| servers.rotations() >= before + 2),
                "round {round}: the API server did not take it up\n{}",
                servers.cluster.tails()
            );
            load.wait_for_answers(100);
        }
    });
}

pub(crate) fn the_authority_is_renewed_at_an_api_server_s_own_pace_and_no_request_is_lost() {
    let Some(binaries) = binaries::find() else { return };
    let servers = Servers::start(binaries, "5m");
    servers.under_load(|load| {
        load.wait_for_answers(100);
        servers.init("--renew-ca");
        servers.register();
        // As the command says: ten minutes, in which the API server reads the file again.
        thread::sleep(Duration::from_secs(610));
        let before = servers.rotations();
        servers.init("--renew-ca");
        let start = Instant::now();
        while servers.rotations() < before + 2 {
            assert!(start.elapsed() < Duration::from_secs(600), "not taken up");
            thread::sleep(Duration::from_secs(1));
        }
        load.wait_for_answers(100);
    });
}
