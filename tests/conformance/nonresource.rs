//! Paths outside the API: in RBAC rules, and those that are always open.

use portcullis_policy::authorization::rbac::{AlwaysAllowPaths, PathPattern};

use crate::harness::{Case, Mismatch, Table};
use crate::rbac;

pub(crate) const CHECKS: Table = &[
    ("alwaysAllowPaths", always_allow_paths),
    ("alwaysAllowPathsValid", always_allow_paths_valid),
    ("nonResourceURLCovers", non_resource_url_covers_case),
    ("ruleAllows", rbac::rule_allows),
];

fn parse(case: &Case<'_>) -> Result<AlwaysAllowPaths, Mismatch> {
    let paths: Vec<String> = serde_json::from_value(case.input()["paths"].clone()).unwrap();
    AlwaysAllowPaths::parse(&paths).map_err(|error| Mismatch::new(error.to_string()))
}

fn always_allow_paths(case: &Case<'_>) -> Result<(), Mismatch> {
    let open = parse(case)?.contains(case.input()["path"].as_str().unwrap());
    let decision = if open { "Allow" } else { "NoOpinion" };
    case.same(
        "decision",
        &decision,
        &case.expect()["decision"].as_str().unwrap(),
    )
}

fn always_allow_paths_valid(case: &Case<'_>) -> Result<(), Mismatch> {
    case.same(
        "error",
        &parse(case).is_err(),
        &case.expect()["error"].as_bool().unwrap(),
    )
}

fn non_resource_url_covers_case(case: &Case<'_>) -> Result<(), Mismatch> {
    let text = |name: &str| case.input()[name].as_str().unwrap();
    let covers = PathPattern::from(text("owner")).covers(&PathPattern::from(text("requested")));
    case.same("covers", &covers, &case.expect()["covers"].as_bool().unwrap())
}
