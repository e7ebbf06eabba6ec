//! A ConstraintTemplate as a ValidatingAdmissionPolicy.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::CONSTRAINTS;
use crate::conversion::Conversion;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// The engine of templates with CEL.
const ENGINE: &str = "K8sNativeValidation";

/// The names that Gatekeeper gives to variables of its own.
const VARIABLES: [(&str, &str); 2] = [
    (
        "anyObject",
        "request.operation == 'DELETE' && object == null ? oldObject : object",
    ),
    (
        "params",
        "has(params.spec) && has(params.spec.parameters) ? params.spec.parameters : null",
    ),
];

/// That the constraint's `match` is about the request, one field each: no such field is every request.
const MATCHES: [(&str, &str); 4] = [
    (
        "gatekeeper-excluded-namespaces",
        "!params.?spec.?match.?excludedNamespaces.hasValue() || [object, oldObject].exists(one, one != null && \
         (one.metadata.?namespace.orValue('') == '' || !params.spec.match.excludedNamespaces.exists(pattern, \
         string(one.metadata.namespace).matches('^' + string(pattern).replace('*', '.*') + '$'))))",
    ),
    (
        "gatekeeper-namespaces",
        "!params.?spec.?match.?namespaces.hasValue() || [object, oldObject].exists(one, one != null && \
         (one.metadata.?namespace.orValue('') == '' || params.spec.match.namespaces.exists(pattern, \
         string(one.metadata.namespace).matches('^' + string(pattern).replace('*', '.*') + '$'))))",
    ),
    (
        "gatekeeper-name",
        "!params.?spec.?match.?name.hasValue() || [object, oldObject].exists(one, one != null && \
         (one.metadata.?generateName.orValue('') != '' && string(params.spec.match.name).endsWith('*') && \
         string(one.metadata.generateName).matches('^' + string(params.spec.match.name).replace('*', '.*') + '$') || \
         has(one.metadata.name) && \
         string(one.metadata.name).matches('^' + string(params.spec.match.name).replace('*', '.*') + '$')))",
    ),
    (
        "gatekeeper-kinds",
        "!params.?spec.?match.?kinds.hasValue() || params.spec.match.kinds.exists(one, \
         (size(one.?kinds.orValue([])) == 0 || '*' in one.kinds || request.kind.kind in one.kinds) && \
         (size(one.?apiGroups.orValue([])) == 0 || '*' in one.apiGroups || request.kind.group in one.apiGroups))",
    ),
];

/// The kind of the template's constraints.
pub(crate) fn kind(document: &Document) -> Option<String> {
    let steps = ["spec", "crd", "spec", "names", "kind"];
    let node = steps
        .iter()
        .try_fold(document.root(), |node, step| node.get(step))?;
    node.as_str().map(str::to_owned)
}

pub(crate) fn convert(document: &Document) -> Conversion {
    let mut made = Conversion::default();
    let path = FieldPath::root().field("spec").field("targets");
    let targets = document.nearest(&path).to_json();
    let Some([target]) = targets.as_array().map(Vec::as_slice) else {
        made.refuse(document, &path, "a template has one target");
        return made;
    };
    let path = path.index(0);
    let code = target["code"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(index) = code.iter().position(|code| code["engine"] == ENGINE) else {
        made.refuse(
            document,
            &path,
            "its code is Rego, and admission policies know CEL alone",
        );
        return made;
    };
    let path = path.field("code").index(index).field("source");
    let source = &code[index]["source"];
    for field in source.as_object().into_iter().flatten().map(|(field, _)| field) {
        let known = [
            "validations",
            "variables",
            "matchCondition",
            "matchConditions",
            "failurePolicy",
            "generateVAP",
        ];
        if !known.contains(&field.as_str()) {
            made.refuse(document, &path.field(field), "this field has no counterpart");
        }
    }
    let Some(kind) = kind(document) else {
        let reason = "it does not name the kind of its constraints";
        made.refuse(document, &FieldPath::root().field("spec"), reason);
        return made;
    };
    made.objects.push(policy(&kind, target, source));
    made.base = Some(path);
    made
}

fn policy(kind: &str, target: &Value, source: &Value) -> Value {
    let named = |(name, expression): &(&str, &str)| json!({"name": name, "expression": expression});
    let own = |field: &str| source[field].as_array().cloned().unwrap_or_default();
    // First those of the template, so that a fault of one has its index.
    let mut conditions = own("matchCondition");
    conditions.extend(own("matchConditions"));
    conditions.extend(MATCHES.iter().map(named));
    let mut variables: Vec<Value> = VARIABLES.iter().map(named).collect();
    variables.extend(own("variables"));
    let operations = match &target["operations"] {
        Value::Array(operations) if !operations.is_empty() => Value::Array(operations.clone()),
        _ => json!(["CREATE", "UPDATE"]),
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": super::policy_name(kind)},
        "spec": {
            "failurePolicy": source["failurePolicy"].as_str().unwrap_or("Fail"),
            "paramKind": {"apiVersion": format!("{CONSTRAINTS}/v1beta1"), "kind": kind},
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": ["*"]},
            ]},
            "matchConditions": conditions,
            "variables": variables,
            "validations": source["validations"],
        },
    })
}
