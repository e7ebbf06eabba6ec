//! `portcullis scan`.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["", apps], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [pods, deployments]}]}
  validations: [{expression: "'owner' in object.metadata.?labels.orValue({})", message: no owner}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner-prod}
spec: {policyName: owner, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner-elsewhere}
spec: {policyName: owner, validationActions: [Warn, Audit], matchResources: {namespaceSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [prod]}]}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: root}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
  - expression: "!has(object.spec.hostPID) || params.data.hostPID == 'allow'"
    messageExpression: "'host PID of ' + object.metadata.ownerReferences[0].name"
  - expression: "object.spec.containers.size() < 3 || request.userInfo.username == 'root'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: root}
spec: {policyName: root, validationActions: [Deny], paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Deny}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: immutable}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]}
  validations: [{expression: "oldObject == null || oldObject.spec == object.spec"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: immutable}
spec: {policyName: immutable, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keep}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [services]}]}
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keep}
spec: {policyName: keep, validationActions: [Deny]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AdmissionException
metadata: {name: legacy-db}
spec:
  policies: [owner]
  match: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments], resourceNames: [db]}]}
  notAfter: 2027-01-31T00:00:00Z
  reason: SEC-123
---
apiVersion: portcullis.dev/v1alpha1
kind: AdmissionException
metadata: {name: for-dba}
spec:
  policies: [owner]
  subjects: [{kind: Group, name: dba}]
  match: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments], resourceNames: [web]}]}
  notAfter: 2027-01-31T00:00:00Z
  reason: SEC-124
"#;

/// As helm renders a chart: comments, empty documents, a list.
const CHART: &str = r#"---
# Source: shop/templates/empty.yaml
---
# Source: shop/templates/namespace.yaml
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {tier: prod}}
---
---
# Source: shop/templates/limits.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: shop}
data: {hostPID: deny}
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
  spec:
    template:
      metadata: {labels: {owner: shop}}
      spec: {hostPID: true, containers: [{name: a}]}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: db, namespace: shop}
  spec:
    template:
      metadata: {labels: {owner: shop}}
      spec: {containers: [{name: a}, {name: b}, {name: c}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tool, namespace: shop, labels: {owner: me}}
spec: {containers: [{name: a}]}
"#;

const AT: &str = "--at 2026-12-01T00:00:00Z";

fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("policies/policies.yaml", POLICIES);
    portcullis.write("chart/all.yaml", CHART);
    portcullis
}

fn scan(arguments: &str, input: &str) -> Run {
    let arguments = format!("scan --manifests policies {AT} {arguments}");
    set_up().run_with(&arguments.split_whitespace().collect::<Vec<_>>(), input)
}

#[test]
fn each_object_is_judged_with_what_the_same_input_says() {
    let run = scan("-f -", CHART);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
-:21:3: Deployment/shop/web: fail: no owner (AdmissionException `for-dba` does not apply: it has subjects, and the scan has no user) (policy `owner`, binding `owner-prod`)
-:25:14: Deployment/shop/web: fail: the Pod that it creates: host PID of web (policy `root`, binding `root`)
skip: policy `immutable`: `oldObject` is not known during a scan: -:34: Service/shop/web
skip: policy `keep`: its rules do not match CREATE: ValidatingAdmissionPolicy/keep
skip: policy `owner`: AdmissionException `legacy-db` lets pass: no owner (until 2027-01-31T00:00:00Z: SEC-123): -:26: Deployment/shop/db
skip: policy `root`: the Pod that it creates: `request.userInfo` is not known during a scan: -:26: Deployment/shop/db
no policy: 1 ConfigMap: no rule of any policy matches it: -:11: ConfigMap/shop/limits
no policy: 1 Namespace: no rule of any policy matches it: -:5: Namespace/shop
6 objects: 4 pass, 2 fail, 0 warn, 0 error, 4 skip, 2 matched by no policy
"
    );
}

#[test]
fn json_is_as_documented() {
    let run = scan("-f chart -o json", "");
    assert_eq!(run.code, 1, "{run:?}");
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        printed["summary"],
        json!({"pass": 4, "fail": 2, "warn": 0, "error": 0, "skip": 4})
    );
    let results = printed["results"].as_array().unwrap();
    assert_eq!(results.len(), 10);
    assert_eq!(
        results[4],
        json!({
            "file": "chart/all.yaml", "line": 28, "column": 3, "kind": "Deployment", "namespace": "shop", "name": "db",
            "policy": "owner", "binding": "owner-prod", "result": "skip",
            "message": "AdmissionException `legacy-db` lets pass: no owner (until 2027-01-31T00:00:00Z: SEC-123)",
            "exception": "legacy-db",
        })
    );
}

