//! Templates and constraints become what Gatekeeper makes of them.

use serde_json::{Value, json};

use super::*;
use crate::convert as converted;
use crate::test_reviews::{answered, loaded};
use portcullis_policy::admission::Phase;
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::document;
use portcullis_policy::model::Deadline;

fn template(source: &Value) -> Value {
    json!({
        "apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "mustowner"},
        "spec": {
            "crd": {"spec": {"names": {"kind": "MustOwner"}}},
            "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "package a",
                "code": [{"engine": "Rego", "source": {"rego": "package a"}},
                    {"engine": "K8sNativeValidation", "source": source}]}],
        },
    })
}

fn constraint(spec: &Value) -> Value {
    json!({"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "MustOwner", "metadata": {"name": "all"},
        "spec": spec})
}

fn owner() -> Value {
    template(&json!({
        "variables": [{"name": "labels", "expression": "variables.anyObject.metadata.?labels.orValue({})"}],
        "validations": [{"expression": "variables.params.label in variables.labels", "message": "name an owner"}],
    }))
}

fn of(objects: &[Value]) -> Conversion {
    let documents: Vec<Document> = objects
        .iter()
        .flat_map(|object| document::parse(Some("g.yaml"), &object.to_string()).unwrap())
        .collect();
    converted(&documents, &NeverDeny::default(), Deadline::NEVER).unwrap()
}

fn is_denied(made: &Conversion, review: &Value) -> bool {
    let texts: Vec<String> = made.objects.iter().map(document::to_yaml).collect();
    let answered = answered(&loaded(&texts), &[Phase::Validate], &review.to_string());
    answered.decided.unwrap().outcome.denial.is_some()
}

fn review(namespace: &str, name: &str, labels: &Value) -> Value {
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "operation": "CREATE", "namespace": namespace, "name": name, "userInfo": {"username": "jane"},
        "object": {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "labels": labels}},
    }})
}

