//! Measures watched clusters. The stand-ins for their API servers run in a process of their own, so that they are
//! not measured.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use portcullis::cluster::Clusters;
use portcullis::state::{self, ManifestSource as _, Origin, ReloadAttempt, ReloadState, Reloader};
use serde_json::json;

use super::harness::api_servers::ApiServers;
use super::harness::pki::Authority;
use super::setup::{OF_ONE_CLUSTER, Setup, Size, Sort, cluster_name};
use super::{IDLE, measured, process};

/// The argument that makes this program serve as the API servers instead of measuring. The number of clusters, the
/// number of bindings of each, and the folder for their entries follow.
pub(crate) const SERVE: &str = "--api-servers";

/// How many changes are measured one at a time.
const CHANGES: usize = 20;

/// How long changes are measured at each of two rates: one every two seconds, and [`CHANGES_A_SECOND`].
const PERIOD: Duration = Duration::from_secs(60);

/// How long the idle process is measured, whose processor time is subtracted from that of the slow changes: long
/// enough for each watch to end and begin again once.
const IDLE_PERIOD: Duration = Duration::from_secs(240);
const CHANGES_A_SECOND: u32 = 20;

/// The longest that a start may take.
const START: Duration = Duration::from_secs(300);

/// The process that serves as the API servers of the clusters.
struct Servers {
    child: Child,
}