#[test]
fn what_only_warns_is_sound() {
    let chart = CHART
        .replace("tier: prod", "tier: test")
        .replace("hostPID: true, ", "");
    let run = scan("-f -", &chart);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains(
            "-:21:3: Deployment/shop/web: warn: no owner (policy `owner`, binding `owner-elsewhere`)"
        ),
        "{}",
        run.stdout
    );
    let empty = scan("-f - -o json", "# nothing\n---\n");
    assert_eq!(empty.code, 2, "{empty:?}");
    assert!(
        empty
            .stderr
            .contains("nothing was scanned: there is no object in `-`"),
        "{empty:?}"
    );
    let printed: Value = serde_json::from_str(&empty.stdout).unwrap();
    assert_eq!(printed["results"].as_array().map(Vec::len), Some(1), "{empty:?}");
}

#[test]
fn what_cannot_be_said_of_a_namespace_is_an_error() {
    let run = scan(
        "-f -",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: lost}\nspec: {containers: []}\n",
    );
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("-:1: Pod/lost/p: error:"), "{}", run.stdout);
    assert!(
        run.stdout
            .contains("(policy `owner`, binding `owner-elsewhere` and 1 more)"),
        "{}",
        run.stdout
    );

    // For each object it is said once, and what is to be done about it once.
    let pods = ["a", "b", "c"].map(|name| {
        format!("---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {name}}}\nspec: {{containers: []}}\n")
    });
    let run = scan("-f -", &pods.concat());
    assert_eq!(
        run.stdout.matches("namespaces \"b\" not found").count(),
        1,
        "{run:?}"
    );
    assert!(!run.stdout.contains("does not know this namespace"), "{run:?}");
    let note = "portcullis: note: policies select namespaces by labels, but the labels of `a`, `b`, `c` are not \
        known: ";
    assert!(
        run.stderr.starts_with(note) && run.stderr.lines().count() == 1,
        "{run:?}"
    );
    let flags = [
        "`--namespace-labels a:KEY=VALUE`",
        "`--missing-namespace NameOnly`",
    ];
    assert!(flags.iter().all(|flag| run.stderr.contains(flag)), "{run:?}");
}

#[test]
fn sarif_names_file_and_line() {
    let run = scan("-f chart -o sarif", "");
    assert_eq!(run.code, 1, "{run:?}");
    let log: Value = serde_json::from_str(&run.stdout).unwrap();
    crate::sarif::assert_valid(&log);
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    assert_eq!(results[1]["ruleId"], "root");
    let physical = &results[1]["locations"][0]["physicalLocation"];
    assert_eq!(physical["artifactLocation"]["uri"], "chart/all.yaml");
    assert_eq!(physical["region"], json!({"startLine": 25, "startColumn": 14}));
}

#[test]
fn junit_has_a_case_for_each_object() {
    let run = scan("-f chart -o junit", "");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        r#"<testsuite name="portcullis scan" tests="4" failures="1" errors="0" skipped="2">"#,
        r#"<testcase name="Deployment/shop/web" classname="chart/all.yaml" file="chart/all.yaml" line="19">"#,
        r#"<failure message="owner: fail: no owner "#,
        r#"<testcase name="Pod/shop/tool" classname="chart/all.yaml" file="chart/all.yaml" line="39"/>"#,
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }
}

#[test]
fn open_reports_are_one_a_namespace() {
    let run = scan("-f chart -o openreports", "");
    assert_eq!(run.code, 1, "{run:?}");
    let list: Value = serde_json::from_str(&run.stdout).unwrap();
    let items = list["items"].as_array().unwrap();
    let kinds: Vec<&Value> = items.iter().map(|item| &item["kind"]).collect();
    assert_eq!(kinds, ["ClusterReport", "Report"]);
    assert_eq!(items[1]["metadata"]["namespace"], "shop");
    assert_eq!(
        items[1]["summary"],
        json!({"pass": 4, "fail": 2, "warn": 0, "error": 0, "skip": 3})
    );
    assert_eq!(items[1]["results"].as_array().map(Vec::len), Some(5));
    assert_eq!(
        items[1]["configuration"]["limits"],
        json!({"maxResults": 1000, "statusFilter": ["fail", "error", "warn", "skip"]})
    );
}

