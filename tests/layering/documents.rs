//! Every file says what it is for and is named as all are, and every link leads
//! somewhere.

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

/// A module with files below it stands beside their folder: `engine.rs` and
/// `engine/`. So that two files of a name are never open at once, and a file that
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
