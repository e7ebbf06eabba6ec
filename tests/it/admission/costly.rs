//! Reviews that take long to judge: whom they hold up, and what ends them.

use super::*;

#[test]
fn admission_takes_no_room_of_authorization() {
    let gateway = Builder::new().limits("{inFlight: 1}").start();
    let mut held = gateway.connect();
    held.send(
        b"POST /validate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: \
                application/json\r\nContent-Length: 9\r\n\r\n",
    );
    until("it is in flight", || {
        gateway.metric(r#"portcullis_in_flight_requests{endpoint="validate"}"#) == 1.0
    });
    let mut connection = gateway.connect();
    let response = post(&mut connection, "/mutate", "{}");
    assert_eq!(
        (response.status, response.header("retry-after")),
        (429, Some("1"))
    );
    assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
}

/// Each of these policies costs almost all that one may, so that together they
/// run for longer than any test waits.
fn costly() -> String {
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let rounds = ["a", "b", "c", "d", "e"]
        .iter()
        .rev()
        .fold("true".to_owned(), |inner, variable| {
            format!("{list}.all({variable}, {inner})")
        });
    let mut manifests = String::new();
    for number in 0..200 {
        let _ = write!(
            manifests,
            r#"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: costly-{number}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]}}
  validations: [{validations}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: costly-{number}}}
spec: {{policyName: costly-{number}, validationActions: [Deny]}}
"#,
            validations = vec![format!("{{expression: '{rounds}'}}"); 10].join(", "),
        );
    }
    manifests
}

/// Streams of one connection are served by one worker: what holds it up would
/// hold up the questions of access that follow.
#[test]
fn a_costly_review_in_flight_delays_no_answer_of_its_worker() {
    let gateway = Builder::new().manifests(costly()).shutdown_timeout("0s").start();
    let in_flight = r#"portcullis_in_flight_requests{endpoint="validate"}"#;
    block_on(async {
        let connection = Connection::open(&gateway).await;
        let body = review("admission.k8s.io/v1", "live", &json!({}));
        let mut costly = Box::pin(connection.post("/validate?timeout=30s", body));
        // Until it is sent and being worked at.
        loop {
            assert!(futures_util::poll!(&mut costly).is_pending());
            tokio::task::yield_now().await;
            if gateway.metric(in_flight) == 1.0 {
                break;
            }
        }
        for _ in 0..100 {
            let (status, answer) = connection.authorize(v1(JANE_GETS)).await.unwrap();
            assert_eq!((status, &answer["status"]["allowed"]), (200, &json!(true)));
        }
        assert!(futures_util::poll!(&mut costly).is_pending());
        // Before the client hangs up, which ends the review.
        assert_eq!(gateway.metric(in_flight), 1.0);
        assert_eq!(
            gateway.metric(r#"portcullis_authorization_decisions_total{decision="allow"}"#),
            100.0
        );
        assert_eq!(
            gateway.metric(r#"portcullis_decision_duration_seconds_count{endpoint="validate"}"#),
            0.0
        );
    });
    until("the review ends with its client", || {
        gateway.metric(in_flight) == 0.0
    });
}

/// More costly ones than there are threads for them.
#[test]
fn expensive_reviews_do_not_delay_cheap_ones() {
    let gateway = Builder::new().manifests(costly()).shutdown_timeout("0s").start();
    let in_flight = || gateway.metric(r#"portcullis_in_flight_requests{endpoint="validate"}"#);
    let answered = || gateway.metric(r#"portcullis_decision_duration_seconds_count{endpoint="validate"}"#);
    let costly = review("admission.k8s.io/v1", "live", &json!({}));
    let head = "POST /validate?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    let mut connections: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    for connection in &mut connections {
        connection.send(&request(head, costly.as_bytes()));
    }
    until("all are in flight", || in_flight() == 8.0);
    let mut small: Value = serde_json::from_str(&costly).unwrap();
    small["request"]["resource"]["resource"] = json!("configmaps");
    small["request"]["object"]["metadata"]["annotations"] = json!({"long": "x".repeat(100 << 10)});
    let response = post(
        &mut gateway.connect(),
        "/validate?timeout=30s",
        &small.to_string(),
    );
    assert_eq!(
        response.json()["response"]["allowed"],
        true,
        "{:?}",
        response.json()
    );
    until("it has ended", || in_flight() == 8.0);
    assert_eq!(answered(), 1.0, "the costly ones go on");
}

/// What needs more memory than there is on each thread has it on one of the few for that.
#[test]
fn a_review_that_needs_memory_is_decided_with_it() {
    let doubled: String = (0..18).map(|n| format!(".map(a{n}, a{n} + a{n})")).collect();
    let manifests = format!(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: doubles}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]}}
  validations: [{{expression: "['0123456789']{doubled}[0].size() == 2621440 && authorizer.path('/x').check('get').allowed()"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: doubles}}
spec: {{policyName: doubles, validationActions: [Deny]}}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: doubles}}
spec:
  effect: Allow
  subjects: [{{kind: User, name: jane}}]
  nonResourceRules: [{{verbs: [get], paths: [/x]}}]
  conditions: [{{name: doubles, expression: "['0123456789']{doubled}[0].size() == 2621440"}}]
"#
    );
    let gateway = Builder::new().manifests(manifests).start();
    let body = review("admission.k8s.io/v1", "live", &json!({}));
    let answer = post(&mut gateway.connect(), "/validate?timeout=30s", &body).json();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    let asked = v1(JANE_GETS_X);
    let answer = gateway.connect().authorize(asked).json();
    assert_eq!(answer["status"]["allowed"], true, "{answer}");
}

