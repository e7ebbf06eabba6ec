//! Metrics, probes and the decision log.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Gateway, JANE_GETS, by_time, get, until, v1};

#[test]
fn every_series_that_is_known_is_there_at_the_start() {
    let gateway = Gateway::usual();
    let metrics = gateway.metrics();
    for series in [
        r#"portcullis_http_requests_total{code="200",endpoint="authorize"} 0"#,
        r#"portcullis_http_requests_total{code="429",endpoint="authorize"} 0"#,
        r#"portcullis_authorization_decisions_total{decision="allow"} 0"#,
        r#"portcullis_authorization_decisions_total{decision="deny"} 0"#,
        r#"portcullis_authorization_decisions_total{decision="noOpinion"} 0"#,
        r#"portcullis_admission_decisions_total{decision="allow",phase="validate"} 0"#,
        r#"portcullis_decision_duration_seconds_count{endpoint="authorize"} 0"#,
        r#"portcullis_authentication_attempts_total{method="certificate",result="success"} 0"#,
        r#"portcullis_reloads_total{result="failure"} 0"#,
        r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="locked-out",result="match"} 0"#,
        r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="trial",result="shadowDeny"} 0"#,
        r#"portcullis_in_flight_requests{endpoint="authorize"} 0"#,
        "portcullis_decision_log_dropped_total 0",
        "portcullis_last_reload_success_timestamp_seconds",
        "portcullis_certificate_expiry_timestamp_seconds{file=",
        "portcullis_build_info{",
    ] {
        assert!(
            metrics.lines().any(|line| line.starts_with(series)),
            "{series} is not in\n{metrics}"
        );
    }
}

#[test]
fn answers_are_counted() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    connection.authorize(v1(JANE_GETS));
    connection.authorize(v1(
        r#"{"user":"x","groups":["locked"],"nonResourceAttributes":{}}"#,
    ));
    connection.authorize(v1(
        r#"{"user":"jane","resourceAttributes":{"verb":"list","resource":"pods"}}"#,
    ));
    connection.authorize("{");
    gateway
        .stranger()
        .connect(gateway.addresses.server)
        .authorize("{");
    for (series, value) in [
        (
            r#"portcullis_http_requests_total{code="200",endpoint="authorize"}"#,
            3.0,
        ),
        (
            r#"portcullis_http_requests_total{code="400",endpoint="authorize"}"#,
            1.0,
        ),
        (
            r#"portcullis_http_requests_total{code="401",endpoint="authorize"}"#,
            1.0,
        ),
        (
            r#"portcullis_authorization_decisions_total{decision="allow"}"#,
            2.0,
        ),
        (
            r#"portcullis_authorization_decisions_total{decision="deny"}"#,
            1.0,
        ),
        (
            r#"portcullis_decision_duration_seconds_count{endpoint="authorize"}"#,
            3.0,
        ),
        (
            r#"portcullis_authentication_attempts_total{method="certificate",result="success"}"#,
            4.0,
        ),
        (
            r#"portcullis_authentication_attempts_total{method="none",result="failure"}"#,
            1.0,
        ),
        (
            r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="locked-out",result="match"}"#,
            1.0,
        ),
        (
            r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="trial",result="shadowDeny"}"#,
            1.0,
        ),
    ] {
        assert_eq!(gateway.metric(series), value, "{series}");
    }
}

#[test]
fn a_limit_is_counted_and_logged_like_a_deny_without_a_rule() {
    let gateway = Gateway::usual();
    let limit = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: bots-look}
