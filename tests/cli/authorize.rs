//! `portcullis authorize`.

use serde_json::Value;

use crate::run::{Portcullis, Run};

/// A set-up by `init`, in `gateway`, with the example policies.
fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway");
    assert_eq!(run.code, 0, "{run:?}");
    portcullis.write_examples("gateway/policies");
    portcullis
}

fn authorize(portcullis: &Portcullis, arguments: &str) -> Run {
    portcullis.run(&format!("authorize --config gateway/portcullis.yaml {arguments}"))
}

#[test]
fn allow_is_0_and_names_its_cause() {
    let run = authorize(
        &set_up(),
        "--user jane --group team-a --verb get --resource pods/log -n team-a --name web-0",
    );
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("allow: "), "{run:?}");
    assert!(
        run.stdout.contains("cause: RoleBinding/team-a/readers, rule 0"),
        "{run:?}"
    );
}

#[test]
fn deny_is_1_and_gives_the_policy_s_reason() {
    let run = authorize(
        &set_up(),
        "--user a --group agents --verb list --resource pods -n default",
    );
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("deny: "), "{run:?}");
    assert!(
        run.stdout.contains("agents see the pods of their own node"),
        "{run:?}"
    );
    assert!(
        run.stdout
            .contains("cause: AuthorizationPolicy/agents-own-node, rule 0"),
        "{run:?}"
    );
}

#[test]
fn no_opinion_is_1_and_says_why_nothing_matched() {
    let run = authorize(
        &set_up(),
        "--user jane --group team-a --verb list --resource pods -n team-b",
    );
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("noOpinion: "), "{run:?}");
    assert!(
        run.stdout.contains("AuthorizationPolicy/production-guard (Deny)"),
        "{run:?}"
    );
}

#[test]
fn selectors_make_a_request_narrow_enough() {
    let portcullis = set_up();
    let list = "--user a --group agents --verb list --resource pods";
    assert_eq!(
        authorize(
            &portcullis,
            &format!("{list} --field-selector spec.nodeName=node-1")
        )
        .code,
        0
    );
    assert_eq!(
        authorize(
            &portcullis,
            &format!("{list} --field-selector spec.nodeName=node-2")
        )
        .code,
        1
    );
    let both = format!("{list} --field-selector spec.nodeName=node-1 -l app=web,!canary");
    assert_eq!(authorize(&portcullis, &both).code, 0);
}

#[test]
fn a_path_is_decided_too() {
    let portcullis = set_up();
    let discovery = "--user jane --group system:authenticated --verb get --path /apis";
    assert_eq!(authorize(&portcullis, discovery).code, 0);
    assert_eq!(
        authorize(&portcullis, "--user jane --verb get --path /apis").code,
        1
    );
}

#[test]
fn json_has_decision_reason_and_trace() {
    let run = authorize(
        &set_up(),
        "-o json --user a --group agents --verb list --resource pods",
    );
    assert_eq!(run.code, 1, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["decision"], "deny");
    assert!(
        json["reason"]
            .as_str()
            .unwrap()
            .contains("agents see the pods of their own node"),
        "{json}"
    );
    let matched = json["trace"]
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["result"] == "match")
        .unwrap();
    assert_eq!(matched["kind"], "AuthorizationPolicy");
    assert_eq!(matched["name"], "agents-own-node");
}

const REVIEW: &str = r#"{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{
    "user":"jane","group":["team-a"],
    "resourceAttributes":{"verb":"list","resource":"pods","namespace":"team-a"}}}"#;

#[test]
fn a_review_is_decided_from_a_file_and_from_standard_input() {
    let portcullis = set_up();
    portcullis.write("review.json", REVIEW);
    assert_eq!(authorize(&portcullis, "--review review.json").code, 0);
    let arguments = [
        "authorize",
        "--config",
        "gateway/portcullis.yaml",
        "--review",
        "-",
    ];
    assert_eq!(portcullis.run_with(&arguments, REVIEW).code, 0);
}

