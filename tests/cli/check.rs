//! `portcullis check`.

use serde_json::Value;

use crate::run::Portcullis;

#[test]
fn what_init_writes_is_sound() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --host gateway.example.com --examples");
    assert_eq!(run.code, 0, "{run:?}");
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!((run.code, run.stdout.as_str()), (0, "valid\n"), "{run:?}");
}

#[test]
fn what_init_writes_passes_the_strictest_check() {
    let portcullis = Portcullis::new();
    for (folder, flags) in [("plain", ""), ("examples", "--examples")] {
        assert_eq!(portcullis.run(&format!("init {folder} {flags}")).code, 0);
        let run = portcullis.run(&format!("check --strict --config {folder}/portcullis.yaml"));
        assert_eq!(run.code, 0, "{folder}: {run:?}");
    }
    std::fs::remove_file(portcullis.path("plain/policies/README.md")).unwrap();
    let run = portcullis.run("check --strict --config plain/portcullis.yaml");
    assert!(
        run.code == 1 && run.stdout.contains("contains no manifests"),
        "{run:?}"
    );
}

#[test]
fn a_wrong_type_hides_nothing_else() {
    let portcullis = Portcullis::new();
    let policy = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: a}\nspec:\n  \
                  effect: Deny\n  reason: 7\n  mod: Enforce\n  subjects: [{kind: Group, name: 'kubeadm:cluster-admins'}]\n  \
                  resourceRules: [{verbs: [get], apiGroups: [''], resources: [pdos]}]\n  \
                  conditions: [{name: c, expression: request.usr}]\n---\n\
                  apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: b}\nspec:\n  \
                  effect: Deny\n  subjects: [{kind: User, name: '*'}]\n  \
                  resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]\n";
    portcullis.write("policies/a.yaml", policy);
    assert_eq!(portcullis.run("init gateway").code, 0);
    portcullis.write("gateway/policies/a.yaml", policy);
    for command in ["check policies", "check --config gateway/portcullis.yaml"] {
        let run = portcullis.run(command);
        for said in [
            "spec.reason: Invalid type",
            "unknown field `mod`: did you mean `mode`?",
            "spec.conditions[0].expression: Invalid value",
            "kubeadm makes this group administrators",
            "did you mean `pods`?",
            "which locks out",
        ] {
            assert_eq!(
                run.stdout.matches(said).count(),
                1,
                "{command}: `{said}`: {run:?}"
            );
        }
        assert!(run.stdout.ends_with("3 errors, 3 warnings\n"), "{run:?}");
    }
}

#[test]
fn what_is_left_out_to_see_more_is_no_fault() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "v.yaml",
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: v}\nspec:\n  \
         matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}\n  \
         validations:\n  - expression: 'object.spec.replicas > 1 +'\n  - {expression: 'true', messageExpression: 3}\n",
    );
    let run = portcullis.run("check v.yaml");
    assert!(
        run.stdout.contains("compilation failed") && run.stdout.ends_with("2 errors, 0 warnings\n"),
        "{run:?}"
    );
}

#[test]
fn an_unknown_field_of_the_configuration_names_what_may_be_meant() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let path = portcullis.path("gateway/portcullis.yaml");
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace("admin:", "admni:");
    std::fs::write(&path, text.replace("clientCA:", "zzz:")).unwrap();
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert!(
        run.stdout
            .contains("unknown field `admni`: did you mean `admin`?"),
        "{run:?}"
    );
    assert!(
        run.stdout
            .contains("unknown field `zzz`: supported fields: `certificate`, "),
        "{run:?}"
    );
}

const FAULTY: &str = "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: faulty}
spec:
  effect: Forbid
  subjects: [{kind: ServiceAccount, name: a}]
  resourceRules:
  - verbs: [get]
    apiGroups: [\"\"]
    resources: [\"*/*\"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: typo}
rules:
- verb: [get]
";

#[test]
fn every_fault_is_reported_at_once_with_file_line_and_field() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/faulty.yaml", FAULTY);
    portcullis.write("policies/other.yaml", "a: [\n");
    let run = portcullis.run("check policies");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "faulty.yaml:5: AuthorizationPolicy/faulty: spec.effect: ",
        "faulty.yaml:6: AuthorizationPolicy/faulty: spec.subjects[0].namespace: Required value",
        "faulty.yaml:10: AuthorizationPolicy/faulty: spec.resourceRules[0].resources[0]: ",
        "faulty.yaml:16: ClusterRole/typo: rules[0].verb: ",
        "other.yaml:",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {run:?}");
    }
}

