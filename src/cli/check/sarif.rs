//! Faults as SARIF 2.1.0.

use serde_json::{Value, json};

use crate::cli::sarif;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place, Severity};

/// The log of one run.
pub(crate) fn log(faults: &Faults) -> Value {
    let rules = FaultKind::ALL.map(rule).to_vec();
    sarif::log(rules, faults.iter().map(result).collect())
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
    let physical = sarif::physical_location(place.file.as_ref()?, place.line, place.column)?;
    Some(json!({"physicalLocation": physical}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::field::FieldPath;

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
