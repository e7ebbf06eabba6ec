//! `docs/reference`: pages that are written from what the program reads and says. `just
//! reference` writes them; without it, these tests compare.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::project;

/// Compares a page with what it must be, or writes it.
fn page(name: &str, text: &str) {
    file(&format!("docs/reference/{name}.md"), text);
}

fn file(name: &str, text: &str) {
    let path = project::path(name);
    if std::env::var_os("PORTCULLIS_WRITE_REFERENCE").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let differs = found
        .lines()
        .zip(text.lines())
        .find(|(found, text)| found != text);
    assert!(
        found == text,
        "{name} is out of date: run `just reference`. {differs:?}"
    );
}

fn json_file(path: &str) -> Value {
    serde_json::from_str(&project::text(&project::path(path))).unwrap()
}

/// The schema that stands for this one: of a list, that of its items.
fn items(schema: &Value) -> &Value {
    schema.get("items").unwrap_or(schema)
}

/// The schema of the items, of a value that is a list or may be one.
fn items_of_list(schema: &Value) -> Option<&Value> {
    let choices = schema.get("anyOf").and_then(Value::as_array);
    let mut schemas = std::iter::once(schema).chain(choices.into_iter().flatten());
    schemas.find_map(|schema| schema.get("items"))
}

/// Each mapping below `schema`, with its properties, in the order of the schema.
fn fields<'s>(schema: &'s Value, path: &str, found: &mut Vec<(String, &'s Value, bool)>) {
    let choices = schema
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mappings = std::iter::once(schema).chain(choices);
    for mapping in mappings.filter(|mapping| mapping.get("properties").is_some()) {
        let required = mapping.get("required").and_then(Value::as_array);
        for (key, property) in mapping["properties"].as_object().unwrap() {
            let below = format!("{path}{}{key}", if path.is_empty() { "" } else { "." });
            let is_required = required.is_some_and(|names| names.iter().any(|name| name == key));
            found.push((below.clone(), property, is_required));
            let list_items = items_of_list(property);
            let brackets = if list_items.is_some() { "[]" } else { "" };
            fields(
                list_items.unwrap_or(property),
                &format!("{below}{brackets}"),
                found,
            );
        }
    }
}

fn type_of(schema: &Value) -> String {
    if schema.get("$ref").is_some() {
        return "duration".to_owned();
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array)
        && schema.get("type").is_none()
    {
        let types: Vec<String> = choices.iter().map(type_of).collect();
        return types.join(" or ");
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => format!("list of {}", type_of(&schema["items"])),
        Some("object") => "mapping".to_owned(),
        Some(other) => other.to_owned(),
        None if schema.get("properties").is_some() => "mapping".to_owned(),
        None => "string".to_owned(),
    }
}

/// A value as it is written in YAML, on one line.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "`\"\"`".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(items) => items.iter().map(written).collect::<Vec<_>>().join(", "),
        other => format!("`{other}`"),
    }
}

fn row(path: &str, schema: &Value, is_required: bool) -> String {
    let default = schema.get("default").map(written);
    let default = default.unwrap_or_else(|| {
        if is_required {
            "required".into()
        } else {
            String::new()
        }
    });
    let mut meaning = schema["description"]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned();
    let choices = items(schema).get("enum").and_then(Value::as_array);
    if let Some(choices) = choices {
        let choices: Vec<String> = choices.iter().map(written).collect();
        write!(meaning, " One of {}.", choices.join(", ")).unwrap();
    }
    if let Some(only) = schema.get("const") {
        write!(meaning, " Always {}.", written(only)).unwrap();
    }
    let line = format!("| `{path}` | {} | {default} | {meaning} |", type_of(schema));
    line.replace("||", "\\|\\|").replace('\n', " ")
}

fn table(schema: &Value) -> String {
    let mut found = Vec::new();
    fields(schema, "", &mut found);
    assert!(found.len() > 5);
    let rows = found
        .iter()
        .map(|(path, schema, is_required)| row(path, schema, *is_required));
    let rows: Vec<String> = rows.collect();
    format!(
        "| field | type | default | meaning |\n|---|---|---|---|\n{}\n",
        rows.join("\n")
    )
}

