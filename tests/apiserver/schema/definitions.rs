//! What structured-merge-diff sees in the OpenAPI documents of an API server
//! (kube-openapi `pkg/schemaconv`), and what its Go types say besides, in the words of the table
//! (`crates/policy/src/admission/apply/schema/read.rs`).

use super::go_types::GoTypes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The definitions of all documents.
#[derive(Default)]
pub(super) struct Definitions {
    by_name: BTreeMap<String, Value>,
    /// Group and version, kind, and the name of its definition.
    kinds: BTreeSet<(String, String, String)>,
    go_types: GoTypes,
}

impl Definitions {
    /// None yet, of the server with these Go types.
    pub(super) fn new(go_types: GoTypes) -> Self {
        Self {
            go_types,
            ..Self::default()
        }
    }

    /// Adds the document of a group and version.
    pub(super) fn read(&mut self, version: &str, document: &Value) {
        let schemas = document["components"]["schemas"]
            .as_object()
            .into_iter()
            .flatten();
        for (name, schema) in schemas {
            for kind in schema["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let of = match kind["group"].as_str().unwrap() {
                    "" => kind["version"].as_str().unwrap().to_owned(),
                    group => format!("{group}/{}", kind["version"].as_str().unwrap()),
                };
                // Only what its own document has can be applied to; lists, options
                // and events of a watch are never admitted.
                let metadata = reference(&schema["properties"]["metadata"]);
                if of == version && metadata.as_deref() == Some(OBJECT_META) {
                    let kind = kind["kind"].as_str().unwrap().to_owned();
                    self.kinds.insert((of, kind, name.clone()));
                }
            }
            let mut schema = schema.clone();
            let fields = schema.as_object_mut().unwrap();
            fields.remove("x-kubernetes-group-version-kind");
            let known = self.by_name.insert(name.clone(), schema);
            assert!(
                known.is_none_or(|known| known == self.by_name[name]),
                "{name} has two definitions"
            );
        }
    }

    /// Adds what an older server has beside: kinds, definitions, and fields. Where both have
    /// something, it is as here.
    pub(super) fn join(&mut self, older: Self) {
        self.kinds.extend(older.kinds);
        self.go_types.join(older.go_types);
        for (name, schema) in older.by_name {
            let Some(own) = self.by_name.get_mut(&name) else {
                self.by_name.insert(name, schema);
                continue;
            };
            let Some(own) = own.get_mut("properties").and_then(Value::as_object_mut) else {
                continue;
            };
            for (field, of) in schema["properties"].as_object().into_iter().flatten() {
                own.entry(field).or_insert_with(|| of.clone());
            }
        }
    }

    /// The table, of the versions named.
    pub(super) fn table(&self, servers: &str) -> String {
        let classes = self.classes();
        let name = |name: &str| short(&classes[name]);
        let mut table = format!(
            "# How kube-apiserver {servers} merges its types. Written by tests/apiserver/write-schema.\n"
        );
        let mut used = BTreeSet::new();
        for (version, kind, definition) in &self.kinds {
            let of = &classes[definition.as_str()];
            self.reach(of, &classes, &mut used);
            table.push_str(&format!("kind {version} {kind} {}\n", name(definition)));
        }
        let shorts: BTreeSet<String> = used.iter().map(|name| short(name)).collect();
        assert_eq!(
            shorts.len(),
            used.len(),
            "two definitions have the same short name"
        );
        for definition in used {
            let written = self.definition(definition, &name);
            table.push_str(&format!("type {}{written}\n", short(definition)));
        }
        table
    }

    /// For each struct the first of those that are the same as it, field by
    /// field: `v1beta1` is rarely another than `v1`.
    fn classes(&self) -> BTreeMap<&str, String> {
        let structs = || self.by_name.keys().filter(|name| self.is_struct(name));
        // All are taken for the same until a field tells them apart.
        let mut classes: BTreeMap<&str, String> =
            structs().map(|name| (name.as_str(), String::new())).collect();
        loop {
            let mut firsts: BTreeMap<String, String> = BTreeMap::new();
            let mut next = BTreeMap::new();
            for name in structs() {
                let written = self.definition(name, &|name| classes[name].clone());
                let first = firsts.entry(written).or_insert_with(|| name.clone());
                next.insert(name.as_str(), first.clone());
            }
            if next == classes {
                return classes;
            }
            classes = next;
        }
    }

    fn reach<'d>(&'d self, name: &str, classes: &BTreeMap<&str, String>, used: &mut BTreeSet<&'d str>) {
        let (name, _) = self.by_name.get_key_value(name).unwrap();
        if !used.insert(name) {
            return;
        }
        let found = std::cell::RefCell::new(BTreeSet::new());
        self.definition(name, &|name| {
            found.borrow_mut().insert(classes[name].clone());
            String::new()
        });
        for name in found.into_inner() {
            self.reach(&name, classes, used);
        }
    }

    fn is_struct(&self, name: &str) -> bool {
        self.by_name[name].get("properties").is_some()
    }

    /// The fields of a struct.
    fn definition(&self, definition: &str, name: &dyn Fn(&str) -> String) -> String {
        let schema = &self.by_name[definition];
        check(definition, schema);
        let mut written = String::new();
        if relationship(schema) == Some(true) {
            written.push_str(" !");
        }
        let fields: BTreeMap<_, _> = schema["properties"].as_object().unwrap().iter().collect();
        for (field, of) in fields {
            assert!(!field.contains([' ', ':', '?']), "{definition}.{field}");
            let go = self.go_types.field(definition, field);
            let (omitted, go) = go.strip_prefix('?').map_or(("", go), |go| ("?", go));
            let pointer = if go.starts_with('*') { "*" } else { "" };
            written.push_str(&format!(" {field}{omitted}:{pointer}{}", self.of(of, go, name)));
        }
        written
    }

    /// The type of a field, an item or the values of a map, which is `go` in Go.
    fn of(&self, schema: &Value, go: &str, name: &dyn Fn(&str) -> String) -> String {
        let go = go.trim_start_matches('*');
        let Some(reference) = reference(schema) else {
            return self.inline(schema, go, name);
        };
        let prefix = match relationship(schema) {
            None => "",
            Some(true) => "!",
            Some(false) => "~",
        };
        let of = match reference.as_str() {
            QUANTITY => "quantity".to_owned(),
            RAW_EXTENSION => "!any".to_owned(),
            reference if self.is_struct(reference) => return format!("{prefix}{}", name(reference)),
            reference => self.inline(&self.by_name[reference], go, name),
        };
        assert_eq!(prefix, "", "{reference} is no struct");
        of
    }

    fn inline(&self, schema: &Value, go: &str, name: &dyn Fn(&str) -> String) -> String {
        let inner = |open: &str, close: &str| {
            let inner = go.strip_prefix(open).and_then(|go| go.strip_suffix(close));
            inner.unwrap_or("any").to_owned()
        };
        check("a field", schema);
        assert!(
            schema.get("properties").is_none(),
            "a struct without name: {schema}"
        );
        match schema["type"].as_str().unwrap_or_default() {
            "" if go == "intstr" => go,
            "" => "any",
            "object" => {
                let value = match &schema["additionalProperties"] {
                    Value::Object(_) => self.of(&schema["additionalProperties"], &inner("{", "}"), name),
                    Value::Null | Value::Bool(true) => "any".to_owned(),
                    other => panic!("{other}"),
                };
                let atomic = if relationship(schema) == Some(true) {
                    "!"
                } else {
                    ""
                };
                return format!("{atomic}{{{value}}}");
            }
            "array" => {
                let item = self.of(&schema["items"], &inner("[", "]"), name);
                return format!("{}[{item}]", self.list(schema));
            }
            "integer" | "number" => scalar(go, &["i32", "i64", "f64"]),
            "boolean" => scalar(go, &["bool"]),
            "string" if matches!(schema["format"].as_str(), None | Some("" | "byte")) => {
                scalar(go, &["str", "bytes", "duration"])
            }
            "string" => scalar(go, &["time", "microtime"]),
            other => panic!("a field of type {other}"),
        }
        .to_owned()
    }

    fn list(&self, schema: &Value) -> String {
        let keys: Vec<&str> = match (
            schema["x-kubernetes-list-type"].as_str(),
            schema["x-kubernetes-patch-strategy"].as_str(),
        ) {
            (Some("atomic"), _) | (None, None | Some("retainKeys")) => return String::new(),
            (Some("set"), _) => return "set".to_owned(),
            (Some("map"), _) => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().unwrap().iter();
                keys.map(|key| key.as_str().unwrap()).collect()
            }
            (None, Some("merge" | "merge,retainKeys")) => match schema.get("x-kubernetes-patch-merge-key") {
                Some(key) => vec![key.as_str().unwrap()],
                None => return "set".to_owned(),
            },
            other => panic!("a list of type {other:?}"),
        };
        let item = &self.by_name[&reference(&schema["items"]).unwrap()];
        let keys: Vec<String> = keys.into_iter().map(|key| with_default(key, item)).collect();
        format!("map({})", keys.join(","))
    }
}

