//! `portcullis escalations`.

use portcullis_policy::authorization::STEP_KINDS;
use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

/// What `docs/escalations.md` shows, and a Deny that prevents another path.
const POLICIES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: deploy}
rules:
- {apiGroups: [""], resources: [pods], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dev, namespace: ci}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: deploy}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: dev}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "eve\"]"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: deployer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything}
subjects:
- {kind: ServiceAccount, name: deployer, namespace: ci}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-eve}
spec:
  effect: Deny
  subjects: [{kind: User, name: "eve*"}]
  resourceRules: [{verbs: [create], apiGroups: [""], resources: [pods]}]
  reason: eve starts nothing
"#;

fn ask(arguments: &[&str]) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("policies/policies.yaml", POLICIES);
    let arguments = [&["escalations"], arguments, &["--manifests", "policies"]].concat();
    portcullis.run_with(&arguments, "")
}

#[test]
fn who_reaches_cluster_admin_is_listed_with_the_steps() {
    let run = ask(&[]);
    assert_eq!(run.code, 0, "{run:?}");
    let shown = "Group dev can become ClusterRole cluster-admin\n  \
                 create pods in ci -> ServiceAccount ci/deployer (RoleBinding/ci/dev)\n";
    assert!(run.stdout.contains(shown), "{run:?}");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/escalations.md"));
    assert!(page.unwrap().contains(shown), "the page shows what is printed");
    let (_, prevented) = run.stdout.split_once("Prevented only by policies:\n").unwrap();
    assert!(
        prevented.contains("prevented by AuthorizationPolicy/no-eve"),
        "{run:?}"
    );
    assert!(
        !run.stdout.contains("ServiceAccount ci/deployer can become"),
        "{run:?}"
    );
}

#[test]
fn programs_read_paths_and_what_policies_prevent() {
    let run = ask(&["--from", "Group dev", "--to", "get secrets -n prod", "-o", "json"]);
    let found: Value = serde_json::from_str(&run.stdout).unwrap();
    let deployer = json!({"kind": "ServiceAccount", "name": "deployer", "namespace": "ci"});
    assert_eq!(
        found,
        json!({"paths": [{
            "from": {"kind": "Group", "name": "dev", "namespace": ""},
            "to": deployer,
            "steps": [{
                "by": "create pods in ci",
                "via": [{"kind": "RoleBinding", "namespace": "ci", "name": "dev"}],
                "becomes": deployer,
                "limits": ["unless AuthorizationPolicy no-eve denies it"]
            }]
        }], "refuted": []})
    );
    let run = ask(&[
        "--from",
        "eve\"]",
        "--to",
        "ServiceAccount ci/deployer",
        "-o",
        "json",
    ]);
    let found: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(found["paths"], json!([]));
    assert_eq!(
        found["refuted"][0]["steps"][0]["refutedBy"],
        json!([{"kind": "AuthorizationPolicy", "namespace": "", "name": "no-eve"}])
    );
}