#[test]
fn the_page_of_the_configuration_is_true() {
    let text = format!(
        "# Every field of the configuration\n\n\
         The fields of a GatewayConfiguration (`config.portcullis.dev/v1alpha1`), with types and\n\
         defaults. `[]` stands for each item of a list. [Configuration](../configuration.md) explains\n\
         them; [the schema](../../config/schemas/gatewayconfiguration.json) has the same for editors\n\
         ([how](README.md#in-an-editor)).\n\n{}",
        table(&json_file("config/schemas/gatewayconfiguration.json"))
    );
    page("configuration", &text);
}

#[test]
fn the_page_of_suites_is_true() {
    let text = format!(
        "# Every field of a test suite\n\n\
         The fields of a PolicyTest (`portcullis.dev/v1alpha1`), which `portcullis test` runs.\n\
         [Command line](../cli.md#portcullis-test-path) explains them;\n\
         [the schema](../../config/schemas/policytest.json) has the same for editors\n\
         ([how](README.md#in-an-editor)).\n\n{}",
        table(&json_file("config/schemas/policytest.json"))
    );
    page("policytest", &text);
}

#[test]
fn the_page_of_the_decision_log_is_true() {
    let text = format!(
        "# Every field of the decision log\n\n\
         The fields of a line. [Decision log](../decision-log.md) explains them;\n\
         [the schema](../../config/schemas/decision-log.json) has the same for programs.\n\n{}",
        table(&json_file("config/schemas/decision-log.json"))
    );
    page("decision-log", &text);
}

/// The custom resources, and the files of their definitions.
const CUSTOM_RESOURCES: [(&str, &str); 4] = [
    ("AuthorizationPolicy", "authorizationpolicies"),
    ("AuthorizationInvariant", "authorizationinvariants"),
    ("AdmissionException", "admissionexceptions"),
    ("AccessRequest", "accessrequests"),
];

/// The schema of a custom resource in its definition.
fn schema_of_definition(file: &str) -> Value {
    let documents = project::documents(&project::path(&format!("config/crd/{file}.yaml")));
    documents[0].root().to_json()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// A page of a table of fields and what `portcullis convert` makes of them.
fn page_of_conversion(name: &str, heading: &str, fields: impl Iterator<Item = (String, String)>) {
    let rows: String = fields
        .map(|(field, becomes)| format!("| `{field}` | {becomes} |\n"))
        .collect();
    page(
        name,
        &format!("{heading}\n\n| field | becomes |\n|---|---|\n{rows}"),
    );
}

#[test]
fn the_pages_of_converted_policies_are_true() {
    let kyverno = "# Every field of Kyverno's ClusterPolicy\n\n\
         What [`portcullis convert`](../cli.md#kyverno) makes of each field of a ClusterPolicy, a Policy or a\n\
         PolicyException of `kyverno.io`. A field that is not here is refused. [From\n\
         Kyverno](../migration/kyverno.md) explains the rest.";
    page_of_conversion("kyverno", kyverno, portcullis_convert::kyverno_fields());
    let gatekeeper = "# Every field of Gatekeeper's templates and constraints\n\n\
         What [`portcullis convert`](../cli.md#gatekeeper) makes of each field of a ConstraintTemplate and of its\n\
         constraints. Another field of a template's code, or of a constraint, is refused. [From\n\
         Gatekeeper](../migration/gatekeeper.md) explains the rest.";
    page_of_conversion("gatekeeper", gatekeeper, portcullis_convert::gatekeeper_fields());
}

#[test]
fn every_field_of_custom_resources_has_words() {
    for (kind, file) in CUSTOM_RESOURCES {
        let schema = schema_of_definition(file);
        let mut found = Vec::new();
        fields(&schema, "", &mut found);
        assert!(found.len() > 20, "{kind}: {}", found.len());
        let is_silent = |schema: &Value| schema["description"].as_str().is_none_or(str::is_empty);
        let silent = found.iter().filter(|(_, schema, _)| is_silent(schema));
        let silent: Vec<&String> = silent.map(|(path, ..)| path).collect();
        assert!(
            silent.is_empty(),
            "`kubectl explain` has no words for {kind}: {silent:?}"
        );
    }
}

/// What an editor shows of a value: as a definition has it, but fields that are not known are
/// mistakes, which an API server keeps for the gateway to name.
fn for_editors(schema: &Value) -> Value {
    let Value::Object(keywords) = schema else {
        return schema.clone();
    };
    let mut told = serde_json::Map::new();
    for (keyword, value) in keywords
        .iter()
        .filter(|(keyword, _)| !keyword.starts_with("x-kubernetes-"))
    {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let properties = properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), for_editors(schema)));
                Value::Object(properties.collect())
            }
            ("items" | "additionalProperties", schema) => for_editors(schema),
            (_, value) => value.clone(),
        };
        told.insert(keyword.clone(), value);
    }
    if told.contains_key("properties") {
        told.insert("additionalProperties".to_owned(), false.into());
    }
    Value::Object(told)
}

