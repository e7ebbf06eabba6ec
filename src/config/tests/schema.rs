//! The schema of GatewayConfiguration for editors says what is read: every key and no other,
//! of these types, with these defaults.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::section::FIELDS_READ;
use super::*;

const SCHEMA: &str = include_str!("../../../config/schemas/gatewayconfiguration.json");
/// Every section, so that each is read.
const FULL: &str = include_str!("../../../config/portcullis.full.yaml");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// The keys of every mapping of the schema that is closed, by its path.
fn mappings(schema: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        assert_eq!(schema["additionalProperties"], json!(false), "{path}");
        found.insert(path.to_owned(), properties.keys().cloned().collect());
        for (key, property) in properties {
            let separator = if path.is_empty() { "" } else { "." };
            mappings(property, &format!("{path}{separator}{key}"), found);
        }
    }
    if let Some(items) = schema.get("items") {
        mappings(items, &format!("{path}[]"), found);
    }
    for choice in schema
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        mappings(choice, path, found);
    }
}

#[test]
fn it_has_every_key_that_is_read_and_no_other() {
    let mut known = BTreeMap::new();
    mappings(&schema(), "", &mut known);
    FIELDS_READ.take();
    // The kubeconfig that it names exists there.
    let _ = parse(Path::new("full.yaml"), FULL, Path::new("config"));
    let _ = read("clusters: [{selector: {matchExpressions: [{key: a, operator: Exists}]}}]");
    let read = FIELDS_READ.take();
    for (path, fields) in &read {
        assert_eq!(
            known.get(path),
            Some(fields),
            "{path}: what is read, and the schema"
        );
    }
    let unread: Vec<&String> = known.keys().filter(|path| !read.contains_key(*path)).collect();
    assert!(unread.is_empty(), "config/portcullis.full.yaml has no {unread:?}");
}

/// Every default of a schema outside of lists, as it would be written.
fn defaults(schema: &Value) -> Option<Value> {
    if let Some(default) = schema.get("default") {
        return Some(default.clone());
    }
    let properties = schema.get("properties")?.as_object()?;
    let written: Map<String, Value> = properties
        .iter()
        .filter_map(|(key, property)| Some((key.clone(), defaults(property)?)))
        .collect();
    (!written.is_empty()).then_some(Value::Object(written))
}

#[test]
fn its_defaults_are_those_that_are_read() {
    let mut written = defaults(&schema()).unwrap();
    let mut remove = |section: &str| written.as_object_mut().unwrap().remove(section).unwrap();
    let (log, recording, tracing) = (remove("decisionLog"), remove("recording"), remove("tracing"));
    let (page, usage) = (remove("console"), remove("usage"));
    let requests = written["authorization"]
        .as_object_mut()
        .unwrap()
        .remove("accessRequests")
        .unwrap();
    written["apiVersion"] = json!(API_VERSION);
    written["kind"] = json!(KIND);
    written["server"]["tls"] = json!({"certificate": "s.crt", "privateKey": "s.key", "clientCA": "ca.crt"});
    let (config, faults) = read(&written.to_string());
    assert_eq!(faults, "");
    let (mut config, least) = (config.unwrap(), super::config(""));
    config.text = Arc::clone(&least.text);
    config.upstreams.access.place = least.upstreams.access.place.clone();
    assert_eq!(config, least);
    assert_eq!(log, json!({"format": "json", "trace": "none"}));
    assert_eq!(
        tracing,
        json!({"sampleRatio": 0.01, "logs": false, "spool": {"maxBytes": "256Mi"}})
    );
    assert_eq!(
        super::config(&format!("console: {page}")).console,
        super::config("console: {}").console
    );
    let with = |requests: &str| {
        let config = super::config(&format!("authorization: {{accessRequests: {requests}}}"));
        config.authorization.access_requests.unwrap()
    };
    assert_eq!(with(&requests.to_string()), with("{}"));
    assert_eq!(LogTrace::default(), LogTrace::None);
    for (section, written) in [("recording", recording), ("usage", usage)] {
        let read = |fields: &str| {
            let config = super::config(&format!("{section}: {{folder: r{fields}}}"));
            config
                .usage
                .or(config.recording.map(|recording| recording.files))
                .unwrap()
        };
        let (bytes, age) = (&written["maxBytes"], &written["maxAge"]);
        assert_eq!(read(&format!(", maxBytes: {bytes}, maxAge: {age}")), read(""));
    }
}

/// Calls `each` with the path, as a JSON pointer, of every value in `value`.
fn walk(value: &Value, pointer: &str, each: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                walk(value, &format!("{pointer}/{}", key.replace('/', "~1")), each);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                walk(value, &format!("{pointer}/{index}"), each);
            }
        }
        _ => each(pointer, value),
    }
}

/// What the schema says of a value, by the value's path.
fn subschema<'s>(schema: &'s Value, pointer: &str) -> Option<&'s Value> {
    let mut found = schema;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/");
        let choices = found.get("anyOf").and_then(Value::as_array);
        let below = |schema: &'s Value| match step.parse::<usize>() {
            Ok(_) => schema.get("items"),
            Err(_) => schema
                .get("properties")
                .and_then(|properties| properties.get(&step)),
        };
        found = below(found).or_else(|| choices.into_iter().flatten().find_map(below))?;
    }
    Some(found)
}

/// A value of another type at every place is a fault there, so the types are those of the
/// schema: where it says text, a number is refused, and so on.
#[test]
fn its_types_are_those_that_are_read() {
    let document = &document::parse(None, FULL).unwrap()[0];
    let full = document.root().to_json();
    let mut leaves = Vec::new();
    walk(&full, "", &mut |pointer, value| {
        leaves.push((pointer.to_owned(), value.clone()))
    });
    assert!(leaves.len() > 80, "{}", leaves.len());
    for (pointer, value) in leaves {
        let Some(said) = subschema(&schema(), &pointer).cloned() else {
            assert!(
                [
                    "/callers/4/jwt/claims",
                    "/upstreams/addresses",
                    "/clusters/0/upstreams/addresses",
                    "/clusters/0/selector/matchLabels"
                ]
                .iter()
                .any(|open| pointer.starts_with(open) || pointer.contains("/jwt/claims/")),
                "{pointer}"
            );
            continue;
        };
        let expected = match &value {
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            _ => "string",
        };
        let choices = said.get("anyOf").and_then(Value::as_array);
        let types = std::iter::once(&said).chain(choices.into_iter().flatten());
        let is_said = types
            .filter_map(|schema| Some(schema.get("type")?.as_str()?.to_owned()))
            .chain(said.get("$ref").map(|_| "string".to_owned()))
            .any(|kind| kind == expected);
        assert!(is_said, "{pointer}: {said}");
        let mut wrong = full.clone();
        *wrong.pointer_mut(&pointer).unwrap() = if value.is_boolean() {
            json!("x")
        } else {
            json!(true)
        };
        let (_, faults) = parse(Path::new("c.yaml"), &wrong.to_string(), Path::new("config"));
        assert!(faults.has_errors(), "{pointer}: {said} may be something else");
    }
}
