//! docs/lock-out.md: every test that it names is there.

use std::path::{Path, PathBuf};

use crate::project;

/// The text of every Rust file under a folder.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = project::text(&project::path("docs/lock-out.md"));
    let mut text = String::new();
    for folder in ["src", "tests"] {
        sources(&project::path(folder), &mut text);
    }
    let (_, table) = page.split_once("## What shows it").unwrap();
    let names: Vec<&str> = table
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.matches('_').count() > 2 && !name.starts_with('…'))
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let declared = match name.strip_suffix('…') {
            Some(start) => format!("fn {start}"),
            None => format!("fn {name}()"),
        };
        assert!(text.contains(&declared), "{name}");
    }
}