#[test]
fn a_mutation_comes_first_and_one_that_needs_the_user_leaves_nothing_to_say() {
    let mutation = |expression: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {{name: label}}\n\
             spec:\n  matchConstraints: {{resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}}]}}\n  \
             reinvocationPolicy: Never\n  mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: \"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'owner': {expression}}}}}]\"}}}}]\n\
             ---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {{name: label}}\nspec: {{policyName: label}}\n"
        )
    };
    let portcullis = set_up();
    portcullis.write("policies/label.yaml", &mutation("'somebody'"));
    let scan = format!("scan --manifests policies {AT} -f chart");
    let run = portcullis.run(&scan);
    assert!(!run.stdout.contains("no owner"), "{}", run.stdout);
    portcullis.write("policies/label.yaml", &mutation("request.userInfo.username"));
    let run = portcullis.run(&scan);
    assert!(!run.stdout.contains("no owner"), "{}", run.stdout);
    let said = "skip: policy `label`: `request.userInfo` is not known during a scan: the result of this \
        MutatingAdmissionPolicy is not known, nor that of the policies which see the changed object: \
        chart/all.yaml:19: Deployment/shop/web and 1 more";
    assert!(run.stdout.contains(said), "{}", run.stdout);
}

#[test]
fn an_object_that_no_policy_could_judge_is_no_silent_success() {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{port: 80}]}}";
    for (arguments, code) in [
        ("-f -", 0),
        ("-f - --require-match", 1),
        ("-f - -o json --require-match", 1),
    ] {
        let run = scan(arguments, service);
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.stderr.contains("1 object evaluated by no policy"), "{run:?}");
    }
    let run = scan("-f -", CHART);
    assert!(run.stderr.contains("1 object evaluated by no policy"), "{run:?}");
}

#[test]
fn webhooks_are_not_called_and_that_is_said() {
    let portcullis = set_up();
    portcullis.write(
        "policies/hooks.yaml",
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: guard}\n\
         webhooks: [{name: h.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://h.example.com/'}, \
         rules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}]}]\n",
    );
    let run = portcullis.run(&format!("scan --manifests policies {AT} -f chart"));
    assert!(
        run.stdout
            .ends_with("6 objects: 4 pass, 2 fail, 0 warn, 0 error, 4 skip, 2 matched by no policy\n"),
        "{run:?}"
    );
    assert!(
        run.stderr.contains(
            "note: webhooks are not called, so what they would refuse or change is not reported: \
            guard/h.example.com"
        ),
        "{run:?}"
    );
}

#[test]
fn a_namespace_is_for_objects_that_name_none() {
    let chart = format!(
        "{CHART}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: bare}}\nspec: {{containers: []}}\n"
    );
    let run = scan("-f - -n shop", &chart);
    assert!(run.stdout.contains("Pod/shop/bare: fail: no owner"), "{run:?}");
    let run = scan("-f - -n elsewhere", &chart);
    assert!(run.stdout.contains("Pod/elsewhere/bare: error"), "{run:?}");
    assert!(run.stdout.contains("Deployment/shop/web: fail"), "{run:?}");
}

#[test]
fn a_kind_that_is_not_known_needs_its_definition() {
    let run = scan(
        "-f -",
        "apiVersion: example.com/v1\nkind: Fox\nmetadata: {name: f}\n",
    );
    assert!(
        run.stderr.ends_with(
            "note: the kind `Fox` of `example.com/v1` is not known: assuming the namespaced resource `foxs`; \
            add its CustomResourceDefinition to the manifests\n"
        ),
        "{run:?}"
    );
}

/// What kubectl takes for a list, whatever its kind says.
#[test]
fn what_stands_in_items_does_not_pass_unread() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: []}}";
    let run = scan(
        "-f -",
        &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: shop}}\nitems: [{pod}]\n"),
    );
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr.contains("-:4: ConfigMap/shop/a: items: Invalid value"),
        "{run:?}"
    );
}

