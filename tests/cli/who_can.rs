//! `portcullis who-can` and `what-can`.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

/// What `docs/cli.md` shows.
const POLICIES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secret-reader}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: one-secret}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [db], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: secret-reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: operators}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: contractors}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: backup, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: one-secret}
subjects:
- {kind: ServiceAccount, name: backup}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: rota}
spec:
  effect: Allow
  subjects: [{kind: User, name: "oncall-*"}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [secrets], namespaces: ["shop*"]}]
  conditions: [{name: no-uid, expression: "request.uid == ''"}]
  notAfter: 2027-01-01T00:00:00Z
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-contractors}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: [secrets]}]
  reason: contractors see no secrets
"#;

const AT: &str = "--at 2026-12-01T00:00:00Z";

fn ask(arguments: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("policies/secrets.yaml", POLICIES);
    portcullis.run(&format!("{arguments} --manifests policies"))
}

fn subjects(run: &Run) -> Vec<Value> {
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    report["subjects"].as_array().unwrap().clone()
}

fn names(run: &Run) -> Vec<String> {
    let subjects = subjects(run).into_iter();
    subjects
        .map(|subject| {
            format!(
                "{}/{}",
                subject["kind"].as_str().unwrap(),
                subject["name"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn everybody_who_may_is_listed_with_limits_and_what_denies() {
    let run = ask(&format!("who-can get secrets -n shop {AT} -o json"));
    let via = |kind, namespace, name, limits: &[&str]| json!([{"kind": kind, "namespace": namespace, "name": name, "rule": 0, "limits": limits}]);
    assert_eq!(
        subjects(&run),
        [
            json!({"kind": "Group", "name": "operators", "namespace": "", "pattern": false,
                "via": via("ClusterRoleBinding", "", "operators", &[]), "deniedBy": ["no-contractors"]}),
            json!({"kind": "Group", "name": "system:masters", "namespace": "", "pattern": false,
                "via": [], "deniedBy": []}),
            json!({"kind": "ServiceAccount", "name": "backup", "namespace": "shop", "pattern": false,
                "via": via("RoleBinding", "shop", "backup", &["names: db"]), "deniedBy": []}),
            json!({"kind": "User", "name": "alice", "namespace": "", "pattern": false,
                "via": via("ClusterRoleBinding", "", "operators", &[]), "deniedBy": ["no-contractors"]}),
            json!({"kind": "User", "name": "oncall-*", "namespace": "", "pattern": true,
                "via": via("AuthorizationPolicy", "", "rota",
                    &["condition no-uid: request.uid == ''", "notAfter: 2027-01-01T00:00:00Z"]),
                "deniedBy": ["no-contractors"]}),
        ]
    );
}

#[test]
fn names_namespaces_and_time_narrow_the_question() {
    let of = |question: &str| names(&ask(&format!("who-can {question} -o json")));
    let always = ["Group/operators", "Group/system:masters", "User/alice"];
    assert_eq!(of(&format!("get secrets --name other -n elsewhere {AT}")), always);
    assert_eq!(
        of("get secrets -n shop --name db --at 2027-01-01T00:00:00Z")[2],
        "ServiceAccount/backup"
    );
    assert_eq!(of("list secrets -A"), always);
    assert_eq!(of("delete secrets"), ["Group/system:masters"]);
    let anywhere = ask(&format!("who-can get secrets -A {AT} -o json"));
    let oncall = subjects(&anywhere)
        .into_iter()
        .find(|subject| subject["name"] == "oncall-*")
        .unwrap();
    assert_eq!(oncall["via"][0]["limits"][0], "namespaces: shop*");
}

#[test]
fn a_path_is_asked_alone() {
    assert_eq!(
        names(&ask("who-can get /metrics -o json")),
        ["Group/system:masters"]
    );
    let run = ask("who-can get /metrics -n shop");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("a path cannot be combined"), "{run:?}");
}

#[test]
fn what_may_be_mistaken_is_told() {
    let run = ask("who-can get nodes -n shop");
    assert!(run.stderr.contains("`nodes` are cluster-scoped"), "{run:?}");
    let run = ask("who-can get secret");
    assert!(run.stderr.contains("did you mean `secrets`"), "{run:?}");
    assert_eq!(run.code, 0);
}

#[test]
fn the_rules_of_a_user_are_listed_as_written() {
    let run = ask(&format!(
        "what-can --user oncall-1 --group operators -n shop {AT} -o json"
    ));
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let rule = |verbs: &[&str], via: Value, limits: &[&str]| {
        json!({"verbs": verbs, "apiGroups": [""], "resources": ["secrets"], "names": [], "paths": [],
            "namespace": "", "via": via, "limits": limits, "deniedBy": []})
    };
    assert_eq!(
        report["rules"],
        json!([
            rule(
                &["get", "list"],
                json!({"kind": "ClusterRoleBinding", "namespace": "", "name": "operators", "rule": 0}),
                &[]
            ),
            rule(
                &["get"],
                json!({"kind": "AuthorizationPolicy", "namespace": "", "name": "rota", "rule": 0}),
                &[
                    "condition no-uid: request.uid == ''",
                    "notAfter: 2027-01-01T00:00:00Z"
                ]
            ),
        ])
    );
    let denied = ask("what-can --user bob --group contractors");
    assert_eq!(
        (denied.code, denied.stdout.as_str()),
        (0, "nothing\n"),
        "{denied:?}"
    );
}

#[test]
fn a_matrix_shows_each_verb() {
    let question = format!("what-can --user system:serviceaccount:shop:backup -n shop {AT} -o wide");
    let run = ask(&question);
    assert_eq!(run.code, 0, "{run:?}");
    let groups =
        "--group system:serviceaccounts --group system:serviceaccounts:shop --group system:authenticated";
    assert!(run.stderr.contains(&format!("add `{groups}`")), "{run:?}");
    let complete = ask(&format!("{question} {groups}"));
    assert!(!complete.stderr.contains("left out"), "{complete:?}");
    assert_eq!(
        run.stdout,
        "RESOURCE  get   list  watch  create  update  patch  delete  deletecollection\n\
         secrets   some  -     -      -       -       -      -       -\n"
    );
    assert_eq!(ask("who-can get pods -o wide").code, 2);
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        "who-can get",
        "what-can",
        "who-can get pods -n a -A",
        "who-can get /x --name n",
    ] {
        assert_eq!(ask(arguments).code, 2, "{arguments}");
    }
    let missing = Portcullis::new().run("who-can get pods --manifests nowhere");
    assert_eq!(missing.code, 2, "{missing:?}");
}

/// The outputs in `docs/cli.md` are those of the program.
#[test]
fn the_documentation_shows_what_is_printed() {
    let documentation = include_str!("../../docs/cli.md");
    let portcullis = Portcullis::new();
    portcullis.write("policies/secrets.yaml", POLICIES);
    let mut shown = 0;
    for block in documentation.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let (command, output) = block.split_once('\n').unwrap();
        let Some(arguments) = command.strip_prefix("$ portcullis ") else {
            continue;
        };
        if !arguments.starts_with("who-can") && !arguments.starts_with("what-can") {
            continue;
        }
        shown += 1;
        assert_eq!(portcullis.run(arguments).stdout, output, "{command}");
    }
    assert_eq!(shown, 3);
}

/// Without any binding, the answer would look complete, and name system:masters alone.
#[test]
fn an_answer_without_rbac_says_that_it_is_incomplete_and_how_to_complete_it() {
    let portcullis = Portcullis::new();
    let (_, policies_alone) = POLICIES.split_once("metadata: {name: rota}").unwrap();
    let head = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: rota}";
    portcullis.write("denies/policies.yaml", &format!("{head}{policies_alone}"));
    portcullis.write("all/policies.yaml", POLICIES);
    for question in ["who-can get secrets", "what-can --user alice"] {
        let run = portcullis.run(&format!("{question} --manifests denies"));
        assert_eq!(run.code, 0, "{run:?}");
        let lines: Vec<&str> = run.stderr.lines().collect();
        assert!(
            lines.len() == 1 && lines[0].contains("no RBAC object of the cluster `default` is known here"),
            "{run:?}"
        );
        for remedy in ["`--kubeconfig`", "init DIR --watch`"] {
            assert!(lines[0].contains(remedy), "{run:?}");
        }
        let run = portcullis.run(&format!("{question} --manifests all"));
        assert!(!run.stderr.contains("no RBAC object"), "{run:?}");
        let run = portcullis.run(&format!("{question} --manifests denies -o json"));
        assert_eq!(run.stderr, "", "{run:?}");
    }
}

#[test]
fn roles_that_kubernetes_makes_itself_are_known_and_said_to_be_its_default() {
    let portcullis = Portcullis::new();
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
                   metadata: {name: viewers, namespace: shop}\n\
                   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n\
                   subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: devs}]\n";
    portcullis.write("binding.yaml", binding);
    let ask = "who-can get pods -n shop --manifests binding.yaml";
    let run = portcullis.run(ask);
    // What `view` allows is aggregated of other roles.
    assert!(run.stdout.contains("devs"), "{run:?}");
    let note = "the ClusterRoles `view`, so their Kubernetes defaults are used";
    assert!(run.stderr.contains(note), "{run:?}");
    let denied = portcullis.run("who-can get secrets -n shop --manifests binding.yaml");
    assert!(!denied.stdout.contains("devs"), "{denied:?}");
    let what = portcullis.run("what-can --group devs -n shop --manifests binding.yaml");
    assert!(
        what.stdout.contains("pods") && what.stderr.contains(note),
        "{what:?}"
    );
    // The manifest's own is what counts where there is one.
    portcullis.write(
        "binding.yaml",
        &format!("{binding}---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: view}}\nrules: []\n"),
    );
    let own = portcullis.run(ask);
    assert!(
        !own.stdout.contains("devs") && !own.stderr.contains("Kubernetes defaults are used"),
        "{own:?}"
    );
}

