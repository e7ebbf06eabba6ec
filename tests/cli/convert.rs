//! `portcullis convert`.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

/// What `docs/cli.md` converts.
const DENY: &str = r#"apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: production-guard}
spec:
  effect: Deny
  subjects: [{kind: Group, name: dev}]
  excludeSubjects: [{kind: User, name: jane}]
  resourceRules:
  - {verbs: [delete], apiGroups: [apps], resources: [deployments], namespaces: ["prod-*"]}
  reason: only the platform team deletes in production
"#;

const READS: &str = r#"apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-secrets}
spec:
  effect: Deny
  subjects: [{kind: Group, name: dev}]
  resourceRules:
  - {verbs: [get, patch], apiGroups: [""], resources: [secrets]}
  notAfter: 2027-01-01T00:00:00Z
"#;

const KYVERNO: &str = r#"apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-host-network}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  validations:
  - expression: "object.spec.?hostNetwork.orValue(false) == false"
    message: the network of the host is not for pods
---
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: no-token}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{automountServiceAccountToken: false}}"}
"#;

fn in_folder() -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("guard.yaml", DENY);
    portcullis.write("no-secrets.yaml", READS);
    portcullis.write("kyverno.yaml", KYVERNO);
    portcullis
}

fn converted(portcullis: &Portcullis, file: &str) -> Run {
    let run = portcullis.run(&format!("convert {file}"));
    // Of several policies it says how many were converted, and nothing else.
    let says_more = |line: &str| !line.ends_with(" policies converted");
    assert_eq!(
        (run.code, run.stderr.lines().any(says_more)),
        (0, false),
        "{run:?}"
    );
    portcullis.write("converted/policies.yaml", &run.stdout);
    let check = portcullis.run("check converted");
    assert_eq!(check.code, 0, "{check:?}");
    run
}

fn admit(portcullis: &Portcullis, object: &Value, flags: &str) -> Run {
    portcullis.write("object.json", &object.to_string());
    portcullis.run(&format!(
        "admit --manifests converted -f object.json -o json {flags}"
    ))
}

#[test]
fn the_documents_show_what_it_prints() {
    let shown = include_str!("../../docs/cli.md");
    let portcullis = in_folder();
    let guard = portcullis.run("convert guard.yaml");
    assert_eq!((guard.code, guard.stderr.as_str()), (0, ""), "{guard:?}");
    let reads = portcullis.run("convert no-secrets.yaml");
    assert_eq!((reads.code, reads.stdout.as_str()), (1, ""), "{reads:?}");
    for (command, output) in [
        ("convert guard.yaml", &guard.stdout),
        ("convert no-secrets.yaml", &reads.stderr),
    ] {
        let transcript = format!("$ portcullis {command}\n{output}```");
        assert!(shown.contains(&transcript), "{transcript}");
    }
    assert!(shown.contains(DENY), "{DENY}");
}

#[test]
fn a_deny_is_admissions_after_conversion() {
    let portcullis = in_folder();
    converted(&portcullis, "guard.yaml");
    let deployment = |namespace: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace}});
    for (namespace, flags, code) in [
        ("prod-web", "--user jim --group dev", 1),
        ("prod-web", "--user jane --group dev", 0),
        ("prod-web", "--user jim --group ops", 0),
        ("test", "--user jim --group dev", 0),
    ] {
        let run = admit(
            &portcullis,
            &deployment(namespace),
            &format!("--operation DELETE {flags}"),
        );
        assert_eq!(run.code, code, "{namespace} {flags} {run:?}");
    }
    let created = admit(&portcullis, &deployment("prod-web"), "--user jim --group dev");
    assert_eq!(created.code, 0, "{created:?}");
}

