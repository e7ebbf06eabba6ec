//! `portcullis diff`.

use serde_json::{Value, json};

use crate::live_cluster;
use crate::run::{Portcullis, Run};

const OLD: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {to-view: "true"}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods, labels: {to-view: "true"}}
rules: [{verbs: [get, list], apiGroups: [""], resources: [pods]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secrets}
rules: [{verbs: [get, list], apiGroups: [""], resources: [secrets]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dev, namespace: prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: dev}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-contractors}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  resourceRules: [{verbs: ["*"], apiGroups: [""], resources: [secrets], namespaces: ["prod*"]}]
"#;

/// A label that widens an aggregated role.
fn new() -> String {
    OLD.replace("{name: secrets}", "{name: secrets, labels: {to-view: \"true\"}}")
}

fn diff(arguments: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("old/policies.yaml", OLD);
    portcullis.write("new/policies.yaml", &new());
    portcullis.run(&format!("diff {arguments}"))
}

fn report(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

#[test]
fn a_label_that_widens_a_role_is_a_gain_with_a_witness() {
    let run = diff("old new -o json");
    assert_eq!(run.code, 0, "{run:?}");
    let report = report(&run);
    assert_eq!(report["same"], false);
    assert_eq!(
        (&report["losses"], &report["otherwise"]),
        (&json!([]), &json!([]))
    );
    let gains = report["gains"].as_array().unwrap();
    let of_others = gains
        .iter()
        .find(|gain| gain["box"]["groups"]["none"] == json!(["contractors"]));
    assert_eq!(
        of_others.expect("those whom no Deny stops")["box"],
        json!({
            "groups": {"all": ["dev"], "none": ["contractors"]},
            "verbs": {"in": ["get", "list"]}, "apiGroups": {"in": [""]}, "resources": {"in": ["secrets"]},
            "subresources": {"in": [""]}, "namespaces": {"in": ["prod"]},
        })
    );
    for gain in gains {
        assert_eq!(gain["before"], json!({"decision": "noOpinion", "cause": null}));
        assert_eq!(gain["after"]["decision"], "allow");
        assert_eq!(gain["after"]["cause"]["name"], "dev");
        assert_eq!(gain["undecided"], false);
        assert_eq!(
            gain["witness"]["spec"]["resourceAttributes"]["resource"],
            "secrets"
        );
    }
    let back = diff("new old -o json");
    assert_eq!(
        self::report(&back)["losses"].as_array().unwrap().len(),
        gains.len()
    );
}

#[test]
fn what_is_not_to_happen_is_the_exit_code() {
    for (arguments, code) in [
        ("old new --no-new-access", 1),
        ("old new --fail-on loss", 0),
        ("old new --fail-on loss,any", 1),
        ("new old --no-new-access", 0),
        ("new old --fail-on loss", 1),
        ("new new --fail-on any", 0),
        ("old absent", 2),
        ("git:--output=x old", 2),
    ] {
        assert_eq!(diff(arguments).code, code, "{arguments}");
    }
    assert_eq!(diff("old old").stdout, "no request is decided differently\n");
    let text = diff("old new").stdout;
    let line = "Group dev without Group contractors: get, list of secrets in the namespace prod\n";
    assert!(text.contains(line), "{text}");
    let markdown = diff("old new -o markdown").stdout;
    assert!(markdown.starts_with("### Gains\n\n| Requests |"), "{markdown}");
}

#[test]
fn a_condition_is_said_with_what_hangs_on_it() {
    let portcullis = Portcullis::new();
    portcullis.write("old/policies.yaml", OLD);
    let opened = OLD.replace(
        "spec:\n  effect: Deny\n",
        "spec:\n  effect: Deny\n  conditions: [{name: night, expression: \"request.extra['at'][0] == 'night'\"}]\n  \
         failurePolicy: NoOpinion\n",
    );
    portcullis.write("new/policies.yaml", &opened);
    let report = report(&portcullis.run("diff old new -o json"));
    assert_eq!(report["gains"], json!([]));
    let otherwise = report["otherwise"].as_array().unwrap();
    assert!(!otherwise.is_empty());
    for change in otherwise {
        assert_eq!(change["before"]["decision"], "deny");
        assert_eq!(change["after"]["decision"], "noOpinion");
    }
}

const BINDING: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mallory}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ROLE}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: mallory}]
"#;

