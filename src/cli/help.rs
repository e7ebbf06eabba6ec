//! What `portcullis --help` says: the commands in groups, each with what it does.

use clap::{Command, CommandFactory as _};

use super::Arguments;

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
