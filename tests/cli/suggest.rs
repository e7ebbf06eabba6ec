//! `portcullis suggest`.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

/// The log behind what `docs/cli.md` shows.
fn log() -> String {
    let deployment = json!({"verb": "get", "namespace": "shop", "group": "apps", "version": "v1",
        "resource": "deployments", "name": "web"});
    let pods = json!({"verb": "list", "namespace": "shop", "version": "v1", "resource": "pods"});
    let secret =
        json!({"verb": "get", "namespace": "shop", "version": "v1", "resource": "secrets", "name": "db"});
    let metrics = json!({"verb": "get", "path": "/metrics"});
    let (developers, prometheus) = (
        json!({"kind": "RoleBinding", "namespace": "shop", "name": "developers", "rule": 0}),
        json!({"kind": "ClusterRoleBinding", "name": "prometheus", "rule": 0}),
    );
    let rota = json!({"kind": "AuthorizationPolicy", "name": "rota", "rule": 0});
    let scraper = "system:serviceaccount:monitoring:prometheus";
    [
        line("08:00", "jane", &deployment, "allow", &developers),
        line("08:01", "jane", &pods, "allow", &developers),
        line("08:02", "jane", &secret, "allow", &developers),
        line("08:03", scraper, &metrics, "allow", &prometheus),
        line("08:04", "jane", &secret, "allow", &rota),
        line("08:05", "jane", &metrics, "noOpinion", &Value::Null),
    ]
    .concat()
}

fn line(time: &str, user: &str, attributes: &Value, decision: &str, cause: &Value) -> String {
    let mut line = json!({"time": format!("2026-11-21T{time}:00.000000Z"), "revision": "8f2c41d09a7b",
        "cluster": "default", "caller": "kube-apiserver", "endpoint": "authorize", "uid": "", "user": user,
        "groups": ["system:authenticated"], "attributes": attributes, "decision": decision, "reason": "",
        "shadow": [], "durationSeconds": 0.000001});
    if !cause.is_null() {
        line["cause"] = cause.clone();
    }
    format!("{line}\n")
}

const POLICIES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: developer, namespace: shop}
rules:
- {apiGroups: ["", apps], resources: [pods, deployments, secrets], verbs: [get, list]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: developer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: dev}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: controllers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, namespace: kube-system, name: generic-garbage-collector}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: rota}
spec:
  effect: Allow
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-exec}
spec:
  effect: Deny
  subjects: [{kind: Group, name: dev}]
  resourceRules: [{verbs: [create], apiGroups: [""], resources: [pods/exec]}]
"#;

fn suggest(arguments: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("decisions.log", &log());
    portcullis.write("policies/shop.yaml", POLICIES);
    portcullis.run(&format!("suggest {arguments}"))
}