#[test]
fn faults_of_configuration_and_manifests_come_together() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    portcullis.write("gateway/policies/faulty.yaml", FAULTY);
    portcullis.write("gateway/pki/ca.crt", "no certificate");
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("spec.effect"), "{run:?}");
    assert!(run.stdout.contains("ca.crt"), "{run:?}");
}

#[test]
fn unknown_keys_of_a_configuration_are_faults() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "portcullis.yaml",
        "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\nservr: {}\nadmin: \
         {adress: x}\n",
    );
    let run = portcullis.run("check --config portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("portcullis.yaml:3: ") && run.stdout.contains("servr"),
        "{run:?}"
    );
    assert!(run.stdout.contains("admin.adress"), "{run:?}");
}

#[test]
fn more_manifests_are_checked_with_those_of_the_configuration() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway --examples").code, 0);
    let policy = std::fs::read_to_string(portcullis.path("gateway/policies/discovery.yaml")).unwrap();
    portcullis.write("again.yaml", &policy);
    let run = portcullis.run("check --config gateway/portcullis.yaml again.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("again.yaml") && run.stdout.contains("Duplicate value"),
        "{run:?}"
    );
    let run = portcullis.run("check --config gateway/portcullis.yaml gateway/policies/discovery.yaml");
    assert_eq!(
        run.code, 0,
        "a file that is among them already counts once: {run:?}"
    );
}

#[test]
fn a_warning_is_told_and_sound() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "policy.yaml",
        "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: debug}
spec:
  effect: Deny
  subjects: [{kind: User, name: jane}]
  nonResourceRules: [{verbs: [get], paths: [\"/debug/*\"]}]
",
    );
    let run = portcullis.run("check policy.yaml");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("warning: "), "{run:?}");
    assert!(run.stdout.ends_with("valid, 1 warning\n"), "{run:?}");
}

#[test]
fn a_configuration_without_callers_has_the_fault_that_serve_would_name() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init .").code, 0);
    let configuration = std::fs::read_to_string(portcullis.path("portcullis.yaml")).unwrap();
    let (before, after) = configuration.split_once("callers:").unwrap();
    let (_, after) = after.split_once("manifests:").unwrap();
    portcullis.write("portcullis.yaml", &format!("{before}manifests:{after}"));
    for command in ["check", "serve"] {
        let run = portcullis.run(&format!("{command} --config portcullis.yaml"));
        assert_eq!(run.code, 1, "{run:?}");
        let said = run.stdout + &run.stderr;
        assert!(said.contains("callers: Required value: "), "{said}");
    }
}

#[test]
fn faults_as_json() {
    let portcullis = Portcullis::new();
    portcullis.write("faulty.yaml", FAULTY);
    let run = portcullis.run("check faulty.yaml -o json");
    assert_eq!(run.code, 1, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let faults = json["faults"].as_array().unwrap();
    assert_eq!(json["errors"], faults.len());
    assert_eq!(json["warnings"], 0);
    let effect = faults
        .iter()
        .find(|fault| fault["path"] == "spec.effect")
        .unwrap();
    assert_eq!(effect["severity"], "error");
    assert_eq!(effect["file"], "faulty.yaml");
    assert_eq!(effect["line"], 5);
    assert_eq!(effect["object"], "AuthorizationPolicy/faulty");
}

#[test]
fn a_path_that_is_not_there_is_2() {
    let portcullis = Portcullis::new();
    for arguments in ["check absent", "check --config absent.yaml", "check"] {
        let run = portcullis.run(arguments);
        assert_eq!(run.code, 2, "`{arguments}`: {run:?}");
        assert_eq!(run.stdout, "", "`{arguments}`");
    }
}

const PAST: &str = "apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: sidecars}
initializers:
- name: sidecar.example.com
  rules:
  - {apiGroups: ['*'], apiVersions: ['*'], resources: [pods, services]}
  - {apiGroups: [''], apiVersions: [v1], resources: [pods]}
- name: never.example.com
  rules:
  - {apiGroups: [apps], apiVersions: [v1], resources: [deployments]}
  - {apiGroups: [''], apiVersions: [v1], resources: [pods]}
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: hooks}
externalAdmissionHooks:
- name: hook.example.com
  clientConfig: {service: {namespace: infra, name: hook}, caBundle: Q0E=}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
";