#[test]
fn an_owner_in_a_manifest_hides_no_pods() {
    let workload = |metadata: &str| {
        format!(
            "{CHART}---\napiVersion: apps/v1\nkind: ReplicaSet\n\
             metadata: {{name: db, namespace: shop{metadata}}}\n\
             spec: {{template: {{spec: {{hostPID: true, containers: [{{name: a}}]}}}}}}\n"
        )
    };
    let owner =
        ", ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: d, uid: u, controller: true}]";
    for metadata in ["", owner] {
        let run = scan("-f -", &workload(metadata));
        assert!(
            run.stdout
                .contains("ReplicaSet/shop/db: fail: the Pod that it creates: host PID of db"),
            "{metadata}: {run:?}"
        );
    }
}

/// A definition with these names, in the group of Certificates.
fn definition(plural: &str, kind: &str) -> String {
    format!(
        "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: {plural}.example.com}}\n\
         spec: {{group: example.com, scope: Namespaced, names: {{kind: {kind}, plural: {plural}}}, versions: []}}\n"
    )
}

fn refusal_of(group: &str, resource: &str) -> String {
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
         metadata: {{name: none}}\nspec:\n  validations: [{{expression: 'false'}}]\n  \
         matchConstraints: {{resourceRules: [{{apiGroups: ['{group}'], apiVersions: ['*'], operations: [CREATE], \
         resources: [{resource}]}}]}}\n\
         ---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
         metadata: {{name: none}}\nspec: {{policyName: none, validationActions: [Deny]}}\n"
    )
}

#[test]
fn a_definition_of_the_input_takes_nothing_out_of_policies() {
    let certificate =
        "---\napiVersion: example.com/v1\nkind: Certificate\nmetadata: {name: a, namespace: shop}\n";
    let (certs, foos) = (
        definition("certs", "Certificate"),
        definition("foos", "Certificate"),
    );
    let of_certs = refusal_of("example.com", "certs");
    for (policies, definitions, code, says) in [
        // Another one of the policies' files, or of the input, says otherwise.
        (
            format!("{of_certs}{certs}"),
            foos.clone(),
            2,
            "is `certs` (namespaced) by",
        ),
        (
            of_certs.clone(),
            format!("{certs}{foos}"),
            2,
            "is `certs` (namespaced) by",
        ),
        // What policies name is what the kind would be without any definition.
        (
            refusal_of("example.com", "certificates"),
            foos.clone(),
            2,
            "policies name `certificates`",
        ),
        (
            refusal_of("*", "certificates/*"),
            foos,
            2,
            "policies name `certificates`",
        ),
        // One that says the same, or that nothing contradicts, is believed.
        (format!("{of_certs}{certs}"), certs.clone(), 1, ""),
        (of_certs.clone(), certs.clone(), 1, ""),
        (refusal_of("example.org", "certificates"), certs, 0, ""),
    ] {
        let portcullis = Portcullis::new();
        portcullis.write("policies.yaml", &policies);
        portcullis.write("change.yaml", &format!("{certificate}{definitions}"));
        for command in ["scan", "admit"] {
            let run = portcullis.run(&format!("{command} --manifests policies.yaml -f change.yaml"));
            assert_eq!(run.code, code, "{policies}{definitions}: {run:?}");
            assert!(run.stderr.contains(says), "{policies}{definitions}: {run:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_2() {
    let portcullis = set_up();
    portcullis.write(
        "bad/a.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\nspec: {containers: []}\n",
    );
    portcullis.write("bad/values.yaml", "replicas: 3\n");
    let run = portcullis.run(&format!("scan --manifests policies {AT} -f bad"));
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("bad/values.yaml:1"), "{run:?}");
    assert!(
        run.stdout.contains("Pod/shop/p"),
        "the others are judged: {run:?}"
    );
    for wrong in [
        "scan --manifests policies",
        "scan --manifests policies -f nowhere",
        "scan --manifests policies -f - -f -",
        "scan --manifests policies -f chart -o wide",
        "scan -f chart",
    ] {
        assert_eq!(portcullis.run(wrong).code, 2, "{wrong}");
    }
}

/// The policies and the chart of docs/cli.md.
const DOCUMENTED: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-privileged}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
  - expression: "object.spec.containers.all(c, !c.?securityContext.privileged.orValue(false))"
    message: containers must not run privileged
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-privileged}
spec: {policyName: no-privileged, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: only-deployers}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: "request.userInfo.groups.exists(g, g == 'deployers')"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: only-deployers}
spec: {policyName: only-deployers, validationActions: [Deny]}
"#;