fn json_of(run: &Run) -> Value {
    assert_eq!(run.code, 0, "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn the_documents_show_what_it_prints() {
    let run = suggest("decisions.log --manifests policies");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let shown = include_str!("../../docs/cli.md");
    let transcript = format!(
        "$ portcullis suggest decisions.log --manifests policies\n{}",
        run.stdout
    );
    assert!(shown.contains(&transcript), "{transcript}");
}

#[test]
fn what_is_suggested_has_no_fault() {
    let portcullis = Portcullis::new();
    portcullis.write("decisions.log", &log());
    for flags in ["", "--all --with-sensitive"] {
        let suggested = portcullis.run(&format!("suggest decisions.log {flags}"));
        portcullis.write("suggested/rbac.yaml", &suggested.stdout);
        let check = portcullis.run("check suggested");
        assert_eq!(check.code, 0, "{check:?} {suggested:?}");
        let ask = |arguments: &str| {
            let run = portcullis.run(&format!(
                "authorize --manifests suggested --user jane {arguments}"
            ));
            run.code
        };
        let secret = "--verb get --resource secrets -n shop --name db";
        let expected = i32::from(flags.is_empty());
        assert_eq!(ask(secret), expected, "{}", suggested.stdout);
        assert_eq!(
            ask("--verb get --resource deployments.apps -n shop --name web"),
            0
        );
        assert_eq!(
            ask("--verb get --resource deployments.apps -n shop --name other"),
            1
        );
    }
}

#[test]
fn programs_get_the_objects_and_what_was_left_out() {
    let report = json_of(&suggest("decisions.log -o json"));
    let kinds = |list: &str| -> Vec<String> {
        let objects = report[list].as_array().unwrap().iter();
        objects
            .map(|object| format!("{}/{}", object["kind"], object["metadata"]["name"]).replace('"', ""))
            .collect()
    };
    assert_eq!(
        kinds("objects"),
        [
            "Role/suggested:jane",
            "RoleBinding/suggested:jane",
            "ClusterRole/suggested:monitoring:prometheus",
            "ClusterRoleBinding/suggested:monitoring:prometheus",
        ]
    );
    assert_eq!(
        kinds("sensitive"),
        [
            "Role/suggested-sensitive:jane",
            "RoleBinding/suggested-sensitive:jane"
        ]
    );
    assert_eq!(
        report["seen"],
        json!({"files": 1, "lines": 6, "broken": 0, "pathToken": 0, "allowed": 5,
            "from": "2026-11-21T08:00:00Z", "to": "2026-11-21T08:05:00Z"})
    );
    assert_eq!(
        report["leftOut"],
        json!([{"reason": "notByRbac", "lines": 1, "first": {"file": "decisions.log", "line": 5}}])
    );
    assert_eq!(report["unused"], Value::Null);
    assert_eq!(
        json_of(&suggest("decisions.log --all -o json"))["leftOut"],
        json!([])
    );
}

#[test]
fn what_decided_nothing_is_listed() {
    let unused = &json_of(&suggest("decisions.log --manifests policies -o json"))["unused"];
    assert_eq!(
        *unused,
        json!({
            "objects": ["ClusterRoleBinding/controllers", "ClusterRoleBinding/readers", "AuthorizationPolicy/no-exec"],
            "rules": [{"object": "RoleBinding/shop/developers", "role": "Role/shop/developer", "rule": 1}],
            "unseen": [],
            "coverage": {"objects": 5, "usedObjects": 2, "rules": 6, "usedRules": 2},
        })
    );
}

#[test]
fn of_those_about_whom_nobody_asks_nothing_is_said() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gate").code, 0);
    portcullis.write("gate/policies/shop.yaml", POLICIES);
    portcullis.write("decisions.log", &log());
    let run = portcullis.run("suggest decisions.log --config gate/portcullis.yaml -o json");
    let report = json_of(&run);
    assert_eq!(
        report["unused"]["unseen"],
        json!([{
            "object": "ClusterRoleBinding/controllers",
            "subject": "ServiceAccount/kube-system/generic-garbage-collector",
        }]),
        "{run:?}"
    );
    let conditions = report["neverAsked"].as_array().unwrap();
    let mut conditions = conditions.iter().filter_map(Value::as_str);
    assert!(conditions.any(|condition| condition.contains("system:serviceaccounts:kube-system")));
}

#[test]
fn a_broken_line_is_named_and_skipped() {
    let portcullis = Portcullis::new();
    let whole = log();
    let cut = &whole[..whole.len() - 30];
    let broken = format!("{{\"user\": 1}}\n\n{cut}");
    portcullis.write("decisions.log", &broken);
    let run = portcullis.run("suggest decisions.log -o json");
    assert_eq!(json_of(&run)["seen"]["lines"], 5);
    assert_eq!(json_of(&run)["seen"]["broken"], 2);
    let told: Vec<&str> = run.stderr.lines().collect();
    assert!(
        told[0].starts_with("portcullis: warning: decisions.log:1: skipped: not a line of a decision log: "),
        "{run:?}"
    );
    assert_eq!(
        told[1],
        "portcullis: warning: decisions.log:8: skipped: cut off: the program ended while it wrote the line"
    );
}

