//! Changed files are noticed, and a bad one changes nothing.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use portcullis::config::Config;
use portcullis::state::{
    ManifestSource, Snapshot, SourceFiles, SourceStatus, Trigger, WatchedObjects, WatchedPart,
};
use portcullis_policy::document;
use portcullis_policy::manifest::ValidatedObject;

use crate::support::{Builder, Gateway, JANE_GETS, get, until, v1};

/// A manifest without objects.
const NOTHING: &str = "# nothing\n";

/// Joe may get `/x`, says this policy.
const JOE_MAY: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: joe-may}
spec:
  effect: Allow
  subjects: [{kind: User, name: joe}]
  nonResourceRules: [{verbs: [get], paths: [/x]}]
";

fn joe_may(gateway: &Gateway) -> bool {
    let ask = v1(r#"{"user":"joe","nonResourceAttributes":{"path":"/x","verb":"get"}}"#);
    gateway.connect().authorize(&ask).json()["status"]["allowed"] == true
}

/// A folder as the kubelet mounts a ConfigMap: links through `..data`.
fn mount(folder: &Path, version: &str, manifest: &str) {
    fs::create_dir(folder.join(version)).unwrap();
    fs::write(folder.join(version).join("mounted.yaml"), manifest).unwrap();
    symlink(version, folder.join("..new")).unwrap();
    fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
}

#[test]
fn the_swap_of_a_link_is_noticed() {
    let gateway = Gateway::usual();
    let folder = gateway.file("policies");
    mount(&folder, "..1", NOTHING);
    symlink("..data/mounted.yaml", folder.join("mounted.yaml")).unwrap();
    assert!(!joe_may(&gateway));
    mount(&folder, "..2", JOE_MAY);
    until("the new version is in force", || joe_may(&gateway));
}

#[test]
fn what_no_watch_tells_of_is_found_by_the_poll() {
    let gateway = Builder::new().reload("100ms").start();
    let aside = tempfile::tempdir().unwrap();
    let path = |name: &str| aside.path().join(name);
    fs::create_dir_all(path("a/real")).unwrap();
    fs::create_dir_all(path("b/real")).unwrap();
    fs::write(path("a/real/joe.yaml"), NOTHING).unwrap();
    fs::write(path("b/real/joe.yaml"), JOE_MAY).unwrap();
    // The link in the middle is in a folder that holds no file of ours.
    symlink(path("a/real"), path("middle")).unwrap();
    symlink(path("middle/joe.yaml"), gateway.file("policies/joe.yaml")).unwrap();
    gateway.reload(&[]);
    assert!(!joe_may(&gateway));
    fs::remove_file(path("middle")).unwrap();
    symlink(path("b/real"), path("middle")).unwrap();
    until("the other end is in force", || joe_may(&gateway));
}

#[test]
fn a_faulty_file_keeps_the_last_good_set_until_it_is_corrected() {
    let gateway = Gateway::usual();
    gateway.reload(&[("policies/more.yaml", JOE_MAY.as_bytes())]);
    assert!(joe_may(&gateway));
    let good = Arc::clone(&gateway.state.current());

    let faulty = JOE_MAY.replace("effect: Allow", "effect: Perhaps");
    fs::write(gateway.file("policies/more.yaml"), faulty).unwrap();
    until("the fault is found", || gateway.state.last_failure().is_some());
    let faults = gateway.state.last_failure().unwrap().faults.to_string();
    assert!(
        faults.contains("more.yaml:6: AuthorizationPolicy/joe-may: spec.effect: "),
        "{faults}"
    );
    assert!(Arc::ptr_eq(&good, &gateway.state.current()));
    assert!(joe_may(&gateway));

    fs::write(gateway.file("policies/more.yaml"), NOTHING).unwrap();
    until("the mended file is in force", || !joe_may(&gateway));
    assert!(gateway.state.last_failure().is_none());
}

#[test]
fn a_cluster_comes_and_goes_with_its_file() {
    let gateway = Gateway::usual();
    let names = || -> Vec<String> {
        let snapshot = gateway.state.current();
        let clusters = snapshot.config.clusters.iter();
        clusters.map(|cluster| cluster.name.clone()).collect()
    };
    let file = |name: &str| gateway.file("clusters.d").join(name);
    let entry = |name: &str| format!("name: {name}\nkubeconfig: k\ncacheFile: {name}.saved\n");
    let configured = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    fs::create_dir(gateway.file("clusters.d")).unwrap();
    fs::write(file("east.yaml"), "name: east\n").unwrap();
    // What a configuration names that cannot be used yet is watched, too.
    let with_folder = configured.replace("clusters: []", "clusters: clusters.d");
    fs::write(gateway.file("config.yaml"), with_folder).unwrap();
    // No entry of its name is in force: its faults stand under its file.
    let held_back = || gateway.state.current().held_back.get("east.yaml").cloned();
    until("the fault is found", || held_back().is_some());
    let faults = held_back().unwrap().to_string();
    assert!(
        faults.contains("clusters.d/east.yaml:1: kubeconfig: Required value: "),
        "{faults}"
    );
    fs::write(file("east.yaml"), entry("east")).unwrap();
    until("it is mended", || names() == ["east"]);
    assert!(held_back().is_none());
    let revision = gateway.state.current().revision.clone();
    fs::write(file("west.yaml"), entry("west")).unwrap();
    until("another is added", || names() == ["east", "west"]);
    assert_ne!(revision, gateway.state.current().revision);
    fs::remove_file(file("east.yaml")).unwrap();
    until("one is gone", || names() == ["west"]);
}

#[test]
fn a_token_that_a_file_replaces_is_accepted_at_once_and_the_old_one_still() {
    let gateway = Gateway::usual();
    let ask = v1(JANE_GETS);
    let status = |token: &str| {
        let mut connection = gateway.stranger().connect(gateway.addresses.server);
        let head = format!(
            "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}"
        );
        connection.request(&head, ask.as_bytes()).status
    };
    assert_eq!((status("right-token"), status("newer-token")), (200, 401));
    let kubeconfig = fs::read_to_string(gateway.file("authorization.kubeconfig")).unwrap();
    let newer = kubeconfig.replace("right-token", "newer-token");
    gateway.reload(&[("authorization.kubeconfig", newer.as_bytes())]);
    assert_eq!((status("right-token"), status("newer-token")), (200, 200));
}

#[test]
fn anything_but_a_regular_file_is_a_fault_and_delays_no_reload() {
    let gateway = Gateway::usual();
    let fifo = gateway.file("policies/fifo.yaml");
    let zero = gateway.file("policies/zero.yaml");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    symlink("/dev/zero", &zero).unwrap();
    until("the faults are found", || {
        let faults = gateway
            .state
            .last_failure()
            .map(|failure| failure.faults.to_string());
        faults.is_some_and(|faults| {
            faults.contains("fifo.yaml: Unreadable: is a named pipe (FIFO)")
                && faults.contains("zero.yaml: Unreadable: is a device")
        })
    });
    fs::remove_file(fifo).unwrap();
    fs::remove_file(zero).unwrap();
    gateway.reload(&[("policies/more.yaml", JOE_MAY.as_bytes())]);
    assert!(joe_may(&gateway));
    assert!(gateway.state.last_failure().is_none());
}

/// Every file that the configuration names, not manifests alone.
#[test]
fn a_file_that_never_ends_is_rejected_everywhere() {
    let gateway = Gateway::usual();
    for name in [
        "server.crt",
        "server.key",
        "ca.crt",
        "authorization.kubeconfig",
        "config.yaml",
    ] {
        let path = gateway.file(name);
        let aside = gateway.file("aside");
        fs::rename(&path, &aside).unwrap();
        symlink("/dev/zero", &path).unwrap();
        gateway.reloader.trigger().reload();
        until(name, || {
            let faults = gateway
                .state
                .last_failure()
                .map(|failure| failure.faults.to_string());
            faults.is_some_and(|faults| faults.contains("is a device; it must be a regular file"))
        });
        fs::rename(&aside, &path).unwrap();
        gateway.reload(&[]);
    }
}

/// Has the loads that begin while it is closed wait until it opens.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    fn close(&self, is_closed: bool) {
        self.state.lock().unwrap().is_closed = is_closed;
    }

    /// Lets those go on that wait.
    fn release(&self) {
        self.opened.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }
}

