//! Other authorizers, asked where the gateway has no opinion.

mod faults;

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::authorizer::{Act, Asked, Authorizer, says};
use crate::harness::pki::Authority;
use crate::support::{Builder, Gateway, JANE_GETS, by_time, review, until, v1};

/// An authorizer that does what `script` says.
fn authorizer(script: impl Fn(&Asked) -> Act + Send + Sync + 'static) -> Authorizer {
    Authorizer::start(&Authority::new("authorizers"), script)
}

/// An entry of `authorization.webhooks`, of the kubeconfig named for it.
fn entry(name: &str, more: &str) -> String {
    format!(
        "{{type: Webhook, name: {name}, webhook: {{timeout: 3s, subjectAccessReviewVersion: v1, \
         connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {name}.kubeconfig}}, {more}}}}}"
    )
}

/// A gateway that asks these, in this order: names, further fields, who answers.
fn gateway(authorizers: &[(&str, &str, &Authorizer)]) -> Gateway {
    builder(authorizers).start()
}

fn builder(authorizers: &[(&str, &str, &Authorizer)]) -> Builder {
    let entries: Vec<_> = authorizers
        .iter()
        .map(|(name, more, _)| entry(name, more))
        .collect();
    let files = Builder::new().authorization(format!("{{webhooks: [{}]}}", entries.join(", ")));
    authorizers.iter().fold(files, |files, (name, _, authorizer)| {
        files.file(&format!("{name}.kubeconfig"), authorizer.kubeconfig("/authz"))
    })
}

fn gets(user: &str, path: &str) -> String {
    v1(&json!({"user": user, "nonResourceAttributes": {"path": path, "verb": "get"}}).to_string())
}

fn status(gateway: &Gateway, body: &str) -> Value {
    let response = gateway.connect().authorize(body);
    assert_eq!(response.status, 200);
    response.json()["status"].clone()
}

/// The last line of the decision log, once there are so many.
fn line(gateway: &Gateway, count: usize) -> Value {
    let read = || std::fs::read_to_string(gateway.file("decisions.log")).unwrap();
    until("the lines are written", || read().lines().count() == count);
    let lines = read();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    by_time(lines.collect()).pop().unwrap()
}

fn user(asked: &Asked) -> &str {
    asked.review["spec"]["user"].as_str().unwrap_or_default()
}

