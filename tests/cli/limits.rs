//! AuthorizationPolicies with `effect: Limit`, by every command that knows policies.

use serde_json::Value;

use crate::run::{Portcullis, Run};

/// An agent that is bound to a role that is too wide, and its Limit.
const GRANT: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: wide}
rules:
- {apiGroups: [""], resources: [pods, secrets], verbs: [get, list, create]}
- {nonResourceURLs: ["*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agents}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: wide}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bot}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}
"#;

const LIMIT: &str = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: bots-look}
spec:
  effect: Limit
  subjects: [{kind: User, name: bot}]
  resourceRules:
  - {verbs: [get, list], apiGroups: [""], resources: [pods], namespaces: [a, b]}
  - {verbs: [create], apiGroups: [authorization.k8s.io, authentication.k8s.io], resources: [selfsubjectaccessreviews, selfsubjectrulesreviews, selfsubjectreviews]}
  reason: bots look
"#;

fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("grant/grant.yaml", GRANT);
    portcullis.write("both/grant.yaml", GRANT);
    portcullis.write("both/limit.yaml", LIMIT);
    portcullis.write("limit.yaml", LIMIT);
    portcullis
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

#[test]
fn authorize_says_what_is_beyond_a_limit_and_what_is_within() {
    let portcullis = set_up();
    let ask = |arguments: &str| portcullis.run(&format!("authorize --manifests both {arguments}"));
    let within = ask("--user bot --verb list --resource pods -n a");
    assert_eq!(within.code, 0, "{within:?}");
    assert!(
        within.stdout.contains("AuthorizationPolicy/bots-look (Limit)"),
        "{within:?}"
    );
    assert!(within.stdout.contains("rule 0 covers the request"), "{within:?}");
    let beyond = ask("--user bot --verb get --resource secrets -n a --name db");
    assert_eq!(beyond.code, 1, "{beyond:?}");
    let start = "deny: beyond the limit bots-look: bots look\ncause: AuthorizationPolicy/bots-look\n";
    assert!(beyond.stdout.starts_with(start), "{beyond:?}");
    let said = "no rule covers the request: deny; nearest is rule 0: not this resource (`resources`)";
    assert!(beyond.stdout.contains(said), "{beyond:?}");
    // A list of all namespaces is wider than the rule.
    assert_eq!(ask("--user bot --verb list --resource pods").code, 1);
    // Paths are not limited, and others are not.
    assert_eq!(ask("--user bot --verb get --path /metrics").code, 0);
    assert_eq!(
        ask("--user ann --verb get --resource secrets -n a --name db").code,
        0
    );
    let report = json(&ask("--user bot --verb delete --resource pods -n a -o json"));
    assert_eq!(report["trace"][0]["effect"], "Limit");
    assert_eq!(report["trace"][0]["result"], "beyondLimit");
    assert_eq!(report["trace"][0]["criterion"], "verbs");
}

#[test]
fn the_paths_of_a_limit_are_said_as_they_are_written() {
    let portcullis = set_up();
    let paths = "\n  nonResourceRules: [{verbs: [get], paths: [/api, '/api/*']}]\n";
    portcullis.write("both/limit.yaml", &format!("{}{paths}", LIMIT.trim_end()));
    let run = portcullis.run("what-can --user bot -A --manifests both");
    assert!(run.stdout.contains("; get /api,/api/*: bots look"), "{run:?}");
}

#[test]
fn who_can_and_what_can_know_what_a_limit_leaves() {
    let portcullis = set_up();
    let users = |arguments: &str| -> Vec<String> {
        let run = portcullis.run(&format!("who-can {arguments} --manifests both -o json"));
        let report = json(&run);
        let subjects = report["subjects"].as_array().unwrap();
        let users = subjects.iter().filter(|subject| subject["kind"] == "User");
        users
            .map(|subject| subject["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(users("get secrets -n a"), ["ann"]);
    assert_eq!(users("get pods -n a"), ["ann", "bot"]);
    assert_eq!(users("get pods -n c"), ["ann"]);
    assert_eq!(users("create pods -A"), ["ann"]);
    let run = portcullis.run("what-can --user bot -A --manifests both");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("get,list,create  pods,secrets"), "{run:?}");
    let said = "AuthorizationPolicy/bots-look denies all but get,list pods (namespaces: a, b); \
                create selfsubjectaccessreviews,selfsubjectrulesreviews,selfsubjectreviews of \
                authorization.k8s.io,authentication.k8s.io: bots look";
    assert!(run.stdout.contains(said), "{run:?}");
    let wide = portcullis.run("what-can --user bot -n a --manifests both -o wide");
    let row = |resource: &str| -> Vec<String> {
        let rows = wide.stdout.lines();
        let row = rows
            .filter(|line| line.starts_with(resource))
            .map(str::to_owned)
            .next();
        let row = row.unwrap_or_default();
        row.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    assert_eq!(
        row("pods "),
        ["yes", "yes", "-", "-", "-", "-", "-", "-"],
        "{wide:?}"
    );
    assert!(!wide.stdout.contains("secrets"), "{wide:?}");
}

#[test]
fn diff_tells_exactly_what_a_limit_takes_away_and_gives_back() {
    let portcullis = set_up();
    let run = portcullis.run("diff grant both -o json");
    let report = json(&run);
    assert_eq!(report["gains"], serde_json::json!([]), "{report:#}");
    let losses = report["losses"].as_array().unwrap();
    assert!(!losses.is_empty());
    for loss in losses {
        assert_eq!(loss["after"]["cause"]["name"], "bots-look", "{loss:#}");
        assert_eq!(
            loss["box"]["users"],
            serde_json::json!({"in": ["bot"]}),
            "{loss:#}"
        );
    }
    let back = portcullis.run("diff both grant --no-new-access");
    assert_eq!(back.code, 1, "{back:?}");
    // A rule more lets more through, and says what.
    let wider = LIMIT.replace("resources: [pods]", "resources: [pods, secrets]");
    portcullis.write("wider/limit.yaml", &wider);
    portcullis.write("wider/grant.yaml", GRANT);
    let report = json(&portcullis.run("diff both wider -o json"));
    let gains = report["gains"].as_array().unwrap();
    assert_eq!(gains.len(), 1, "{report:#}");
    assert_eq!(
        gains[0]["box"]["resources"],
        serde_json::json!({"in": ["secrets"]})
    );
    assert_eq!(
        gains[0]["box"]["namespaces"],
        serde_json::json!({"in": ["a", "b"]})
    );
    assert_eq!(
        gains[0]["box"]["verbs"],
        serde_json::json!({"in": ["get", "list"]})
    );
    assert_eq!(report["losses"], serde_json::json!([]));
}

#[test]
fn an_invariant_is_kept_by_a_limit_and_broken_without_it() {
    let invariant = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: secrets}
spec:
  only: [{kind: User, name: ann}]
  resourceRules: [{verbs: ["*"], apiGroups: [""], resources: [secrets]}]
  enforcement: Refuse
"#;
    let portcullis = set_up();
    portcullis.write("invariant.yaml", invariant);
    let kept = portcullis.run("check both invariant.yaml");
    assert_eq!(kept.code, 0, "{kept:?}");
    let broken = portcullis.run("check grant invariant.yaml");
    assert_eq!(broken.code, 1, "{broken:?}");
}

#[test]
fn convert_leaves_a_limit_where_it_is() {
    let portcullis = set_up();
    let run = portcullis.run("convert limit.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr
            .contains("a Limit also applies to reads and paths, which do not pass through admission"),
        "{run:?}"
    );
}

#[test]
fn faults_of_a_limit_say_what_to_write() {
    let portcullis = set_up();
    let check = |from: &str, to: &str| {
        assert!(LIMIT.contains(from), "{from}");
        portcullis.write("faulty.yaml", &LIMIT.replace(from, to));
        let run = portcullis.run("check faulty.yaml");
        format!("{}{}", run.stdout, run.stderr)
    };
    let said = check("effect: Limit", "effect: Limits");
    assert!(
        said.contains("spec.effect") && said.contains("did you mean `Limit`?"),
        "{said}"
    );
    let said = check(
        "namespaces: [a, b]",
        "unlessSelectors: {label: [{key: a, operator: Exists}]}",
    );
    assert!(
        said.contains("allowed only in a Deny: use `selectors` in an Allow or Limit"),
        "{said}"
    );
    let said = check("  reason: bots look", "  failurePolicy: NoOpinion");
    assert!(said.contains("valid"), "{said}");
}

#[test]
fn coverage_counts_what_lies_within_a_limit_and_what_is_beyond() {
    let portcullis = set_up();
    let suite = |cases: &str| {
        let suite = format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmetadata: {{name: s}}\nmanifests: [limit.yaml]\ncases:\n{cases}"
        );
        portcullis.write("suite.yaml", &suite);
        portcullis.run("test --coverage suite.yaml")
    };
    let beyond =
        "- {name: beyond, request: {user: bot, verb: get, resource: secrets}, expect: {decision: deny}}\n";
    let within = "- {name: within, request: {user: bot, verb: get, resource: pods, namespace: a}, expect: {decision: noOpinion}}\n";
    let run = suite(beyond);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains("policies 1/1") && run.stdout.contains("rules 0/2"),
        "{run:?}"
    );
    let run = suite(&format!("{beyond}{within}"));
    assert!(run.stdout.contains("rules 1/2"), "{run:?}");
}

#[test]
fn escalations_list_apart_what_only_a_limit_prevents() {
    let grants = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: deploy}
rules: [{apiGroups: [""], resources: [pods], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bot, namespace: ci}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: deploy}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bot}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: deployer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything}
subjects: [{kind: ServiceAccount, name: deployer, namespace: ci}]
"#;
    let portcullis = Portcullis::new();
    portcullis.write("free/grants.yaml", grants);
    let free = portcullis.run("escalations --manifests free");
    let path = "User bot can become ClusterRole cluster-admin\n";
    assert!(free.stdout.contains(path), "{free:?}");
    portcullis.write("limited/grants.yaml", grants);
    portcullis.write("limited/limit.yaml", LIMIT);
    let limited = portcullis.run("escalations --manifests limited");
    let (open, prevented) = limited
        .stdout
        .split_once("Prevented only by policies:\n")
        .unwrap();
    assert!(!open.contains("User bot"), "{limited:?}");
    assert!(
        prevented.contains("prevented by AuthorizationPolicy/bots-look"),
        "{limited:?}"
    );
}