/// Measures one row.
pub(crate) fn row(size: &Size) {
    let setup = Setup::new(size);
    let (clusters, bindings) = match size.sort {
        Sort::WatchedBindings => (1, size.count),
        _ => (size.count, OF_ONE_CLUSTER),
    };
    std::fs::create_dir(setup.path("saved")).expect("a folder");
    let mut servers = Servers::start(clusters, bindings, &setup.path("clusters.d"));
    let source = Arc::new(Clusters::new());
    let (start, start_cpu, (_state, reloader, refreshed)) = measured(|| {
        let (state, reloader, refreshed) = begin(&setup, &source);
        let deadline = Instant::now() + START;
        while !source.status().iter().all(|status| status.origin == Origin::Live)
            || !has_binding(&state, clusters - 1)
        {
            assert!(Instant::now() < deadline, "not all clusters are known");
            std::thread::sleep(Duration::from_millis(100));
        }
        (state, reloader, refreshed)
    });
    // The first save of each cluster writes the whole set, and is not part of a change.
    let is_saved = |cluster: usize| setup.path(&format!("saved/{cluster}.saved")).exists();
    while !(0..clusters).all(is_saved) {
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(IDLE);
    let (resident, peak) = process::memory();
    while refreshed.try_recv().is_ok() {}
    let mut in_force = Duration::ZERO;
    for round in 0..CHANGES {
        let (taken, _, ()) = measured(|| {
            servers.change(round * 7 % clusters, round);
            refreshed.recv_timeout(state::RELOAD_TIMEOUT).expect("a refresh");
        });
        in_force += taken;
        // Changes are saved after a second: wait until that is done.
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let mut changing = |each: Duration| {
        let (_, used, count) = measured(|| {
            let (start, mut count) = (Instant::now(), 0);
            while start.elapsed() < PERIOD {
                servers.change((CHANGES + count) * 7 % clusters, CHANGES + count);
                count += 1;
                let due = each * u32::try_from(count).expect("few");
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            count
        });
        (used, count)
    };
    let (alone, count) = changing(Duration::from_secs(2));
    let (busy, _) = changing(Duration::from_secs(1) / CHANGES_A_SECOND);
    let (_, idle, ()) = measured(|| std::thread::sleep(IDLE_PERIOD));
    let idle = idle.as_secs_f64() / IDLE_PERIOD.as_secs_f64();
    let idle_alone = PERIOD.mul_f64(idle);
    let cpu = alone.saturating_sub(idle_alone) / u32::try_from(count).expect("few");
    drop(reloader);
    let changes = f64::from(u32::try_from(CHANGES).expect("few"));
    println!(
        "| {} {} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} | {:.2} |",
        size.count,
        size.sort.name(),
        start.as_secs_f64(),
        start_cpu.as_secs_f64(),
        in_force.as_secs_f64() / changes,
        1e3 * cpu.as_secs_f64(),
        100.0 * busy.as_secs_f64() / PERIOD.as_secs_f64(),
        100.0 * idle,
        resident,
        peak / resident,
    );
}

/// Loads the configuration and starts to follow the API servers. The receiver gets a message whenever a refreshed
/// set is in force.
fn begin(setup: &Setup, source: &Arc<Clusters>) -> (Arc<ReloadState>, Reloader, Receiver<()>) {
    let configuration = setup.configuration();
    let (snapshot, faults) = state::load(&configuration, &**source, None, SystemTime::now());
    let snapshot = snapshot.unwrap_or_else(|| panic!("{faults}"));
    let state = ReloadState::new(snapshot, Arc::<Clusters>::clone(source));
    let (ended, refreshed) = channel();
    let observer = Box::new(move |attempt: ReloadAttempt<'_>| {
        if matches!(attempt, ReloadAttempt::Refreshed(_)) {
            let _ = ended.send(());
        }
    });
    let reloader = Reloader::start(Arc::clone(&state), configuration, state::RELOAD_TIMEOUT, observer);
    let reloader = reloader.expect("a thread");
    state.start_source(reloader.trigger()).expect("threads");
    (state, reloader, refreshed)
}

/// Whether bindings of the cluster are in force.
fn has_binding(state: &ReloadState, cluster: usize) -> bool {
    let snapshot = state.current();
    let set = snapshot.policies.for_cluster(&cluster_name(cluster));
    set.bindings().next().is_some()
}

// === impl Servers ===

impl Servers {
    fn start(clusters: usize, bindings: usize, folder: &Path) -> Self {
        std::fs::create_dir(folder).expect("a folder");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([SERVE, &clusters.to_string(), &bindings.to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = child.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "serving");
        Self { child }
    }

    fn change(&mut self, cluster: usize, round: usize) {
        let input = self.child.stdin.as_mut().expect("its input");
        writeln!(input, "{cluster} {round}").expect("it runs");
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Serves the clusters until standard input ends. Each line of it, `CLUSTER ROUND`, changes one object of a
/// cluster.
pub(crate) fn serve(arguments: &[String]) {
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<usize>().ok());
    let (clusters, bindings) = (number(0).expect("a number"), number(1).expect("a number"));
    let folder = Path::new(arguments.get(2).expect("a folder"));
    let mut objects: Vec<Arc<str>> = (0..bindings)
        .map(|index| binding(index).to_string().into())
        .collect();
    objects.push(role().to_string().into());
    let servers = ApiServers::start(&Authority::new("clusters"), clusters, |_| objects.clone());
    for cluster in 0..clusters {
        let write = |name: String, text: String| std::fs::write(folder.join(name), text).expect("a file");
        write(format!("{cluster}.kubeconfig"), servers.kubeconfig(cluster));
        let name = cluster_name(cluster);
        let entry = json!({
            "name": name,
            "kubeconfig": format!("{cluster}.kubeconfig"),
            // In the folder of the entries, each save would make the gateway read all of them again.
            "cacheFile": format!("../saved/{cluster}.saved"),
        });
        write(format!("{cluster}.json"), entry.to_string());
    }
    println!("serving");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let numbers = line.split_once(' ').expect("two numbers");
        let [cluster, round] = [numbers.0, numbers.1].map(|text| text.parse::<usize>().expect("a number"));
        servers.put(cluster, &changing(round));
    }
}

fn binding(index: usize) -> serde_json::Value {
    let subject = format!("team-{index}");
    role_binding(
        &format!("edit-{index}"),
        &format!("team-{}", index % 1_000),
        "Group",
        &subject,
    )
}

fn changing(round: usize) -> serde_json::Value {
    role_binding("changing", "team-3", "User", &format!("user-{round}"))
}

/// A RoleBinding as an API server stores it.
fn role_binding(name: &str, namespace: &str, kind: &str, subject: &str) -> serde_json::Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": "2f0c7d1e-6a1f-4b4e-9f63-0e5b8f1f0a52",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{
                "manager": "kubectl-create", "operation": "Update", "time": "2026-01-01T00:00:00Z",
                "apiVersion": "rbac.authorization.k8s.io/v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:roleRef": {}, "f:subjects": {}},
            }],
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
    })
}

fn role() -> serde_json::Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "edit", "resourceVersion": "1"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch", "create"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]},
        ],
    })
}