#[test]
fn kyvernos_policies_decide_the_same_after_conversion() {
    let portcullis = in_folder();
    converted(&portcullis, "kyverno.yaml");
    let pod = |host_network: Value| json!({"hostNetwork": host_network, "containers": []});
    let in_pod =
        |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
    let in_deployment = |spec: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "p"},
            "spec": {"template": {"spec": spec}}})
    };
    let in_cron_job = |spec: Value| {
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "p"},
            "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})
    };
    for (host_network, code) in [(json!(true), 1), (json!(false), 0)] {
        for object in [
            in_pod(pod(host_network.clone())),
            in_deployment(pod(host_network.clone())),
            in_cron_job(pod(host_network.clone())),
        ] {
            let run = admit(&portcullis, &object, "");
            assert_eq!(run.code, code, "{object} {run:?}");
            assert_eq!(
                run.stdout.contains("the network of the host is not for pods"),
                code == 1
            );
        }
    }
    let run = portcullis.run("admit --manifests converted -f object.json --phase mutate");
    assert!(
        run.stdout
            .contains("/spec/jobTemplate/spec/template/spec/automountServiceAccountToken"),
        "{run:?}"
    );
}

#[test]
fn programs_get_objects_and_reasons() {
    let portcullis = in_folder();
    let run = portcullis.run("convert guard.yaml no-secrets.yaml -o json");
    assert_eq!(run.code, 1, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["objects"].as_array().unwrap().len(), 2);
    assert_eq!(
        report["refused"][0],
        json!({"file": "no-secrets.yaml", "line": 9, "object": "AuthorizationPolicy/no-secrets",
            "path": "spec.notAfter",
            "reason": "expressions of admission policies know no clock: apply and delete the object at these times"})
    );
    assert_eq!(report["refused"][1]["line"], 8);
    assert_eq!(report["notes"], json!([]));
}

#[test]
fn each_policy_gets_a_file_and_the_reasons_are_counted() {
    let portcullis = in_folder();
    let run = portcullis.run("convert guard.yaml no-secrets.yaml kyverno.yaml --into out/policies");
    assert_eq!(run.code, 1, "{run:?}");
    let files = [
        "no-host-network-autogen-cronjobs",
        "no-host-network-autogen-defaults",
        "no-host-network",
        "no-token-autogen-cronjobs",
        "no-token-autogen-defaults",
        "no-token",
        "production-guard",
    ];
    let written: String = files
        .iter()
        .map(|name| format!("out/policies/{name}.yaml\n"))
        .collect();
    assert_eq!(run.stdout, written);
    assert!(
        run.stderr
            .contains("3 of 4 policies converted, by policies and reason:\n    1  "),
        "{run:?}"
    );
    assert_eq!(portcullis.run("check out/policies").code, 0);
    let file = std::fs::read_to_string(portcullis.path("out/policies/no-token.yaml")).unwrap();
    assert_eq!(file.matches("---\n").count(), 2);
    let run = portcullis.run("convert guard.yaml no-secrets.yaml -o json");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["summary"]["converted"], 1);
    assert_eq!(report["summary"]["refused"], 1);
    assert_eq!(report["summary"]["reasons"][0]["policies"], 1);
    assert_eq!(report["files"], Value::Null);
}

const KYVERNO_RULES: &str = r#"apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: images}
spec:
  rules:
  - name: no-latest
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: no latest, pattern: {spec: {containers: [{image: "!*:latest"}]}}}
  - name: always
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {spec: {containers: [{"(name)": "*", imagePullPolicy: Always}]}}}
"#;

const KYVERNO_TEST: &str = r#"apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: images}
policies: [../policy.yaml]
resources: [objects.yaml]
results:
- {policy: images, rule: no-latest, kind: Pod, resources: [latest], result: fail}
- {policy: images, rule: no-latest, kind: Pod, resources: [pinned, system], result: pass}
- {policy: images, rule: no-latest, kind: Deployment, resources: [latest], result: fail}
- {policy: images, rule: always, kind: Pod, resources: [pinned], patchedResources: patched.yaml, result: pass}
"#;

/// A Pod of `image`, whose container has `fields` besides.
fn pod(name: &str, namespace: &str, image: &str, fields: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{containers: [{{name: a, image: \
         {image}, resources: {{}}{fields}}}]}}\n---\n"
    )
}

