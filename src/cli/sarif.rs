//! SARIF 2.1.0, which code review tools show next to the lines concerned.

use serde_json::{Value, json};

/// The log of one run, with its rules and results.
pub(crate) fn log(rules: Vec<Value>, results: Vec<Value>) -> Value {
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "portcullis",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

/// A place in a file, as far as it is known: lines and columns count from 1, 0 is none. None
/// where there is no file.
pub(crate) fn physical_location(file: &str, line: u32, column: u32) -> Option<Value> {
    if file.is_empty() {
        return None;
    }
    let artifact = json!({"uri": uri(file)});
    Some(match (line, column) {
        (0, _) => json!({"artifactLocation": artifact}),
        (line, 0) => json!({"artifactLocation": artifact, "region": {"startLine": line}}),
        (line, column) => {
            let region = json!({"startLine": line, "startColumn": column});
            json!({"artifactLocation": artifact, "region": region})
        }
    })
}

/// A path as a relative reference of a URI.
fn uri(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    path.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
