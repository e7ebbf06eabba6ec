//! The chart, with helm of `deploy/helm/build`, else that of the PATH. Without one, each
//! test counts as ignored; with `PORTCULLIS_REQUIRE_HELM=1` it fails.

use super::*;

pub(crate) const CHART: &str = "deploy/helm/portcullis";

/// The values for API servers that ask for authorization, too.
const AUTHORIZATION: &str = "ci/authorization-values.yaml";

/// The values of each way to install it, beside the defaults.
const WAYS: [&str; 10] = [
    "",
    "ci/enforce-values.yaml",
    "ci/host-network-values.yaml",
    AUTHORIZATION,
    "ci/deployment-values.yaml",
    "ci/service-values.yaml",
    "ci/cert-manager-values.yaml",
    "ci/console-values.yaml",
    "ci/watch-values.yaml",
    "ci/files-values.yaml",
];

pub(crate) struct Helm(PathBuf);

impl Helm {
    pub(crate) fn find() -> Option<Self> {
        let built = project("target/helm/helm");
        let program = if built.is_file() { built } else { "helm".into() };
        if Command::new(&program).arg("version").output().is_ok() {
            return Some(Self(program));
        }
        crate::trials::ignore(
            "helm: deploy/helm/build makes it",
            Some("PORTCULLIS_REQUIRE_HELM"),
        );
        None
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.0).args(arguments).output().unwrap();
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).unwrap());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.0.clone()
    }

    fn template(&self, more: &[&str]) -> Result<String, String> {
        let chart = project(CHART);
        let mut arguments = vec!["template", "portcullis", chart.to_str().unwrap(), "-n", NAMESPACE];
        arguments.extend(more);
        self.run(&arguments)
    }

    /// What one of [`WAYS`] renders.
    fn way(&self, way: &str) -> String {
        let file = project(CHART).join(way);
        let values = ["--values", file.to_str().unwrap()];
        self.template(if way.is_empty() { &[] } else { &values })
            .unwrap_or_else(|error| panic!("{way}: {error}"))
    }
}

/// The gateway's configuration among what the chart renders.
fn configuration(objects: &[Value]) -> Value {
    let text = &find(objects, "ConfigMap", "portcullis-configuration")["data"]["portcullis.yaml"];
    documents(text.as_str().unwrap()).remove(0)
}

pub(crate) fn helm_finds_no_fault_in_the_chart() {
    let Some(helm) = Helm::find() else { return };
    for way in WAYS {
        let chart = project(CHART);
        let values = chart.join(way);
        let mut arguments = vec!["lint", "--strict", chart.to_str().unwrap()];
        if !way.is_empty() {
            arguments.extend(["--values", values.to_str().unwrap()]);
        }
        if let Err(error) = helm.run(&arguments) {
            panic!("{way}: {error}");
        }
    }
    // As it is released, helm has nothing to say about it.
    let folder = Folder::new("package");
    let destination = folder.path().to_str().unwrap();
    let source = project(CHART);
    helm.run(&["package", source.to_str().unwrap(), "--destination", destination])
        .unwrap();
    let package = folder
        .path()
        .join(concat!("portcullis-", env!("CARGO_PKG_VERSION"), ".tgz"));
    for command in [&["lint", "--strict"][..], &["template"]] {
        let output = Command::new(&helm.0)
            .args(command)
            .arg(&package)
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("[INFO]") && !said.contains("[WARNING]"), "{said}");
    }
}

/// The kinds of others are there in name alone.
pub(crate) fn an_api_server_takes_every_way_of_the_chart() {
    let Some(helm) = Helm::find() else { return };
    let Some(servers) = scenario::shared() else { return };
    for (group, version, kind, plural) in [
        ("cert-manager.io", "v1", "Certificate", "certificates"),
        ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
        ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ] {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        servers
            .cluster
            .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &object);
        let path = format!("/apis/{group}/{version}/{plural}");
        let is_served = crate::harness::eventually(|| servers.cluster.status("admin", &path) == 200);
        assert!(is_served, "{path}");
    }
    for way in WAYS {
        applies(&servers, way, &helm.way(way));
    }
}

