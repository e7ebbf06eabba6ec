//! The rules of the SARIF 2.1.0 schema for the parts that the program writes: which
//! properties there may be, which there must be, and what they hold.

use serde_json::{Map, Value};

/// A property, whether it must be there, and what it holds.
type Property = (&'static str, bool, fn(&Value, &str));

const LOG: &[Property] = &[
    ("$schema", false, |value, at| text(value, at)),
    ("version", true, |value, at| one_of(value, at, &["2.1.0"])),
    ("runs", true, |value, at| {
        items(value, at, |run, at| object(run, at, RUN))
    }),
];
const RUN: &[Property] = &[
    ("tool", true, |value, at| object(value, at, TOOL)),
    ("columnKind", false, |value, at| {
        one_of(value, at, &["utf16CodeUnits", "unicodeCodePoints"])
    }),
    ("results", false, |value, at| {
        items(value, at, |result, at| object(result, at, RESULT))
    }),
];
const TOOL: &[Property] = &[("driver", true, |value, at| object(value, at, DRIVER))];
const DRIVER: &[Property] = &[
    ("name", true, |value, at| text(value, at)),
    ("version", false, |value, at| text(value, at)),
    ("rules", false, |value, at| {
        unique(value, at);
        items(value, at, |rule, at| object(rule, at, RULE));
    }),
];
const RULE: &[Property] = &[
    ("id", true, |value, at| text(value, at)),
    ("shortDescription", false, |value, at| object(value, at, MESSAGE)),
];
const MESSAGE: &[Property] = &[("text", true, |value, at| text(value, at))];
const RESULT: &[Property] = &[
    ("ruleId", false, |value, at| text(value, at)),
    ("level", false, |value, at| {
        one_of(value, at, &["none", "note", "warning", "error"])
    }),
    ("message", true, |value, at| object(value, at, MESSAGE)),
    ("locations", false, |value, at| {
        items(value, at, |location, at| object(location, at, LOCATION))
    }),
];
const LOCATION: &[Property] = &[
    ("physicalLocation", false, |value, at| object(value, at, PHYSICAL)),
    ("logicalLocations", false, |value, at| {
        unique(value, at);
        items(value, at, |location, at| object(location, at, LOGICAL));
    }),
];
const PHYSICAL: &[Property] = &[
    ("artifactLocation", true, |value, at| object(value, at, ARTIFACT)),
    ("region", false, |value, at| object(value, at, REGION)),
];
const ARTIFACT: &[Property] = &[("uri", false, |value, at| reference(value, at))];
const REGION: &[Property] = &[
    ("startLine", false, |value, at| from_one(value, at)),
    ("startColumn", false, |value, at| from_one(value, at)),
];
const LOGICAL: &[Property] = &[
    ("name", false, |value, at| text(value, at)),
    ("fullyQualifiedName", false, |value, at| text(value, at)),
    ("kind", false, |value, at| text(value, at)),
];

/// Panics where `log` breaks a rule, or a result names a rule that is not declared.
pub(crate) fn assert_valid(log: &Value) {
    object(log, "log", LOG);
    for run in log["runs"].as_array().unwrap() {
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        for result in run["results"].as_array().unwrap() {
            let id = &result["ruleId"];
            assert!(rules.iter().any(|rule| &rule["id"] == id), "{id} is not declared");
        }
    }
}

fn object(value: &Value, at: &str, properties: &[Property]) {
    let empty = Map::new();
    let own = value.as_object().unwrap_or(&empty);
    assert!(value.is_object(), "{at}: {value}");
    for name in own.keys() {
        assert!(
            properties.iter().any(|(known, ..)| known == name),
            "{at}.{name} is not known"
        );
    }
    for (name, is_required, holds) in properties {
        let at = format!("{at}.{name}");
        match own.get(*name) {
            Some(value) => holds(value, &at),
            None => assert!(!is_required, "{at} is required"),
        }
    }
}

fn items(value: &Value, at: &str, holds: impl Fn(&Value, &str)) {
    let items = value.as_array().unwrap_or_else(|| panic!("{at}: {value}"));
    for (index, item) in items.iter().enumerate() {
        holds(item, &format!("{at}[{index}]"));
    }
}

fn unique(value: &Value, at: &str) {
    let items = value.as_array().unwrap_or_else(|| panic!("{at}: {value}"));
    for (index, item) in items.iter().enumerate() {
        assert!(!items[..index].contains(item), "{at}[{index}] stands twice");
    }
}

fn text(value: &Value, at: &str) {
    assert!(value.is_string(), "{at}: {value}");
}

fn one_of(value: &Value, at: &str, values: &[&str]) {
    assert!(
        value.as_str().is_some_and(|text| values.contains(&text)),
        "{at}: {value}"
    );
}

fn from_one(value: &Value, at: &str) {
    assert!(value.as_u64().is_some_and(|number| number >= 1), "{at}: {value}");
}

/// A relative reference of a URI: nothing in it needs an escape that it does not have.
fn reference(value: &Value, at: &str) {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~%".contains(&byte);
    assert!(
        value.as_str().is_some_and(|text| text.bytes().all(allowed)),
        "{at}: {value}"
    );
}
