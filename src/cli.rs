//! The command line: parses arguments, prints text or JSON, returns an exit code.
//!
//! ```text
//! serve --.
//! init    |--> arguments --> the library's own functions --> output (text | json)
//! ...   --'                                                      |
//!                                                  0 success · 1 failure · 2 error
//! ```
//!
//! Commands contain no decision logic: each calls the functions that the server calls.

mod access;
mod access_requests;
mod admit;
mod authorize;
mod bundle;
mod check;
mod convert;
mod diff;
mod file_jobs;
mod init;
mod live_policies;
mod output;
mod pack;
mod policy_files;
mod register;
mod replay;
mod revision;
mod scan;
mod serve;
mod set_checks;
mod suggest;
mod test;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

use output::{CommandError, CommandResult, Format, Output};
use portcullis_policy::explain::one_line;

/// Answers a Kubernetes API server's authorization and admission webhooks.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version = version(), after_help = AFTER_HELP)]
struct Arguments {
    /// The command.
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER_HELP: &str = "Exit codes: 0 allowed or valid; 1 not allowed, a failed test case or an error in a \
    file; 2 wrong usage or unreadable input.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Init(init::Init),
    Register(register::Register),
    Check(check::Check),
    Authorize(Box<authorize::Authorize>),
    Admit(admit::Admit),
    Test(test::Test),
    WhoCan(access::WhoCan),
    WhatCan(access::WhatCan),
    Diff(diff::Diff),
    Escalations(access::EscalationsOf),
    Request(access_requests::RequestAccess),
    Approve(access_requests::ApproveAccess),
    Deny(access_requests::DenyAccess),
    Withdraw(access_requests::WithdrawAccess),
    Suggest(suggest::Suggest),
    Scan(scan::Scan),
    Replay(replay::Replay),
    Convert(convert::Convert),
    Pack(pack::Pack),
    Bundle(bundle::BundleCommand),
    Completion(Completion),
    Man(Man),
}

/// The arguments, with a `--help` that lists the commands in groups.
fn described() -> clap::Command {
    let command = Arguments::command();
    let template = help_template(&command);
    command.help_template(template)
}

/// Parses the arguments of this process; prints the help or an error, and exits, if they are not a
/// command.
fn arguments() -> Arguments {
    let parsed = |written: Vec<OsString>| {
        let matches = described().try_get_matches_from(written);
        Arguments::from_arg_matches(&matches.map_err(with_new_name)?)
    };
    parsed(std::env::args_os().collect()).unwrap_or_else(|wrong| {
        // The error message quotes the arguments, which must not break its line.
        let on_one_line = |argument: OsString| one_line(&argument.to_string_lossy()).into_owned().into();
        match parsed(std::env::args_os().map(on_one_line).collect()) {
            Err(wrong) => wrong.exit(),
            Ok(_) => {
                output::print_error(wrong);
                std::process::exit(2)
            }
        }
    })
}

/// Former names of flags, with their present names.
const RENAMED: [(&str, &str); 3] = [
    ("--against", "--baseline"),
    ("--allow-flips", "--allow-changes"),
    ("--sub-resource", "--subresource"),
];

/// Adds the present name to the error about a flag that has been renamed.
fn with_new_name(mut wrong: clap::Error) -> clap::Error {
    let renamed = RENAMED.iter().find(|(old, _)| {
        matches!(wrong.get(ContextKind::InvalidArg), Some(ContextValue::String(flag)) if flag == old)
    });
    if let Some((old, new)) = renamed {
        let tip = format!("`{old}` was renamed to `{new}`");
        wrong.remove(ContextKind::SuggestedArg);
        wrong.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    wrong
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let command = arguments()
        .command
        .unwrap_or_else(|| Command::Serve(serve::Serve::without_command()));
    let verdict = match command {
        Command::Serve(serve) => serve.run(),
        Command::Init(init) => init.run(),
        Command::Register(register) => register.run(),
        Command::Check(check) => check.run(),
        Command::Authorize(authorize) => authorize.run(),
        Command::Admit(admit) => admit.run(),
        Command::Test(test) => test.run(),
        Command::WhoCan(who_can) => who_can.run(),
        Command::WhatCan(what_can) => what_can.run(),
        Command::Diff(diff) => diff.run(),
        Command::Escalations(escalations) => escalations.run(),
        Command::Request(request) => request.run(),
        Command::Approve(approve) => approve.run(),
        Command::Deny(deny) => deny.run(),
        Command::Withdraw(withdraw) => withdraw.run(),
        Command::Suggest(suggest) => suggest.run(),
        Command::Scan(scan) => scan.run(),
        Command::Replay(replay) => replay.run(),
        Command::Convert(convert) => convert.run(),
        Command::Pack(pack) => pack.run(),
        Command::Bundle(bundle) => bundle.run(),
        Command::Completion(completion) => completion.run(described()),
        Command::Man(man) => man.run(described()),
    };
    match verdict {
        Ok(CommandResult::Success) => ExitCode::SUCCESS,
        Ok(CommandResult::Failure) => ExitCode::from(1),
        // No message for `portcullis ... | head`, which closes the pipe early.
        Err(CommandError::Output(source)) if source.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::from(2)
        }
        Err(error) => {
            output::print_error_lines(&error.to_lines());
            ExitCode::from(2)
        }
    }
}

/// The groups of commands in `--help`.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Serve", &["serve", "init", "register"]),
    ("Policies", &["check", "test", "scan", "convert", "bundle"]),
    (
        "Questions",
        &["authorize", "admit", "who-can", "what-can", "escalations"],
    ),
    ("Change", &["diff", "replay", "suggest", "pack"]),
    ("Temporary access", &["request", "approve", "deny", "withdraw"]),
    ("Shell", &["completion", "man", "help"]),
];

const WITHOUT_COMMAND: &str = "\
Without a command, serves the development set-up in `.portcullis/`: a gateway with example policies
that only this machine can reach. The first start creates it.";

fn help_template(command: &clap::Command) -> String {
    let name = |command: &clap::Command| command.get_name().to_owned();
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

/// Print a completion script for a shell.
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

/// Adds the file names of the pages of `command` and of its subcommands. `name` is the full name of
/// the command, joined by hyphens.
fn add_pages(command: &clap::Command, name: &str, pages: &mut Vec<String>) {
    pages.push(format!("{name}.1"));
    let subcommands = command.get_subcommands();
    for subcommand in subcommands.filter(|subcommand| !subcommand.is_hide_set()) {
        add_pages(subcommand, &format!("{name}-{}", subcommand.get_name()), pages);
    }
}

// The version that `--version` prints: the version of the package, and the commit it was built
// from.

/// The commit that `just release`, the image and the release workflow pass to the compiler.
const BUILT_FROM: Option<&str> = option_env!("PORTCULLIS_COMMIT");

/// `git archive` writes the commit into this file (`.gitattributes`), so that a build from a source
/// archive knows the commit without git. In a working tree the file holds the placeholder.
const ARCHIVED_FROM: &str = include_str!("cli/commit.txt");

/// `0.1.0 (7a95838cde01)`, or `0.1.0` if the commit is unknown.
fn version() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| version_with_commit(env!("CARGO_PKG_VERSION"), BUILT_FROM, ARCHIVED_FROM));
    &TEXT
}

fn version_with_commit(version: &str, built_from: Option<&str>, archived_from: &str) -> String {
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
mod tests;