spec:
  effect: Limit
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}]
  reason: look
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: bots-in-trial}
spec:
  effect: Limit
  mode: Shadow
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [list], apiGroups: [''], resources: [pods]}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: jane-may}
spec:
  effect: Allow
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]
";
    gateway.reload(&[("policies/all.yaml", limit.as_bytes())]);
    let mut connection = gateway.connect();
    let mut ask = |verb: &str| {
        let spec = json!({"user": "jane", "resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "a"}});
        connection.authorize(v1(&spec.to_string())).json()["status"].clone()
    };
    assert_eq!(ask("get")["allowed"], true);
    let refused = ask("delete");
    assert_eq!(
        refused,
        json!({"allowed": false, "denied": true, "reason": "beyond the limit bots-look: look"})
    );
    let count = |name: &str, result: &str| {
        gateway.metric(&format!(
            "portcullis_policy_evaluations_total{{kind=\"AuthorizationPolicy\",name=\"{name}\",result=\"{result}\"}}"
        ))
    };
    assert_eq!(count("bots-look", "match"), 1.0);
    assert_eq!(count("bots-look", "noMatch"), 1.0);
    assert_eq!(count("bots-in-trial", "shadowDeny"), 2.0);
    let lines = lines(&gateway, 2);
    let line = lines.iter().find(|line| line["decision"] == "deny").unwrap();
    assert_eq!(
        line["cause"],
        json!({"kind": "AuthorizationPolicy", "name": "bots-look"})
    );
    assert_eq!(line["shadow"][0]["name"], "bots-in-trial");
}

#[test]
fn probes_answer_and_list_their_checks() {
    let gateway = Gateway::usual();
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(get(gateway.addresses.admin, path), (200, "ok".to_owned()));
    }
    let revision = gateway.state.current().revision.to_string();
    let verbose = || get(gateway.addresses.admin, "/readyz?verbose").1;
    let expected =
        format!("[+]ping ok\n[+]serving ok\nrevision {revision} is in force\nreadyz check passed\n");
    assert_eq!(verbose(), expected);
    assert_eq!(get(gateway.addresses.admin, "/authorize").0, 404);

    std::fs::write(gateway.file("policies/all.yaml"), "kind: Nonsense\n").unwrap();
    gateway.reloader.trigger().reload();
    until("the reload fails", || gateway.state.last_failure().is_some());
    let verbose = verbose();
    assert!(
        verbose.contains(&format!("revision {revision} is in force\n")),
        "{verbose}"
    );
    assert!(
        verbose.contains("the files on disk are not in force"),
        "{verbose}"
    );
    assert_eq!(
        get(gateway.addresses.admin, "/readyz").0,
        200,
        "the last good files serve"
    );
}

fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let read = || std::fs::read_to_string(gateway.file("decisions.log")).unwrap();
    until("the lines are written", || read().lines().count() >= count);
    let text = read();
    assert!(!text.contains("right-token"));
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    by_time(lines.collect())
}

/// Near misses are in the log from the reload on that asks for them.
#[test]
fn the_rules_that_came_nearest_are_logged_where_asked_for() {
    let gateway = Gateway::usual();
    let ask = || {
        let spec = r#"{"user":"jane","resourceAttributes":{"verb":"delete","resource":"pods"}}"#;
        assert_eq!(gateway.connect().authorize(v1(spec)).status, 200);
    };
    ask();
    let config = std::fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let config = config.replace(
        "{path: decisions.log}",
        "{path: decisions.log, trace: nearMisses}",
    );
    gateway.reload(&[("config.yaml", config.as_bytes())]);
    ask();
    let lines = lines(&gateway, 2);
    assert!(lines[0].get("nearMisses").is_none());
    assert_eq!(
        lines[1]["nearMisses"],
        json!([{"kind": "ClusterRoleBinding", "name": "jane-reads", "rule": 0, "criterion": "verbs"}])
    );
}