#[test]
fn by_a_configuration_they_count_in_questions_and_not_in_what_serve_would_answer() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    portcullis.write(
        "gateway/policies/binding.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: viewers}\n\
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n\
         subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: devs}]\n",
    );
    let config = "--config gateway/portcullis.yaml";
    let who = portcullis.run(&format!("who-can get pods -n shop {config}"));
    assert!(who.stdout.contains("devs"), "{who:?}");
    for said in [
        "note: the files do not have the ClusterRoles `view`, so their Kubernetes defaults are used",
        "`serve` grants nothing by roles that are not in its files or clusters",
        "init DIR --builtin-roles",
    ] {
        assert!(who.stderr.contains(said), "{said}: {who:?}");
    }
    let ask =
        format!("authorize --user jane --group devs --verb get --resource pods -n shop --name p {config}");
    let decided = portcullis.run(&ask);
    assert!(
        decided.code == 1 && decided.stdout.starts_with("noOpinion: "),
        "{decided:?}"
    );
    assert!(
        decided
            .stderr
            .contains("`view`: their Kubernetes defaults would allow this; `serve` grants nothing"),
        "{decided:?}"
    );
    let other = portcullis.run(&ask.replace("get", "delete"));
    assert!(!other.stderr.contains("Kubernetes' default"), "{other:?}");
    // Where the cluster's own roles are watched, nothing is assumed of them.
    let file = portcullis.path("gateway/portcullis.yaml");
    let watched = std::fs::read_to_string(&file).unwrap() + "clusters: [{name: default, kubeconfig: k}]\n";
    portcullis.write("gateway/portcullis.yaml", &watched);
    portcullis.write("gateway/k", "");
    let who = portcullis.run(&format!("who-can get pods -n shop {config}"));
    assert!(!who.stderr.contains("Kubernetes' default"), "{who:?}");
    assert!(!who.stdout.contains("devs"), "{who:?}");
}
