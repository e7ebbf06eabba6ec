//! Random policies, each for the objects that carry its name as a label.

use super::configurations;
use crate::differential::random::Random;
use serde_json::{Value, json};

/// The labels that hold the names of the policies to be asked.
pub(super) const VALIDATING: &str = "validated-by";
pub(super) const MUTATING: &str = "mutated-by";
/// How many policies there are of either kind.
pub(super) const COUNT: usize = 24;
/// The name of the object that shows that a policy is in force.
pub(super) const PROBE: &str = "probe";

/// Conditions, in which `{N}` stands for a number and `{C}` for a color. Some
/// objects lack what they name, or have it in another type.
const EXPRESSIONS: &[&str] = &[
    "object.metadata.name.size() < {N}",
    "has(object.metadata.annotations.color)",
    "object.metadata.annotations['color'] != '{C}'",
    "object.metadata.?annotations[?'color'].orValue('none') in ['red', '{C}']",
    "object.metadata.annotations.all(k, v, k.size() + v.size() < 12 + {N})",
    "object.metadata.annotations.exists(k, k.startsWith('co'))",
    "object.metadata.annotations.exists_one(k, k.contains('o'))",
    "oldObject == null || oldObject.metadata.annotations == object.metadata.annotations",
    "request.operation != 'UPDATE' || object.metadata.annotations.size() >= oldObject.metadata.annotations.size()",
    "namespaceObject.metadata.labels.tier == '{C}'",
    "object.metadata.annotations['color'].matches('^[a-m]+$')",
    "int(object.metadata.annotations['count']) < {N}",
    "quantity(object.metadata.annotations['memory']).isLessThan(quantity('{N}Mi'))",
    "url('https://example.com/' + object.metadata.annotations['color']).getEscapedPath() == '/{C}'",
    "object.metadata.annotations['count'].find('[0-9]+') != ''",
    "cidr('10.0.0.0/8').containsIP(object.metadata.annotations['ip'])",
    "isIP(object.metadata.annotations.ip) && ip(object.metadata.annotations.ip).family() == 4",
    "semver(object.metadata.annotations['version']).isGreaterThan(semver('1.{N}.0'))",
    "object.kind != 'Pod' || object.spec.containers.all(c, c.name.size() < {N})",
    "object.kind != 'ConfigMap' || object.data.size() < {N}",
    "object.kind != 'Widget' || object.spec.size % 3 != 0",
    "object.kind != 'Widget' || 10 / object.spec.size > 1",
    "object.kind != 'Widget' || [1, 2, 3][object.spec.size] > 1",
    "object.kind != 'Widget' || object.spec.rest.list.all(i, i < {N})",
    "sets.contains(['red', '{C}'], [object.metadata.annotations['color']])",
    "variables.color != '{C}'",
    "variables.count < {N}",
    "request.userInfo.username == 'admin' && request.resource.resource != 'pods'",
    "object.metadata.annotations['color'].upperAscii().lowerAscii() == variables.color",
];

const MESSAGE_EXPRESSIONS: &[&str] = &[
    "'the color is ' + variables.color",
    "'the count is ' + string(variables.count)",
    "object.metadata.name + ' by ' + request.userInfo.username",
    "''",
    "'two\\nlines'",
];

/// Lists of operations.
const PATCHES: &[&str] = &[
    "[JSONPatch{op: 'add', path: '/metadata/annotations/new', value: object.metadata.name}]",
    "[JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('a.b/c'), value: variables.color}]",
    "[JSONPatch{op: 'remove', path: '/metadata/annotations/color'}]",
    "[JSONPatch{op: 'replace', path: '/metadata/annotations/color', value: '{C}'}]",
    "[JSONPatch{op: 'test', path: '/metadata/annotations/color', value: '{C}'}, \
      JSONPatch{op: 'add', path: '/metadata/annotations/tested', value: 'yes'}]",
    "[JSONPatch{op: 'copy', from: '/metadata/annotations/color', path: '/metadata/annotations/copied'}]",
    "object.kind == 'Widget' ? [JSONPatch{op: 'add', path: '/spec/rest', value: {'list': dyn([1, {N}]), 'deep': dyn({'x': true})}}] : []",
    "object.kind == 'Widget' ? [JSONPatch{op: 'add', path: '/spec/rest/list/-', value: {N}}] : []",
    "object.kind == 'Widget' ? [JSONPatch{op: 'replace', path: '/spec/size', value: object.spec.size + {N}}] : []",
    "has(object.metadata.annotations.count) ? [] : \
     [JSONPatch{op: 'add', path: '/metadata/annotations/count', value: string({N})}]",
];