#[test]
fn what_is_of_the_past_is_migrated() {
    let portcullis = Portcullis::new();
    portcullis.write("past.yaml", PAST);
    let run = portcullis.run("check --migrate past.yaml -o json");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let objects: Value = serde_json::from_str(&run.stdout).unwrap();
    let rule = &objects[0]["spec"]["matchResources"]["resourceRules"][0];
    assert_eq!(objects[0]["kind"], "MutatingAdmissionPolicyBinding");
    assert_eq!(objects[0]["spec"]["policyName"], "sidecar.example.com");
    assert_eq!(rule["apiGroups"], serde_json::json!([""]));
    assert_eq!(rule["resources"], serde_json::json!(["pods"]));
    let webhook = &objects[1]["webhooks"][0];
    assert_eq!(objects[1]["kind"], "ValidatingWebhookConfiguration");
    assert_eq!(webhook["clientConfig"]["caBundle"], "Q0E=");
    assert_eq!(webhook["failurePolicy"], "Ignore");
    assert_eq!(objects.as_array().unwrap().len(), 2);

    let yaml = portcullis.run("check --migrate past.yaml").stdout;
    assert!(
        yaml.contains(
            "# from InitializerConfiguration/sidecars, the initializer never.example.com\n# no resource"
        ),
        "{yaml}"
    );
    portcullis.write(
        "binding.yaml",
        yaml.split("# from InitializerConfiguration/sidecars, the initializer never")
            .next()
            .unwrap(),
    );
    let checked = portcullis.run("check binding.yaml");
    assert_eq!(checked.code, 0, "{checked:?}");
}

#[test]
fn how_api_servers_are_reached_is_checked_without_asking_them() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let file = portcullis.path("gateway/portcullis.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let section = "clusters: [{name: default, kubeconfig: default.kubeconfig, cacheFile: saved/default}]\n";
    portcullis.write("gateway/portcullis.yaml", &(config + section));
    portcullis.write(
        "gateway/default.kubeconfig",
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority: pki/ca.crt}}]\n\
         users: [{name: u, user: {exec: {command: aws}}}]\n",
    );
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "default.kubeconfig:4: users[0].user.exec: Forbidden: programs for credentials are not supported",
        "clusters[0].cacheFile: Not found: ",
        "2 errors",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {run:?}");
    }
}

const SUSPICIOUS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: typo}
rules:
- apiGroups: ['']
  resources: [pod]
  verbs: [gett]
";

#[test]
fn warnings_fail_only_where_they_are_meant_to() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/role.yaml", SUSPICIOUS);
    let run = portcullis.run("check policies");
    assert_eq!(run.code, 0, "{run:?}");
    for said in [
        "role.yaml:6: ClusterRole/typo: rules[0].resources[0]: warning: ",
        "did you mean `pods`?",
        "did you mean `get`?",
        "valid, 2 warnings\n",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {run:?}");
    }
    assert_eq!(portcullis.run("check --strict policies").code, 1);
    portcullis.write(
        "policies/role.yaml",
        &SUSPICIOUS.replace("[pod]", "[pods]").replace("gett", "get"),
    );
    assert_eq!(portcullis.run("check --strict policies").code, 0);
}

#[test]
fn sarif_names_file_and_line() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/role.yaml", SUSPICIOUS);
    let run = portcullis.run("check -o sarif policies");
    let log: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let of_resources = |result: &&Value| result["message"]["text"].as_str().unwrap().contains("`pod`");
    let result = results.iter().find(of_resources).unwrap();
    assert_eq!(result["level"], "warning");
    let location = &result["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "policies/role.yaml");
    assert_eq!(location["region"]["startLine"], 6);
    assert_eq!(
        portcullis
            .run("authorize -o sarif --user a --verb get --path /x")
            .code,
        2
    );
}

#[test]
fn faults_of_the_configuration_hide_none_of_what_it_names() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let configuration = std::fs::read_to_string(portcullis.path("gateway/portcullis.yaml")).unwrap();
    let (before, after) = configuration.split_once("callers:").unwrap();
    let (_, after) = after.split_once("manifests:").unwrap();
    portcullis.write(
        "gateway/portcullis.yaml",
        &format!(
            "{before}limits: {{inFlight: 0}}\nclusters: [{{name: east, kubeconfig: k, cacheFile: absent/east}}]\n\
             manifests:{after}"
        )
            .replace("path: \"-\"", "path: absent/log"),
    );
    portcullis.write("gateway/policies/faulty.yaml", FAULTY);
    portcullis.write("gateway/pki/ca.crt", "no certificate");
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "portcullis.yaml:14: limits.inFlight: Invalid value",
        "portcullis.yaml:15: clusters[0].cacheFile: Not found: `",
        "callers: Required value",
        "decisionLog.path: Not found: the folder",
        "faulty.yaml:5: AuthorizationPolicy/faulty: spec.effect: ",
        "ca.crt",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }
}