#[test]
fn one_is_asked_where_own_policies_have_no_opinion() {
    let other = authorizer(|asked| says(asked, json!({"allowed": true, "reason": "for once"})));
    let gateway = gateway(&[("other", "failurePolicy: Deny", &other)]);
    assert_eq!(status(&gateway, &v1(JANE_GETS))["allowed"], true);
    let locked = r#"{"user":"joe","groups":["locked"],"nonResourceAttributes":{"path":"/x","verb":"get"}}"#;
    assert_eq!(status(&gateway, &v1(locked))["denied"], true);
    assert_eq!(other.asked().len(), 0, "own policies decided");

    let spec = r#"{"user":"joe","uid":"1","groups":["g"],"extra":{"k":["v"]},"resourceAttributes":{"namespace":"n","verb":"list","resource":"pods","labelSelector":{"requirements":[{"key":"a","operator":"Exists"}]}}}"#;
    let beta = review("authorization.k8s.io/v1beta1", &spec.replace("groups", "group"));
    let reply = gateway.connect().authorize(&beta).json();
    assert_eq!(reply["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!(
        reply["status"],
        json!({"allowed": true, "reason": r#"allowed by Webhook "other": for once"#})
    );
    let asked = &other.asked()[0];
    assert_eq!(asked.line, "POST /authz?timeout=3s");
    assert_eq!(asked.review, serde_json::from_str::<Value>(&v1(spec)).unwrap());
    let header = |name: &str| {
        let mut headers = asked.headers.iter();
        headers
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(header("authorization"), Some("Bearer authorizer-token"));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("accept"), Some("application/json, */*"));

    let line = line(&gateway, 3);
    assert_eq!(line["decision"], "allow");
    assert_eq!(line["cause"], json!({"kind": "Webhook", "name": "other"}));
    assert_eq!(line["user"], "joe");
    assert_eq!(line.get("evaluationError"), None);
    assert_eq!(
        gateway.metric(r#"portcullis_upstream_requests_total{result="success",webhook="other"}"#),
        1.0
    );
    assert_eq!(
        gateway.metric(r#"portcullis_upstream_duration_seconds_count{webhook="other"}"#),
        1.0
    );
    assert_eq!(
        gateway.metric(r#"portcullis_authorization_decisions_total{decision="allow"}"#),
        2.0
    );
}

#[test]
fn they_are_asked_in_their_order_until_one_decides() {
    let first = authorizer(|asked| match user(asked) {
        "refused" => says(asked, json!({"denied": true, "reason": "never"})),
        _ => says(asked, json!({"allowed": false, "reason": "not mine"})),
    });
    let second = authorizer(|asked| match user(asked) {
        "let-in" => says(asked, json!({"allowed": true})),
        _ => says(asked, json!({"allowed": false, "reason": "nor mine"})),
    });
    let policy = "failurePolicy: NoOpinion";
    let gateway = gateway(&[("first", policy, &first), ("second", policy, &second)]);
    assert_eq!(
        status(&gateway, &gets("refused", "/a")),
        json!({"allowed": false, "denied": true, "reason": r#"denied by Webhook "first": never"#})
    );
    assert_eq!(second.asked().len(), 0);
    assert_eq!(
        status(&gateway, &gets("let-in", "/a")),
        json!({"allowed": true, "reason": r#"allowed by Webhook "second""#})
    );
    assert_eq!(
        status(&gateway, &gets("nobody", "/a")),
        json!({"allowed": false, "reason": "not mine\nnor mine"})
    );
    let line = line(&gateway, 3);
    assert_eq!(line["decision"], "noOpinion");
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.ends_with("; not mine\nnor mine"), "{reason}");
}

#[test]
fn only_requests_that_its_conditions_match_are_asked_about() {
    let other = authorizer(|asked| says(asked, json!({"allowed": true})));
    let conditions = "matchConditionSubjectAccessReviewVersion: v1, matchConditions: \
                      [{expression: \"request.user != 'skipped'\"}, \
                      {expression: \"request.nonResourceAttributes.path.startsWith('/a')\"}]";
    let gateway = gateway(&[("other", &format!("failurePolicy: Deny, {conditions}"), &other)]);
    assert_eq!(status(&gateway, &gets("joe", "/a"))["allowed"], true);
    assert_eq!(
        status(&gateway, &gets("skipped", "/a")),
        json!({"allowed": false})
    );
    assert_eq!(status(&gateway, &gets("joe", "/b")), json!({"allowed": false}));
    let no_path = v1(r#"{"user":"joe","resourceAttributes":{"verb":"get","resource":"pods"}}"#);
    let failed = status(&gateway, &no_path);
    assert_eq!(
        failed["denied"], true,
        "a condition without result, under failurePolicy"
    );
    assert!(
        failed["evaluationError"]
            .as_str()
            .unwrap()
            .contains("matchConditions[1]"),
        "{failed}"
    );
    assert_eq!(other.asked().len(), 1);
}

#[test]
fn an_answer_is_kept_until_its_authorizer_changes() {
    let other = authorizer(|asked| says(asked, json!({"allowed": true})));
    let gateway = gateway(&[("other", "failurePolicy: Deny", &other)]);
    let ask = || assert_eq!(status(&gateway, &gets("joe", "/a"))["allowed"], true);
    ask();
    ask();
    assert_eq!(other.asked().len(), 1);
    gateway.reload(&[("policies/more.yaml", b"# none\n")]);
    ask();
    assert_eq!(other.asked().len(), 1, "it is as it was");
    let renamed = other
        .kubeconfig("/authz")
        .replace("authorizer-token", "newer-token");
    gateway.reload(&[("other.kubeconfig", renamed.as_bytes())]);
    ask();
    assert_eq!(other.asked().len(), 2, "it has another token");
    assert!(
        other.asked()[1]
            .headers
            .contains(&("authorization".to_owned(), "Bearer newer-token".to_owned()))
    );
}

#[test]
fn what_is_not_to_be_kept_is_asked_again() {
    let other = authorizer(|asked| says(asked, json!({"allowed": true})));
    let switches = "failurePolicy: Deny, cacheAuthorizedRequests: false, cacheUnauthorizedRequests: false";
    let gateway = gateway(&[("other", switches, &other)]);
    for asked in 1..=3 {
        status(&gateway, &gets("joe", "/a"));
        assert_eq!(other.asked().len(), asked);
    }
    let large = gets("joe", &format!("/{}", "x".repeat(70_000)));
    assert_eq!(
        status(&gateway, &large)["allowed"],
        true,
        "a large one takes the same way"
    );
}

#[test]
fn the_same_question_at_once_is_asked_once() {
    const AT_ONCE: usize = 8;
    let (arrived, gate) = (Arc::new(Mutex::new(0)), Arc::new(Barrier::new(2)));
    let (count, of_script) = (Arc::clone(&arrived), Arc::clone(&gate));
    let other = authorizer(move |asked| {
        *count.lock().unwrap() += 1;
        of_script.wait();
        says(asked, json!({"allowed": true}))
    });
    let gateway = gateway(&[("other", "failurePolicy: Deny", &other)]);
    thread::scope(|scope| {
        let asking: Vec<_> = (0..AT_ONCE)
            .map(|_| scope.spawn(|| status(&gateway, &gets("joe", "/a"))))
            .collect();
        let series = r#"portcullis_in_flight_requests{endpoint="authorize"}"#;
        until("all of them wait", || gateway.metric(series) == AT_ONCE as f64);
        gate.wait();
        for answer in asking {
            assert_eq!(answer.join().unwrap()["allowed"], true);
        }
    });
    assert_eq!(*arrived.lock().unwrap(), 1);
}

#[test]
fn nobody_holds_up_whom_never_deny_protects() {
    let other = authorizer(|asked| says(asked, json!({"denied": true, "reason": "never"})));
    let gateway = gateway(&[("other", "failurePolicy: Deny", &other)]);
    for (user, path) in [("system:kube-scheduler", "/a"), ("joe", "/healthz")] {
        let reported = status(&gateway, &gets(user, path));
        assert_eq!(reported["allowed"], false);
        assert_eq!(reported.get("denied"), None, "{reported}");
        assert!(
            reported["evaluationError"]
                .as_str()
                .unwrap()
                .contains("neverDeny"),
            "{reported}"
        );
    }
    assert_eq!(status(&gateway, &gets("joe", "/a"))["denied"], true);
}