impl ManifestSource for Gate {
    fn start(&self, _: Trigger) -> io::Result<()> {
        Ok(())
    }

    /// Read with the files.
    fn check(&self, _: &Config) -> SourceFiles {
        let mut state = self.state.lock().unwrap();
        if state.is_closed {
            state.waiting += 1;
            state = self.opened.wait(state).unwrap();
            state.waiting -= 1;
        }
        SourceFiles::default()
    }

    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        Vec::new()
    }

    fn snapshot_applied(&self, _: &Snapshot) {}

    fn status(&self) -> Vec<SourceStatus> {
        Vec::new()
    }
}

#[test]
fn a_reload_that_hangs_is_reported_and_delays_no_other() {
    let gate = Arc::new(Gate::default());
    let gateway = Builder::new()
        .source(Arc::clone(&gate) as Arc<dyn ManifestSource>)
        .reload_limit(Duration::from_millis(50))
        .start();
    gate.close(true);
    gateway.reloader.trigger().reload();
    until("it is reported", || {
        gateway
            .state
            .last_failure()
            .is_some_and(|failure| failure.is_hanging)
    });
    assert_eq!(gate.waiting(), 1);
    let (status, ready) = get(gateway.addresses.admin, "/readyz?verbose");
    assert_eq!(status, 200, "the last good set serves");
    assert!(ready.contains("a reload has not finished"), "{ready}");
    assert!(!joe_may(&gateway));

    gate.close(false);
    gateway.reload(&[("policies/more.yaml", JOE_MAY.as_bytes())]);
    assert!(joe_may(&gateway));
    assert!(gateway.state.last_failure().is_none());
    assert_eq!(gate.waiting(), 1, "the first hangs still");
    gate.release();
    until("the first ends", || gate.waiting() == 0);
    gateway.reload(&[]);
    assert!(joe_may(&gateway), "what it had read is of no matter");
}

