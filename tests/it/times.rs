//! Policies that hold for a while: the clock alone turns them on and off.

use std::time::{Duration, SystemTime};

use portcullis_policy::model::Time;

use crate::support::{Gateway, until, v1};

/// Joe may get `/x` at such times, says this policy.
fn joe_may(times: &str) -> String {
    format!(
        "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: joe-may}}
spec:
  effect: Allow
  {times}
  subjects: [{{kind: User, name: joe}}]
  nonResourceRules: [{{verbs: [get], paths: [/x]}}]
"
    )
}

fn asks(gateway: &Gateway) -> bool {
    let ask = v1(r#"{"user":"joe","nonResourceAttributes":{"path":"/x","verb":"get"}}"#);
    gateway.connect().authorize(&ask).json()["status"]["allowed"] == true
}

fn after(seconds: u64) -> (SystemTime, Time) {
    let time = SystemTime::now() + Duration::from_secs(seconds);
    (time, time.into())
}

#[test]
fn policies_begin_and_end_by_the_clock_without_a_reload() {
    let gateway = Gateway::usual();
    let (end, text) = after(3);
    gateway.reload(&[(
        "policies/all.yaml",
        joe_may(&format!("notAfter: {text}")).as_bytes(),
    )]);
    let revision = |gateway: &Gateway| gateway.state.current().revision.to_string();
    let before = revision(&gateway);
    // A client so slow that the end has passed already has seen nothing wrong.
    assert!(asks(&gateway) || SystemTime::now() >= end);
    until("the policy has ended", || !asks(&gateway));
    assert!(SystemTime::now() >= end, "not before its end");
    assert_eq!(revision(&gateway), before, "the same content decides differently");

    let (start, text) = after(2);
    gateway.reload(&[(
        "policies/all.yaml",
        joe_may(&format!("notBefore: {text}")).as_bytes(),
    )]);
    let before = revision(&gateway);
    assert!(!asks(&gateway) || SystemTime::now() >= start);
    until("the policy has begun", || asks(&gateway));
    assert!(SystemTime::now() >= start, "not before its start");
    assert_eq!(revision(&gateway), before);
}

#[test]
fn the_log_and_the_metrics_tell_of_ends() {
    let gateway = Gateway::usual();
    let text = joe_may("notAfter: 2026-01-01T00:00:00Z");
    gateway.reload(&[("policies/all.yaml", text.as_bytes())]);
    let metrics = gateway.metrics();
    let series = r#"portcullis_policy_expiration_timestamp_seconds{kind="AuthorizationPolicy",name="joe-may"} 1767225600"#;
    assert!(metrics.lines().any(|line| line == series), "{metrics}");
    gateway.reload(&[("policies/all.yaml", joe_may("mode: Enforce").as_bytes())]);
    let metrics = gateway.metrics();
    assert!(
        !metrics.contains("portcullis_policy_expiration_timestamp_seconds{"),
        "{metrics}"
    );
}
