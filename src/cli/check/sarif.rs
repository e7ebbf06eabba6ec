//! Faults as SARIF 2.1.0, which code review tools show next to the lines concerned.

use serde_json::{Value, json};

use crate::field::{Fault, FaultKind, Faults, Place, Severity};

/// The log of one run.
pub(super) fn log(faults: &Faults) -> Value {
    let results: Vec<Value> = faults.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "portcullis",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": FaultKind::ALL.map(rule),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(kind: FaultKind) -> Value {
    json!({"id": kind.code(), "shortDescription": {"text": kind.as_str()}})
}

fn result(fault: &Fault) -> Value {
    let mut text = fault.message.clone();
    let place = &fault.place;
    let within = [place.object.clone(), place.path.to_string()];
    let within = within.into_iter().filter(|part| !part.is_empty());
    let within = within.collect::<Vec<_>>().join(": ");
    if !within.is_empty() {
        text = format!("{within}: {text}");
    }
    json!({
        "ruleId": fault.kind.code(),
        "level": match fault.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        "message": {"text": text},
        "locations": location(place).into_iter().collect::<Vec<_>>(),
    })
}

/// Where a fault is; none where it is in no file.
fn location(place: &Place) -> Option<Value> {
    let artifact = json!({"uri": uri(place.file.as_ref()?)});
    let physical = match (place.line, place.column) {
        (0, _) => json!({"artifactLocation": artifact}),
        (line, 0) => json!({"artifactLocation": artifact, "region": {"startLine": line}}),
        (line, column) => {
            let region = json!({"startLine": line, "startColumn": column});
            json!({"artifactLocation": artifact, "region": region})
        }
    };
    Some(json!({"physicalLocation": physical}))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldPath;

    #[test]
    fn a_fault_is_a_result_at_its_line() {
        let mut faults = Faults::new();
        let place = Place {
            file: Some("./a b.yaml".into()),
            line: 7,
            column: 3,
            object: "Role/r".into(),
            path: FieldPath::root().field("rules"),
        };
        faults.push(Fault::warning(place, FaultKind::Suspicious, "odd"));
        faults.push(Fault::error(Place::default(), FaultKind::Required, "missing"));
        let log = log(&faults);
        let results = &log["runs"][0]["results"];
        assert_eq!(results[0]["ruleId"], "suspicious");
        assert_eq!(results[0]["level"], "warning");
        assert_eq!(results[0]["message"]["text"], "Role/r: rules: odd");
        let location = &results[0]["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], "a%20b.yaml");
        assert_eq!(location["region"], json!({"startLine": 7, "startColumn": 3}));
        assert_eq!(results[1]["level"], "error");
        assert_eq!(results[1]["locations"], json!([]));
    }
}