#[test]
fn a_reload_that_ends_late_takes_effect() {
    let gate = Arc::new(Gate::default());
    let gateway = Builder::new()
        .source(Arc::clone(&gate) as Arc<dyn ManifestSource>)
        .reload_limit(Duration::from_millis(50))
        .start();
    gate.close(true);
    fs::write(gateway.file("policies/more.yaml"), JOE_MAY).unwrap();
    until("it is reported", || {
        gateway
            .state
            .last_failure()
            .is_some_and(|failure| failure.is_hanging)
    });
    gate.close(false);
    gate.release();
    until("it takes effect", || joe_may(&gateway));
    until("all is well", || gateway.state.last_failure().is_none());
}

/// Joe may get `/x`, says this policy, where there is what Kubernetes 1.37 added to CEL.
const JOE_MAY_AS_OF_1_37: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: joe-may}
spec:
  effect: Allow
  subjects: [{kind: User, name: joe}]
  nonResourceRules: [{verbs: [get], paths: [/x]}]
  conditions: [{name: joe, expression: \"['joe'].includes(request.user)\"}]
";

#[test]
fn another_version_of_cel_compiles_every_file_anew() {
    let gateway = Gateway::usual();
    fs::write(gateway.file("policies/joe.yaml"), JOE_MAY_AS_OF_1_37).unwrap();
    until("the policy is in force", || joe_may(&gateway));

    let path = gateway.file("config.yaml");
    let newest = fs::read_to_string(&path).unwrap();
    let older = format!("{newest}\nadmission: {{celVersion: '1.36'}}\n");
    fs::write(&path, older).unwrap();
    until("the fault is found", || gateway.state.last_failure().is_some());
    let faults = gateway.state.last_failure().unwrap().faults.to_string();
    assert!(
        faults.contains(": AuthorizationPolicy/joe-may: spec.conditions[0].expression: "),
        "{faults}"
    );
    assert!(joe_may(&gateway), "the last good set stays in force");

    let without = JOE_MAY_AS_OF_1_37.replace("['joe'].includes(request.user)", "request.user != 'joe'");
    fs::write(gateway.file("policies/joe.yaml"), without).unwrap();
    until("a policy that compiles is in force", || !joe_may(&gateway));
}

/// A cluster with one policy, compiled for the version that the configuration says. Joe may get
/// `/x` before cel-go 0.29.
struct OnePolicy;

const JOE_MIGHT: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: joe-might}
spec:
  effect: Allow
  subjects: [{kind: User, name: joe}]
  nonResourceRules: [{verbs: [get], paths: [/x]}]
  conditions: [{name: empty, expression: 'lists.range(-1).size() == 0'}]
";

impl ManifestSource for OnePolicy {
    fn start(&self, _: Trigger) -> io::Result<()> {
        Ok(())
    }

    fn check(&self, _: &Config) -> SourceFiles {
        SourceFiles::default()
    }

    fn objects(&self, config: &Config) -> Vec<Arc<WatchedObjects>> {
        let document = document::parse(None, JOE_MIGHT).unwrap().remove(0);
        let version = config.admission.cel_version;
        let object = ValidatedObject::read(document, "default".into(), version).unwrap();
        let part = WatchedPart {
            objects: vec![Arc::new(object)],
            ..WatchedPart::default()
        };
        vec![Arc::new(WatchedObjects {
            cluster: "default".to_owned(),
            parts: vec![Arc::new(part)],
            ..WatchedObjects::default()
        })]
    }

    fn snapshot_applied(&self, _: &Snapshot) {}

    fn status(&self) -> Vec<SourceStatus> {
        Vec::new()
    }
}

#[test]
fn another_version_of_cel_holds_for_watched_objects_too() {
    let gateway = Builder::new().source(Arc::new(OnePolicy)).start();
    assert!(!joe_may(&gateway));
    let newest = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let older = format!("{newest}\nadmission: {{celVersion: '1.36'}}\n");
    gateway.reload(&[("config.yaml", older.as_bytes())]);
    assert!(joe_may(&gateway));
    gateway.reload(&[("config.yaml", newest.as_bytes())]);
    assert!(!joe_may(&gateway));
}

/// A Deny on everybody that touches `resource`, and one that touches nothing that much depends on,
/// with the annotations of the first.
fn denies(resource: &str, annotations: &str) -> String {
    let deny = |name: &str, resource: &str, annotations: &str| {
        format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\n\
             metadata: {{name: {name}, annotations: {{{annotations}}}}}\nspec:\n  effect: Deny\n  \
             subjects: [{{kind: Group, name: 'system:authenticated'}}]\n  \
             resourceRules: [{{verbs: [get], apiGroups: [''], resources: [{resource}]}}]\n"
        )
    };
    deny("everybody", resource, annotations) + &deny("others", &format!("{resource}-of-others"), "")
}

