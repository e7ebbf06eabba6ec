//! The chart as its page and its NOTES say, typed into a shell, with an API server whose flags nobody sets.
//! The processes of its pods are run here, from what Helm has stored in the cluster.

use super::helm::{CHART, Helm};
use super::*;
use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::harness::client::Client;
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::process::Process;
use crate::harness::{eventually, ports};
use crate::services::routable;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const USERS: [User; 1] = [User {
    name: "load",
    groups: &[],
}];

const MERGE: &str = "application/merge-patch+json";
const REGISTRATIONS: [&str; 2] = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
const TIME: &str = "2026-01-01T00:00:00Z";

/// How often a Service is called until none of its callers knows an endpoint that is gone.
const CALLS: usize = 20;

/// What runs the pods of the chart: scheduler, controllers and kubelet in one.
struct Pods {
    cluster: Cluster,
    shell: PathBuf,
    ip: IpAddr,
    started: usize,
    /// With the template from which they run.
    gateways: Vec<Pod>,
    template: Value,
    jobs: HashMap<String, Child>,
    /// Whether nothing starts gateways any more.
    are_lost: bool,
}

struct Pod {
    process: Process,
    root: PathBuf,
    server: SocketAddr,
    admin: SocketAddr,
    console: SocketAddr,
    slice: String,
}

impl Pods {
    fn get(&self, path: &str) -> Option<Value> {
        let response = self.cluster.admin().get(path).unwrap();
        (response.status == 200).then(|| response.json())
    }

    fn object(&self, resource: &str, name: &str) -> Option<Value> {
        self.get(&format!("/api/v1/namespaces/{NAMESPACE}/{resource}/{name}"))
    }

    /// Types a line into a shell, and lets the pods run until it is done.
    fn types(&mut self, line: &str) -> (bool, String) {
        let output = self.cluster.folder().join("typed.log");
        let file = fs::File::create(&output).unwrap();
        let path = format!("{}:{}", self.shell.display(), std::env::var("PATH").unwrap());
        let mut typed = Command::new("bash")
            .args(["-c", line])
            .env("PATH", path)
            .env("KUBECONFIG", self.cluster.kubeconfig("admin"))
            .env("HOME", self.cluster.folder())
            .env(
                "CHART",
                self.cluster
                    .folder()
                    .join(concat!("portcullis-", env!("CARGO_PKG_VERSION"), ".tgz")),
            )
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let status = loop {
            self.step();
            if let Some(status) = typed.try_wait().unwrap() {
                break status;
            }
            thread::sleep(Duration::from_millis(50));
        };
        (status.success(), fs::read_to_string(&output).unwrap())
    }

    /// Types a line that has to succeed and say this.
    fn succeeds(&mut self, line: &str, expected: &str) -> String {
        let (succeeded, said) = self.types(line);
        assert!(
            succeeded && said.contains(expected),
            "{line}: {said}\n{}",
            self.tails()
        );
        said
    }

    /// Types a line until it says this.
    fn says(&mut self, line: &str, expected: &str) {
        let mut said = String::new();
        let found = eventually(|| {
            said = self.types(line).1;
            said.contains(expected)
        });
        assert!(found, "{line}: {said}\n{}", self.tails());
    }

    fn tails(&self) -> String {
        self.gateways
            .iter()
            .map(|pod| pod.process.tail())
            .chain([self.cluster.tails()])
            .collect()
    }

