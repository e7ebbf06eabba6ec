//! What describes the command line, made from the arguments as they are parsed: `portcullis --help`,
//! with the commands in groups, `portcullis completion` and `portcullis man`.

use std::path::PathBuf;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use serde::Serialize;

use super::output::{self, Format, Output};
use super::{Arguments, CommandError, CommandResult};

/// The groups, by what somebody wants to do.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Serve", &["serve", "init"]),
    ("Policies", &["check", "test", "scan", "convert"]),
    ("Questions", &["authorize", "admit", "who-can", "what-can"]),
    ("Change", &["replay", "suggest"]),
    ("Shell", &["completion", "man", "help"]),
];

const WITHOUT_COMMAND: &str = "\
Without a command, the development set-up in `.portcullis/` is served: a gateway for this machine
alone, with example policies, which is made on the first start.";

/// The arguments, with a `--help` in which commands stand in their groups.
pub(crate) fn command() -> Command {
    let command = Arguments::command();
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

/// Print a script by which a shell completes commands and flags.
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
    /// The folder, which is made if it is not there; pages that are there are replaced.
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
        let name = arguments.get_name();
        let commands = arguments
            .get_subcommands()
            .map(|command| format!("{name}-{}.1", command.get_name()));
        let pages: Vec<String> = std::iter::once(format!("{name}.1")).chain(commands).collect();
        let folder = self.folder.display();
        let lines = pages.iter().map(|page| format!("{folder}/{page}")).collect();
        output::print(self.output.output, &lines, &ManReport { pages })?;
        Ok(CommandResult::Success)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

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
}