#[test]
fn drawings_quote_names() {
    let dot = ask(&["--to", "ServiceAccount ci/deployer", "-o", "dot"]).stdout;
    assert!(dot.starts_with("digraph escalations {\n"), "{dot}");
    assert!(dot.contains(r#"[label="User eve\"]"];"#), "{dot}");
    assert!(dot.contains("no-eve\", style=dashed];"), "{dot}");
    let mermaid = ask(&["--to", "ServiceAccount ci/deployer", "-o", "mermaid"]).stdout;
    assert!(mermaid.starts_with("flowchart LR\n"), "{mermaid}");
    assert!(mermaid.contains("User eve#34;#93;\"]"), "{mermaid}");
    assert!(mermaid.contains("-.->|\"create pods in ci"), "{mermaid}");
}

#[test]
fn what_is_neither_subject_nor_request_is_refused() {
    for (flag, text) in [
        ("--from", "Robot r2"),
        ("--from", "ServiceAccount deployer"),
        ("--to", "get"),
        ("--to", "get secrets -n"),
        ("--to", "get secrets prod"),
    ] {
        // One word is the name of a user.
        let code = if text == "get" { 0 } else { 2 };
        assert_eq!(ask(&[flag, text]).code, code, "{flag} {text}");
    }
}

#[test]
fn the_page_lists_each_kind_of_step() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/escalations.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let names: Vec<String> = STEP_KINDS.iter().flat_map(|kind| kind.names()).collect();
    for name in &names {
        let quoted = format!("`{name}`");
        assert!(rows.iter().any(|row| row.contains(&quoted)), "{name}");
    }
    let firsts = rows.iter().filter_map(|row| row.split('|').nth(1));
    for listed in firsts.flat_map(|first| first.split(", ")) {
        let listed = listed.trim().trim_matches('`').to_owned();
        assert!(names.contains(&listed), "{listed}");
    }
}

/// Of a cluster's Pods, or of policies that refuse the Pod, a step says what is known.
#[test]
fn a_step_says_whether_admission_policies_refuse_its_pod() {
    let portcullis = Portcullis::new();
    let policy = |expression: &str| {
        format!(
            "{POLICIES}---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: \
             accounts}}\nspec:\n  matchConstraints: {{resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: \
             [CREATE], resources: [pods]}}]}}\n  validations: [{{expression: \"{expression}\", message: not as this \
             account}}]\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: \
             {{name: accounts}}\nspec: {{policyName: accounts, validationActions: [Deny]}}\n"
        )
    };
    portcullis.write(
        "strict/policies.yaml",
        &policy("object.spec.serviceAccountName != 'deployer' || !('dev' in request.userInfo.groups)"),
    );
    portcullis.write("lax/policies.yaml", &policy("object.spec.containers.size() == 1"));
    let ask = |folder: &str, output: &str| {
        let arguments = [
            "escalations",
            "--from",
            "Group dev",
            "--to",
            "ServiceAccount ci/deployer",
            "-o",
            output,
            "--manifests",
            folder,
        ];
        portcullis.run_with(&arguments, "")
    };
    let refused = "    the simplest Pod of this kind is refused by ValidatingAdmissionPolicy/accounts: ";
    let run = ask("strict", "text");
    assert!(run.stdout.contains(refused), "{run:?}");
    let found: Value = serde_json::from_str(&ask("strict", "json").stdout).unwrap();
    let step = &found["paths"][0]["steps"][0];
    assert_eq!(step["admission"]["allowed"], false, "{found}");
    assert_eq!(step["admission"]["refusedBy"][0]["name"], "accounts");
    let run = ask("lax", "text");
    assert!(
        run.stdout
            .contains("    no admission policy refuses a Pod of this kind\n"),
        "{run:?}"
    );
    // Of no policies, nothing is said.
    let plain = self::ask(&["--from", "Group dev", "--to", "ServiceAccount ci/deployer"]);
    assert!(!plain.stdout.contains("such"), "{plain:?}");
}

/// An API server binds its controllers to roles by which most can become anybody.
#[test]
fn components_of_kubernetes_are_named_in_one_line() {
    let portcullis = Portcullis::new();
    let binding = |name: &str, account: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: \"{name}\"}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: deploy}}\n\
             subjects: [{{kind: ServiceAccount, name: {account}, namespace: kube-system}}]\n"
        )
    };
    let policies = [
        POLICIES.to_owned(),
        binding("system:controller:job", "job"),
        binding("system:controller:deployment", "deployment"),
        binding("by-hand", "by-hand"),
    ];
    portcullis.write("policies/policies.yaml", &policies.concat());
    let run = portcullis.run("escalations --manifests policies");
    assert!(
        run.stdout.contains(
            "2 subjects of Kubernetes itself can, by its own bindings (`--from SUBJECT` shows how): ServiceAccount \
             kube-system/deployment, ServiceAccount kube-system/job\n"
        ),
        "{run:?}"
    );
    let shown = |name: &str| {
        format!("ServiceAccount kube-system/{name} can become ClusterRole cluster-admin\n  create pods")
    };
    assert!(run.stdout.contains(&shown("by-hand")), "{run:?}");
    assert!(!run.stdout.contains(&shown("job")), "{run:?}");
    let arguments = [
        "escalations",
        "--from",
        "ServiceAccount kube-system/job",
        "--to",
        "ServiceAccount ci/deployer",
        "--manifests",
        "policies",
    ];
    let run = portcullis.run_with(&arguments, "");
    assert!(
        run.stdout
            .contains("create pods in ci -> ServiceAccount ci/deployer"),
        "{run:?}"
    );
}
