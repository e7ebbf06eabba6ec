//! Pod Security, actions for namespaces, and exceptions.

use serde_json::{Value, json};

use super::{LoadedPolicies, converted, loaded, pod, policy, refusals, request};
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::document;
use portcullis_policy::model::Deadline;

/// A Pod that the level `restricted` lets in, with other fields of its container.
fn restricted(container: &Value) -> Value {
    let mut security = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let image = container["image"].as_str().unwrap_or("nginx:1").to_owned();
    for (field, value) in container.as_object().into_iter().flatten() {
        security[field] = value.clone();
    }
    let profile = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    security.as_object_mut().unwrap().remove("image");
    let container = json!({"name": "c", "image": image, "securityContext": security});
    pod(&json!({"securityContext": profile, "containers": [container]}))
}

fn security(exclude: &Value) -> LoadedPolicies {
    let checks = json!({"level": "restricted", "version": "latest", "exclude": exclude});
    loaded(&converted(&policy(&["Pod"], &json!({"podSecurity": checks}))))
}

#[test]
fn all_checks_of_a_level_hold() {
    let by = security(&json!([]));
    let denied = |container: Value| request("pods", &restricted(&container)).is_denied(&by);
    assert!(!denied(json!({})));
    for bad in [
        json!({"privileged": true}),
        json!({"allowPrivilegeEscalation": true}),
        json!({"capabilities": {"drop": ["KILL"]}}),
        json!({"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}),
        json!({"procMount": "Unmasked"}),
        json!({"runAsNonRoot": false}),
        json!({"runAsUser": 0}),
        json!({"seccompProfile": {"type": "Unconfined"}}),
        json!({"seLinuxOptions": {"user": "me"}}),
        json!({"appArmorProfile": {"type": "Unconfined"}}),
        json!({"windowsOptions": {"hostProcess": true}}),
    ] {
        assert!(denied(bad.clone()), "{bad}");
    }
    for (field, bad) in [
        ("hostNetwork", json!(true)),
        ("hostPID", json!(true)),
        ("volumes", json!([{"name": "v", "hostPath": {"path": "/etc"}}])),
        (
            "volumes",
            json!([{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
        ),
        ("initContainers", json!([{"name": "i"}])),
    ] {
        let mut pod = restricted(&json!({}));
        pod["spec"][field] = bad;
        assert!(request("pods", &pod).is_denied(&by), "{field}");
        let template = json!({"template": {"metadata": {}, "spec": pod["spec"]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "x", "namespace": "web"}, "spec": template});
        assert!(request("deployments", &deployment).is_denied(&by), "{field}");
    }
    // The old object failed, too.
    let bad = restricted(&json!({"privileged": true}));
    let update = |before: &Value| {
        request("pods", &bad)
            .with("operation", "UPDATE".into())
            .with("oldObject", before.clone())
    };
    assert!(!update(&bad).is_denied(&by));
    assert!(update(&restricted(&json!({}))).is_denied(&by));
}

#[test]
fn controls_are_excluded_for_images_fields_and_values() {
    let add = |capability: &str, image: &str| {
        restricted(&json!({"image": image, "capabilities": {"drop": ["ALL"], "add": [capability]}}))
    };
    let by = security(&json!([{"controlName": "Capabilities", "images": ["redis:*"]}]));
    assert!(!request("pods", &add("NET_ADMIN", "redis:7")).is_denied(&by));
    assert!(request("pods", &add("NET_ADMIN", "nginx:1")).is_denied(&by));
    let by = security(&json!([{"controlName": "Capabilities", "images": ["*"],
        "restrictedField": "spec.containers[*].securityContext.capabilities.add", "values": ["NET_*"]}]));
    assert!(!request("pods", &add("NET_ADMIN", "a")).is_denied(&by));
    assert!(request("pods", &add("SYS_TIME", "a")).is_denied(&by));
    let mut host = restricted(&json!({}));
    host["spec"]["hostNetwork"] = true.into();
    let by = security(
        &json!([{"controlName": "Host Namespaces", "restrictedField": "spec.hostNetwork",
        "values": ["true"]}]),
    );
    assert!(!request("pods", &host).is_denied(&by));
    host["spec"]["hostPID"] = true.into();
    assert!(request("pods", &host).is_denied(&by));
    // Without images Kyverno takes away what an empty container has, once.
    let by = security(&json!([{"controlName": "Running as Non-root"}]));
    let mut plain = restricted(&json!({}));
    plain["spec"]["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    assert!(!request("pods", &plain).is_denied(&by));
    let another = plain["spec"]["containers"][0].clone();
    plain["spec"]["containers"].as_array_mut().unwrap().push(another);
    assert!(request("pods", &plain).is_denied(&by));
}

#[test]
fn what_pod_security_cannot_say_is_refused() {
    let of = |checks: Value| refusals(&policy(&["Pod"], &json!({"podSecurity": checks})))[0].clone();
    for (checks, place) in [
        (json!({"level": "privileged"}), "level"),
        (json!({"level": "baseline", "version": "v1.20"}), "version"),
        (
            json!({"level": "baseline", "exclude": [{"controlName": "Capabilities"}]}),
            "exclude[0].images",
        ),
        (
            json!({"level": "baseline", "exclude": [{"controlName": "Nothing"}]}),
            "exclude[0].controlName",
        ),
        (
            json!({"level": "baseline", "exclude": [{"controlName": "Seccomp", "restrictedField": "spec.x", "values": ["a"]}]}),
            "exclude[0].restrictedField",
        ),
    ] {
        let refusal = of(checks);
        let place = format!("spec.rules[0].validate.podSecurity.{place}: ");
        assert!(refusal.starts_with(&place), "{refusal}");
    }
    let service = refusals(&policy(
        &["Service"],
        &json!({"podSecurity": {"level": "baseline"}}),
    ));
    assert!(service[0].contains("what makes Pods"), "{service:?}");
}

#[test]
fn each_override_is_a_binding_of_its_namespaces() {
    let pattern = json!({"pattern": {"metadata": {"labels": {"owner": "?*"}}}});
    let mut policy = policy(&["ConfigMap"], &pattern);
    policy["spec"]["validationFailureAction"] = "Audit".into();
    policy["spec"]["validationFailureActionOverrides"] = json!([
        {"action": "Enforce", "namespaces": ["web", "pay"]},
        {"action": "Audit", "namespaceSelector": {"matchLabels": {"tier": "front"}}},
    ]);
    let made = converted(&policy);
    let bindings: Vec<String> = made
        .objects
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicyBinding")
        .map(|object| {
            let selector = &object["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"];
            let selector = selector.as_array().unwrap().iter();
            let selector: Vec<String> = selector
                .map(|one| format!("{} {} {}", one["key"], one["operator"], one["values"]).replace('"', ""))
                .collect();
            let name = object["metadata"]["name"].as_str().unwrap();
            format!(
                "{name} {}: {}",
                object["spec"]["validationActions"][0],
                selector.join(", ")
            )
            .replace('"', "")
        })
        .collect();
    assert_eq!(
        bindings,
        [
            "p Audit: kubernetes.io/metadata.name NotIn [web,pay], tier NotIn [front]",
            "p-override-1 Deny: kubernetes.io/metadata.name In [web,pay]",
            "p-override-2 Audit: kubernetes.io/metadata.name NotIn [web,pay], tier In [front]",
        ]
    );
    let refused = |overrides: Value| {
        let mut policy = policy.clone();
        policy["spec"]["validationFailureActionOverrides"] = overrides;
        refusals(&policy)[0].clone()
    };
    let field = "spec.validationFailureActionOverrides";
    let wild = refused(json!([{"action": "Enforce", "namespaces": ["w*"]}]));
    assert!(wild.starts_with(&format!("{field}[0].namespaces: ")), "{wild}");
    let both = refused(
        json!([{"action": "Enforce", "namespaces": ["w"], "namespaceSelector": {"matchLabels": {"a": "b"}}}]),
    );
    assert!(
        both.starts_with(&format!("{field}[0].namespaceSelector: ")),
        "{both}"
    );
    policy["spec"]["rules"][0]["match"]["any"][0]["resources"]["kinds"] = json!(["Namespace"]);
    let cluster = refusals(&policy);
    assert!(
        cluster[0].contains("not every object of these kinds"),
        "{cluster:?}"
    );
}

#[test]
fn exceptions_take_out_what_they_match() {
    let pattern = json!({"pattern": {"metadata": {"labels": {"owner": "?*"}}}});
    let policy = policy(&["ConfigMap"], &pattern);
    let exception = |policy: &str, rules: &[&str], matched: Value| {
        json!({"apiVersion": "kyverno.io/v2", "kind": "PolicyException", "metadata": {"name": "e", "namespace": "ops"},
            "spec": {"exceptions": [{"policyName": policy, "ruleNames": rules}], "match": {"any": [matched]}}})
    };
    let made = |exception: &Value| {
        let text = format!("{policy}\n---\n{exception}");
        crate::convert(
            &document::parse(Some("p.yaml"), &text).unwrap(),
            &NeverDeny::default(),
            Deadline::NEVER,
        )
        .unwrap()
    };
    let of_web = json!({"resources": {"kinds": ["ConfigMap"], "namespaces": ["web"], "names": ["x*"]}});
    let unowned = |name: &str| {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "web"}});
        request("configmaps", &object)
    };
    let by = loaded(&made(&exception("p", &["r*"], of_web.clone())));
    assert!(!unowned("x1").is_denied(&by));
    assert!(unowned("y").is_denied(&by));
    let by = loaded(&made(&exception("p", &["other"], of_web.clone())));
    assert!(unowned("x1").is_denied(&by));
    for (exception, place) in [
        (exception("q", &["r"], of_web.clone()), "spec.exceptions"),
        (
            exception(
                "p",
                &["r"],
                json!({"resources": {"kinds": ["ConfigMap"], "operations": ["CREATE"]}}),
            ),
            "spec.match.resources.operations",
        ),
    ] {
        let refusals = made(&exception).refusals;
        assert_eq!(refusals[0].place.path.to_string(), place);
    }
}
