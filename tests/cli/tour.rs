//! The first minutes with the program: what README shows is what a fresh development set-up
//! answers.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::run::Portcullis;

/// A folder in which `portcullis` was started once, without arguments.
static STARTED: LazyLock<Portcullis> = LazyLock::new(|| {
    let portcullis = Portcullis::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .current_dir(portcullis.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("created a development set-up"),
        "{said}{complaint}"
    );
    portcullis
});

/// The part of a page between two headings.
fn section<'p>(page: &'p str, from: &str, to: &str) -> &'p str {
    let (_, rest) = page.split_once(from).unwrap();
    rest.split_once(to).unwrap().0
}

/// The commands of `console` blocks that run the program, each with what it is shown to answer.
fn shown(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        for line in block.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command, Vec::new())),
                (None, Some((_, answer))) => answer.push(line),
                (None, None) => panic!("`{line}` answers no command"),
            }
        }
    }
    commands.retain(|(command, _)| command.starts_with("portcullis "));
    commands
}

/// Whether `said` is what is shown, where `…` stands for any lines.
fn is_as_shown(said: &str, shown: &[&str]) -> bool {
    let mut said: Vec<&str> = said.lines().collect();
    let mut parts = shown.split(|line| *line == "…");
    let first = parts.next().unwrap_or_default();
    if !said.starts_with(first) {
        return false;
    }
    said.drain(..first.len());
    let mut is_open = false;
    for part in parts {
        let place = (0..=said.len() - part.len().min(said.len())).find(|at| said[*at..].starts_with(part));
        let Some(at) = place else { return false };
        said.drain(..at + part.len());
        is_open = part.is_empty();
    }
    said.is_empty() || is_open
}

#[test]
fn what_the_readme_shows_is_answered() {
    let readme = include_str!("../../README.md");
    let commands = shown(section(readme, "## Try it in five minutes", "\n## "));
    assert!(commands.len() >= 10, "{commands:?}");
    for (command, answer) in commands {
        let run = STARTED.run(command.strip_prefix("portcullis ").unwrap());
        assert!(is_as_shown(&run.stdout, &answer), "{command}: {run:?}");
        assert_eq!(run.stderr, "", "{command}");
    }
}

#[test]
fn every_command_of_the_examples_answers() {
    let page = std::fs::read_to_string(STARTED.path(".portcullis/examples/README.md")).unwrap();
    let commands: Vec<&str> = page
        .split("| `portcullis ")
        .skip(1)
        .map(|rest| rest.split('`').next().unwrap())
        .collect();
    assert!(commands.len() >= 9, "{commands:?}");
    for command in commands {
        let run = STARTED.run(command);
        assert!(
            run.code < 2 && !run.stdout.is_empty() && run.stderr.is_empty(),
            "{command}: {run:?}"
        );
    }
}

#[test]
fn what_was_set_up_is_sound() {
    let run = STARTED.run("check --strict");
    assert_eq!((run.code, run.stdout.as_str()), (0, "valid\n"), "{run:?}");
}

#[test]
fn serve_makes_nothing_and_says_the_three_ways_to_start() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("serve");
    assert_eq!(run.code, 2, "{run:?}");
    for way in ["--config FILE", "init DIR", "development set-up"] {
        assert!(run.stderr.contains(way), "{run:?}");
    }
    assert!(!portcullis.path(".portcullis").exists());
}

#[test]
fn answers_are_compared_line_by_line() {
    assert!(is_as_shown("a\nb\n", &["a", "b"]));
    assert!(is_as_shown("a\nb\nc\n", &["a", "…"]));
    assert!(is_as_shown("a\nb\nc\n", &["a", "…", "c"]));
    assert!(!is_as_shown("a\nb\n", &["a"]));
    assert!(!is_as_shown("a\nb\n", &["b", "…"]));
    assert!(!is_as_shown("a\nb\nc\n", &["a", "…", "b"]));
}

/// Each command that prints, as somebody would type it before `| head`.
const PRINTING: &str = "
check
check -o json
check -o sarif
scan -f .portcullis/examples/chart.yaml
scan -f .portcullis/examples/chart.yaml -o json
scan -f .portcullis/examples/chart.yaml -o sarif
scan -f .portcullis/examples/chart.yaml -o junit
scan -f .portcullis/examples/chart.yaml -o openreports
convert .portcullis/examples/kyverno.yaml
authorize --user jane --verb get --resource pods
authorize --user jane --verb get --resource pods -o json
admit -f .portcullis/examples/deployment.yaml
admit -f .portcullis/examples/deployment.yaml -o json
who-can get pods
who-can get pods -o json
what-can --user jane
what-can --user jane -o json
escalations
escalations -o json
escalations -o dot
diff .portcullis/policies .portcullis/policies
diff .portcullis/policies .portcullis/policies -o json
replay .portcullis/examples/recording.jsonl
replay .portcullis/examples/recording.jsonl -o json
suggest .portcullis/examples/decisions.log
suggest .portcullis/examples/decisions.log -o json
pack .portcullis/examples/decisions.log --into packed
pack .portcullis/examples/decisions.log --into packed -o json
test suite.yaml
test suite.yaml -o json
bundle build .portcullis/policies --name policies --sequence 1 --into bundle
completion bash
init other
man pages
";

#[test]
fn every_command_ends_quietly_where_nobody_reads_on() {
    STARTED.write(
        "suite.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [.portcullis/policies]\ncases:\n\
         - {name: a, request: {user: jane, verb: get, resource: pods}, expect: {decision: allow}}\n",
    );
    for command in PRINTING.trim().lines() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(command.split_whitespace())
            .current_dir(STARTED.path(""))
            .stdin(Stdio::null())
            .stdout(writer)
            .output()
            .unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*complaint), (Some(2), ""), "{command}");
    }
    let help = STARTED.run("--help").stdout;
    let (listed, _) = help.split_once("Without a command").unwrap();
    let names = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    // `serve` prints nothing that is read by programs, help is clap's, and the others write to a cluster.
    let untried = [
        "serve", "help", "register", "request", "approve", "deny", "withdraw",
    ];
    for name in names.filter(|name| !untried.contains(name)) {
        let is_tried = |line: &str| line.split_whitespace().next() == Some(name);
        assert!(PRINTING.lines().any(is_tried), "{name}");
    }
}

#[test]
fn recordings_concatenate() {
    let one = std::fs::read_to_string(STARTED.path(".portcullis/examples/recording.jsonl")).unwrap();
    STARTED.write("twice.jsonl", &format!("{one}{one}"));
    let counts = |recording: &str| -> Vec<usize> {
        let said = STARTED.run(&format!("replay {recording}")).stdout;
        let (_, last) = said.trim_end().rsplit_once('\n').unwrap();
        let words = last.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let once = counts(".portcullis/examples/recording.jsonl");
    assert_eq!(once.len(), 3, "{once:?}");
    assert_eq!(
        counts("twice.jsonl"),
        once.iter().map(|count| count * 2).collect::<Vec<_>>()
    );
}