#[test]
fn wrong_usage_is_2() {
    let portcullis = set_up();
    portcullis.write("review.json", REVIEW);
    for (arguments, said) in [
        ("", "--verb: a verb is required"),
        ("--user jane --verb get", "--resource: "),
        ("--user jane --verb list --resource pods -l a=b=c", "-l: "),
        (
            "--user jane --verb get --resource pods --path /healthz",
            "--resource: cannot be combined with a path",
        ),
        ("--review review.json --user jane", "cannot be used with"),
        ("--review absent.json", "absent.json"),
        ("--user jane --verb get --resource pods --colour", "--colour"),
    ] {
        let run = authorize(&portcullis, arguments);
        assert_eq!(run.code, 2, "`{arguments}`: {run:?}");
        assert!(run.stderr.contains(said), "`{arguments}`: {run:?}");
        assert_eq!(run.stdout, "", "`{arguments}`");
    }
}

#[test]
fn what_is_no_review_is_2() {
    let portcullis = set_up();
    for (text, said) in [
        ("{", "cannot be read"),
        (
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            "expected kind `SubjectAccessReview`",
        ),
        (
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"a"}}"#,
            "cannot decide `",
        ),
    ] {
        portcullis.write("review.json", text);
        let run = authorize(&portcullis, "--review review.json");
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(said), "{run:?}");
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_2_with_its_faults() {
    let portcullis = set_up();
    portcullis.write(
        "gateway/policies/wrong.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: Polizei\n",
    );
    let run = authorize(&portcullis, "--user jane --verb get --resource pods");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr.contains("wrong.yaml:2: ") && run.stderr.contains("`Polizei`"),
        "{run:?}"
    );
    let run = portcullis.run("authorize --config absent.yaml --user jane --verb get --resource pods");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("cannot read `absent.yaml`"), "{run:?}");
}

