//! Random SubjectAccessReviews about random RBAC objects.

use super::objects::{
    self, API_GROUPS, GROUPS, NAMES, NAMESPACES, PATHS, RESOURCES, SERVICE_ACCOUNTS, USERS, VERBS,
};
use super::random::Random;
use serde_json::{Value, json};

/// The spec of a review: about anything, or, as often, about something that
/// one of the bindings grants or nearly grants.
pub(crate) fn spec(random: &mut Random, granted: &[Value]) -> Value {
    let mut spec = match random.one_in(2) {
        true => near(random, granted),
        false => anything(random),
    };
    if random.one_in(8) {
        spec["extra"] = json!({"example.com/reason": ["curiosity"]});
    }
    if random.one_in(8) {
        let requirement = json!({"key": "spec.nodeName", "operator": "In", "values": ["node-1"]});
        if let Some(attributes) = spec.get_mut("resourceAttributes") {
            attributes["fieldSelector"] = json!({"requirements": [requirement]});
        }
    }
    spec
}

fn anything(random: &mut Random) -> Value {
    let mut spec = who(random);
    if random.one_in(4) {
        spec["nonResourceAttributes"] = json!({"path": path(random), "verb": random.pick(&VERBS)});
    } else {
        spec["resourceAttributes"] = resource(random);
    }
    spec
}

fn who(random: &mut Random) -> Value {
    let groups = random.some(&GROUPS, 0, 2);
    match random.below(5) {
        0 => {
            let (namespace, name) = (random.pick(&NAMESPACES), random.pick(&SERVICE_ACCOUNTS));
            json!({
                "user": format!("system:serviceaccount:{namespace}:{name}"),
                "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
                "uid": "1234",
            })
        }
        1 if !groups.is_empty() => json!({"groups": groups}),
        _ => json!({"user": random.pick(&USERS), "groups": groups}),
    }
}

fn resource(random: &mut Random) -> Value {
    let resource = *random.pick(&RESOURCES);
    let (resource, subresource) = split(resource);
    let mut attributes = json!({
        "verb": random.pick(&VERBS),
        "group": random.pick(&API_GROUPS),
        "version": random.pick(&["v1", "v2", "*", ""]),
        "resource": resource,
        "subresource": subresource,
    });
    if !random.one_in(4) {
        attributes["namespace"] = (*random.pick(&NAMESPACES)).into();
    }
    if random.one_in(2) {
        attributes["name"] = (*random.pick(&NAMES)).into();
    }
    attributes
}

fn split(resource: &str) -> (&str, &str) {
    resource.split_once('/').unwrap_or((resource, ""))
}

fn path(random: &mut Random) -> String {
    let star = *random.pick(&["", "b", "*", "b/c"]);
    let path = random.pick(&PATHS).replace('*', star);
    if path.is_empty() { "/".to_owned() } else { path }
}

/// A request that one of the `granted` triples of subject, namespace and rule
/// allows, changed in one place half of the time.
fn near(random: &mut Random, granted: &[Value]) -> Value {
    let triple = random.pick(granted);
    let mut spec = whoever_is(random, triple);
    let rule = &triple["rule"];
    let verb = one(random, &rule["verbs"]);
    if rule["nonResourceURLs"].is_array() {
        let path = one(random, &rule["nonResourceURLs"]);
        let star = *random.pick(&["", "b", "b/c"]);
        let path = if random.one_in(4) {
            path
        } else {
            path.replace('*', star)
        };
        spec["nonResourceAttributes"] =
            json!({"path": if path.is_empty() { "/" } else { &path }, "verb": verb});
    } else {
        let resource = one(random, &rule["resources"]);
        let (resource, subresource) = split(&resource);
        let mut attributes = json!({
            "verb": verb,
            "group": one(random, &rule["apiGroups"]),
            "resource": if random.one_in(2) && resource == "*" { "pods" } else { resource },
            "subresource": subresource,
            "namespace": triple["namespace"],
            "name": one(random, &rule["resourceNames"]),
        });
        if random.one_in(2) {
            let other = self::resource(random);
            let key = *random.pick(&["verb", "group", "resource", "subresource", "namespace", "name"]);
            attributes[key] = other.get(key).cloned().unwrap_or_else(|| "".into());
        }
        spec["resourceAttributes"] = attributes;
    }
    spec
}

fn one(random: &mut Random, list: &Value) -> String {
    match list.as_array() {
        Some(list) if !list.is_empty() => random.pick(list).as_str().unwrap().to_owned(),
        _ => String::new(),
    }
}

fn whoever_is(random: &mut Random, triple: &Value) -> Value {
    let subject = &triple["subject"];
    let name = subject["name"].as_str().unwrap();
    match subject["kind"].as_str().unwrap() {
        "User" => json!({"user": name, "groups": random.some(&GROUPS, 0, 1)}),
        "Group" => json!({"user": random.pick(&USERS), "groups": [name]}),
        _ => {
            let namespace = subject["namespace"]
                .as_str()
                .or(triple["namespace"].as_str())
                .unwrap_or_default();
            json!({"user": format!("system:serviceaccount:{namespace}:{name}")})
        }
    }
}

/// Every triple of subject, namespace and rule that the bindings make of the
/// roles: what reviews are aimed at.
pub(crate) fn granted(objects: &[objects::Object]) -> Vec<Value> {
    let mut triples = Vec::new();
    for binding in objects
        .iter()
        .filter(|object| object.value["roleRef"].is_object())
    {
        let role_ref = &binding.value["roleRef"];
        let namespace = binding
            .collection
            .split('/')
            .skip_while(|part| *part != "namespaces")
            .nth(1);
        for role in objects.iter().filter(|role| {
            role.value["kind"] == role_ref["kind"] && role.value["metadata"]["name"] == role_ref["name"]
        }) {
            for rule in role.value["rules"].as_array().unwrap() {
                for subject in binding.value["subjects"].as_array().unwrap() {
                    triples.push(
                        json!({"subject": subject, "namespace": namespace.unwrap_or(""), "rule": rule}),
                    );
                }
            }
        }
    }
    triples
}