/// OLD, and NEW with a binding of mallory to `role`.
fn bound_to(role: &str, arguments: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("old/policies.yaml", OLD);
    portcullis.write("new/policies.yaml", OLD);
    portcullis.write("new/mallory.yaml", &BINDING.replace("ROLE", role));
    portcullis.run(&format!("diff old new {arguments}"))
}

#[test]
fn a_role_that_an_api_server_makes_grants_what_it_grants_there() {
    let run = bound_to("cluster-admin", "--no-new-access -o json");
    assert_eq!(run.code, 1, "{run:?}");
    let gains = report(&run)["gains"].as_array().unwrap().clone();
    assert!(
        !gains.is_empty() && gains.iter().all(|gain| gain["undecided"] == false),
        "{gains:?}"
    );
    assert!(
        gains
            .iter()
            .all(|gain| gain["after"]["cause"]["name"] == "mallory"),
        "{gains:?}"
    );
}

#[test]
fn a_role_that_no_side_has_may_grant_anything() {
    let run = bound_to("made-elsewhere", "--no-new-access -o json");
    assert_eq!(run.code, 1, "{run:?}");
    let gains = report(&run)["gains"].as_array().unwrap().clone();
    assert!(
        !gains.is_empty() && gains.iter().all(|gain| gain["undecided"] == true),
        "{gains:?}"
    );
    let condition = "the ClusterRole made-elsewhere allows it, but is not among these policies";
    assert!(
        gains.iter().all(|gain| gain["where"] == json!([condition])),
        "{gains:?}"
    );
}

#[test]
fn who_is_no_more_denied_may_gain_by_the_next_authorizer() {
    let portcullis = Portcullis::new();
    portcullis.write("old/policies.yaml", OLD);
    let without = OLD.split("apiVersion: portcullis.dev").next().unwrap();
    portcullis.write("new/policies.yaml", without);
    assert_eq!(portcullis.run("diff old new --no-new-access").code, 1);
    assert_eq!(portcullis.run("diff old new --fail-on gain").code, 0);
    assert_eq!(portcullis.run("diff new old --no-new-access").code, 0);
}

const CONFIGURATION: &str = "apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {tls: {certificate: s.crt, privateKey: s.key}}
manifests:
- path: policies
";

/// A configuration with manifests of its own for the cluster east.
fn write_configuration(portcullis: &Portcullis, folder: &str, of_east: &str) {
    portcullis.write(&format!("{folder}/all.yaml"), OLD);
    portcullis.write(&format!("{folder}/east.yaml"), of_east);
    let manifests = "- path: all.yaml\n- {path: east.yaml, cluster: east}\n";
    portcullis.write(
        &format!("{folder}/portcullis.yaml"),
        &CONFIGURATION.replace("- path: policies\n", manifests),
    );
}

#[test]
fn every_cluster_of_a_configuration_counts() {
    let portcullis = Portcullis::new();
    let role =
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: other}\nrules: []\n";
    write_configuration(&portcullis, "old", role);
    write_configuration(&portcullis, "new", &BINDING.replace("ROLE", "secrets"));
    let diff = |more: &str| {
        portcullis.run(&format!(
            "diff old/portcullis.yaml new/portcullis.yaml --no-new-access {more}"
        ))
    };
    let run = diff("");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("the cluster `east` has different results"),
        "{run:?}"
    );
    assert!(diff("--cluster east").stdout.contains("User mallory"));
    let misspelt = diff("--cluster esat");
    assert_eq!(misspelt.code, 2, "{misspelt:?}");
    assert!(
        misspelt.stderr.contains("names no cluster `esat`"),
        "{misspelt:?}"
    );
}

fn git(portcullis: &Portcullis, arguments: &str) -> String {
    git_of(portcullis, arguments, b"")
}

