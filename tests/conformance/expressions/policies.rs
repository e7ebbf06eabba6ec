//! Policies and requests made of what a case says.

use super::*;

/// A policy with `spec`, bound; beside it what a case says of parameters and namespaces.
pub(super) fn manifests(spec: &Value, case: Option<&Value>) -> Result<Manifests, String> {
    let meta = |kind: &str, name: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    let mut policy = meta("ValidatingAdmissionPolicy", "p");
    policy["spec"] = spec.clone();
    policy["spec"]["matchConstraints"] = json!({"resourceRules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]});
    let mut binding = meta("ValidatingAdmissionPolicyBinding", "b");
    binding["spec"] = json!({"policyName": "p", "validationActions": ["Deny"]});
    let mut objects = Vec::new();
    if let Some(case) = case {
        if case["hasParamKind"] == true {
            policy["spec"]["paramKind"] = json!({"apiVersion": "example.com/v1", "kind": "Parameter"});
        }
        if case["params"].is_object() {
            let mut params = case["params"].clone();
            params["apiVersion"] = json!("example.com/v1");
            params["kind"] = json!("Parameter");
            params["metadata"]["name"] = json!("own");
            objects.push(params);
            binding["spec"]["paramRef"] = json!({"name": "own", "parameterNotFoundAction": "Deny"});
        }
        if case["namespaceObject"].is_object() {
            let mut namespace = case["namespaceObject"].clone();
            namespace["apiVersion"] = json!("v1");
            namespace["kind"] = json!("Namespace");
            objects.push(namespace);
        }
    }
    objects.extend([policy, binding]);
    let source = Source {
        file: "case.json".into(),
        text: json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string(),
        cluster: None,
    };
    let (manifests, faults) = load(&[source], &Options::default());
    manifests.ok_or_else(|| faults.to_string())
}

pub(super) fn validated(
    manifests: &Manifests,
    authority: &dyn AccessChecker,
    request: &Request<'_>,
) -> Outcome {
    let objects = manifests.shared.admission.clone();
    let set = AdmissionSet::new(objects, &AdmissionSettings::default());
    Chain::run(
        Phase::Validate,
        &set,
        request,
        RunOptions::new(authority, Time::UNIX_EPOCH),
        &mut fail_every_call,
    )
}

pub(super) fn document(value: &Value) -> Document<'static> {
    Document::parse(value.to_string()).unwrap()
}

pub(super) fn with_request<T>(input: &Value, run: impl Fn(&Request<'_>) -> T) -> T {
    let documents = ["object", "oldObject", "options"].map(|name| document(&input[name]));
    let [object, old_object, options] = documents.each_ref().map(|document| {
        let root = document.root();
        (!root.is_null()).then_some(root)
    });
    let (attributes, kind) = (&input["attributes"], &input["kind"]);
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let kind = GroupVersionKind {
        group: text(kind, "group").into(),
        version: text(kind, "version").into(),
        kind: text(kind, "kind").into(),
    };
    let resource = GroupVersionResource {
        group: text(attributes, "group").into(),
        version: text(attributes, "version").into(),
        resource: text(attributes, "resource").into(),
    };
    // The object's namespace is the one that the case gives.
    let namespace = input["namespaceObject"]["metadata"]["name"].as_str();
    let namespace = namespace.map_or_else(|| text(attributes, "namespace"), str::to_owned);
    run(&Request {
        uid: "u".into(),
        kind: kind.clone(),
        resource: resource.clone(),
        subresource: text(attributes, "subresource").into(),
        request_kind: kind,
        request_resource: resource,
        name: text(attributes, "name").into(),
        namespace: namespace.into(),
        operation: Operation::parse(&text(attributes, "operation")).unwrap(),
        user: sar::user(&input["user"]),
        object,
        old_object,
        options,
        dry_run: input["dryRun"] == true,
        written: documents[0].root(),
    })
}
