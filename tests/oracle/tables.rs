//! The Unicode tables of the regular expressions are Go's.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use crate::program::Oracle;

#[derive(Deserialize)]
struct Tables {
    text: String,
}

pub(crate) fn the_unicode_tables_are_those_of_go() {
    let Some(mut oracle) = Oracle::start("tables") else {
        return;
    };
    let answers: Vec<Tables> = oracle.ask(&[json!({})]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/cel/src/regex/unicode.txt");
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == answers[0].text,
        "crates/cel/src/regex/unicode.txt is not what tests/oracle/write-tables writes"
    );
}
