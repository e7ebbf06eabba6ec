//! Every command line that a page shows is one that the program takes.

use super::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the pages are.
const PLACES: [&str; 6] = [
    "README.md",
    "SECURITY.md",
    "docs",
    "deploy",
    "kubeconfig-examples",
    "config",
];

fn pages(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        entries.for_each(|entry| pages(&entry.unwrap().path(), found));
    } else if path.extension().is_some_and(|extension| extension == "md") {
        found.push(path.to_owned());
    }
}

/// The commands of a page's `console` blocks, each in one line.
fn commands(page: &str) -> Vec<String> {
    let (mut commands, mut is_console, mut goes_on) = (Vec::<String>::new(), false, false);
    for line in page.lines() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            is_console = fence == "console";
            continue;
        }
        let command = line.trim_start().strip_prefix("$ ").filter(|_| is_console);
        match (command, commands.last_mut()) {
            (Some(command), _) => commands.push(command.to_owned()),
            (None, Some(last)) if goes_on && is_console => *last = format!("{last} {}", line.trim()),
            _ => continue,
        }
        let Some(last) = commands.last_mut() else { continue };
        goes_on = last.ends_with('\\');
        *last = last.trim_end_matches('\\').trim().to_owned();
    }
    commands
}

/// The words of each program that a shell would start.
fn programs(command: &str) -> Vec<Vec<String>> {
    let (mut programs, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote, mut depth) = (None::<String>, None, 0_u32);
    for character in command.chars().chain(['\n']) {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            ('(', None) => depth += 1,
            (')', None) => depth = depth.saturating_sub(1),
            ('#', None) if word.is_none() => break,
            (' ' | '\n' | '|' | ';' | '&', None) if depth == 0 => {
                words.extend(word.take());
                if character != ' ' {
                    programs.push(std::mem::take(&mut words));
                }
            }
            (character, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    programs.push(words);
    programs.retain(|words| !words.is_empty());
    programs
}

/// The arguments, where it is this program that is started.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let is_variable = |word: &&String| {
        word.split_once('=')
            .is_some_and(|(name, _)| !name.starts_with('-'))
    };
    let start = words
        .iter()
        .take_while(|word| is_variable(word) || *word == "sudo")
        .count();
    let words: Vec<&str> = words[start..].iter().map(String::as_str).collect();
    let rest = match words.as_slice() {
        ["kubectl", "portcullis", rest @ ..] | ["cargo", "run", "--release", "--", rest @ ..] => rest,
        ["cargo", "run", "--release"] => &[],
        [program, rest @ ..] if *program == "portcullis" || program.ends_with("/portcullis") => rest,
        _ => return None,
    };
    let end = rest
        .iter()
        .position(|word| word.trim_start_matches('2').starts_with('>'));
    let rest = &rest[..end.unwrap_or(rest.len())];
    // What is left to the reader.
    let is_whole = !rest.iter().any(|word| word.contains('…'));
    is_whole.then(|| rest.iter().map(|word| (*word).to_owned()).collect())
}

#[test]
fn every_command_that_a_page_shows_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    PLACES
        .iter()
        .for_each(|place| pages(&root.join(place), &mut found));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in found {
        let text = fs::read_to_string(&page).unwrap();
        for command in commands(&text) {
            for arguments in programs(&command).iter().filter_map(|words| arguments(words)) {
                count += 1;
                let words = std::iter::once("portcullis".to_owned()).chain(arguments);
                match Arguments::try_parse_from(words) {
                    Err(error) if error.use_stderr() => {
                        wrong.push(format!("{}: {command}\n{error}", page.display()));
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count} commands");
}

#[test]
fn a_command_is_found_as_a_shell_would_start_it() {
    let page = "```console\n$ cat a | sudo X=y /opt/portcullis test 'a b' \\\n    --run x > out  # why\n```\n$ portcullis no\n";
    let found = commands(page);
    assert_eq!(
        found,
        ["cat a | sudo X=y /opt/portcullis test 'a b' --run x > out  # why"]
    );
    let arguments: Vec<_> = programs(&found[0])
        .iter()
        .filter_map(|words| arguments(words))
        .collect();
    assert_eq!(arguments, [["test", "a b", "--run", "x"]]);
}

#[test]
fn every_example_of_the_help_is_understood() {
    let mut command = Arguments::command();
    let (mut count, mut wrong) = (0, Vec::new());
    for command in command.get_subcommands_mut() {
        let help = command.render_long_help().to_string();
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_default();
        for example in examples.lines() {
            let own = programs(example);
            let own: Vec<_> = own.iter().filter_map(|words| arguments(words)).collect();
            count += own.len();
            for arguments in own {
                let words = std::iter::once("portcullis".to_owned()).chain(arguments);
                let parsed = Arguments::try_parse_from(words);
                wrong.extend(parsed.err().map(|error| format!("{example}\n{error}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "{count} examples");
}

#[test]
fn every_command_is_in_one_group() {
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    let once: BTreeSet<&str> = grouped.iter().copied().collect();
    assert_eq!(once.len(), grouped.len());
    let command = Arguments::command();
    let mut names: BTreeSet<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    names.insert("help");
    assert_eq!(names, once);
}

#[test]
fn every_command_shows_examples() {
    let mut command = Arguments::command();
    for command in command.get_subcommands_mut() {
        let help = command.render_long_help().to_string();
        let name = command.get_name();
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{name}"));
        assert!(
            examples.contains(&format!("portcullis {name}")),
            "{name}: {examples}"
        );
    }
}

const COMMIT: &str = "7a95838cde0123456789abcdef0123456789abcd";

#[test]
fn the_commit_comes_from_the_build_or_from_the_source_archive() {
    let cases = [
        (Some(COMMIT), "$Format:%H$\n", "0.1.0 (7a95838cde01)"),
        (
            None,
            "7a95838cde0123456789abcdef0123456789abcd\n",
            "0.1.0 (7a95838cde01)",
        ),
        (Some("bbbbbbbbbbbbbbbb"), COMMIT, "0.1.0 (bbbbbbbbbbbb)"),
        (Some(""), COMMIT, "0.1.0 (7a95838cde01)"),
        (None, "$Format:%H$\n", "0.1.0"),
        (Some("unknown"), "$Format:%H$\n", "0.1.0"),
        (Some("7a95838"), "", "0.1.0"),
    ];
    for (built, archived, expected) in cases {
        assert_eq!(
            version_with_commit("0.1.0", built, archived),
            expected,
            "{built:?} {archived:?}"
        );
    }
}

#[test]
fn git_archive_writes_the_commit_into_the_file_that_is_read() {
    let attributes = include_str!("../../.gitattributes");
    assert!(attributes.contains("src/cli/commit.txt export-subst\n"));
}