/// What git says that reads `input`.
fn git_of(portcullis: &Portcullis, arguments: &str, input: &[u8]) -> String {
    std::fs::write(portcullis.path(".input"), input).unwrap();
    let git = std::process::Command::new("git")
        .args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments.split(' '))
        .current_dir(portcullis.path("."))
        .stdin(std::fs::File::open(portcullis.path(".input")).unwrap())
        .output();
    let git = git.unwrap();
    assert!(git.status.success(), "{git:?}");
    String::from_utf8(git.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_revision_is_read_as_it_is_and_not_as_it_says() {
    let portcullis = Portcullis::new();
    git(&portcullis, "init -q");
    portcullis.write("policies/all.yaml", OLD);
    portcullis.write("portcullis.yaml", CONFIGURATION);
    git(&portcullis, "add .");
    git(&portcullis, "commit -qm old");
    portcullis.write("policies/mallory.yaml", &BINDING.replace("ROLE", "secrets"));
    portcullis.write(".gitattributes", "policies/mallory.yaml export-ignore\n");
    git(&portcullis, "checkout -qb new");
    git(&portcullis, "add .");
    git(&portcullis, "commit -qm new");
    for (arguments, code) in [
        ("git:main:policies git:new:policies", 1),
        ("git:main:policies policies", 1),
        ("git:main:policies/../policies policies", 1),
        ("git:new:policies policies", 0),
        // A configuration, with the manifests that it names.
        ("git:main:portcullis.yaml git:new:portcullis.yaml", 1),
        ("git:new:portcullis.yaml portcullis.yaml", 0),
        ("git:main:../policies policies", 2),
        ("git:main:absent policies", 2),
        ("git:absent:policies policies", 2),
    ] {
        let run = portcullis.run(&format!("diff {arguments} --no-new-access"));
        assert_eq!(run.code, code, "{arguments}: {run:?}");
    }
    let absolute = portcullis.path("policies");
    let run = portcullis.run(&format!(
        "diff git:main:{} policies --no-new-access",
        absolute.display()
    ));
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("relative to the current folder"), "{run:?}");
}

#[test]
fn a_link_out_of_a_revision_is_refused() {
    let portcullis = Portcullis::new();
    git(&portcullis, "init -q");
    portcullis.write("policies/policies.yaml", OLD);
    portcullis.write("more/mallory.yaml", &BINDING.replace("ROLE", "secrets"));
    std::os::unix::fs::symlink(portcullis.path("more"), portcullis.path("policies/more")).unwrap();
    git(&portcullis, "add .");
    git(&portcullis, "commit -qm all");
    let run = portcullis.run("diff git:main:policies policies");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .contains("`more` is a symbolic link that leads out of the revision's folder"),
        "{run:?}"
    );
}

/// What git would never write, and fetches all the same: a link and a folder of one name.
#[test]
fn nothing_is_written_through_a_link_of_a_revision() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/policies.yaml", OLD);
    portcullis.write("outside/kept", "");
    git(&portcullis, "init -q");
    let object = |arguments: &str, content: &[u8]| git_of(&portcullis, arguments, content);
    let outside = portcullis.path("outside").display().to_string();
    let link = object("hash-object -w --stdin", outside.as_bytes());
    let folder = object("mktree", format!("120000 blob {link}\tb\n").as_bytes());
    let raw = |hexadecimal: &str| -> Vec<u8> {
        let pairs = hexadecimal.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    let tree = [
        b"120000 a\0".to_vec(),
        raw(&link),
        b"40000 a\0".to_vec(),
        raw(&folder),
    ]
    .concat();
    let tree = object("hash-object -t tree -w --literally --stdin", &tree);
    let revision = object(&format!("commit-tree {tree} -m hostile"), b"");
    let run = portcullis.run(&format!("diff git:{revision} policies"));
    assert_eq!(run.code, 2, "{run:?}");
    let found = std::fs::read_dir(portcullis.path("outside")).unwrap();
    assert_eq!(found.count(), 1, "{run:?}");
}

#[test]
fn a_revision_that_lists_without_end_is_refused() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/policies.yaml", OLD);
    git(&portcullis, "init -q");
    let mut entry = format!("100644 blob {}", git(&portcullis, "hash-object -w --stdin"));
    // Ten times the same in each, which says of 10^9 files.
    for _ in 0..9 {
        let tree: String = (0..10).map(|number| format!("{entry}\t{number}\n")).collect();
        entry = format!("040000 tree {}", git_of(&portcullis, "mktree", tree.as_bytes()));
    }
    let tree = entry.rsplit(' ').next().unwrap();
    let revision = git(&portcullis, &format!("commit-tree {tree} -m hostile"));
    let run = portcullis.run(&format!("diff git:{revision} policies"));
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("it has more than 100000 files"), "{run:?}");
}