    /// What happens next in the cluster.
    fn step(&mut self) {
        for pod in &self.gateways {
            self.mount(&self.template["spec"], pod);
        }
        self.run_jobs();
        let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/portcullis");
        let Some(deployment) = self.get(&path) else { return };
        let template = &deployment["spec"]["template"];
        let is_filled = |secret: Value| secret["data"].get("server.key").is_some();
        let can_start = self
            .object("secrets", "portcullis-webhook")
            .is_some_and(is_filled);
        if self.are_lost || !can_start || *template == self.template {
            return;
        }
        self.template = template.clone();
        let replicas = deployment["spec"]["replicas"].as_u64().unwrap();
        let old: Vec<Pod> = self.gateways.drain(..).collect();
        for _ in 0..replicas {
            self.start_gateway();
        }
        self.end_gateways(old);
        let status = json!({"status": {
            "observedGeneration": deployment["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
        }});
        let patched = self
            .cluster
            .admin()
            .patch(&format!("{path}/status"), MERGE, &status)
            .unwrap();
        assert_eq!(patched.status, 200, "{}", patched.text());
    }

    fn start_gateway(&mut self) {
        self.started += 1;
        let root = self.cluster.folder().join(format!("pod-{}", self.started));
        let name = format!("portcullis-{}", self.started);
        let mut pod = Pod {
            process: Process::start("none", &root, None, Path::new("true"), [""; 0]),
            server: SocketAddr::new(self.ip, ports::free().port()),
            admin: ports::free(),
            console: ports::free(),
            slice: name.clone(),
            root,
        };
        let container = &self.template["spec"]["containers"][0];
        self.mount(&self.template["spec"], &pod);
        let arguments = arguments(container, &pod.root);
        // The process, and not the guard of the test, gets the signal that ends a container.
        let script = "echo $$ >pid; exec \"$0\" \"$@\"".to_owned();
        let program = env!("CARGO_BIN_EXE_portcullis").to_owned();
        let arguments = ["-c".to_owned(), script, program].into_iter().chain(arguments);
        pod.process = Process::start("portcullis", &pod.root, None, Path::new("bash"), arguments);
        let probe = Client::http(pod.admin);
        let is_ready = eventually(|| probe.get("/readyz").is_ok_and(|response| response.status == 200));
        assert!(is_ready, "{}", pod.process.tail());
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "portcullis"}},
            "endpoints": [{"addresses": [self.ip.to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": pod.server.port(), "protocol": "TCP"}],
        });
        self.cluster.create(&slices(), &slice);
        self.gateways.push(pod);
    }

    /// Ends them as Kubernetes does: no endpoints any more, then `preStop`, then SIGTERM.
    fn end_gateways(&self, mut pods: Vec<Pod>) {
        for pod in &pods {
            let deleted = self
                .cluster
                .admin()
                .delete(&format!("{}/{}", slices(), pod.slice));
            assert_eq!(deleted.unwrap().status, 200);
        }
        for _ in 0..CALLS {
            let _ = write(&self.cluster.admin(), "until-known");
        }
        for pod in &mut pods {
            let pid = fs::read_to_string(pod.root.join("pid")).unwrap();
            let killed = Command::new("kill").args(["-TERM", pid.trim()]).status();
            assert!(killed.unwrap().success());
            assert!(eventually(|| !pod.process.runs()), "{}", pod.process.tail());
        }
    }

    /// Takes all gateways away at once, until more are asked for.
    fn lose_gateways(&mut self) {
        self.are_lost = true;
        self.template = Value::Null;
        for pod in self.gateways.drain(..) {
            let deleted = self
                .cluster
                .admin()
                .delete(&format!("{}/{}", slices(), pod.slice));
            assert_eq!(deleted.unwrap().status, 200);
        }
    }

    /// Starts the processes of Jobs, and says how those that have ended went.
    fn run_jobs(&mut self) {
        let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs");
        let jobs = self.get(&path).unwrap();
        for job in jobs["items"].as_array().unwrap() {
            let name = job["metadata"]["name"].as_str().unwrap();
            let is_complete = !job["status"]["conditions"].is_null();
            let uid = job["metadata"]["uid"].as_str().unwrap().to_owned();
            if is_complete {
                continue;
            }
            match self.jobs.get_mut(&uid).map(|child| child.try_wait().unwrap()) {
                None => {
                    let child = self.run_once(&job["spec"]["template"]["spec"], name, &[]);
                    self.jobs.insert(uid, child);
                }
                Some(None) => {}
                Some(Some(status)) if status.success() => {
                    let condition =
                        |kind| json!({"type": kind, "status": "True", "lastTransitionTime": TIME});
                    let status = json!({"status": {
                        "startTime": job["metadata"]["creationTimestamp"],
                        "completionTime": job["metadata"]["creationTimestamp"], "succeeded": 1,
                        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
                    }});
                    let path = format!("{path}/{name}/status");
                    let patched = self.cluster.admin().patch(&path, MERGE, &status).unwrap();
                    assert_eq!(patched.status, 200, "{}", patched.text());
                }
                // As `backoffLimit` has it.
                Some(Some(_)) => drop(self.jobs.remove(&uid)),
            }
        }
    }

