//! As much of JSON Schema (2020-12) as the schemas in `config/schemas` use. A keyword that is
//! not understood is a violation, so that no schema promises what nothing has checked.

use regex_automata::hybrid::regex::Regex;
use serde_json::Value;

/// Where `value` is not what `schema` says, and why; empty if it is.
pub(crate) fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Visit { root: schema }.check(schema, value, "$", &mut found);
    found
}

struct Visit<'s> {
    root: &'s Value,
}

impl Visit<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let Some(keywords) = schema.as_object() else {
            found.push(format!("{at}: the schema is no mapping"));
            return;
        };
        for (keyword, expected) in keywords {
            let fits = match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" | "default" | "examples" | "format" => {
                    true
                }
                "type" => has_type(value, expected),
                "const" => value == expected,
                "enum" => expected.as_array().is_some_and(|choices| choices.contains(value)),
                "minimum" => value.as_f64() >= expected.as_f64(),
                "maximum" => value.as_f64() <= expected.as_f64(),
                "minLength" => length(value.as_str().map(|text| text.chars().count())) >= expected.as_f64(),
                "maxLength" => length(value.as_str().map(|text| text.chars().count())) <= expected.as_f64(),
                "minItems" => length(value.as_array().map(Vec::len)) >= expected.as_f64(),
                "maxItems" => length(value.as_array().map(Vec::len)) <= expected.as_f64(),
                "minProperties" => length(value.as_object().map(serde_json::Map::len)) >= expected.as_f64(),
                "pattern" => matches(expected, value),
                "required" => {
                    let names = expected.as_array().into_iter().flatten();
                    let missing = |name: &&Value| value.get(name.as_str().unwrap_or_default()).is_none();
                    value.is_object() && names.filter(missing).count() == 0
                }
                "anyOf" => self.count(expected, value) > 0,
                "oneOf" => self.count(expected, value) == 1,
                "$ref" => {
                    let pointer = expected.as_str().unwrap_or_default().trim_start_matches('#');
                    let target = self.root.pointer(pointer).unwrap_or(&Value::Null);
                    self.check(target, value, at, found);
                    true
                }
                "properties" | "additionalProperties" => true,
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(expected, item, &format!("{at}[{index}]"), found);
                    }
                    true
                }
                _ => false,
            };
            if !fits {
                found.push(format!("{at}: {keyword} {expected}"));
            }
        }
        for (key, below) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{key}");
            let additional = keywords.get("additionalProperties");
            match (
                schema.get("properties").and_then(|known| known.get(key)),
                additional,
            ) {
                (Some(property), _) => self.check(property, below, &at, found),
                (None, Some(Value::Bool(false))) => found.push(format!("{at}: unknown key")),
                (None, Some(open)) if open.is_object() => self.check(open, below, &at, found),
                _ => {}
            }
        }
    }

    /// How many of `choices` the value fits.
    fn count(&self, choices: &Value, value: &Value) -> usize {
        let fits = |choice: &&Value| {
            let mut found = Vec::new();
            self.check(choice, value, "", &mut found);
            found.is_empty()
        };
        choices.as_array().into_iter().flatten().filter(fits).count()
    }
}

fn length(found: Option<usize>) -> Option<f64> {
    found.and_then(|found| u32::try_from(found).ok()).map(f64::from)
}

fn has_type(value: &Value, expected: &Value) -> bool {
    match expected.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => false,
    }
}

fn matches(pattern: &Value, value: &Value) -> bool {
    let regex = Regex::new(pattern.as_str().unwrap_or("(")).ok();
    regex.zip(value.as_str()).is_some_and(|(regex, text)| {
        let mut cache = regex.create_cache();
        regex.is_match(&mut cache, text)
    })
}
