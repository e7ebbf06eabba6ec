//! The expressions of the tables in `tests/cel/`: the words of those that fail, with each version.

use std::path::Path;

use portcullis_cel::Version;

use crate::cel::Both;
use crate::differences::Difference;

/// Whose variables Kubernetes is told here.
const TABLES: [&str; 5] = [
    "errors.txt",
    "failures.txt",
    "language.txt",
    "libraries.txt",
    "since-1.37.txt",
];

/// All expressions of the tables.
fn expressions() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cel");
    let read = |table: &&str| std::fs::read_to_string(folder.join(table)).unwrap();
    let texts: Vec<String> = TABLES.iter().map(read).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.splitn(3, '\t').nth(2).unwrap().to_owned())
        .collect()
}

pub(crate) fn failures_of_the_tables_are_told_in_the_words_of_kubernetes() {
    let expressions = expressions();
    let mut differ = Vec::new();
    for (server, minor) in [("1.36", 35), ("1.36", 36), ("1.37", 37)] {
        let version = Version::new(minor);
        let Some(mut both) = Both::start(server, version) else {
            return;
        };
        let known = Difference::all_of(version);
        let mut failed = 0;
        let outcomes = both.outcomes(&expressions);
        for (expression, (kubernetes, here)) in expressions.iter().zip(outcomes) {
            failed += usize::from(kubernetes.kind() == "failed");
            let is_known = || {
                known
                    .iter()
                    .any(|known| known.explains(expression, &kubernetes, &here))
            };
            if !kubernetes.is_same(&here) && !is_known() && !both.comes_to(expression, &here) {
                differ.push(format!(
                    "{expression} with {version}\n  Kubernetes {kubernetes:?}\n  here       {here:?}"
                ));
            }
        }
        assert!(failed > 500, "{failed} fail with {version}");
    }
    assert!(differ.is_empty(), "{}:\n{}", differ.len(), differ.join("\n"));
}