#[test]
fn kyvernos_tests_are_suites_of_the_converted_policies() {
    let portcullis = in_folder();
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: latest}\nspec: {template: {spec: {containers: \
                      [{name: a, image: 'x:latest', resources: {}}]}}}\n";
    let objects = [
        pod("latest", "web", "x:latest", ""),
        pod("pinned", "web", "x:1", ""),
        pod("system", "kube-system", "x:1", ""),
        deployment.to_owned(),
    ];
    portcullis.write("rules/policy.yaml", KYVERNO_RULES);
    portcullis.write("rules/test/kyverno-test.yaml", KYVERNO_TEST);
    portcullis.write("rules/test/objects.yaml", &objects.concat());
    portcullis.write(
        "rules/test/patched.yaml",
        &pod("pinned", "web", "x:1", ", imagePullPolicy: Always"),
    );
    let run = portcullis.run("convert rules --test suites");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("1 tests with 4 cases in suites"), "{run:?}");
    assert!(
        run.stderr
            .contains("not tested: `system` is in a namespace that Kyverno's webhooks leave out"),
        "{run:?}"
    );
    let tested = portcullis.run("test suites");
    assert_eq!(tested.code, 0, "{tested:?}");
    assert!(tested.stdout.contains("4 passed, 0 failed"), "{tested:?}");
    // A case that expects otherwise fails.
    portcullis.write(
        "rules/test/kyverno-test.yaml",
        &KYVERNO_TEST.replace(
            "resources: [latest], result: fail",
            "resources: [latest], result: pass",
        ),
    );
    assert_eq!(portcullis.run("convert rules --test suites").code, 0);
    assert!(
        portcullis
            .run("test suites")
            .stdout
            .contains("2 passed, 2 failed")
    );
    portcullis.write(
        "rules/test/kyverno-test.yaml",
        &KYVERNO_TEST.replace("objects.yaml", "others.yaml"),
    );
    let run = portcullis.run("convert rules --test suites");
    assert!(
        run.stderr.contains("`others.yaml` is not among the files"),
        "{run:?}"
    );
}

#[test]
fn what_of_a_kyverno_test_becomes_no_case_is_said() {
    let portcullis = in_folder();
    portcullis.write("rules/policy.yaml", KYVERNO_RULES);
    portcullis.write("rules/test/objects.yaml", &pod("pinned", "web", "x:1", ""));
    let converted = |results: &str| {
        let (before, _) = KYVERNO_TEST.split_once("results:\n").unwrap();
        portcullis.write("rules/test/kyverno-test.yaml", &format!("{before}{results}"));
        portcullis.run("convert rules --test suites").stderr
    };
    for (result, said) in [
        (
            "{policy: others, rule: no-latest, kind: Pod, resources: [pinned], result: pass}",
            "`others` is no policy",
        ),
        (
            "{policy: images, rule: no-latset, kind: Pod, resources: [pinned], result: pass}",
            "has no rule `no-latset`",
        ),
        (
            "{policy: images, rule: no-latest, kind: Pod, result: pass}",
            "it names no object",
        ),
        (
            "{policy: images, rule: no-latest, resourceSpecs: [{name: pinned}], result: pass}",
            "`resourceSpecs`",
        ),
        (
            "{policy: images, rule: always, kind: Pod, resources: [pinned], patchedResources: missing.yaml, result: pass}",
            "`missing.yaml`",
        ),
    ] {
        let stderr = converted(&format!("results:\n- {result}\n"));
        assert!(
            stderr.contains(said) && stderr.contains("0 tests with 0 cases"),
            "{stderr}"
        );
    }
    let stderr = converted("checks: [{assert: {}}]\n");
    assert!(stderr.contains("checks: not tested: "), "{stderr}");
    // An object of a megabyte is not copied a thousand times.
    let data = format!("\ndata: {{a: {}}}\n---\n", "x".repeat(1 << 20));
    let large = pod("pinned", "web", "x:1", "").replace("\n---\n", &data);
    portcullis.write("rules/test/objects.yaml", &large);
    let names = vec!["pinned"; 100].join(", ");
    let stderr = converted(&format!(
        "results:\n- {{policy: images, rule: no-latest, kind: Pod, resources: [{names}], result: pass}}\n"
    ));
    assert!(
        stderr.contains("the cases of all tests have more than 67108864 bytes"),
        "{stderr}"
    );
    assert!(stderr.contains("1 tests with 63 cases"), "{stderr}");
}