pub(crate) fn the_chart_runs_what_init_and_the_overlay_run() {
    let Some(helm) = Helm::find() else { return };
    let Some(servers) = scenario::shared() else { return };
    let spec = |objects: &[Value], kind: &str| {
        let mut workload = find(objects, kind, "portcullis")["spec"].clone();
        workload["template"].as_object_mut().unwrap().remove("metadata");
        workload
    };
    let base = overlay(&servers, "base");
    let in_cluster = overlay(&servers, "overlays/in-cluster");
    for (way, kind, other) in [
        (AUTHORIZATION, "DaemonSet", &in_cluster),
        ("ci/deployment-values.yaml", "Deployment", &in_cluster),
        ("ci/service-values.yaml", "Deployment", &base),
    ] {
        let of_chart = spec(&documents(&helm.way(way)), kind);
        let of_other = spec(other, "Deployment");
        let (pod, other_pod) = (&of_chart["template"]["spec"], &of_other["template"]["spec"]);
        let ports = |pod: &Value| pod["containers"][0]["ports"].clone();
        assert_eq!(ports(pod), ports(other_pod), "{way}");
        let plain = |pod: &Value| {
            let mut pod = common(pod);
            for probe in ["livenessProbe", "readinessProbe"] {
                let port = &mut pod["containers"][0][probe]["httpGet"]["port"];
                if port == "admin" {
                    *port = json!(9090);
                }
            }
            pod
        };
        assert_eq!(plain(pod), plain(other_pod), "{way}");
        let mounts = |pod: &Value| {
            let mut mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap().clone();
            mounts.sort_by_key(ToString::to_string);
            mounts
        };
        assert_eq!(mounts(pod), mounts(other_pod), "{way}");
    }
}

pub(crate) fn the_overlay_of_admission_installs_what_the_chart_installs() {
    let Some(helm) = Helm::find() else { return };
    let Some(servers) = scenario::shared() else { return };
    let folder = project("deploy/kustomize/overlays/admission");
    let (folder, program) = (folder.to_str().unwrap(), helm.program());
    let program = program.to_str().unwrap();
    let arguments = ["kustomize", "--enable-helm", "--helm-command", program, folder];
    let output = servers.cluster.kubectl("admin", &arguments);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let values = format!("{folder}/values.yaml");
    let of_chart = helm.template(&["--no-hooks", "--values", &values]).unwrap();
    let sorted = |text: &str| {
        let mut objects = documents(text);
        objects.retain(|object| object["kind"] != "Namespace");
        objects.sort_by_key(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string()));
        objects
    };
    assert_eq!(sorted(&text), sorted(&of_chart));
}