/// A cluster with OLD, and files that may be applied to it.
fn with_cluster() -> Portcullis {
    let portcullis = Portcullis::new();
    live_cluster::serve(&portcullis, OLD);
    portcullis.write("new/policies.yaml", &new());
    let label = OLD
        .split("---")
        .find(|object| object.contains("{name: secrets}"))
        .unwrap();
    let label = label.replace("{name: secrets}", "{name: secrets, labels: {to-view: \"true\"}}");
    portcullis.write("change/label.yaml", &label);
    portcullis.write(
        "change/app.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n",
    );
    portcullis
}

#[test]
fn what_would_be_applied_to_a_cluster_is_compared_with_what_it_has() {
    let portcullis = with_cluster();
    let run = portcullis.run("diff --kubeconfig live.yaml -f change --no-new-access -o json");
    assert_eq!(run.code, 1, "{run:?}");
    let applied = report(&run);
    let files = diff("old new -o json");
    // What stands in files is applied in place of what the cluster has: the rest stays.
    assert_eq!(applied["gains"], report(&files)["gains"], "{run:?}");
    assert_eq!(applied["losses"], json!([]));
    // A binding without namespace is in that of the context.
    portcullis.write(
        "binding.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: dev}\nroleRef: {apiGroup: \
         rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: []\n",
    );
    let run = portcullis.run("diff --kubeconfig live.yaml -f binding.yaml -o json");
    let losses = report(&run)["losses"].as_array().unwrap().clone();
    assert!(!losses.is_empty(), "{run:?}");
    for loss in losses {
        assert_eq!(loss["box"]["namespaces"], json!({"in": ["prod"]}));
    }
}

#[test]
fn a_cluster_is_compared_with_what_would_be_in_its_place() {
    let portcullis = with_cluster();
    let run = portcullis.run("diff --kubeconfig live.yaml new --no-new-access");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("list of secrets in the namespace prod"),
        "{run:?}"
    );
    portcullis.write("same/policies.yaml", OLD);
    let run = portcullis.run("diff --kubeconfig live.yaml same --fail-on any");
    assert_eq!(run.stdout, "no request is decided differently\n", "{run:?}");
}

#[test]
fn sides_that_do_not_fit_together_are_refused() {
    let portcullis = with_cluster();
    portcullis.write(
        "twice.yaml",
        &format!("{0}---\n{0}", BINDING.replace("ROLE", "view")),
    );
    portcullis.write("faulty.yaml", &BINDING.replace("subjects", "subject"));
    for (arguments, message) in [
        ("new", "name two sets to compare"),
        ("", "name two sets to compare"),
        ("--kubeconfig live.yaml", "name two sets to compare"),
        ("-f change", "name two sets to compare"),
        ("--kubeconfig live.yaml new new", "remove OLD"),
        ("--kubeconfig live.yaml new -f change", "cannot be used with"),
        ("--kubeconfig live.yaml -f absent", "absent"),
        (
            "--kubeconfig live.yaml -f twice.yaml",
            "occurs earlier in these files",
        ),
        ("--kubeconfig live.yaml -f faulty.yaml", "subject"),
    ] {
        let run = portcullis.run(&format!("diff {arguments}"));
        assert_eq!(run.code, 2, "{arguments}: {run:?}");
        assert!(run.stderr.contains(message), "{arguments}: {run:?}");
    }
}

