//! Other authorizers, as an AuthorizationConfiguration names them.

use std::path::Path;

use portcullis::config::{AuthorizerTypes, authorizers};
use serde_json::Value;

use crate::harness::{Case, Mismatch, Table};
use crate::selectors::kind;

pub(crate) const CONFIGURATION: Table = &[("validateAuthorizationConfiguration", validate)];

/// A file that is there, in the place of that of the vectors.
const EXISTING: &str = "/tmp/existing-kubeconfig";

/// The faults that the API server finds, at their fields; it leaves `webhook`
/// out of the path of a webhook's field.
fn validate(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let text = input["config"].to_string().replace(EXISTING, file);
    let types = |name: &str| -> Vec<&str> {
        let types = input[name].as_array().into_iter().flatten();
        types.filter_map(Value::as_str).collect()
    };
    let types = AuthorizerTypes {
        known: &types("knownTypes"),
        repeatable: &types("repeatableTypes"),
        in_cluster: true,
    };
    let faults = authorizers::check("f.json", &text, Path::new("/"), types);
    let actual: Vec<_> = faults
        .iter()
        .map(|fault| {
            let field = fault.place.path.to_string().replace(".webhook.", ".");
            (kind(fault.kind), field)
        })
        .collect();
    let expected: Vec<_> = case.expect()["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|error| {
            let field = error["field"].as_str().unwrap().to_owned();
            (error["type"].as_str().unwrap(), field)
        })
        .collect();
    case.same("list of faults", &actual, &expected)?;
    case.same(
        "validity",
        &faults.is_empty(),
        &case.expect()["valid"].as_bool().unwrap(),
    )
}