#[test]
fn never_deny_is_that_of_the_configuration() {
    let portcullis = in_folder();
    assert_eq!(portcullis.run("init gate").code, 0);
    let path = "gate/portcullis.yaml";
    let config = std::fs::read_to_string(portcullis.path(path)).unwrap();
    portcullis.write(
        path,
        &format!("{config}\nauthorization: {{neverDeny: {{users: [root-agent]}}}}\n"),
    );
    let by_default = portcullis.run("convert guard.yaml").stdout;
    assert!(by_default.contains("system:kube-scheduler") && !by_default.contains("root-agent"));
    let run = portcullis.run("convert guard.yaml --config gate/portcullis.yaml");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains("root-agent") && !run.stdout.contains("system:kube-scheduler"),
        "{run:?}"
    );
}

#[test]
fn what_cannot_be_read_is_2_and_what_is_nothing_to_convert_1() {
    let portcullis = in_folder();
    portcullis.write("broken.yaml", "a: [\n");
    portcullis.write(
        "other.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}\n",
    );
    portcullis.write(
        "policy.yaml",
        "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: a}, spec: {}}\n",
    );
    for (file, code, told) in [
        ("nowhere.yaml", 2, "nowhere.yaml"),
        ("broken.yaml", 2, "broken.yaml:"),
        ("other.yaml", 1, "there are no policies to convert"),
        (
            "policy.yaml",
            1,
            "policy.yaml:1: ClusterPolicy/a: spec.rules: not converted: it has no rule",
        ),
    ] {
        let run = portcullis.run(&format!("convert {file}"));
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{run:?}");
        assert!(run.stderr.contains(told), "{run:?}");
    }
}

/// What acts on a terminal or a CI service is escaped as YAML has it, so that the policy stays the same.
#[test]
fn hostile_text_in_an_expression_keeps_its_meaning() {
    for literal in [
        "r'\u{202e}'",
        "'''x\n::error::y'''",
        "r'^##[0-9]+$'",
        "'\u{7f}\u{2028}'",
    ] {
        let portcullis = Portcullis::new();
        let expression =
            format!("!has(object.data) ||\n !object.data.exists(k, object.data[k].contains({literal}))");
        let policy = json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": {"name": "a"},
            "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["configmaps"]}]},
                "validations": [{"expression": expression, "message": "m"}],
            },
        });
        portcullis.write("policy.json", &policy.to_string());
        let run = portcullis.run("convert policy.json");
        assert_eq!(run.code, 0, "{run:?}");
        let documents = portcullis_policy::document::parse(None, &run.stdout).unwrap();
        let found = documents[0].root().to_json();
        assert_eq!(
            found["spec"]["validations"][0]["expression"], expression,
            "{}",
            run.stdout
        );
    }
}

#[test]
fn what_is_converted_passes_the_strictest_check() {
    let portcullis = Portcullis::new();
    let policy = |name: &str, validate: &str| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  validationFailureAction: \
             Enforce\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}\n    validate:\n      \
             message: no\n      allowExistingViolations: false\n      {validate}\n---\n"
        )
    };
    portcullis.write(
        "kyverno.yaml",
        &(policy("pattern", "pattern: {metadata: {labels: {owner: \"?*\"}}}")
            + &policy(
                "keys",
                "foreach: [{list: request.object.spec.containers, deny: {conditions: {any: [{key: livenessProbe, \
                 operator: AnyNotIn, value: \"{{ element.keys(@) }}\"}]}}}]",
            )),
    );
    let converted = portcullis.run("convert kyverno.yaml");
    assert_eq!(converted.code, 0, "{converted:?}");
    portcullis.write("converted.yaml", &converted.stdout);
    let run = portcullis.run("check --strict converted.yaml");
    assert_eq!((run.code, run.stdout.as_str()), (0, "valid\n"), "{run:?}");
}