const DOCUMENTED_CHART: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: tool, namespace: shop}
spec: {containers: [{name: a}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {spec: {containers: [{name: a, securityContext: {privileged: true}}]}}}
";

#[test]
fn what_is_shown_in_the_documentation_is_what_is_printed() {
    let documentation = include_str!("../../docs/cli.md");
    let portcullis = Portcullis::new();
    portcullis.write("policies/policies.yaml", DOCUMENTED);
    portcullis.write("shop.yaml", DOCUMENTED_CHART);
    let mut shown = 0;
    for block in documentation.split("```console\n$ portcullis scan ").skip(1) {
        let (arguments, output) = block.split_once('\n').unwrap();
        let output = output.split("```").next().unwrap();
        if arguments.contains("kubeconfig") {
            continue;
        }
        shown += 1;
        assert_eq!(portcullis.run(&format!("scan {arguments}")).stdout, output);
    }
    assert_eq!(shown, 1);
}

#[test]
fn a_scan_of_nothing_or_by_nothing_is_2() {
    let portcullis = set_up();
    portcullis.write("none/notes.txt", "no manifest");
    portcullis.write("unbound/policy.yaml", POLICIES.split("---").next().unwrap());
    for (arguments, said) in [
        (
            "scan --manifests policies -f none",
            "nothing was scanned: there is no object in `none`",
        ),
        (
            "scan --manifests unbound -f chart",
            "nothing was scanned: there is no ValidatingAdmissionPolicy or MutatingAdmissionPolicy that a binding names",
        ),
    ] {
        let run = portcullis.run(arguments);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(said), "{run:?}");
    }
}

/// A policy that is bound in production alone, for what is labelled, and leaves out one name.
const SELECTING: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
    objectSelector: {matchLabels: {app: web}}
  matchConditions: [{name: named, expression: "object.metadata.name != 'left-out'"}]
  validations: [{expression: "object.spec.replicas > 1"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: prod}
spec: {policyName: replicas, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}}
"#;

fn deployment(name: &str, app: &str) -> String {
    format!(
        "---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: {name}, namespace: shop, labels: {{app: {app}}}}}, \
         spec: {{replicas: 2, selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{}}}}}}}}\n"
    )
}

#[test]
fn what_no_policy_applies_to_is_named_with_what_it_lacks() {
    let portcullis = Portcullis::new();
    portcullis.write("policies.yaml", SELECTING);
    let objects = ["a", "b"].map(|name| deployment(name, "web")).concat()
        + &deployment("c", "other")
        + &deployment("left-out", "web")
        + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: shop}}\n";
    let scan = |arguments: &str| {
        let arguments = format!("scan --manifests policies.yaml -f - {arguments}");
        portcullis.run_with(&arguments.split_whitespace().collect::<Vec<_>>(), &objects)
    };
    let elsewhere = scan("--namespace-labels shop:tier=dev");
    assert_eq!(
        elsewhere.stdout,
        "\
no policy: 1 ConfigMap: no rule of any policy matches it: -:10: ConfigMap/shop/x
no policy: 3 Deployment: nearest is policy `replicas`, binding `prod`: its namespace does not have `tier in (prod)` (namespaceSelector): -:2: Deployment/shop/a and 2 more
no policy: 1 Deployment: nearest is policy `replicas`: it does not have `app in (web)` (objectSelector): -:6: Deployment/shop/c
5 objects: 0 pass, 0 fail, 0 warn, 0 error, 0 skip, 5 matched by no policy
"
    );
    assert_eq!(elsewhere.code, 0, "{elsewhere:?}");
    let by_name = scan("--missing-namespace NameOnly");
    assert_eq!(by_name.stdout, elsewhere.stdout);
    assert_eq!(scan("").code, 1, "the labels of the namespace are not known");

    let there = scan("--namespace-labels shop:tier=prod,team=web -o json --require-match");
    assert_eq!(there.code, 1, "{there:?}");
    assert!(
        there
            .stderr
            .contains("3 objects matched by no policy (not allowed by --require-match)"),
        "{there:?}"
    );
    let printed: Value = serde_json::from_str(&there.stdout).unwrap();
    assert_eq!(printed["summary"]["pass"], 2);
    assert_eq!(
        printed["unmatched"][1],
        json!({"kind": "Deployment", "count": 1, "first": "-:8: Deployment/shop/left-out",
            "reason": "nearest is policy `replicas`, binding `prod`: its matchConditions are false"})
    );
}