#[test]
fn what_is_no_decision_log_is_refused() {
    for (content, told) in [
        (&b"hello\n"[..], "is not a decision log"),
        (&[0x1f, 0x8b, 8, 0][..], "is compressed: decompress it"),
    ] {
        let portcullis = Portcullis::new();
        std::fs::write(portcullis.path("log"), content).unwrap();
        let run = portcullis.run("suggest log");
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains(told), "{run:?}");
    }
    let missing = Portcullis::new().run("suggest nowhere.log");
    assert_eq!(missing.code, 2, "{missing:?}");
    assert_eq!(Portcullis::new().run("suggest").code, 2);
}

#[test]
fn the_cluster_is_chosen_where_the_log_has_several() {
    let portcullis = Portcullis::new();
    let other = log().replace("\"cluster\":\"default\"", "\"cluster\":\"east\"");
    portcullis.write("decisions.log", &(log() + &other.replace("jane", "june")));
    let run = portcullis.run("suggest decisions.log");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .contains("`default`, `east`: choose one with `--cluster`"),
        "{run:?}"
    );
    let run = portcullis.run("suggest decisions.log --cluster east");
    assert!(
        run.stdout.contains("june") && !run.stdout.contains("jane"),
        "{run:?}"
    );
}

#[test]
fn standard_input_is_a_log_too() {
    let run = Portcullis::new().run_with(&["suggest", "-"], &log());
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.stdout.matches("\"suggested:jane\"").count(), 3, "{run:?}");
}

/// A user's name is text of others: it breaks nobody's roles.
#[test]
fn a_hostile_user_leaves_what_is_suggested_readable() {
    let pods = json!({"verb": "list", "namespace": "shop", "version": "v1", "resource": "pods"});
    let cause = json!({"kind": "RoleBinding", "namespace": "shop", "name": "developers", "rule": 0});
    let user = "x\n::error::forged\u{202e}\u{1b}[31m ##[error] # y";
    let portcullis = Portcullis::new();
    let lines = [user, "jane"].map(|user| line("08:00", user, &pods, "allow", &cause));
    portcullis.write("decisions.log", &lines.concat());
    let run = portcullis.run("suggest decisions.log");
    assert_eq!(run.code, 0, "{run:?}");
    let documents = portcullis_policy::document::parse(None, &run.stdout).unwrap();
    let subjects = documents.iter().filter_map(|document| {
        let object = document.root().to_json();
        Some(object["subjects"].get(0)?["name"].clone())
    });
    let mut subjects: Vec<Value> = subjects.collect();
    subjects.sort_by_key(ToString::to_string);
    assert_eq!(subjects, [json!("jane"), json!(user)], "{}", run.stdout);
}

/// A file of usage with each line of [`log`] as a row, counted so often.
fn usage(count: u64) -> String {
    let counts =
        format!(",\"count\":{count},\"first\":\"2026-11-21T08:00:00Z\",\"last\":\"2026-11-21T08:05:00Z\"}}");
    let mut file = "{\"portcullisUsage\":1}\n".to_owned();
    for line in log().lines() {
        let mut row: Value = serde_json::from_str(line).unwrap();
        for field in ["time", "revision", "uid", "groups", "reason", "durationSeconds"] {
            row.as_object_mut().unwrap().remove(field);
        }
        let row = row.to_string();
        file += &format!("{}{counts}\n", row.strip_suffix('}').unwrap());
    }
    file
}

#[test]
fn counts_suggest_what_the_log_suggests() {
    let portcullis = Portcullis::new();
    portcullis.write("decisions.log", &log());
    portcullis.write("policies/shop.yaml", POLICIES);
    // Two replicas, one of which began again.
    portcullis.write("usage/usage-20261121T08Z-a.jsonl", &usage(40));
    portcullis.write("usage/usage-20261121T08Z-b.jsonl", &usage(2));
    portcullis.write("usage/usage-20261121T08Z-b.jsonl.new", "cut off");
    portcullis.write("other/usage-20261121T08Z-a.jsonl", &usage(100));
    let of_log = json_of(&portcullis.run("suggest decisions.log --manifests policies -o json"));
    let of_usage = json_of(&portcullis.run("suggest --usage usage other --manifests policies -o json"));
    for part in ["objects", "sensitive", "unused"] {
        assert_eq!(of_log[part], of_usage[part], "{part}");
    }
    assert_eq!(
        of_usage["seen"],
        json!({"files": 3, "lines": 0, "decisions": 6 * 142, "broken": 0, "pathToken": 0, "allowed": 5 * 142,
            "from": "2026-11-21T08:00:00Z", "to": "2026-11-21T08:05:00Z"})
    );
    assert_eq!(of_usage["leftOut"][0]["lines"], 142);
    assert_eq!(
        of_usage["used"][3],
        json!({"object": "ClusterRoleBinding/prometheus", "rule": 0, "count": 142,
            "first": "2026-11-21T08:00:00Z", "last": "2026-11-21T08:05:00Z"})
    );
    let both = json_of(&portcullis.run("suggest decisions.log --usage other -o json"));
    assert_eq!(
        (&both["seen"]["lines"], &both["seen"]["decisions"]),
        (&json!(6), &json!(600))
    );
    assert_eq!(both["objects"], of_log["objects"]);
}