pub(crate) fn the_chart_configures_the_gateway_as_init_does() {
    let Some(helm) = Helm::find() else { return };
    let folder = Folder::new("installs");
    let set_up = folder.path().join("set-up");
    let output = run_portcullis(&[
        "init",
        set_up.to_str().unwrap(),
        "--watch",
        "--host",
        "192.0.2.1",
        "--in-cluster",
        NAMESPACE,
    ]);
    assert!(output.status.success(), "{output:?}");
    let of_init = documents(&std::fs::read_to_string(set_up.join("portcullis.yaml")).unwrap());
    let configuration = |way: &str| configuration(&documents(&helm.way(way)));
    assert_eq!(configuration(AUTHORIZATION), of_init[0]);
    // `portcullis check` reads each as the gateway would, with the files of `init`.
    for way in WAYS {
        std::fs::write(set_up.join("portcullis.yaml"), configuration(way).to_string()).unwrap();
        let path = set_up.join("portcullis.yaml");
        let output = run_portcullis(&["check", "--config", path.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stdout);
        // The files of a ServiceAccount are in pods alone.
        let faults = said.lines().filter(|line| {
            line.contains("Invalid") || line.contains("Unsupported") || line.contains("unknown field")
        });
        assert_eq!(faults.count(), 0, "{way}: {output:?}");
    }
}

pub(crate) fn the_chart_registers_as_init_does() {
    let Some(helm) = Helm::find() else { return };
    let Some(servers) = scenario::shared() else { return };
    let folder = Folder::new("installs");
    let set_up = folder.path().join("set-up");
    let arguments = [
        "init",
        set_up.to_str().unwrap(),
        "--host",
        "127.0.0.1",
        "--in-cluster",
        NAMESPACE,
    ];
    let output = run_portcullis(&arguments);
    assert!(output.status.success(), "{output:?}");
    let of_init = documents(&std::fs::read_to_string(set_up.join("webhooks.yaml")).unwrap());
    let ca = format!("registrations.caBundle={}", set_up.join("pki/ca.crt").display());
    let text = helm
        .template(&[
            "--set",
            "authorization.enabled=true,enforce=true,registrations.enabled=true",
            "--set-file",
            &ca,
        ])
        .unwrap();
    applies(&servers, "with registrations", &text);
    let of_chart = documents(&text);
    for object in &of_init {
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(find(&of_chart, kind, "portcullis"), object);
    }
    let injected = documents(&helm.way("ci/cert-manager-values.yaml"));
    let injected = find(&injected, "ValidatingWebhookConfiguration", "portcullis");
    let annotations = &injected["metadata"]["annotations"];
    assert_eq!(
        annotations["cert-manager.io/inject-ca-from"],
        "portcullis/portcullis-server"
    );
    assert!(injected["webhooks"][0]["clientConfig"].get("caBundle").is_none());
    // Without authorization `portcullis register` writes the webhooks, and the injector their caBundle.
    let values = "certificates.source=certManager,certificates.certManager.issuerRef.name=ca";
    let alone = documents(&helm.template(&["--set", values]).unwrap());
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let annotations = &find(&alone, kind, "portcullis")["metadata"]["annotations"];
        let of = &annotations["cert-manager.io/inject-ca-from"];
        assert_eq!(of, "portcullis/portcullis-server", "{kind}");
    }
    let certificate = find(&alone, "Certificate", "portcullis-server");
    assert_eq!(
        certificate["spec"]["dnsNames"],
        json!(["portcullis.portcullis.svc"])
    );

    // What `portcullis register` puts into the objects is the same, but for where the gateway is.
    let of_chart = documents(&helm.way("ci/enforce-values.yaml"));
    let data = &find(&of_chart, "ConfigMap", "portcullis-webhooks")["data"];
    for (object, file) in of_init.iter().zip(["mutating.yaml", "validating.yaml"]) {
        let mut object = object.clone();
        for webhook in object["webhooks"].as_array_mut().unwrap() {
            let url = webhook["clientConfig"]["url"].as_str().unwrap();
            let (_, path) = url.rsplit_once('/').unwrap();
            let path = format!("/{path}");
            webhook["clientConfig"] =
                json!({"service": {"namespace": NAMESPACE, "name": NAMESPACE, "port": 8443, "path": path}});
            let excluded = "/namespaceSelector/matchExpressions/0/values";
            if let Some(excluded) = webhook.pointer_mut(excluded) {
                *excluded = json!(["kube-system", "gke-managed-system", NAMESPACE]);
            }
        }
        assert_eq!(documents(data[file].as_str().unwrap()), [object]);
        let warning = documents(&helm.way(""));
        let text = find(&warning, "ConfigMap", "portcullis-webhooks")["data"][file].to_string();
        assert!(text.contains("failurePolicy: Ignore") && !text.contains("Fail\\n"));
    }
}

