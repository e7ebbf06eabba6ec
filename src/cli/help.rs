//! What describes the command line, made from the arguments as they are parsed: `portcullis --help`,
//! with the commands in groups, `portcullis completion` and `portcullis man`.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::Command;
use clap_complete::Shell;
use serde::Serialize;

use super::output::{self, CommandError, CommandResult, Format, Output};

/// The groups, by what somebody wants to do.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Serve", &["serve", "init", "register"]),
    ("Policies", &["check", "test", "scan", "convert", "bundle"]),
    (
        "Questions",
        &["authorize", "admit", "who-can", "what-can", "escalations"],
    ),
    ("Change", &["diff", "replay", "suggest", "pack"]),
    ("Access for a time", &["request", "approve", "deny", "withdraw"]),
    ("Shell", &["completion", "man", "help"]),
];

const WITHOUT_COMMAND: &str = "\
Without a command, the development set-up in `.portcullis/` is served: a gateway for this machine
alone, with example policies, which is made on the first start.";

/// The same, with a `--help` in which commands stand in their groups.
pub(crate) fn in_groups(command: Command) -> Command {
    let template = template(&command);
    command.help_template(template)
}

fn template(command: &Command) -> String {
    let name = |command: &Command| command.get_name().to_owned();
    let width = command.get_subcommands().map(|one| name(one).len()).max();
    let width = width.unwrap_or_default();
    let line = |name: &str| {
        let about = match command.find_subcommand(name) {
            Some(found) => found.get_about().map(ToString::to_string).unwrap_or_default(),
            None => "Print this message, or the help of a command".to_owned(),
        };
        format!("  {name:width$}  {about}\n")
    };
    let groups = GROUPS.iter().map(|(group, names)| {
        let lines: String = names.iter().map(|name| line(name)).collect();
        format!("{group}:\n{lines}\n")
    });
    let groups: String = groups.collect();
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{WITHOUT_COMMAND}\n\nOptions:\n{{options}}{{after-help}}"
    )
}

/// Print a script that lets a shell complete commands and flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  source <(portcullis completion bash)")]
pub(crate) struct Completion {
    /// The shell.
    shell: Shell,
}

/// Write a man page for each command into a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portcullis man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// The folder, which is created if it does not exist; existing pages are replaced.
    folder: PathBuf,
    #[command(flatten)]
    output: Output<Format>,
}

#[derive(Debug, Serialize)]
struct ManReport {
    pages: Vec<String>,
}

impl Completion {
    pub(crate) fn run(self, mut arguments: clap::Command) -> Result<CommandResult, CommandError> {
        let name = arguments.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut arguments, name, &mut script);
        output::write(&String::from_utf8_lossy(&script))?;
        Ok(CommandResult::Success)
    }
}

impl Man {
    pub(crate) fn run(self, arguments: clap::Command) -> Result<CommandResult, CommandError> {
        let failed = |source| CommandError::file("write", &self.folder, source);
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        let arguments = arguments.disable_help_subcommand(true);
        clap_mangen::generate_to(arguments.clone(), &self.folder).map_err(failed)?;
        let mut pages = Vec::new();
        add_pages(&arguments, arguments.get_name(), &mut pages);
        let folder = self.folder.display();
        let lines = pages.iter().map(|page| format!("{folder}/{page}")).collect();
        output::print(self.output.output, &lines, &ManReport { pages })?;
        Ok(CommandResult::Success)
    }
}

/// Adds the page of `command`, whose name with those above it is `name`, and those of its subcommands.
fn add_pages(command: &clap::Command, name: &str, pages: &mut Vec<String>) {
    pages.push(format!("{name}.1"));
    let subcommands = command.get_subcommands();
    for subcommand in subcommands.filter(|subcommand| !subcommand.is_hide_set()) {
        add_pages(subcommand, &format!("{name}-{}", subcommand.get_name()), pages);
    }
}

// The version that `--version` prints: that of the package, and the commit it was built from.

/// What `just release`, the image and the release workflow pass to the compiler.
const BUILT_FROM: Option<&str> = option_env!("PORTCULLIS_COMMIT");

/// `git archive` writes the commit into this file (`.gitattributes`), so that a source archive
/// knows it without git. In a working tree it holds the placeholder.
const ARCHIVED_FROM: &str = include_str!("commit.txt");

/// `0.1.0 (7a95838cde01)`, or `0.1.0` where the commit is not known.
pub(crate) fn text() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| described(env!("CARGO_PKG_VERSION"), BUILT_FROM, ARCHIVED_FROM));
    &TEXT
}

fn described(version: &str, built_from: Option<&str>, archived_from: &str) -> String {
    let known = [built_from.unwrap_or_default(), archived_from]
        .into_iter()
        .map(str::trim)
        .find(|commit| is_commit(commit));
    match known.and_then(|commit| commit.get(..12)) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// Whether `text` is an object name of git, not a placeholder or a branch.
fn is_commit(text: &str) -> bool {
    text.len() >= 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Arguments;

    #[test]
    fn every_command_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let once: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(once.len(), grouped.len());
        let command = Arguments::command();
        let mut names: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
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
                described("0.1.0", built, archived),
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
}