#[test]
fn a_folder_is_no_configuration() {
    let portcullis = Portcullis::new();
    portcullis.write("gateway/a.yaml", "");
    for command in ["check", "serve"] {
        let run = portcullis.run(&format!("{command} --config gateway"));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains("gateway"), "{run:?}");
    }
}

#[test]
fn a_lock_out_is_named_with_the_hash_that_confirms_it() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let deny = |annotations: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\n\
             metadata: {{name: all, annotations: {{{annotations}}}}}\n\
             spec: {{effect: Deny, subjects: [{{kind: User, name: '*'}}],\n  \
             resourceRules: [{{verbs: ['*'], apiGroups: ['*'], resources: ['*']}}]}}\n"
        )
    };
    portcullis.write("gateway/policies/all.yaml", &deny(""));
    let warned = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(warned.code, 0, "{warned:?}");
    assert!(
        warned.stdout.contains("warning") && warned.stdout.contains("locks out"),
        "{warned:?}"
    );
    let configured = std::fs::read_to_string(portcullis.path("gateway/portcullis.yaml")).unwrap();
    let refusing = configured + "\nreload: {refuse: [lockOut], lastGood: last-good}\n";
    portcullis.write("gateway/portcullis.yaml", &refusing);
    let refused = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .stdout
            .contains("held back by `reload.refuse`, it is not in force"),
        "{refused:?}"
    );
    let (_, annotation) = refused.stdout.split_once("set the annotation `").unwrap();
    let annotation = annotation.split_once('`').unwrap().0;
    portcullis.write("gateway/policies/all.yaml", &deny(annotation));
    let confirmed = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(confirmed.code, 0, "{confirmed:?}");
    assert!(!confirmed.stdout.contains("locks out"), "{confirmed:?}");
}

#[test]
fn a_value_that_is_not_supported_names_what_may_be_meant() {
    let portcullis = Portcullis::new();
    let policy = |effect: &str, mode: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: a}}\nspec:\n  \
             effect: {effect}\n  mode: {mode}\n  subjects: [{{kind: Group, name: g}}]\n  \
             resourceRules: [{{verbs: [get], apiGroups: [''], resources: [pods]}}]\n"
        )
    };
    portcullis.write("a.yaml", &policy("Deni", "shadow"));
    let run = portcullis.run("check a.yaml");
    for said in [
        "spec.effect: Unsupported value: `Deni`: supported values: `Allow`, `Deny`, `Limit`; did you mean `Deny`?",
        "spec.mode: Unsupported value: `shadow`: supported values: `Enforce`, `Shadow`; did you mean `Shadow`?",
    ] {
        assert!(run.stdout.contains(said), "{run:?}");
    }
    portcullis.write("a.yaml", &policy("Deny", "Sometimes"));
    let run = portcullis.run("check a.yaml");
    let said = "spec.mode: Unsupported value: `Sometimes`: supported values: `Enforce`, `Shadow`\n";
    assert!(run.stdout.contains(said), "{run:?}");
}