#[test]
fn reasons_that_changed_are_said_where_they_are_asked_for() {
    let portcullis = Portcullis::new();
    portcullis.write("old/policies.yaml", OLD);
    portcullis.write(
        "new/policies.yaml",
        &OLD.replace("metadata: {name: dev,", "metadata: {name: developers,"),
    );
    let without = report(&portcullis.run("diff old new -o json"));
    assert_eq!(
        (&without["same"], &without["reasons"]),
        (&json!(true), &json!([]))
    );
    let run = portcullis.run("diff old new --reasons -o json");
    assert_eq!(run.code, 0, "{run:?}");
    let reasons = report(&run)["reasons"].as_array().unwrap().clone();
    assert!(!reasons.is_empty(), "{run:?}");
    for reason in reasons {
        assert_eq!(reason["before"]["cause"]["name"], "dev");
        assert_eq!(reason["after"]["cause"]["name"], "developers");
        assert_eq!(reason["after"]["decision"], "allow");
        assert_eq!(
            reason["witness"]["spec"]["resourceAttributes"]["namespace"],
            "prod"
        );
    }
}

#[test]
fn code_review_tools_are_told_where_the_objects_stand() {
    let run = diff("old new --no-new-access -o sarif");
    assert_eq!(run.code, 1, "{run:?}");
    let log = report(&run);
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(!results.is_empty());
    for result in results {
        assert_eq!(
            (&result["ruleId"], &result["level"]),
            (&json!("gain"), &json!("error"))
        );
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "new/policies.yaml");
        // The RoleBinding that grants it.
        assert_eq!(place["region"]["startLine"], 18);
    }
    let without = report(&diff("old new -o sarif"));
    assert_eq!(without["runs"][0]["results"][0]["level"], "warning");
}

#[test]
fn conditions_that_compare_texts_with_constants_are_decided() {
    let portcullis = Portcullis::new();
    let allow = |condition: &str| {
        format!(
            "{OLD}---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: names}}\nspec:\n  \
             effect: Allow\n  subjects: [{{kind: Group, name: ops}}]\n  resourceRules: [{{verbs: [get], apiGroups: [\"\"], \
             resources: [configmaps]}}]\n  conditions: [{{name: c, expression: \"{condition}\"}}]\n"
        )
    };
    let name = "request.resourceAttributes.name";
    portcullis.write(
        "old/policies.yaml",
        &allow(&format!("{name}.endsWith('-public')")),
    );
    portcullis.write("new/policies.yaml", &allow(&format!("{name}.contains('public')")));
    let run = portcullis.run("diff old new -o json");
    let report = report(&run);
    assert_eq!(
        (&report["losses"], &report["otherwise"]),
        (&json!([]), &json!([])),
        "{run:?}"
    );
    let gains = report["gains"].as_array().unwrap();
    assert!(!gains.is_empty(), "{run:?}");
    for gain in gains {
        let conditions = [
            format!("{name}.contains('public')"),
            format!("!({name}.endsWith('-public'))"),
        ];
        assert_eq!(gain["where"], json!(conditions));
        assert_eq!(gain["undecided"], false);
        let asked = gain["witness"]["spec"]["resourceAttributes"]["name"]
            .as_str()
            .unwrap();
        assert!(asked.contains("public") && !asked.ends_with("-public"), "{asked}");
    }
    // Written in another way, it is the same.
    portcullis.write(
        "same/policies.yaml",
        &allow(&format!("!(!{name}.matches('-public$'))")),
    );
    assert_eq!(
        portcullis.run("diff old same").stdout,
        "no request is decided differently\n"
    );
}

/// What a Deny leaves out, and what RBAC allows there, falls into many boxes; a sentence says it.
#[test]
fn a_change_of_one_word_takes_a_few_sentences() {
    let portcullis = Portcullis::new();
    let deny = include_str!("../../config/policies/production-guard.yaml");
    let developers = include_str!("../../src/cli/init/templates/development/policies/developers.yaml");
    for (folder, deny) in [
        ("old", deny.to_owned()),
        ("new", deny.replace("prod-*", "prod-a*")),
    ] {
        portcullis.write(&format!("{folder}/deny.yaml"), &deny);
        portcullis.write(&format!("{folder}/rbac.yaml"), developers);
    }
    let run = portcullis.run("diff old new");
    assert_eq!(run.stdout.matches("such as: ").count(), 3, "{run:?}");
    for told in [
        "  Group dev without Group platform, Group system:serviceaccounts:kube-system, User \
         kube-apiserver-kubelet-client, system:apiserver, system:kube-controller-manager, system:kube-scheduler: delete \
         of deployments of the API group apps in the namespace prod-* but not prod-a*, except: Group system:nodes and \
         User system:node:*\n",
        ", except: Group system:nodes and User system:node:*; Group dev, delete of deployments with subresource \"\" of \
         the API group apps\n",
    ] {
        assert!(run.stdout.contains(told), "{told}: {}", run.stdout);
    }
    // Programs read each box.
    let run = portcullis.run("diff old new -o json");
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(report["otherwise"].as_array().unwrap().len() > 3, "{run:?}");
}