/// The chart's level is for namespaces without a label; the others have those of their label.
pub(crate) fn the_level_of_the_chart_is_for_namespaces_without_a_label() {
    let Some(helm) = Helm::find() else { return };
    let bindings = |texts: &[String]| -> Vec<Value> {
        let objects = texts.iter().flat_map(|text| documents(text));
        objects
            .filter(|object| object["kind"] == "ValidatingAdmissionPolicyBinding")
            .collect()
    };
    let folders = ["baseline", "restricted"].map(|level| project("config/policies/pod-security").join(level));
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files: Vec<String> = files
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let of_label = bindings(&files);
    for (level, enforce) in [("baseline", false), ("restricted", true)] {
        let values = format!("podSecurity.level={level},enforce={enforce}");
        let rendered = documents(&helm.template(&["--set", &values]).unwrap());
        let data = &find(&rendered, "ConfigMap", "portcullis-pod-security")["data"];
        let texts = data.as_object().unwrap().values();
        let texts: Vec<String> = texts.map(|text| text.as_str().unwrap().to_owned()).collect();
        let of_chart = bindings(&texts);
        assert_eq!(of_chart.len(), of_label.len());
        for label in ["privileged", "baseline", "restricted"] {
            assert_eq!(
                applied(&of_chart, Some(label)),
                applied(&of_label, Some(label)),
                "{level}: {label}"
            );
        }
        assert_eq!(
            applied(&of_chart, None),
            applied(&of_label, Some(level)),
            "{level}"
        );
        let actions = if enforce {
            json!(["Deny"])
        } else {
            json!(["Warn", "Audit"])
        };
        assert!(
            of_chart
                .iter()
                .all(|binding| binding["spec"]["validationActions"] == actions)
        );
    }
    let none = documents(&helm.way(AUTHORIZATION));
    assert!(
        !none
            .iter()
            .any(|object| object["metadata"]["name"] == "portcullis-pod-security")
    );
}