#[test]
fn a_deny_on_the_person_who_asks_is_warned_of() {
    let portcullis = Portcullis::new();
    let policy = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: freeze}\n\
                  spec:\n  effect: Deny\n  subjects: [{kind: Group, name: devs}, {kind: Group, name: 'ops-*'}]\n  \
                  excludeSubjects: [{kind: User, name: lead}]\n  \
                  resourceRules: [{verbs: [delete], apiGroups: [apps], resources: [deployments]}]\n";
    portcullis.write("policies/freeze.yaml", policy);
    for (asker, subject) in [
        ("jane,ops-eu", Some("spec.subjects[1]")),
        ("joe,devs", Some("spec.subjects[0]")),
        ("joe", None),
        ("lead,devs", None),
        ("root,devs,system:masters", None),
    ] {
        let run = portcullis.run(&format!("check policies --as {asker}"));
        assert_eq!(run.code, 0, "{run:?}");
        match subject {
            Some(subject) => {
                let warning = format!(
                    "AuthorizationPolicy/freeze: {subject}: warning: Suspicious: this Deny refuses you"
                );
                assert!(run.stdout.contains(&warning), "{asker}: {run:?}");
            }
            None => assert_eq!(run.stdout, "valid\n", "{asker}"),
        }
    }
    assert_eq!(portcullis.run("check policies --strict --as joe,devs").code, 1);
    let limit = policy.replace("effect: Deny", "effect: Limit");
    portcullis.write("limits/freeze.yaml", &limit);
    for (asker, is_limited) in [("joe,devs", true), ("lead,devs", false), ("joe", false)] {
        let run = portcullis.run(&format!("check limits --as {asker}"));
        let warning = "this Limit leaves you, `joe`, nothing but what its rules cover: to do";
        assert_eq!(run.stdout.contains(warning), is_limited, "{asker}: {run:?}");
        assert_eq!(run.stdout.contains("leaves you"), is_limited, "{asker}: {run:?}");
    }
    // The same by a configuration, whose neverDeny counts.
    assert_eq!(portcullis.run("init gateway").code, 0);
    portcullis.write("gateway/policies/freeze.yaml", policy);
    let check = "check --config gateway/portcullis.yaml --as joe,devs";
    let run = portcullis.run(check);
    assert!(run.stdout.contains("this Deny refuses you, `joe`"), "{run:?}");
    let file = portcullis.path("gateway/portcullis.yaml");
    let config = std::fs::read_to_string(&file).unwrap() + "authorization: {neverDeny: {users: [joe]}}\n";
    portcullis.write("gateway/portcullis.yaml", &config);
    let run = portcullis.run(check);
    assert!(run.code == 0 && !run.stdout.contains("refuses you"), "{run:?}");
}

/// An API server that serves nothing but to say that everybody is `jane` of `ops-eu`; its address.
fn api_server() -> std::net::SocketAddr {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let (mut request, mut length) = (String::new(), 0);
            lines.read_line(&mut request).unwrap();
            loop {
                let mut line = String::new();
                lines.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            lines.read_exact(&mut body).unwrap();
            let answer = if request.starts_with("POST /apis/authentication.k8s.io/v1/selfsubjectreviews ") {
                r#"{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"jane","groups":["ops-eu"]}}}"#
            } else if request.starts_with("GET /version ") {
                r#"{"major":"1","minor":"37"}"#
            } else {
                r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}"#
            };
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
        }
    });
    address
}

#[test]
fn the_user_of_a_kubeconfig_is_who_the_api_server_says() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "policies/freeze.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: freeze}\n\
         spec:\n  effect: Deny\n  subjects: [{kind: Group, name: 'ops-*'}]\n  \
         resourceRules: [{verbs: [delete], apiGroups: [apps], resources: [deployments]}]\n",
    );
    let address = api_server();
    portcullis.write(
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
        ),
    );
    let run = portcullis.run("check policies --kubeconfig kubeconfig");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("this Deny refuses you, `jane`"), "{run:?}");
    assert_eq!(
        portcullis
            .run("check policies --kubeconfig kubeconfig --as joe")
            .code,
        2
    );
    let nowhere = portcullis.run("check policies --kubeconfig nowhere");
    assert!(
        nowhere.code == 2 && nowhere.stderr.contains("nowhere"),
        "{nowhere:?}"
    );
}

#[test]
fn a_set_up_that_lacks_its_credentials_is_told_so_once() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway --watch").code, 0);
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert!(
        run.stdout.contains("gateway --credentials` writes this file"),
        "{run:?}"
    );
    assert!(run.stdout.ends_with("\n1 error, 0 warnings\n"), "{run:?}");
}

#[test]
fn a_key_that_is_missing_comes_with_the_command_that_makes_one() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    std::fs::remove_file(portcullis.path("gateway/pki/server.key")).unwrap();
    let check = "check --config gateway/portcullis.yaml";
    let run = portcullis.run(check);
    assert!(
        run.code == 1 && run.stdout.contains("`portcullis init DIR --renew`"),
        "{run:?}"
    );
    assert_eq!(portcullis.run("init gateway --renew").code, 0);
    assert_eq!(portcullis.run(check).stdout, "valid\n");
}

#[test]
fn what_policies_say_in_vain_is_a_warning() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "policies.yaml",
        r#"apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: readers}