    /// Runs the pod of a Job as its ServiceAccount.
    fn run_once(&self, pod: &Value, name: &str, more: &[&str]) -> Child {
        let root = self.cluster.folder().join(name);
        self.mount_in(pod, &root);
        let log = fs::File::create(root.join("job.log")).unwrap();
        let account = pod["serviceAccountName"].as_str().unwrap();
        let server = format!("https://{}", self.cluster.address());
        let credential = Credential::Token(self.token_of(account));
        let kubeconfig = root.join("kubeconfig");
        fs::write(
            &kubeconfig,
            kubeconfig::render(&server, &self.authority(), &credential),
        )
        .unwrap();
        Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(arguments(&pod["containers"][0], &root))
            .args(more)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Lets the CronJob run, whose time has come at once.
    fn run_cron_job(&self) -> String {
        let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/portcullis-register");
        let job = self.get(&path).unwrap();
        let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        let ended = self
            .run_once(pod, "cron-job", &["--propagation=0s"])
            .wait()
            .unwrap();
        let log = fs::read_to_string(self.cluster.folder().join("cron-job/job.log")).unwrap();
        assert!(ended.success(), "{log}");
        log
    }

    fn authority(&self) -> Vec<u8> {
        let text = fs::read_to_string(self.cluster.kubeconfig("admin")).unwrap();
        let kubeconfig: Value = serde_json::from_str(&text).unwrap();
        let encoded = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
        STANDARD.decode(encoded.as_str().unwrap()).unwrap()
    }

    fn token_of(&self, account: &str) -> String {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let response = self.cluster.admin().post(&path, &request).unwrap();
        response.json()["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The files of a gateway, with addresses that nobody else has.
    fn mount(&self, spec: &Value, pod: &Pod) {
        self.mount_in(spec, &pod.root);
        let folder = pod.root.join("etc/portcullis");
        let state = pod.root.join("var/lib/portcullis");
        let account = pod.root.join("account");
        let text = fs::read_to_string(folder.join("portcullis.yaml.mounted")).unwrap();
        let text = text
            .replace("0.0.0.0:8443", &pod.server.to_string())
            .replace("0.0.0.0:9090", &pod.admin.to_string())
            .replace("127.0.0.1:9091", &pod.console.to_string())
            .replace("/var/lib/portcullis", state.to_str().unwrap());
        put(&folder.join("portcullis.yaml"), text.as_bytes());
        if account.exists() {
            return;
        }
        fs::create_dir_all(&state).unwrap();
        put(&account.join("ca.crt"), &self.authority());
        put(&account.join("token"), self.token_of("portcullis").as_bytes());
        let kubeconfig = folder.join("cluster/kubeconfig");
        let text = fs::read_to_string(folder.join("cluster/kubeconfig.mounted")).unwrap();
        let text = text
            .replace(
                "https://kubernetes.default.svc",
                &format!("https://{}", self.cluster.address()),
            )
            .replace(
                "/var/run/secrets/kubernetes.io/serviceaccount",
                account.to_str().unwrap(),
            );
        put(&kubeconfig, text.as_bytes());
    }

    /// The files of ConfigMaps and Secrets, as a kubelet has them.
    fn mount_in(&self, spec: &Value, root: &Path) {
        let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
        for mount in mounts {
            let volume = spec["volumes"].as_array().unwrap();
            let volume = volume
                .iter()
                .find(|volume| volume["name"] == mount["name"])
                .unwrap();
            let target = root.join(mount["mountPath"].as_str().unwrap().trim_start_matches('/'));
            for (name, bytes) in self.files(volume) {
                // What the test changes is written beside.
                let path = match (mount["subPath"].as_str(), name.as_str()) {
                    (Some(_), _) => target.with_file_name("portcullis.yaml.mounted"),
                    (None, "kubeconfig") => target.join("kubeconfig.mounted"),
                    (None, name) => target.join(name),
                };
                put(&path, &bytes);
            }
            if mount["subPath"].is_null() {
                fs::create_dir_all(&target).unwrap();
            }
        }
    }

    fn files(&self, volume: &Value) -> Vec<(String, Vec<u8>)> {
        if let Some(name) = volume["configMap"]["name"].as_str() {
            let found = self.object("configmaps", name).unwrap_or_default();
            let text = |value: &Value| value.as_str().unwrap().as_bytes().to_vec();
            let data = found["data"].as_object().into_iter().flatten();
            return data.map(|(name, value)| (name.clone(), text(value))).collect();
        }
        let mut files = Vec::new();
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            let name = source["secret"]["name"].as_str().unwrap();
            let Some(found) = self.object("secrets", name) else {
                continue;
            };
            for item in source["secret"]["items"].as_array().unwrap() {
                let value = found["data"][item["key"].as_str().unwrap()].as_str();
                let bytes = STANDARD.decode(value.unwrap_or_default()).unwrap();
                files.push((item["path"].as_str().unwrap().to_owned(), bytes));
            }
        }
        files
    }

    /// Whether every gateway takes a call with this token, with a certificate of these authorities.
    fn take(&self, token: &str, authorities: &[u8]) -> bool {
        let name = format!("portcullis.{NAMESPACE}.svc");
        self.gateways.iter().all(|pod| {
            let client = Client::https(pod.server, authorities, None).for_name(&name);
            let response = client.post(&format!("/t/{token}/validate"), &json!({}));
            response.is_ok_and(|response| response.status == 400)
        })
    }

    /// What is in the Secret under this key.
    fn secret(&self, key: &str) -> String {
        let secret = self.object("secrets", "portcullis-webhook").unwrap();
        let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn rotation(&self) -> String {
        let secret = self.object("secrets", "portcullis-webhook").unwrap();
        secret["metadata"]["annotations"]["portcullis.dev/rotation"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn registration(&self, resource: &str) -> Option<Value> {
        self.get(&format!(
            "/apis/admissionregistration.k8s.io/v1/{resource}/portcullis"
        ))
    }
}

fn slices() -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")
}

/// Writes what gateways are asked about, and stores nothing.
fn write(user: &Client, name: &str) -> Result<(), String> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    match user.post("/api/v1/namespaces/default/configmaps?dryRun=All", &object) {
        Ok(response) if response.status == 201 => Ok(()),
        Ok(response) => Err(format!("{}: {}", response.status, response.text())),
        Err(error) => Err(error.to_string()),
    }
}

/// The arguments of a container whose root is this folder.
fn arguments(container: &Value, root: &Path) -> Vec<String> {
    let folder = format!("{}/etc/portcullis", root.display());
    let arguments = container["args"].as_array().unwrap().iter();
    arguments
        .map(|argument| argument.as_str().unwrap().replace("/etc/portcullis", &folder))
        .collect()
}

/// Writes a file as a whole, if it is another one.
fn put(path: &Path, bytes: &[u8]) {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let beside = path.with_file_name(".beside");
    fs::write(&beside, bytes).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// The commands of the NOTES.
fn commands(notes: &str) -> Vec<String> {
    let lines = notes.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

fn with<'a>(commands: &'a [String], word: &str) -> &'a str {
    let mut found = commands.iter().filter(|command| command.contains(word));
    let command = found.next().unwrap_or_else(|| panic!("{word}: {commands:?}"));
    assert_eq!(found.next(), None);
    command
}

/// Requests that go on while something is done, each of which has to succeed.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    answered: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

impl Load {
    fn run(&self, user: &Client) {
        while !self.stop.load(Ordering::Relaxed) {
            match write(user, "load") {
                Ok(()) => drop(self.answered.fetch_add(1, Ordering::Relaxed)),
                Err(why) => self.lost.lock().unwrap().push(why),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until so many more have been answered.
    fn more(&self, pods: &mut Pods) {
        let goal = self.answered.load(Ordering::Relaxed) + 50;
        assert!(eventually(|| {
            pods.step();
            self.answered.load(Ordering::Relaxed) >= goal
        }));
    }
}

/// Ends the load, also when a test panics.
struct Stop<'l>(&'l Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn start() -> Option<Pods> {
    let helm = Helm::find()?;
    let binaries = binaries::since(1, 37)?;
    let Some(ip) = routable() else {
        crate::trials::ignore("IPv4 address besides loopback", None);
        return None;
    };
    let folder = Folder::new("chart");
    let chart = project(CHART);
    let destination = folder.path().to_str().unwrap();
    helm.run(&["package", chart.to_str().unwrap(), "--destination", destination])
        .unwrap();
    let shell = folder.path().join("shell");
    fs::create_dir_all(&shell).unwrap();
    for (name, program) in [("helm", helm.program()), ("kubectl", binaries.kubectl.clone())] {
        std::os::unix::fs::symlink(program, shell.join(name)).unwrap();
    }
    let flags = [
        "--authorization-mode=RBAC",
        "--enable-aggregator-routing=true",
        "--allow-privileged=true",
    ]
    .map(str::to_owned);
    let cluster = Cluster::start(&binaries, folder, &USERS, &flags);
    cluster.grant_everything("load");
    Some(Pods {
        cluster,
        shell,
        ip,
        started: 0,
        gateways: Vec::new(),
        template: Value::Null,
        jobs: HashMap::new(),
        are_lost: false,
    })
}

const INSTALL: &str = "helm install portcullis \"$CHART\" -n portcullis --create-namespace";

pub(crate) fn one_command_installs_it_and_the_notes_work_as_typed() {
    let Some(mut pods) = start() else { return };
    somebody_else_s_secret_is_not_taken_over(&mut pods);
    let notes = commands(&pods.succeeds(INSTALL, "STATUS: deployed"));
    pods.succeeds(with(&notes, "rollout status"), "successfully rolled out");
    pods.succeeds(with(&notes, "kubectl -n portcullis wait"), "condition met");
    let run = with(&notes, "kubectl -n default run").to_owned();
    let warning =
        "Warning: Validation failed for ValidatingAdmissionPolicy 'pod-security-baseline-privileged'";
    pods.says(&run, warning);
    let reason = "privileged: containers privileged must not set securityContext.privileged to true";
    let said = pods.succeeds(&run, "pod/privileged created");
    assert!(said.contains(warning) && said.contains(reason), "{said}");
    assert_eq!(
        Client::http(pods.gateways[0].console).get("/").unwrap().status,
        200
    );
    the_job_may_do_no_more(&pods);
    a_second_release_is_refused(&mut pods);

    let load = Load::default();
    let user = pods.cluster.user("load");
    thread::scope(|scope| {
        scope.spawn(|| load.run(&user));
        let _stop = Stop(&load);
        let upgraded = pods.succeeds(with(&notes, "enforce=true"), "STATUS: deployed");
        let notes = commands(&upgraded);
        pods.succeeds(with(&notes, "kubectl -n portcullis wait"), "condition met");
        assert_eq!(with(&notes, "kubectl -n default run"), run);
        pods.says(&run, "denied the request");
        pods.succeeds(with(&notes, "label namespace default"), "labeled");
        pods.says(&run, "pod/privileged created");
        pods.succeeds(
            "kubectl label namespace default pod-security.kubernetes.io/enforce-",
            "unlabeled",
        );
        credentials_are_replaced(&mut pods, &load);
        pods.succeeds(
            "helm rollback portcullis 1 -n portcullis",
            "Rollback was a success",
        );
        pods.says(&run, "Warning: ");
        load.more(&mut pods);
    });
    let lost = load.lost.into_inner().unwrap();
    let answered = load.answered.into_inner();
    eprintln!("{answered} requests answered, {} lost", lost.len());
    assert!(
        lost.is_empty() && answered > 500,
        "{answered}: {lost:#?}\n{}",
        pods.tails()
    );

    // Nobody is locked out by a gateway that is gone.
    loses_its_gateways(&mut pods, with(&notes, "enforce=true"));
    pods.succeeds(with(&notes, "helm uninstall"), "uninstalled");
    assert!(eventually(|| write(&pods.cluster.admin(), "admitted").is_ok()));
    for resource in REGISTRATIONS {
        assert_eq!(pods.registration(resource), None, "{resource}");
    }
    assert_eq!(pods.object("secrets", "portcullis-webhook"), None);
    // And where its Job cannot run, as docs/install/chart.md says.
    loses_its_gateways(&mut pods, &format!("{INSTALL} --set enforce=true"));
    let page = fs::read_to_string(project("docs/install/chart.md")).unwrap();
    for line in [
        "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration portcullis",
        "helm uninstall portcullis -n portcullis --no-hooks",
    ] {
        assert!(page.contains(&format!("\n$ {line}\n")), "{line}");
        pods.succeeds(line, "");
    }
    assert!(eventually(|| write(&pods.cluster.admin(), "admitted").is_ok()));

    // API servers that ask a gateway about authorization are not left without it.
    let authorization = format!("{INSTALL} --set authorization.enabled=true");
    pods.succeeds(&authorization, "STATUS: deployed");
    let (upgraded, said) = pods.types("helm upgrade portcullis \"$CHART\" -n portcullis --set replicas=1");
    assert!(
        !upgraded && said.contains("authorization.enabled: the gateways of this release"),
        "{said}"
    );
}

/// Installs or upgrades by this line, which enforces, and takes the gateways away.
fn loses_its_gateways(pods: &mut Pods, line: &str) {
    pods.are_lost = false;
    let notes = commands(&pods.succeeds(line, "STATUS: deployed"));
    pods.succeeds(with(&notes, "kubectl -n portcullis wait"), "condition met");
    pods.says(with(&notes, "kubectl -n default run"), "denied the request");
    pods.lose_gateways();
    let is_refused =
        || write(&pods.cluster.admin(), "refused").is_err_and(|why| why.contains("failed calling webhook"));
    assert!(eventually(is_refused));
}

/// A Secret with a token that somebody knows.
fn somebody_else_s_secret_is_not_taken_over(pods: &mut Pods) {
    pods.cluster.create_namespace(NAMESPACE);
    let create =
        "kubectl -n portcullis create secret generic portcullis-webhook --from-literal=path-token=mine";
    pods.succeeds(create, "created");
    let (installed, said) = pods.types(INSTALL);
    assert!(
        !installed && said.contains("cannot be imported into the current release"),
        "{said}"
    );
    pods.succeeds("kubectl delete namespace portcullis --wait=false", "deleted");
    // There is no controller that would end it.
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    pods.succeeds(
        "kubectl -n portcullis delete secret portcullis-webhook",
        "deleted",
    );
    let finalized = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}, "spec": {"finalizers": []}});
    assert_eq!(
        pods.cluster
            .admin()
            .put(&format!("{path}/finalize"), &finalized)
            .unwrap()
            .status,
        200
    );
    assert!(eventually(|| pods.get(&path).is_none()));
}

fn the_job_may_do_no_more(pods: &Pods) {
    let may = |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| {
        let review = json!({
            "user": "system:serviceaccount:portcullis:portcullis-register",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:portcullis", "system:authenticated"],
            "resourceAttributes": {"verb": verb, "group": group, "version": "v1", "resource": resource, "namespace": namespace, "name": name},
        });
        pods.cluster.review(&review)["allowed"] == true
    };
    let webhooks = "admissionregistration.k8s.io";
    for verb in ["get", "patch"] {
        assert!(may(verb, "", "secrets", NAMESPACE, "portcullis-webhook"));
        for resource in REGISTRATIONS {
            assert!(may(verb, webhooks, resource, "", "portcullis"));
        }
    }
    for verb in [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
    ] {
        assert!(!may(verb, "", "secrets", NAMESPACE, "other"), "{verb}");
        assert!(
            !may(verb, "", "secrets", "kube-system", "portcullis-webhook"),
            "{verb}"
        );
        for resource in REGISTRATIONS {
            assert!(!may(verb, webhooks, resource, "", "other"), "{verb}");
        }
        if !["get", "patch"].contains(&verb) {
            assert!(
                !may(verb, "", "secrets", NAMESPACE, "portcullis-webhook"),
                "{verb}"
            );
            assert!(!may(verb, webhooks, REGISTRATIONS[0], "", "portcullis"), "{verb}");
        }
    }
}

fn a_second_release_is_refused(pods: &mut Pods) {
    let (installed, said) = pods.types("helm install other \"$CHART\" -n other --create-namespace");
    assert!(
        !installed && said.contains("cannot be imported into the current release"),
        "{said}"
    );
}

fn credentials_are_replaced(pods: &mut Pods, load: &Load) {
    let (token, authority) = (pods.secret("path-token"), pods.secret("ca.crt"));
    let now = time::OffsetDateTime::now_utc().replace_nanosecond(0).unwrap();
    let now = now
        .format(&time::format_description::well_known::Rfc3339)
        .unwrap();
    let renew = "helm upgrade portcullis \"$CHART\" -n portcullis --reset-then-reuse-values --set-string register.renewBefore=";
    let notes = commands(&pods.succeeds(&format!("{renew}{now}"), "STATUS: deployed"));
    pods.succeeds(with(&notes, "kubectl -n portcullis wait"), "condition met");
    assert_eq!(pods.rotation(), "Prepared");
    let tokens = pods.secret("path-token");
    let new = tokens.lines().last().unwrap().to_owned();
    assert!(tokens.starts_with(&token) && !token.contains(&new));
    for (phase, taken) in [("Switched", &authority), ("Settled", &pods.secret("ca.crt"))] {
        assert!(eventually(|| {
            pods.step();
            pods.take(&new, taken.as_bytes())
        }));
        load.more(pods);
        let said = pods.run_cron_job();
        assert_eq!(pods.rotation(), phase, "{said}");
        load.more(pods);
    }
    let authorities = pods.secret("ca.crt");
    assert!(eventually(|| {
        pods.step();
        pods.take(&new, authorities.as_bytes()) && !pods.take(token.trim(), authorities.as_bytes())
    }));
    assert!(!authorities.contains(authority.trim()));
    assert_eq!(pods.run_cron_job(), "nothing to change\n");
    // Neither token is logged.
    for pod in &pods.gateways {
        let log = pod.process.log();
        assert!(!log.contains(token.trim()) && !log.contains(&new));
    }
}