#[test]
fn the_schemas_of_custom_resources_for_editors_are_those_of_their_definitions() {
    for (kind, definition) in CUSTOM_RESOURCES {
        let name = kind.to_lowercase();
        let mut schema = for_editors(&schema_of_definition(definition));
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema["$id"] = format!("https://portcullis.dev/schemas/{name}.json").into();
        schema["title"] = kind.into();
        schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
        schema["properties"]["apiVersion"] = json!({"const": "portcullis.dev/v1alpha1"});
        schema["properties"]["kind"] = json!({"const": kind});
        schema["properties"]["metadata"] = json!({"type": "object", "required": ["name"],
            "description": "Name, labels and annotations. Objects of this kind have no namespace."});
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        file(&format!("config/schemas/{name}.json"), &text);
    }
}

#[test]
fn the_page_of_custom_resources_is_true() {
    let mut text = "# Every field of AuthorizationPolicy, AuthorizationInvariant, AdmissionException and AccessRequest\n\n\
         The fields of `spec`, from the CustomResourceDefinitions in\n\
         [config/crd](../../config/crd/kustomization.yaml). [RBAC and\n\
         AuthorizationPolicy](../policies.md), [Invariants](../invariants.md),\n\
         [Exceptions](../admission.md#exceptions) and [Access for a time](../access-requests.md) explain them. `kubectl explain authorizationpolicy.spec` shows the same.\n"
        .to_owned();
    for (kind, file) in CUSTOM_RESOURCES {
        let schema = schema_of_definition(file);
        write!(text, "\n## {kind}\n\n{}", table(&schema["properties"]["spec"])).unwrap();
    }
    page("resources", &text);
}

fn help(arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .arg("--help")
        .output()
        .unwrap();
    assert!(run.status.success());
    let text = String::from_utf8(run.stdout).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[test]
fn the_page_of_the_commands_is_true() {
    let main = help(&[]);
    let blocks = main.split("\n\n").filter_map(|block| block.split_once(":\n"));
    let groups = blocks.filter(|(group, _)| *group != "Options");
    let lines = groups.flat_map(|(_, lines)| lines.lines());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let mut text = format!(
        "# Every command and flag\n\n\
         What `--help` says. [Command line](../cli.md) explains the commands; `portcullis man FOLDER`\n\
         writes the same as man pages.\n\n```text\n{}\n```\n",
        main.trim_end()
    );
    for name in names.filter(|name| *name != "help") {
        let help = help(&[name]);
        write!(
            text,
            "\n## portcullis {name}\n\n```text\n{}\n```\n",
            help.trim_end()
        )
        .unwrap();
        let steps = help
            .split("\n\n")
            .find_map(|block| block.strip_prefix("Commands:\n"));
        let steps = steps.unwrap_or_default().lines();
        for step in steps.filter_map(|line| line.split_whitespace().next()) {
            if step != "help" {
                let help = self::help(&[name, step]);
                write!(
                    text,
                    "\n### portcullis {name} {step}\n\n```text\n{}\n```\n",
                    help.trim_end()
                )
                .unwrap();
            }
        }
    }
    page("cli", &text);
}