rules: [{verbs: [get, list], apiGroups: ["*"], resources: [configmaps]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: readers}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: readers}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: readers-read}
spec:
  effect: Allow
  subjects: [{kind: Group, name: readers}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [configmaps]}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-production}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  excludeSubjects: [{kind: ServiceAccount, namespace: ci, name: deployer}]
  resourceRules:
  - {verbs: [delete], apiGroups: [""], resources: [secrets], namespaces: [prod-*]}
  - {verbs: [delete], apiGroups: [""], resources: [pods], namespaces: [dev]}
  conditions:
  - {name: prod, expression: "request.resourceAttributes.namespace.startsWith('prod-')"}
  failurePolicy: NoOpinion
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-production-secrets}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  resourceRules: [{verbs: [delete], apiGroups: [""], resources: [secrets], namespaces: [prod-a], names: [db]}]
  conditions: [{name: named, expression: "request.resourceAttributes.name.size() <= 2"}]
"#,
    );
    let run = portcullis.run("check policies.yaml");
    for said in [
        "14: AuthorizationPolicy/readers-read: metadata.name: warning: Suspicious: this Allow changes nothing: all that \
         it allows is granted by `ClusterRoleBinding readers`",
        "26: AuthorizationPolicy/no-production: spec.excludeSubjects[0]: warning: Suspicious: this excludes nobody",
        "29: AuthorizationPolicy/no-production: spec.resourceRules[1]: warning: Suspicious: this rule never applies",
        "41: AuthorizationPolicy/no-production-secrets: spec.conditions[0]: warning: Suspicious: this condition makes \
         no difference",
    ] {
        assert!(
            run.stdout.contains(&format!("policies.yaml:{said}")),
            "{said}: {run:?}"
        );
    }
    // A list of all namespaces is one that it denies, too, and the other one does not.
    assert!(!run.stdout.contains("this policy changes nothing"), "{run:?}");
    assert!(run.stdout.contains("valid, 4 warnings"), "{run:?}");
}

#[test]
fn what_admission_does_not_enforce_of_denies_and_limits_is_named() {
    let portcullis = Portcullis::new();
    let policy = |name: &str, effect: &str, rules: &str| {
        format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\n\
             spec:\n  effect: {effect}\n  subjects: [{{kind: User, name: jane}}]\n  {rules}\n"
        )
    };
    let rules = |verbs: &str, resource: &str| {
        format!("resourceRules: [{{verbs: [{verbs}], apiGroups: [''], resources: [{resource}]}}]")
    };
    let writes = rules("create, update, patch, delete, deletecollection", "pods");
    portcullis.write(
        "policies/all.yaml",
        &[
            policy("writes", "Deny", &writes),
            policy("exec", "Deny", &rules("get, create", "pods/exec")),
            policy("reads", "Deny", &rules("get, delete", "pods")),
            policy("update", "Deny", &rules("update", "pods")),
            policy("half-exec", "Deny", &rules("create", "pods/exec")),
            policy(
                "paths",
                "Deny",
                "nonResourceRules: [{verbs: [get], paths: [/metrics]}]",
            ),
            policy("limit", "Limit", &rules("get, create", "pods")),
            policy("allow", "Allow", &rules("get", "pods")),
        ]
        .concat(),
    );
    let warned = |admission: &str| {
        portcullis.write(
            "portcullis.yaml",
            &format!(
                "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
                 server: {{address: '127.0.0.1:8443', tls: {{certificate: a.crt, privateKey: a.key}}}}\n\
                 manifests: [policies]\n{admission}"
            ),
        );
        let run = portcullis.run("check --config portcullis.yaml -o json");
        let said: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
        let faults = said["faults"].as_array().unwrap().iter();
        let ours = faults.filter(|fault| {
            fault["message"]
                .to_string()
                .contains("admission.enforceAuthorization")
        });
        ours.map(|fault| {
            format!("{} {}: {}", fault["object"], fault["path"], fault["message"]).replace('"', "")
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(warned(""), [""; 0]);
    let expected = [
        "reads spec.resourceRules[0].verbs: not enforced by `admission.enforceAuthorization`: requests with `get` do not pass",
        "update spec.resourceRules[0].verbs: not enforced by `admission.enforceAuthorization`: admission \
        cannot distinguish `update` from `patch`: name both",
        "half-exec spec.resourceRules[0].verbs: not enforced by `admission.enforceAuthorization`: a \
        connection to `pods/exec` does not show its verb",
        "paths spec.nonResourceRules: not enforced by `admission.enforceAuthorization`: requests for paths",
        "limit spec.effect: `admission.enforceAuthorization` refuses writes and connections beyond this \
        limit, but not",
    ];
    let found = warned("admission: {enforceAuthorization: true}\n");
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\n{expected}");
    }
}
