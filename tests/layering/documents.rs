//! Every source file has module documentation and a regular name, and what the pages
//! of the project name exists: links, files, tests and metrics.

use std::path::{Path, PathBuf};

use crate::sources;

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|source| !source.path.contains("/tests") && !source.text.starts_with("//! "))
        .map(|source| source.path)
        .collect();
    assert!(silent.is_empty(), "no `//!` at the head of {silent:?}");
}

/// A module with files below it stands beside their folder: `console.rs` and
/// `console/`. So that two files of a name are never open at once, and a file that
/// gets tests of its own keeps its name.
#[test]
fn no_module_is_called_mod() {
    let called: Vec<String> = sources()
        .into_iter()
        .map(|source| source.path)
        .filter(|path| path.ends_with("/mod.rs"))
        .collect();
    assert!(called.is_empty(), "{called:?}");
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = Vec::new();
    find(root, &mut pages);
    assert!(pages.len() > 10, "{pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        for link in links(&text) {
            if !leads_somewhere(page, &text, link) {
                broken.push(format!("{}: {link}", page.strip_prefix(root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn links_are_read_as_they_are_written() {
    let text = "[a](b.md#c) `[no](no.md)` ![d](e.png)\n```\n[f](g)\n```\n[h](https://i) [j](#k)";
    assert_eq!(links(text), ["b.md#c", "e.png", "https://i", "#k"]);
    assert_eq!(
        anchor("## A `failurePolicy`: what, and Why?"),
        "a-failurepolicy-what-and-why"
    );
}

#[test]
fn every_file_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut named, mut missing) = (0, Vec::new());
    for (page, text) in pages() {
        for path in code_spans(&text)
            .into_iter()
            .filter(|span| is_repository_path(span))
        {
            named += 1;
            if !root.join(path).exists() {
                missing.push(format!("{page}: {path}"));
            }
        }
    }
    assert!(named > 50, "{named}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_test_that_a_page_names_exists() {
    let mut code = String::new();
    for folder in ["crates", "src", "tests"] {
        collect_code(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut code);
    }
    let (mut named, mut missing) = (0, Vec::new());
    for (page, text) in pages() {
        for name in code_spans(&text).into_iter().filter(|span| is_test_name(span)) {
            named += 1;
            let declaration = match name.strip_suffix('…') {
                Some(start) => format!("fn {start}"),
                None => format!("fn {name}("),
            };
            if !code.contains(&declaration) {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(named > 60, "{named}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// What tests are called is of use to those who change the code: `evidence.md` names them.
#[test]
fn the_page_on_security_names_no_tests() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("SECURITY.md")).unwrap();
    let named: Vec<&str> = code_spans(&text)
        .into_iter()
        .filter(|span| is_test_name(span))
        .collect();
    assert!(
        named.is_empty(),
        "move them to docs/development/evidence.md: {named:?}"
    );
}

#[test]
fn every_metric_that_a_page_names_is_exported() {
    let mut code = String::new();
    collect_code(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/telemetry"),
        &mut code,
    );
    let (mut named, mut missing) = (0, Vec::new());
    for (page, text) in pages() {
        for (at, _) in text.match_indices("portcullis_") {
            let after = text[at..].trim_start_matches(|char: char| char.is_ascii_lowercase() || char == '_');
            let name = &text[at..text.len() - after.len()];
            // The changelog names what a metric was called: `old` → `new`; `name::` is a crate.
            if after.starts_with("` →") || after.starts_with("::") {
                continue;
            }
            named += 1;
            let family = name.trim_start_matches("portcullis_").trim_end_matches("_bucket");
            if !code.contains(&format!("\"{family}\"")) {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(named > 40, "{named}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn code_spans_are_told_from_text_and_blocks() {
    let text = "a `src/b.rs` c `d\ne`\n```\n`f`\n```\n`g_h_i_j`";
    assert_eq!(code_spans(text), ["src/b.rs", "d\ne", "g_h_i_j"]);
    assert!(is_repository_path("crates/policy/src/model/") && is_repository_path("tests/apiserver/build"));
    assert!(!is_repository_path("src/**/tests") && !is_repository_path("pods/log"));
    assert!(is_test_name("a_job_runs_its_course_…") && is_test_name("no_deny_reaches_it"));
    assert!(!is_test_name("match_conditions") && !is_test_name("portcullis_reloads_total_x_y"));
}

/// The name and text of every page of the project.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    find(root, &mut paths);
    let page = |path: &PathBuf| {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(page).collect()
}

/// The Rust code of every file below a folder.
fn collect_code(folder: &Path, code: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_code(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// What stands between single backticks, outside of code blocks.
fn code_spans(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(|part| part.split('`').skip(1).step_by(2))
        .collect()
}

/// Whether a code span names a file or folder of this repository.
fn is_repository_path(span: &str) -> bool {
    const FOLDERS: &[&str] = &[
        "benches/",
        "config/",
        "crates/",
        "deploy/",
        "docs/",
        "fuzz/",
        "kubeconfig-examples/",
        "src/",
        "tests/",
    ];
    FOLDERS.iter().any(|folder| span.starts_with(folder))
        && !span.contains(|char: char| char.is_whitespace() || "*{…".contains(char))
}

/// Whether a code span is the name of a test, which is a sentence.
fn is_test_name(span: &str) -> bool {
    span.matches('_').count() > 2
        && !["portcullis_", "process_", "apiserver_", "…"]
            .iter()
            .any(|start| span.starts_with(start))
        && span
            .chars()
            .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || "_…".contains(char))
}

/// The pages of the project: not what tools leave behind.
fn find(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "templates" && !name.starts_with('.') {
                find(&path, pages);
            }
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
}

/// The targets of the links of a page, those in code left out.
fn links(text: &str) -> Vec<&str> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let is_quoted = line[..at].matches('`').count() % 2 == 1;
            let target = line[at + 2..].split(')').next();
            found.extend(target.filter(|_| !is_quoted));
        }
    }
    found
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> bool {
    if link.contains("://") || link.starts_with("mailto:") {
        return true;
    }
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = page.parent().unwrap().join(file);
    if !file.is_empty() && !target.exists() {
        return false;
    }
    if fragment.is_empty() || target.is_dir() {
        return true;
    }
    let other;
    let text = if file.is_empty() {
        text
    } else {
        other = std::fs::read_to_string(target).unwrap();
        &other
    };
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|heading| anchor(heading) == fragment)
}

/// The fragment by which a heading is found: lower case, blanks as `-`, no other signs.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|char| char.is_alphanumeric() || [' ', '-', '_'].contains(char))
        .map(|char| if char == ' ' { '-' } else { char })
        .collect()
}
