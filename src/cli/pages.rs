//! `portcullis completion` and `portcullis man`: made from the same description of the
//! arguments by which they are parsed, so that they are never out of date.

use std::path::PathBuf;

use clap_complete::Shell;
use serde::Serialize;

use super::output::{self, Format, Output};
use super::{CommandResult, Error};

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
    pub(crate) fn run(self, mut arguments: clap::Command) -> Result<CommandResult, Error> {
        let name = arguments.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut arguments, name, &mut script);
        output::write(&String::from_utf8_lossy(&script))?;
        Ok(CommandResult::Success)
    }
}

impl Man {
    pub(crate) fn run(self, arguments: clap::Command) -> Result<CommandResult, Error> {
        let failed = |source| Error::file("write", &self.folder, source);
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