#[test]
fn a_costly_review_ends_at_its_deadline_and_counts_nothing() {
    let gateway = Builder::new().manifests(costly()).shutdown_timeout("0s").start();
    let body = review("admission.k8s.io/v1", "live", &json!({}));
    let response = post(&mut gateway.connect(), "/validate?timeout=50ms", &body);
    assert_eq!(
        (response.status, &response.json()["reason"]),
        (504, &json!("Timeout"))
    );
    let metrics = gateway.metrics();
    for line in metrics.lines().filter(|line| line.contains("name=\"costly-")) {
        assert!(line.ends_with(" 0"), "{line}");
    }
    assert!(metrics.contains(r#"portcullis_admission_decisions_total{decision="deny",phase="validate"} 0"#));
    until("its place is free", || {
        gateway.metric(r#"portcullis_in_flight_requests{endpoint="validate"}"#) == 0.0
    });
}

/// A gateway with a Deny for `get /x` of jane whose conditions take longer than any test waits.
fn slow_denies() -> Gateway {
    let shared = (0..23)
        .map(|n| format!(".map(a{n}, [a{n}, a{n}])"))
        .collect::<String>();
    let slow = format!("[[0]]{shared}.all(a, a == a)");
    let conditions: Vec<_> = (0..10)
        .map(|n| json!({"name": format!("slow-{n}"), "expression": slow}))
        .collect();
    let policy = json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
        "metadata": {"name": "slow"},
        "spec": {
            "effect": "Deny", "failurePolicy": "Deny", "conditions": conditions,
            "subjects": [{"kind": "User", "name": "jane"}],
            "nonResourceRules": [{"verbs": ["get"], "paths": ["/x"]}],
        },
    });
    Builder::new()
        .manifests(policy.to_string())
        .shutdown_timeout("0s")
        .start()
}

const JANE_GETS_X: &str = r#"{"user":"jane","nonResourceAttributes":{"verb":"get","path":"/x"}}"#;

#[test]
fn a_costly_question_delays_no_answer_of_its_worker() {
    let gateway = slow_denies();
    let in_flight = || gateway.metric(r#"portcullis_in_flight_requests{endpoint="authorize"}"#);
    block_on(async {
        let connection = Connection::open(&gateway).await;
        let mut costly = Box::pin(connection.post("/authorize?timeout=30s", v1(JANE_GETS_X)));
        // Until it is sent and being worked at.
        loop {
            assert!(futures_util::poll!(&mut costly).is_pending());
            tokio::task::yield_now().await;
            if in_flight() == 1.0 {
                break;
            }
        }
        for _ in 0..10 {
            let (status, answer) = connection.authorize(v1(JANE_GETS)).await.unwrap();
            assert_eq!((status, &answer["status"]["allowed"]), (200, &json!(true)));
        }
        assert!(futures_util::poll!(&mut costly).is_pending());
        assert_eq!(in_flight(), 1.0);
    });
}

/// More conditions that take long than there are threads for those of one user: those of the next
/// question have failed at its deadline, and a Deny holds.
#[test]
fn a_question_that_finds_no_thread_is_decided_by_failure_policies() {
    let gateway = slow_denies();
    let asked = v1(JANE_GETS_X);
    let head = "POST /authorize?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut held: Vec<_> = (0..threads).map(|_| gateway.connect()).collect();
    for connection in &mut held {
        connection.send(&request(head, asked.as_bytes()));
    }
    let series = r#"portcullis_in_flight_requests{endpoint="authorize"}"#;
    until("all are in flight", || gateway.metric(series) == threads as f64);
    for _ in 0..2 {
        let answer = post(&mut gateway.connect(), "/authorize?timeout=1s", &asked);
        let reply = answer.json();
        assert_eq!(
            (answer.status, &reply["status"]["denied"]),
            (200, &json!(true)),
            "{reply}"
        );
    }
    assert!(gateway.metric(series) >= threads as f64, "the others go on");
}

/// Reviews that are read on the threads for large ones are judged as those of their users.
#[test]
fn expensive_reviews_of_one_user_do_not_delay_large_ones_of_others() {
    let gateway = Builder::new().manifests(costly()).shutdown_timeout("0s").start();
    let large = |user: &str, resource: &str| {
        let review = review("admission.k8s.io/v1", "live", &json!({}));
        let mut review: Value = serde_json::from_str(&review).unwrap();
        review["request"]["userInfo"]["username"] = json!(user);
        review["request"]["resource"]["resource"] = json!(resource);
        review["request"]["object"]["metadata"]["annotations"] = json!({"long": "x".repeat(5 << 20)});
        review.to_string()
    };
    let in_flight = || gateway.metric(r#"portcullis_in_flight_requests{endpoint="validate"}"#);
    let head = "POST /validate?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let mut held: Vec<_> = (0..threads).map(|_| gateway.connect()).collect();
    for connection in &mut held {
        connection.send(&request(head, large("mallory", "pods").as_bytes()));
    }
    until("all are in flight", || in_flight() == threads as f64);
    let asked = large("jane", "configmaps");
    let reply = post(&mut gateway.connect(), "/validate?timeout=30s", &asked).json();
    assert_eq!(reply["response"]["allowed"], true, "{reply}");
    until("it has ended", || in_flight() == threads as f64);
}