#[test]
fn a_cluster_has_its_own_policies() {
    let portcullis = set_up();
    portcullis.write(
        "gateway/east/free.yaml",
        "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: free}
spec:
  effect: Allow
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [get], apiGroups: [\"\"], resources: [secrets]}]
",
    );
    let configuration = std::fs::read_to_string(portcullis.path("gateway/portcullis.yaml")).unwrap();
    let with_east = configuration.replace("- policies\n", "- policies\n- {path: east, cluster: east}\n");
    portcullis.write("gateway/portcullis.yaml", &with_east);
    let secret = "--user jane --verb get --resource secrets -n a --name b";
    assert_eq!(authorize(&portcullis, secret).code, 1);
    assert_eq!(
        authorize(&portcullis, &format!("{secret} --cluster east")).code,
        0
    );
    let misspelt = authorize(&portcullis, &format!("{secret} --cluster eats"));
    assert_eq!(misspelt.code, 1);
    let warning = "portcullis.yaml names no cluster `eats`: only manifests for all clusters are used; \
                   `--cluster` takes `default`, `east`";
    assert!(misspelt.stderr.contains(warning), "{misspelt:?}");
    let known = authorize(&portcullis, &format!("{secret} --cluster east"));
    assert_eq!(known.stderr, "");
}

#[test]
fn what_is_saved_of_a_cluster_decides_offline_too() {
    let portcullis = set_up();
    let file = portcullis.path("gateway/portcullis.yaml");
    let config = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{file:?}"));
    let section = "clusters: [{name: default, kubeconfig: absent, cacheFile: saved}]\n";
    portcullis.write("gateway/portcullis.yaml", &(config + section));
    let ask =
        || portcullis.run("authorize --config gateway/portcullis.yaml --user carol --verb get --path /saved");
    let without = ask();
    assert!(without.stdout.starts_with("noOpinion"), "{without:?}");
    assert!(
        without
            .stderr
            .contains("no valid saved objects of the cluster `default`"),
        "{without:?}"
    );

    let policy = r#"{"apiVersion":"portcullis.dev/v1alpha1","kind":"AuthorizationPolicy","metadata":{"name":"saved"},"spec":{"effect":"Deny","subjects":[{"kind":"User","name":"carol"}],"nonResourceRules":[{"verbs":["get"],"paths":["/saved"]}]}}"#;
    let objects = format!("{policy}\n");
    let digest: String = openssl::sha::sha256(objects.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let header = format!(
        r#"{{"apiVersion":"portcullis.dev/v1alpha1","kind":"ClusterSnapshot","cluster":"default","objects":1,"sha256":"{digest}"}}"#
    );
    portcullis.write("gateway/saved", &format!("{header}\n{objects}"));
    let with = ask();
    assert!(
        with.stdout.starts_with("deny") && with.stdout.contains("AuthorizationPolicy/saved"),
        "{with:?}"
    );
    assert_eq!(with.stderr, "");
}

#[test]
fn the_time_may_be_another_than_now() {
    let portcullis = set_up();
    portcullis.write(
        "gateway/policies/window.yaml",
        "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: window}
spec:
  effect: Allow
  notBefore: 2026-12-01T08:00:00Z
  notAfter: 2026-12-01T18:00:00Z
  subjects: [{kind: User, name: wanda}]
  resourceRules: [{verbs: [get], apiGroups: [\"\"], resources: [pods]}]
",
    );
    let asked = "--user wanda --verb get --resource pods -n default --name p";
    for (at, code) in [
        ("2026-12-01T07:59:59Z", 1),
        ("2026-12-01T08:00:00Z", 0),
        ("2026-12-01T18:59:59+01:00", 0),
        ("2026-12-01T18:00:00Z", 1),
    ] {
        let run = authorize(&portcullis, &format!("{asked} --at {at}"));
        assert_eq!(run.code, code, "{at}: {run:?}");
    }
    let run = authorize(&portcullis, &format!("{asked} --at 2026-12-02T00:00:00Z -o json"));
    let answer: Value = serde_json::from_str(&run.stdout).unwrap();
    let trace = answer["trace"].as_array().unwrap();
    let found = trace.iter().find(|event| event["name"] == "window").unwrap();
    assert_eq!(found["result"], "notInForce", "{run:?}");
    assert_eq!(authorize(&portcullis, &format!("{asked} --at noon")).code, 2);
}

#[test]
fn what_kubernetes_does_not_have_is_told_with_what_may_have_been_meant_and_changes_no_decision() {
    let portcullis = set_up();
    for (asked, hint) in [
        (
            "--verb gett --resource pods",
            "no verb `gett`; did you mean `get`?",
        ),
        (
            "--verb get --resource pod",
            "no resource `pod`; did you mean `pods`?",
        ),
        (
            "--verb get --resource deployments",
            "`deployments` is not in the group `\"\"`, but in `\"apps\"`",
        ),
        (
            "--verb get --resource deployments.app",
            "no group `app`; did you mean `apps`?",
        ),
        ("--verb get --resource pods/logs", "did you mean `pods/log`?"),
        (
            "--verb impersonate --resource serviceaccounts -n team-a --name robot",
            "to users who have `impersonate:serviceaccount serviceaccounts.authentication.k8s.io`: check \
            that, too",
        ),
        (
            "--verb list --path /healthz",
            "requests for paths have HTTP methods",
        ),
    ] {
        let asked = format!("--user jane --group team-a {asked}");
        let run = authorize(&portcullis, &asked);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stdout.starts_with("noOpinion: "), "{run:?}");
        assert!(run.stderr.contains(hint), "{run:?}");
        let json = authorize(&portcullis, &format!("{asked} -o json"));
        let explained: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(explained["decision"], "noOpinion");
        assert!(explained["hints"][0].as_str().unwrap().contains(hint), "{json:?}");
        assert_eq!(json.stderr, "");
    }
    let known = "--user jane --group team-a --verb get --resource pods/log -n team-a";
    let run = authorize(&portcullis, known);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let json = authorize(&portcullis, &format!("{known} -o json"));
    assert!(!json.stdout.contains("hints"), "{json:?}");

    portcullis.write(
        "gateway/policies/widgets.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: widgets}\n\
         rules: [{verbs: [getx], apiGroups: [shop], resources: [widgets]}]\n",
    );
    let run = authorize(&portcullis, "--user jane --verb getx --resource widgets.shop");
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
}

#[test]
fn conditions_see_a_review_of_v1beta1_as_one_of_v1() {
    let portcullis = set_up();
    portcullis.write(
        "gateway/policies/shape.yaml",
        "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: shape}
spec:
  effect: Deny
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [list], apiGroups: [\"\"], resources: [pods]}]
  conditions: [{name: c, expression: \"'team-a' in request.groups\"}]
  failurePolicy: NoOpinion
",
    );
    portcullis.write("review.json", REVIEW);
    let run = authorize(&portcullis, "--review review.json");
    assert!(
        run.stdout.contains("cause: AuthorizationPolicy/shape, rule 0"),
        "{run:?}"
    );
}