/// Whether somebody may not get `resource`.
fn is_denied(gateway: &Gateway, resource: &str) -> bool {
    let ask = v1(&format!(
        r#"{{"user":"sam","groups":["system:authenticated"],"resourceAttributes":{{"verb":"get","resource":"{resource}","namespace":"a","name":"b"}}}}"#
    ));
    gateway.connect().authorize(&ask).json()["status"]["denied"] == true
}

/// The annotation that a fault names.
fn annotation(fault: &str) -> String {
    let (_, rest) = fault.split_once("set the annotation `").unwrap();
    rest.split_once('`').unwrap().0.to_owned()
}

#[test]
fn an_object_that_locks_out_is_held_back_until_it_is_confirmed() {
    let gateway = Builder::new()
        .reload("1h, lastGood: last-good, refuse: [lockOut]")
        .paths("[policies, shared]")
        .file("shared/denies.yaml", denies("widgets", ""))
        .start();
    assert!(is_denied(&gateway, "widgets"));
    let lock_out = denies("secrets", "");
    gateway.reload(&[("shared/denies.yaml", lock_out.as_bytes())]);

    // Its last good version stays, and everything else is taken.
    assert!(is_denied(&gateway, "widgets") && !is_denied(&gateway, "secrets"));
    assert!(is_denied(&gateway, "secrets-of-others") && !is_denied(&gateway, "widgets-of-others"));
    let ready = get(gateway.addresses.admin, "/readyz?verbose").1;
    let told = "1 object of the files is held back by `reload.refuse`";
    assert!(
        ready.contains(told) && ready.contains("AuthorizationPolicy/everybody"),
        "{ready}"
    );
    assert!(ready.contains("its last good version stays in force"), "{ready}");

    // A restart does not lose it, whichever of the sets it starts with.
    let path = gateway.file("config.yaml");
    let now = std::time::SystemTime::now();
    let restarted = portcullis::state::load(&path, &portcullis::state::NoManifestSource, None, now)
        .0
        .unwrap();
    assert_eq!(restarted.revision, gateway.state.current().revision);
    let saved = portcullis::state::last_good(&path, &portcullis::state::NoManifestSource, now).unwrap();
    assert_eq!(saved.revision, gateway.state.current().revision);

    // A hash of another spec confirms nothing.
    let confirmed = denies("secrets", &annotation(&ready));
    let another = confirmed.replacen("verbs: [get]", "verbs: [get, list]", 1);
    gateway.reload(&[("shared/denies.yaml", another.as_bytes())]);
    assert!(is_denied(&gateway, "widgets") && !is_denied(&gateway, "secrets"));
    gateway.reload(&[("shared/denies.yaml", confirmed.as_bytes())]);
    assert!(is_denied(&gateway, "secrets") && !is_denied(&gateway, "widgets"));
    let ready = get(gateway.addresses.admin, "/readyz?verbose").1;
    assert!(!ready.contains("held back"), "{ready}");
}

#[test]
fn a_new_object_that_locks_out_is_left_out() {
    let gateway = Builder::new()
        .reload("1h, refuse: [lockOut]")
        .paths("[policies, shared]")
        .file("shared/denies.yaml", denies("secrets", ""))
        .start();
    assert!(!is_denied(&gateway, "secrets") && is_denied(&gateway, "secrets-of-others"));
    // Watches take the same way, where a single file changed.
    let more =
        denies("secrets", "") + &denies("leases", "").replace("metadata: {name: ", "metadata: {name: more-");
    fs::write(gateway.file("shared/denies.yaml"), more).unwrap();
    until("the rest is in force", || is_denied(&gateway, "leases"));
    assert!(!is_denied(&gateway, "secrets"));
}
