//! Checks of the source tree that no compiler makes: that no two files import each other, that
//! the service's modules use only those below them, and that what the pages name exists.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test, a panic is a failure"
)]

mod circles;
mod documents;
mod source;

use std::path::{Path, PathBuf};

use circles::Files;
use source::{Source, sources};

/// The modules of the service: each uses only those before it.
const ORDER: [&str; 15] = [
    "config",
    "telemetry",
    "identity",
    "webhooks",
    "bundle",
    "recording",
    "usage",
    "columns",
    "state",
    "cluster",
    "console",
    "server",
    "cli",
    "main",
    "lib",
];

#[test]
fn modules_use_only_what_stands_below_them() {
    let floor = |module: &str| ORDER.iter().position(|name| *name == module);
    let files = Files::new(sources().into_iter().filter(|source| source.root == "src"));
    let mut wrong = Vec::new();
    for (from, to) in files.arrows() {
        let module = |path: &str| {
            path["src/".len()..]
                .split(['/', '.'])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let (below, above) = (floor(&module(to)), floor(&module(from)));
        if below.is_none() || above.is_none() || below > above {
            wrong.push(format!("{from} uses {to}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `harness = false` makes of `#[test]` is nothing: such a test would never run.
#[test]
fn tests_that_a_program_lists_are_not_marked_as_tests() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut marked = Vec::new();
    for program in ["tests/apiserver", "tests/oracle"] {
        let mut paths = Vec::new();
        source::walk(&top.join(program), &mut paths);
        assert!(paths.len() > 10, "{program}");
        let is_marked = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().any(|line| line.trim_start().starts_with("#[test]"))
        };
        marked.extend(paths.into_iter().filter(is_marked));
    }
    assert!(marked.is_empty(), "list them in main.rs instead: {marked:?}");
}

/// Logs are for people: `peer=Some(127.0.0.1:5)` is not.
#[test]
fn no_field_of_a_log_line_is_written_as_rust_s_debug_form() {
    let mut found = Vec::new();
    for source in sources() {
        for event in source.text.split("tracing::").skip(1) {
            let macros = ["error!(", "warn!(", "info!("];
            if !macros.iter().any(|start| event.starts_with(start)) {
                continue;
            }
            let fields = event.split(");").next().unwrap_or_default();
            // Before the message alone: `?` within it is punctuation.
            let fields = fields.split('"').next().unwrap_or_default();
            if fields.contains('?') {
                found.push(format!("{}: {fields}", source.path));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// What commands say goes through `cli::output`, which keeps input from acting on the terminal and
/// in CI; the log and the decision log have writers of their own.
#[test]
fn nothing_else_writes_to_the_terminal() {
    const WRITERS: [&str; 3] = [
        "src/cli/output.rs",
        "src/telemetry/logging.rs",
        "src/telemetry/decision_log.rs",
    ];
    let writes = ["io::stdout()", "io::stderr()", "print!(", "println!("];
    let mut found = Vec::new();
    for source in sources() {
        if WRITERS.contains(&source.path.as_str()) {
            continue;
        }
        for (number, line) in source.code() {
            if writes.iter().any(|write| line.contains(write)) {
                found.push(format!("{}:{number}: {line}", source.path));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