/// What a scalar is in Go: one of `words`.
fn scalar<'g>(go: &'g str, words: &[&str]) -> &'g str {
    // Of what is never admitted nothing is known.
    assert!(go == "any" || words.contains(&go), "{go} is none of {words:?}");
    go
}

/// A key, and what an item without it has there.
fn with_default(key: &str, item: &Value) -> String {
    match item["properties"][key].get("default") {
        None => key.to_owned(),
        Some(default) => {
            let default = default.to_string();
            assert!(!default.contains([' ', ',', ')']), "{key}={default}");
            format!("{key}={default}")
        }
    }
}

/// That it says nothing which the table has no word for.
fn check(name: &str, schema: &Value) {
    for word in ["x-kubernetes-preserve-unknown-fields", "not", "anyOf"] {
        assert!(schema.get(word).is_none(), "{name} has {word}");
    }
    let both = schema.get("properties").is_some() && schema.get("additionalProperties").is_some();
    assert!(!both, "{name} is a struct and a map");
}

/// The definition that a field refers to.
fn reference(schema: &Value) -> Option<String> {
    let all_of = match schema["allOf"].as_array() {
        Some(all_of) if all_of.len() == 1 => &all_of[0],
        _ => schema,
    };
    let reference = schema
        .get("$ref")
        .or_else(|| all_of.get("$ref"))?
        .as_str()
        .unwrap();
    reference.rsplit('/').next().map(str::to_owned)
}

/// Whether it is said to be atomic, or not.
fn relationship(schema: &Value) -> Option<bool> {
    match schema.get("x-kubernetes-map-type")?.as_str().unwrap() {
        "atomic" => Some(true),
        "granular" => Some(false),
        other => panic!("a map of type {other}"),
    }
}

/// `core.v1.Pod` of `io.k8s.api.core.v1.Pod`.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.rsplitn(4, '.').take(3).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(".")
}
