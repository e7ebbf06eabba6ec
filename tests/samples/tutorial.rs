//! `docs/tutorial/first-decision.md`: a reader who types what it shows sees what it shows.

use std::path::Path;
use std::process::Command;

use crate::project;

/// The files of the page, in the order in which it shows them.
const FILES: [&str; 3] = ["pods.yaml", "production.yaml", "production_test.yaml"];

/// What a reader sees of a command.
fn run(folder: &Path, line: &str) -> String {
    let words = line
        .strip_prefix("portcullis ")
        .unwrap_or_else(|| panic!("{line}"));
    let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(words.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8(said).unwrap()
}

#[test]
fn every_command_of_the_first_chapter_says_what_the_page_shows() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    let page = project::text(&project::path("docs/tutorial/first-decision.md"));
    let (mut files, mut commands) = (FILES.into_iter(), 0);
    for block in page.split("```").skip(1).step_by(2) {
        if let Some(text) = block.strip_prefix("yaml\n") {
            let name = files.next().unwrap();
            assert!(page.contains(&format!("`policies/{name}`")) || page.contains(&format!("`{name}`")));
            std::fs::write(folder.path().join("policies").join(name), text).unwrap();
        }
        let shown = block.strip_prefix("console\n$ ").unwrap_or_default();
        for shown in shown.split("\n$ ").filter(|shown| !shown.is_empty()) {
            let (line, expected) = shown.split_once('\n').unwrap();
            let said = run(folder.path(), line);
            assert!(
                said.starts_with(expected.trim_end()),
                "{line}:\n{said}\nnot\n{expected}"
            );
            commands += 1;
        }
    }
    assert_eq!((files.next(), commands), (None, 5));
}
