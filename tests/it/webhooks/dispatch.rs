//! Who is asked, and who is not.

use super::*;

#[test]
fn a_name_in_the_path_is_the_only_configuration_asked() {
    let webhook = by_path(&[]);
    let manifests = mutating("one", &[entry(&webhook, "/one", json!({}))])
        + &mutating("other", &[entry(&webhook, "/other", json!({}))]);
    let gateway = gateway(manifests);
    let mut connection = gateway.connect();
    assert_eq!(post(&mut connection, "/mutate/other", &pod())["allowed"], true);
    assert_eq!(paths(&webhook), ["/other"]);
    for path in ["/mutate/nobody", "/validate/other"] {
        let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
        let response = connection.request(&head, pod().to_string().as_bytes());
        assert_eq!(response.status, 404, "{path}");
    }
}

#[test]
fn a_dry_run_is_refused_where_a_webhook_might_act_on_it() {
    let webhook = by_path(&[]);
    let unknown = entry(
        &webhook,
        "/acts",
        json!({"sideEffects": "Unknown", "failurePolicy": "Ignore"}),
    );
    let manifest = mutating("a", &[unknown]).replace(
        "admissionregistration.k8s.io/v1",
        "admissionregistration.k8s.io/v1beta1",
    );
    let gateway = gateway(manifest);
    let mut review = pod();
    review["request"]["dryRun"] = json!(true);
    let response = post(&mut gateway.connect(), "/mutate", &review);
    assert_eq!(
        (&response["allowed"], &response["status"]["code"]),
        (&json!(false), &json!(400))
    );
    assert!(
        response["status"]["message"]
            .as_str()
            .unwrap()
            .contains("does not support dry run"),
        "{response}"
    );
    assert!(webhook.calls().is_empty());
}

#[test]
fn a_webhook_that_is_added_is_asked_from_then_on() {
    let webhook = by_path(&[("/no", r#"{"allowed": false}"#)]);
    let gateway = gateway(String::new());
    let mut connection = gateway.connect();
    assert_eq!(post(&mut connection, "/validate", &pod())["allowed"], true);
    let added = validating("a", &[entry(&webhook, "/no", json!({}))]);
    gateway.reload(&[("policies/more.yaml", added.as_bytes())]);
    assert_eq!(post(&mut connection, "/validate", &pod())["allowed"], false);
    gateway.reload(&[("policies/more.yaml", b"# none\n")]);
    assert_eq!(post(&mut connection, "/validate", &pod())["allowed"], true);
    assert_eq!(webhook.calls().len(), 1);
}

#[test]
fn hooks_of_the_past_are_asked_in_their_version_at_their_service() {
    let of_service = webhooks().otherwise(|called| {
        let is_pod = called.request()["kind"]["kind"] == "Pod";
        let status = json!({"status": "Failure", "message": "no pods in 1.7", "code": 403});
        Review::response(json!({"allowed": !is_pod, "status": status})).into()
    });
    let webhook = of_service.start();
    let manifest = json!({
        "apiVersion": "admissionregistration.k8s.io/v1alpha1", "kind": "ExternalAdmissionHookConfiguration",
        "metadata": {"name": "old"},
        "externalAdmissionHooks": [{
            "name": "old.hooks.example.com",
            "clientConfig": {"service": {"namespace": "infra", "name": "hook"}, "caBundle": webhook.ca_bundle()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "failurePolicy": "Fail",
        }],
    });
    let gateway = Builder::new()
        .manifests(manifest.to_string())
        .upstreams(format!(
            "{{addresses: {{'hook.infra.svc:443': '{}'}}}}",
            webhook.address()
        ))
        .start();
    let response = post(&mut gateway.connect(), "/validate?timeout=10s", &pod());
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.ends_with("no pods in 1.7"), "{response}");
    let asked = &webhook.calls()[0];
    assert_eq!(
        (
            asked.path.as_str(),
            &asked.body["apiVersion"],
            &asked.request()["name"]
        ),
        ("/", &json!("admission.k8s.io/v1alpha1"), &json!("p"))
    );
}

#[test]
fn a_mutating_policy_may_be_the_only_one_asked_too() {
    let webhook = by_path(&[]);
    let gateway = gateway(LABELLED.to_owned() + &mutating("one", &[entry(&webhook, "/one", json!({}))]));
    let mut connection = gateway.connect();
    let by_policy = post(&mut connection, "/mutate/labelled", &pod());
    assert_eq!(
        patch(&by_policy),
        json!([{"op": "add", "path": "/metadata/labels/policy", "value": "a"}])
    );
    assert!(webhook.calls().is_empty());
    assert_eq!(
        post(&mut connection, "/mutate/one", &pod()).get("patch"),
        None,
        "the policy is left out"
    );
    assert_eq!(paths(&webhook), ["/one"]);
    let head = "POST /validate/labelled HTTP/1.1\r\nContent-Type: application/json";
    assert_eq!(connection.request(head, pod().to_string().as_bytes()).status, 404);
}