#[test]
fn a_constraint_denies_what_its_match_selects() {
    let with = |matches: Value| {
        let spec = json!({"match": matches, "parameters": {"label": "owner"}});
        // A constraint may stand before its template.
        let made = of(&[constraint(&spec), owner()]);
        assert_eq!(made.refusals, [], "{spec}");
        made
    };
    let unowned = review("prod-a", "web-1", &json!({}));
    for matches in [
        json!({}),
        json!({"kinds": [{"apiGroups": [""], "kinds": ["Pod", "ConfigMap"]}]}),
        json!({"kinds": [{"apiGroups": ["*"], "kinds": ["*"]}]}),
        json!({"namespaces": ["prod-*"]}),
        json!({"excludedNamespaces": ["prod", "*-b"]}),
        json!({"name": "web-*"}),
        json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}),
        json!({"scope": "*"}),
    ] {
        let made = with(matches.clone());
        assert!(is_denied(&made, &unowned), "{matches}");
        assert!(
            !is_denied(&made, &review("prod-a", "web-1", &json!({"owner": "jane"}))),
            "{matches}"
        );
    }
    for matches in [
        json!({"kinds": [{"apiGroups": ["apps"], "kinds": ["ConfigMap"]}]}),
        json!({"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}),
        json!({"namespaces": ["prod", "*-b"]}),
        json!({"excludedNamespaces": ["prod-*"]}),
        json!({"name": "web"}),
        json!({"labelSelector": {"matchLabels": {"a": "b"}}}),
    ] {
        assert!(!is_denied(&with(matches.clone()), &unowned), "{matches}");
    }
}

#[test]
fn the_binding_acts_as_the_constraint_says() {
    for (action, expected) in [("deny", "Deny"), ("warn", "Warn"), ("dryrun", "Audit")] {
        let made = of(&[owner(), constraint(&json!({"enforcementAction": action}))]);
        let binding = made
            .objects
            .iter()
            .find(|object| object["kind"] == "ValidatingAdmissionPolicyBinding")
            .unwrap();
        assert_eq!(binding["metadata"]["name"], "gatekeeper-mustowner-all");
        assert_eq!(
            binding["spec"],
            json!({"policyName": "gatekeeper-mustowner", "validationActions": [expected],
                "paramRef": {"name": "all", "parameterNotFoundAction": "Allow"}})
        );
    }
}

#[test]
fn what_admission_policies_cannot_say_is_refused() {
    let mut rego = owner();
    rego["spec"]["targets"][0]["code"] = json!([{"engine": "Rego", "source": {}}]);
    let wrong = template(&json!({"validations": [{"expression": "true"}, {"expression": "data.inventory"}]}));
    let all = constraint(&json!({}));
    for (objects, expected) in [
        (
            vec![rego, all.clone()],
            &[
                "spec.targets[0]: its code is Rego",
                "kind: its ConstraintTemplate is not converted",
            ][..],
        ),
        (
            vec![all.clone()],
            &["kind: its ConstraintTemplate is not among the files"],
        ),
        (
            vec![wrong, all],
            &[
                "spec.targets[0].code[1].source.validations[1].expression: Kubernetes has no `data`",
                "kind: its ConstraintTemplate is not converted",
            ],
        ),
    ] {
        let made = of(&objects);
        assert_eq!(made.objects, Vec::<Value>::new());
        let refused: Vec<String> = made
            .refusals
            .iter()
            .map(|remark| format!("{}: {}", remark.place.path, remark.text))
            .collect();
        assert_eq!(refused.len(), expected.len(), "{refused:?}");
        assert!(
            refused
                .iter()
                .zip(expected)
                .all(|(one, expected)| one.starts_with(expected)),
            "{refused:?}"
        );
    }
    for (spec, expected) in [
        (json!({"match": {"scope": "Everything"}}), "spec.match.scope"),
        (json!({"match": {"source": "Generated"}}), "spec.match.source"),
        (json!({"match": {"annotations": {}}}), "spec.match.annotations"),
        (json!({"parameter": {"label": "owner"}}), "spec.parameter"),
        (json!({"enforcementAction": "shout"}), "spec.enforcementAction"),
        (
            json!({"enforcementAction": "scoped", "scopedEnforcementActions": [
                {"action": "deny", "enforcementPoints": [{"name": "audit.gatekeeper.sh"}]}]}),
            "spec.scopedEnforcementActions",
        ),
    ] {
        let made = of(&[owner(), constraint(&spec)]);
        assert_eq!(made.refusals[0].place.path.to_string(), expected);
        assert_eq!(made.objects.len(), 1, "the template alone");
    }
}

#[test]
fn scopes_of_objects_and_of_actions_are_those_of_the_binding() {
    let of_binding = |spec: Value| {
        let made = of(&[owner(), constraint(&spec)]);
        assert_eq!(made.refusals, []);
        let found = made.objects.iter();
        let mut found = found.filter(|object| object["kind"] == "ValidatingAdmissionPolicyBinding");
        (found.next().unwrap()["spec"].clone(), made)
    };
    let unowned = review("prod", "web", &json!({}));
    for (scope, denied) in [("Namespaced", true), ("Cluster", false), ("*", true)] {
        let (_, made) = of_binding(json!({"match": {"scope": scope}, "parameters": {"label": "owner"}}));
        assert_eq!(is_denied(&made, &unowned), denied, "{scope}");
    }
    let action =
        |action: &str, point: &str| json!({"action": action, "enforcementPoints": [{"name": point}]});
    for (actions, expected) in [
        (vec![action("warn", "*")], json!(["Warn"])),
        (
            vec![
                action("warn", "validation.gatekeeper.sh"),
                action("deny", "vap.k8s.io"),
            ],
            json!(["Deny"]),
        ),
        (
            vec![
                action("dryrun", "*"),
                action("deny", "*"),
                action("warn", "audit.gatekeeper.sh"),
            ],
            json!(["Audit", "Deny"]),
        ),
    ] {
        let spec = json!({"enforcementAction": "scoped", "scopedEnforcementActions": actions});
        assert_eq!(of_binding(spec).0["validationActions"], expected);
    }
}

#[test]
fn a_template_in_rego_names_what_does_the_same() {
    for (kind, expected) in [
        (
            "MustOwner",
            "its code is Rego, and admission policies know CEL alone",
        ),
        (
            "K8sRequiredLabels",
            "`K8sRequiredLabels` of the current gatekeeper-library, which has it in CEL, too",
        ),
        (
            "K8sPSPProcMount",
            ", or `config/policies/pod-security/baseline/proc-mount.yaml`",
        ),
        (
            "K8sPSPVolumeTypes",
            ": take `config/policies/pod-security/restricted/volumes.yaml`",
        ),
    ] {
        let mut rego = owner();
        rego["spec"]["crd"]["spec"]["names"]["kind"] = kind.into();
        rego["spec"]["targets"][0]["code"] = json!([]);
        let made = of(&[rego]);
        assert!(made.refusals[0].text.ends_with(expected), "{:?}", made.refusals);
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/policies/pod-security");
    for (_, _, ours) in LIBRARY {
        assert!(
            ours.is_none_or(|ours| folder.join(format!("{ours}.yaml")).is_file()),
            "{ours:?}"
        );
    }
}