/// A namespace that is not known may have any labels.
#[test]
fn a_deny_for_everybody_takes_a_few_sentences_however_many_other_policies_part_the_requests() {
    let portcullis = Portcullis::new();
    let mut others = String::new();
    for index in 0..6 {
        others += &format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: other-{index}}}\n\
             spec:\n  effect: Deny\n  subjects: [{{kind: Group, name: g{index}}}]\n  conditions: [{{name: c, expression: \
             \"request.user.endsWith('{index}')\"}}]\n  resourceRules: [{{verbs: [create], apiGroups: [''], resources: \
             [pods/exec], namespaces: [n{index}, prod]}}]\n"
        );
    }
    let deny = "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: no-exec}\n\
                spec:\n  effect: Deny\n  subjects: [{kind: Group, name: '*'}]\n  resourceRules: [{verbs: [create], \
                apiGroups: [''], resources: [pods/exec], namespaces: [prod]}]\n";
    portcullis.write("old/policies.yaml", &others);
    portcullis.write("new/policies.yaml", &(others.clone() + deny));
    let all = report(&portcullis.run("diff old new -o json"));
    let parts = all["otherwise"].as_array().unwrap().len();
    assert!(parts > 20, "{parts}");
    let run = portcullis.run("diff old new");
    let listed = run.stdout.matches("    such as: ").count();
    assert!(listed <= 9, "{run:?}");
    let more: usize = run
        .stdout
        .lines()
        .filter_map(|line| {
            line.strip_prefix("  and ")?
                .split_once(" more parts of these requests")?
                .0
                .parse::<usize>()
                .ok()
        })
        .sum();
    // Those of service accounts are one sentence.
    assert!(more > 20 && listed + more <= parts, "{run:?}");
    let table = portcullis.run("diff old new -o markdown");
    assert!(table.stdout.contains("more parts of these requests"), "{table:?}");
}

#[test]
fn a_namespace_selector_grants_in_namespaces_that_will_have_its_labels() {
    let portcullis = Portcullis::new();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: b}}\n";
    let allow = |name: &str, selector: &str| {
        format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
             effect: Allow\n  subjects: [{{kind: Group, name: {name}}}]\n  resourceRules: [{{verbs: [get], \
             apiGroups: [\"\"], resources: [pods], namespaceSelector: {selector}}}]\n"
        )
    };
    portcullis.write("old/all.yaml", namespace);
    let of_team = allow(
        "team-a",
        "{matchLabels: {team: a}, matchExpressions: [{key: frozen, operator: DoesNotExist}]}",
    );
    portcullis.write("new/all.yaml", &format!("{namespace}{of_team}"));
    let run = portcullis.run("diff old new");
    assert_eq!(
        run.stdout,
        "Gains:\n  Group team-a: get of pods in the namespace of any name but not \"\", shop, in a namespace whose labels \
         match team in (a),!frozen\n    no opinion -> allow by AuthorizationPolicy/team-a, rule 0\n    such as: somebody \
         (team-a): get pods in default (a namespace with the labels team=a)\n",
        "{run:?}"
    );
    let found = report(&portcullis.run("diff old new -o json"));
    let gain = &found["gains"][0];
    assert_eq!(
        (&gain["box"]["namespaceLabels"], &gain["where"]),
        (
            &json!({"within": ["team in (a),!frozen"], "known": true}),
            &json!([])
        )
    );
    // Labels that no namespace can have grant nothing.
    let never = allow(
        "never",
        "{matchLabels: {team: a}, matchExpressions: [{key: team, operator: NotIn, values: [a]}]}",
    );
    portcullis.write("never/all.yaml", &format!("{namespace}{never}"));
    assert_eq!(
        portcullis.run("diff old never").stdout,
        "no request is decided differently\n"
    );
}