#[test]
fn people_see_results_by_object_and_totals_by_policy_and_namespace() {
    let portcullis = Portcullis::new();
    portcullis.write("policies.yaml", POLICIES);
    let bare = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{hostPID: true, containers: [{{name: a}}]}}\n"
        )
    };
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: prod}}\n";
    portcullis.write("pods.yaml", &(namespace.to_owned() + &bare("one") + &bare("two")));
    let run = portcullis.run(&format!(
        "scan --manifests policies.yaml -f pods.yaml -o table {AT}"
    ));
    assert_eq!(run.code, 1, "{run:?}");
    for object in ["Pod/shop/one", "Pod/shop/two"] {
        assert_eq!(run.stdout.matches(object).count(), 1, "{run:?}");
    }
    for place in ["7:1", "12:1"] {
        let result = format!("\n  fail  {place}: policy `owner`, binding `owner-prod`: no owner");
        assert_eq!(run.stdout.matches(&result).count(), 1, "{run:?}");
    }
    let total = |policy: &str| {
        let line = run.stdout.lines().find(|line| line.starts_with(policy));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        words.join(" ")
    };
    assert_eq!(total("POLICY"), "POLICY NAMESPACE FAIL WARN ERROR", "{run:?}");
    assert_eq!(total("owner"), "owner shop 2 0 0", "{run:?}");
    // What is read by programs has a line for each result, and no colour.
    let lines = portcullis.run(&format!("scan --manifests policies.yaml -f pods.yaml {AT}"));
    assert!(
        !lines.stdout.contains("NAMESPACE") && !run.stdout.contains('\u{1b}'),
        "{lines:?}"
    );
}

/// A policy about fields of Pods, some of them behind variables, in items, or in a Deployment's template.
const FIELDS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  variables: [{name: containers, expression: object.spec.containers}]
  validations:
  - {expression: "variables.containers.all(c, c.image.startsWith('reg/'))", message: not of reg}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images}
spec: {policyName: images, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: never}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: "request.name == ''", message: no ConfigMaps}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: never}
spec: {policyName: never, validationActions: [Deny]}
"#;

const FIELDS_INPUT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers:
      - name: a
        image: reg/a
      - {name: b, image: docker.io/b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop}
";

#[test]
fn what_failed_is_named_by_line_and_column_of_the_field() {
    let portcullis = Portcullis::new();
    portcullis.write("policies.yaml", FIELDS);
    portcullis.write("in.yaml", FIELDS_INPUT);
    let run = portcullis.run("scan --manifests policies.yaml -f in.yaml");
    let first = "in.yaml:10:19: Deployment/shop/web: fail: the Pod that it creates: not of reg";
    assert!(run.stdout.contains(first), "{run:?}");
    // Where the expression selects nothing of the object, it is the object's place.
    let whole = "in.yaml:12: ConfigMap/shop/c: fail: no ConfigMaps";
    assert!(run.stdout.contains(whole), "{run:?}");

    let run = portcullis.run("scan --manifests policies.yaml -f in.yaml -o table");
    assert!(run.stdout.contains("in.yaml:1: Deployment/shop/web\n"), "{run:?}");
    assert!(run.stdout.contains("  fail  10:19: policy `images`"), "{run:?}");

    let run = portcullis.run("scan --manifests policies.yaml -f in.yaml -o sarif");
    let log: Value = serde_json::from_str(&run.stdout).unwrap();
    crate::sarif::assert_valid(&log);
    let region =
        |index: usize| log["runs"][0]["results"][index]["locations"][0]["physicalLocation"]["region"].clone();
    assert_eq!(region(0), json!({"startLine": 10, "startColumn": 19}));
    assert_eq!(region(1), json!({"startLine": 12}));

    let run = portcullis.run("scan --manifests policies.yaml -f in.yaml -o json");
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(printed["results"][0]["line"], 10);
    assert_eq!(printed["results"][0]["column"], 19);
    assert_eq!(printed["results"][1]["column"], 0);
}