/// The controls that are bound to a namespace with this label.
fn applied(bindings: &[Value], label: Option<&str>) -> Vec<String> {
    let holds = |expression: &Value| {
        assert_eq!(expression["key"], "pod-security.kubernetes.io/enforce");
        let values = expression["values"].as_array();
        let has = values.is_some_and(|values| values.iter().any(|value| value.as_str() == label));
        match expression["operator"].as_str().unwrap() {
            "Exists" => label.is_some(),
            "In" => has,
            "NotIn" => !has,
            other => panic!("{other}"),
        }
    };
    let selects = |binding: &&Value| {
        let expressions = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"];
        expressions.as_array().unwrap().iter().all(holds)
    };
    let names = bindings
        .iter()
        .filter(selects)
        .map(|binding| binding["metadata"]["name"].to_string());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

pub(crate) fn the_chart_brings_the_definitions_and_roles_of_the_project() {
    let Some(helm) = Helm::find() else { return };
    let mut of_chart = documents(&helm.way("ci/watch-values.yaml"));
    let mut compared = 0;
    for folder in ["config/crd", "config/cluster"] {
        for file in std::fs::read_dir(project(folder)).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for object in documents(&text) {
                let (kind, name) = (
                    object["kind"].as_str().unwrap(),
                    object["metadata"]["name"].as_str(),
                );
                if kind != "CustomResourceDefinition" && kind != "ClusterRole" {
                    continue;
                }
                let found = of_chart
                    .iter_mut()
                    .find(|found| found["kind"] == kind && found["metadata"]["name"].as_str() == name)
                    .unwrap_or_else(|| panic!("{name:?}"));
                found["metadata"].as_object_mut().unwrap().remove("annotations");
                assert_eq!(*found, object);
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 9);
}

pub(crate) fn the_console_is_on_loopback_unless_callers_may_see_it() {
    let Some(helm) = Helm::find() else { return };
    let open_ports = |objects: &[Value]| {
        objects
            .iter()
            .any(|object| object["kind"] != "ConfigMap" && object.to_string().contains("console"))
    };
    let rendered = documents(&helm.template(&[]).unwrap());
    assert_eq!(
        configuration(&rendered)["console"],
        json!({"address": "127.0.0.1:9091"})
    );
    assert!(!open_ports(&rendered));
    for values in ["authorization.enabled=true", "hostNetwork=true"] {
        let rendered = documents(&helm.template(&["--set", values]).unwrap());
        assert_eq!(configuration(&rendered).get("console"), None, "{values}");
    }

    for more in ["hostNetwork=true", "hostNetwork=false"] {
        let values = ["--set", "console.enabled=true,console.port=9191", "--set", more];
        let rendered = documents(&helm.template(&values).unwrap());
        assert_eq!(
            configuration(&rendered)["console"],
            json!({"address": "127.0.0.1:9191"})
        );
        assert!(!open_ports(&rendered), "{more}");
    }

    let exposed = documents(&helm.way("ci/console-values.yaml"));
    let settings = configuration(&exposed);
    let tls = json!({"certificate": "pki/server.crt", "privateKey": "pki/server.key"});
    assert_eq!(
        settings["console"],
        json!({"address": "0.0.0.0:9091", "tls": tls})
    );
    let callers = settings["callers"].as_array().unwrap();
    let theirs = json!({"clientCertificate": {"organizations": ["platform-team"]}, "endpoints": ["console"]});
    assert_eq!(callers.last(), Some(&theirs));
    assert_eq!(callers.len(), 5);
    let ports = &find(&exposed, "Service", "portcullis")["spec"]["ports"];
    assert_eq!(
        ports[1],
        json!({"name": "console", "port": 9091, "targetPort": "console"})
    );
    let rules = |objects: &[Value]| find(objects, "NetworkPolicy", "portcullis")["spec"]["ingress"].clone();
    let from = json!({
        "from": [{"ipBlock": {"cidr": "10.20.0.0/16"}}],
        "ports": [{"protocol": "TCP", "port": "console"}],
    });
    assert!(rules(&exposed).as_array().unwrap().contains(&from));

    let file = project(CHART).join("ci/console-values.yaml");
    let for_nobody = [
        "--values",
        file.to_str().unwrap(),
        "--set",
        "networkPolicy.consoleFrom=null",
    ];
    let for_nobody = documents(&helm.template(&for_nobody).unwrap());
    assert!(!rules(&for_nobody).to_string().contains("console"));
}

pub(crate) fn values_that_cannot_work_are_refused_with_the_remedy() {
    let Some(helm) = Helm::find() else { return };
    for (values, said) in [
        (
            "hostNetwork=true,serviceMonitor.enabled=true",
            "set admin.address to 0.0.0.0",
        ),
        (
            "authorization.enabled=true,registrations.enabled=true",
            "--set-file registrations.caBundle=",
        ),
        ("certificates.source=certManager", "name the Issuer"),
        ("certificates.source=init", "set authorization.enabled"),
        (
            "authorization.enabled=true,certificates.source=register",
            "made by init or certManager",
        ),
        ("watch.admission=Declared", "set enforce too"),
        (
            "console.callers[0].clientCertificate.organizations[0]=a",
            "there is no CA for them",
        ),
        ("podSecurity.level=high", "podSecurity"),
        ("excludedNamespaces[0]=Kube", "excludedNamespaces"),
        ("register.renewBefore=tomorrow", "renewBefore"),
        ("replicas=0", "replicas"),
        ("replica=3", "replica"),
        ("kind=StatefulSet", "kind"),
        ("directory=etc/portcullis", "directory"),
        (
            "console.enabled=true,console.address=0.0.0.0",
            "console.callers: name who may see it",
        ),
        ("console.callers[0].endpoints[0]=authorize", "console"),
        ("console.address=gateway.example.com", "console"),
    ] {
        let error = helm.template(&["--set", values]).unwrap_err();
        assert!(error.contains(said), "{values}: {error}");
    }
}