#[test]
fn each_decision_has_a_line_that_names_its_cause() {
    let gateway = Gateway::usual();
    let mut connection = gateway.stranger().connect(gateway.addresses.server);
    for spec in [
        JANE_GETS,
        r#"{"user":"x","groups":["locked"],"extra":{"scopes":["a"]},"resourceAttributes":{"verb":"list","resource":"pods",
            "fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n"]}]}}}"#,
        r#"{"user":"joe","nonResourceAttributes":{"path":"/x","verb":"get"}}"#,
        r#"{"user":"jane","resourceAttributes":{"verb":"list","resource":"pods"}}"#,
    ] {
        let head =
            "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer right-token";
        assert_eq!(connection.request(head, v1(spec).as_bytes()).status, 200);
    }
    let lines = lines(&gateway, 4);
    let decisions: Vec<_> = lines
        .iter()
        .map(|line| line["decision"].as_str().unwrap())
        .collect();
    assert_eq!(decisions, ["allow", "deny", "noOpinion", "allow"]);
    let revision = gateway.state.current().revision.to_string();
    for line in &lines {
        assert_eq!(
            (&line["cluster"], &line["endpoint"]),
            (&json!("default"), &json!("authorize"))
        );
        assert_eq!(line["revision"], json!(revision));
        assert!(
            line["caller"]
                .as_str()
                .unwrap()
                .contains("authorization.kubeconfig"),
            "{line}"
        );
        assert!(line["time"].as_str().unwrap().ends_with('Z') && line["durationSeconds"].is_f64());
    }
    assert_eq!(lines[0]["cause"]["name"], "jane-reads");
    assert_eq!(
        (&lines[0]["uid"], &lines[0]["user"]),
        (&json!("u-1"), &json!("jane"))
    );
    assert_eq!(
        lines[1]["cause"],
        json!({"kind": "AuthorizationPolicy", "name": "locked-out", "rule": 0})
    );
    assert_eq!(lines[1]["attributes"]["extra"], json!({"scopes": ["a"]}));
    assert_eq!(
        lines[1]["attributes"]["fieldSelector"]["requirements"][0]["values"],
        json!(["n"])
    );
    assert!(lines[2].get("cause").is_none());
    assert_ne!(lines[2]["reason"], "", "why nothing matched");
    assert_eq!(
        lines[3]["shadow"],
        json!([{"kind": "AuthorizationPolicy", "name": "trial", "decision": "deny"}])
    );
}

#[test]
fn a_changed_policy_holds_for_the_next_request_and_its_series_follow() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    let ask = v1(r#"{"user":"joe","nonResourceAttributes":{"path":"/x","verb":"get"}}"#);
    assert_eq!(connection.authorize(&ask).json()["status"]["allowed"], false);
    let policy = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: joe-may}
spec:
  effect: Allow
  subjects: [{kind: User, name: joe}]
  nonResourceRules: [{verbs: [get], paths: [/x]}]
";
    gateway.reload(&[("policies/all.yaml", policy.as_bytes())]);
    assert_eq!(connection.authorize(&ask).json()["status"]["allowed"], true);
    let metrics = gateway.metrics();
    assert!(
        metrics.contains(r#"name="joe-may",result="match"} 1"#),
        "{metrics}"
    );
    assert!(!metrics.contains(r#"name="locked-out""#), "{metrics}");
}

#[test]
fn nothing_of_a_request_makes_a_series() {
    let gateway = Gateway::usual();
    let series = || -> BTreeSet<String> {
        let metrics = gateway.metrics();
        let lines = metrics.lines().filter(|line| line.starts_with("portcullis_"));
        lines
            .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
            .collect()
    };
    let before = series();
    let mut connection = gateway.connect();
    for spec in [
        r#"{"user":"marker","uid":"marker","groups":["marker","locked"],"extra":{"marker":["marker"]},"resourceAttributes":{"verb":"marker","group":"marker","version":"marker","resource":"marker","subresource":"marker","namespace":"marker","name":"marker"}}"#,
        r#"{"user":"marker","nonResourceAttributes":{"path":"/marker","verb":"marker"}}"#,
    ] {
        assert_eq!(connection.authorize(v1(spec)).status, 200);
    }
    for line in [
        "POST /marker?marker=marker",
        "MARKER /authorize",
        "POST /validate/marker",
    ] {
        connection.request(
            &format!("{line} HTTP/1.1\r\nContent-Type: application/json\r\nX-Marker: marker"),
            b"{}",
        );
    }
    assert_eq!(series(), before);
}