/// Runs `command` to its end, and says how much memory it had at most, in KiB: as long as it has more to
/// say than a pipe holds, it is there to be asked.
fn peak_memory(portcullis: &Portcullis, arguments: &str) -> u64 {
    use std::io::Read as _;

    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments.split_whitespace())
        .current_dir(portcullis.path(""))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let (mut piece, mut most) = (vec![0; 4 << 10], 0);
    while stdout.read(&mut piece).unwrap() > 0 {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        most = peak.map_or(most, |peak| peak.trim().trim_end_matches(" kB").parse().unwrap());
    }
    assert_eq!(child.wait().unwrap().code(), Some(1), "{arguments}");
    most
}

#[test]
fn ten_times_the_objects_do_not_take_ten_times_the_memory() {
    let portcullis = Portcullis::new();
    portcullis.write("policies.yaml", FIELDS);
    let pods = |count: usize| -> String {
        let pod = |number| {
            format!(
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, namespace: n{}}}\n\
                 spec: {{containers: [{{name: a, image: docker.io/a}}, {{name: b, image: reg/b}}]}}\n",
                number % 9
            )
        };
        (0..count).map(pod).collect()
    };
    portcullis.write("few.yaml", &pods(500));
    portcullis.write("many.yaml", &pods(5000));
    for format in ["text", "json", "sarif", "junit", "openreports"] {
        let peak = |file: &str| {
            let arguments = format!("scan --manifests policies.yaml -f {file} -o {format}");
            peak_memory(&portcullis, &arguments)
        };
        let [few, many] = ["few.yaml", "many.yaml"].map(peak);
        println!("{format}: {few} KiB, {many} KiB");
        // 2 KiB an object, the results that some formats keep included.
        assert!(
            few > 0 && many < few + 2 * 4500,
            "{format}: {few} KiB, {many} KiB"
        );
    }
}

/// What this program reads alone is no object; its own kinds are in no namespace.
#[test]
fn the_gateway_s_own_kinds_are_known_and_its_files_are_no_objects() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/policies.yaml", POLICIES);
    let own = |kind: &str, spec: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n---\n"
        )
    };
    let allow = "{effect: Allow, subjects: [{kind: User, name: jane}], resourceRules: [{verbs: [get], apiGroups: [''], \
                 resources: [pods]}]}";
    let invariant =
        "{only: [], resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}], enforcement: Warn}";
    portcullis.write(
        "own/objects.yaml",
        &(own("AuthorizationPolicy", allow) + &own("AuthorizationInvariant", invariant)),
    );
    portcullis.write(
        "own/suite_test.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\ncases: []\n---\n\
         apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n",
    );
    let run = portcullis.run("scan --manifests policies -f own");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains(" 0 fail,"), "{run:?}");
    assert!(!run.stderr.contains("is not known"), "{run:?}");
    assert!(run.stdout.contains("2 objects:"), "{run:?}");
    let run = portcullis.run("scan --manifests policies -f own/suite_test.yaml");
    assert_eq!(run.code, 2, "{run:?}");
}

#[test]
fn what_depends_on_the_user_is_judged_for_the_one_who_is_named() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "policies.yaml",
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: owner}\nspec:\n  \
         matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: \
         [pods]}]}\n  matchConditions: [{name: not-nodes, expression: \"!('system:nodes' in \
         request.userInfo.groups)\"}]\n  validations: [{expression: \"has(object.metadata.labels)\"}]\n---\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: \
         owner}\nspec: {policyName: owner, validationActions: [Deny]}\n",
    );
    portcullis.write(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a}\nspec: {containers: []}\n",
    );
    for (user, code, told) in [
        ("", 0, "0 pass, 0 fail, 0 warn, 0 error, 1 skip"),
        (
            " --user jane --group dev",
            1,
            "0 pass, 1 fail, 0 warn, 0 error, 0 skip",
        ),
        (
            " --user system:node:a --group system:nodes",
            0,
            "0 fail, 0 warn, 0 error, 0 skip",
        ),
    ] {
        let run = portcullis.run(&format!("scan --manifests policies.yaml -f pod.yaml{user}"));
        assert_eq!(run.code, code, "{user}: {run:?}");
        assert!(run.stdout.contains(told), "{user}: {run:?}");
    }
}