#[test]
fn what_usage_counts_without_the_question_is_left_out_and_said() {
    let portcullis = Portcullis::new();
    let other = |decision| {
        format!(
            "{{\"cluster\":\"default\",\"user\":\"crawler\",\"other\":true,\"endpoint\":\"authorize\",\
             \"attributes\":{{\"verb\":\"get\"}},\"decision\":\"{decision}\",\"count\":9000,\
             \"first\":\"2026-11-21T08:00:00Z\",\"last\":\"2026-11-21T08:05:00Z\"}}\n"
        )
    };
    let file = usage(1) + &other("allow") + &other("noOpinion");
    portcullis.write("usage/usage-20261121T08Z-a.jsonl", &file);
    let run = portcullis.run("suggest --usage usage");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout
            .contains("# Left out (9000, the first at usage/usage-20261121T08Z-a.jsonl:8): counted without"),
        "{run:?}"
    );
    assert!(!run.stdout.contains("crawler"), "{run:?}");
    assert!(
        run.stdout
            .starts_with("# Suggested from 18006 decisions that usage counts, 5 of which"),
        "{run:?}"
    );
}

#[test]
fn what_is_no_folder_of_usage_is_refused() {
    let portcullis = Portcullis::new();
    portcullis.write("empty/notes.txt", "");
    portcullis.write("log/usage-20261121T08Z-a.jsonl", &log());
    for (folder, told) in [
        ("empty", "there is no file of usage in `empty`"),
        ("log", "the first line does not contain `portcullisUsage`"),
        ("nowhere", "there is no such file or folder"),
    ] {
        let run = portcullis.run(&format!("suggest --usage {folder}"));
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains(told), "{run:?}");
    }
}

#[test]
fn what_callers_with_a_path_token_claim_counts_only_if_it_is_asked_for() {
    let portcullis = Portcullis::new();
    let claimed = log().replace("kube-apiserver", "pathToken");
    portcullis.write("all.log", &format!("{}{claimed}", log()));
    portcullis.write("claimed.log", &claimed);
    let seen = |arguments: &str| {
        let run = portcullis.run(&format!("suggest {arguments} -o json"));
        let said: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
        (said["seen"]["lines"].clone(), said["seen"]["pathToken"].clone())
    };
    assert_eq!(seen("all.log"), (json!(6), json!(6)));
    assert_eq!(seen("all.log --with-path-token"), (json!(12), json!(0)));
    let counted = usage(3).replace(r#""caller":"kube-apiserver""#, r#""caller":"pathToken""#);
    portcullis.write("usage/usage-20261121T08Z-a.jsonl", &counted);
    let of_usage =
        |more: &str| json_of(&portcullis.run(&format!("suggest decisions.log --usage usage -o json{more}")));
    portcullis.write("decisions.log", &log());
    assert_eq!(of_usage("")["seen"]["pathToken"], json!(18));
    assert_eq!(of_usage(" --with-path-token")["seen"]["decisions"], json!(18));
    let run = portcullis.run("suggest claimed.log");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("`--with-path-token` includes"), "{run:?}");
    let run = portcullis.run("suggest all.log");
    assert!(
        run.stdout
            .contains("# Left out (6): decisions for callers with a path token"),
        "{run:?}"
    );
}