const MATCH_CONDITIONS: &[&str] = &[
    "object.kind != 'Pod'",
    "object.metadata.annotations.color != '{C}'",
    "request.operation == 'CREATE'",
];

/// Every policy with its binding.
pub(super) fn generate(random: &mut Random) -> Vec<Value> {
    let mut objects = Vec::new();
    for number in 0..COUNT {
        let name = validating(number);
        let mut spec = common(random, VALIDATING, &name);
        spec["validations"] = (0..=random.below(3)).map(|_| validation(random)).collect();
        spec["validations"].as_array_mut().unwrap().insert(
            0,
            json!({"expression": format!("request.name != '{PROBE}'"), "message": PROBE}),
        );
        let actions = *random.pick(&[&["Deny"][..], &["Deny"], &["Deny", "Audit"], &["Warn", "Audit"]]);
        objects.push(object("ValidatingAdmissionPolicy", &name, spec));
        objects.push(object(
            "ValidatingAdmissionPolicyBinding",
            &name,
            json!({"policyName": name, "validationActions": actions}),
        ));
    }
    for number in 0..COUNT {
        let name = mutating(number);
        let mut spec = common(random, MUTATING, &name);
        spec["reinvocationPolicy"] = json!(random.pick(&["Never", "IfNeeded"]));
        if random.one_in(2) {
            spec["matchConstraints"]["resourceRules"] = configurations::rules();
            spec["mutations"] = json!([configurations::mutation(random)]);
        } else {
            spec["mutations"] = json!([json_patch(random)]);
        }
        objects.push(object("MutatingAdmissionPolicy", &name, spec));
        objects.push(object(
            "MutatingAdmissionPolicyBinding",
            &name,
            json!({"policyName": name}),
        ));
    }
    objects
}

fn json_patch(random: &mut Random) -> Value {
    let probing = "[JSONPatch{op: 'add', path: '/metadata/annotations/probed', value: 'yes'}]";
    let patch = fill(random, PATCHES);
    let expression = format!("request.name == '{PROBE}' ? {probing} : ({patch})");
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// The name of a validating policy.
pub(super) fn validating(number: usize) -> String {
    format!("validating-{number}")
}

/// The name of a mutating policy.
pub(super) fn mutating(number: usize) -> String {
    format!("mutating-{number}")
}

/// One of these, with its placeholders filled.
pub(super) fn fill(random: &mut Random, choices: &[&str]) -> String {
    let number = random.below(9).to_string();
    let color = *random.pick(super::COLORS);
    random.pick(choices).replace("{N}", &number).replace("{C}", color)
}

/// What both kinds of policy have.
fn common(random: &mut Random, label: &str, name: &str) -> Value {
    let mut spec = json!({
        "failurePolicy": random.pick(&["Fail", "Fail", "Ignore"]),
        "matchConstraints": {
            "objectSelector": {"matchLabels": {label: name}},
            "resourceRules": [{
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["", "example.com"],
                "apiVersions": ["v1"],
                "resources": ["configmaps", "pods", "widgets"],
            }],
        },
        "variables": [
            {"name": "color", "expression": "object.metadata.annotations['color']"},
            {"name": "count", "expression": "int(object.metadata.annotations['count'])"},
        ],
    });
    if random.one_in(4) {
        let expression = fill(random, MATCH_CONDITIONS);
        let expression = format!("request.name == '{PROBE}' || ({expression})");
        spec["matchConditions"] = json!([{"name": "once", "expression": expression}]);
    }
    spec
}

fn validation(random: &mut Random) -> Value {
    let mut validation = json!({"expression": fill(random, EXPRESSIONS)});
    if random.one_in(2) {
        validation["message"] = json!("this is why");
    }
    if random.one_in(3) {
        validation["messageExpression"] = json!(random.pick(MESSAGE_EXPRESSIONS));
    }
    if random.one_in(3) {
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        validation["reason"] = json!(random.pick(&reasons));
    }
    validation
}

/// A policy or a binding.
pub(super) fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}
