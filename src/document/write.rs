//! Values as YAML.

use serde_json::Value;

/// `value` as one YAML document; `None` if it cannot be written, which no value
/// of JSON is known to cause.
#[must_use]
pub fn to_yaml(value: &Value) -> Option<String> {
    serde_saphyr::to_string(value).ok()
}
