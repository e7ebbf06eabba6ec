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
mod help;
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
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use output::{CommandError, CommandResult};
use portcullis_policy::explain::one_line;

/// Answers a Kubernetes API server's authorization and admission webhooks.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version = help::text(), after_help = AFTER_HELP)]
struct Arguments {
    /// The command.
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER_HELP: &str = "\
Exit codes: 0 allowed or valid; 1 not allowed, a failed test case or a fault; \
2 wrong usage or unreadable input.";

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
    Completion(help::Completion),
    Man(help::Man),
}

/// The arguments, with a `--help` in which commands stand in their groups.
fn described() -> clap::Command {
    help::in_groups(Arguments::command())
}

/// The arguments of this process, or the end of it with help or what is wrong with them.
fn arguments() -> Arguments {
    let parsed = |written: Vec<OsString>| {
        let matches = described().try_get_matches_from(written);
        Arguments::from_arg_matches(&matches.map_err(with_new_name)?)
    };
    parsed(std::env::args_os().collect()).unwrap_or_else(|wrong| {
        // The message quotes them.
        let on_one_line = |argument: OsString| one_line(&argument.to_string_lossy()).into_owned().into();
        match parsed(std::env::args_os().map(on_one_line).collect()) {
            Err(wrong) => wrong.exit(),
            Ok(_) => {
                output::complain(wrong);
                std::process::exit(2)
            }
        }
    })
}

/// Flags by their former name, and the name that they have now.
const RENAMED: [(&str, &str); 3] = [
    ("--against", "--baseline"),
    ("--allow-flips", "--allow-changes"),
    ("--sub-resource", "--subresource"),
];

/// The same error, with the new name of a flag that has been renamed.
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
            output::complain_in_lines(&error.in_words());
            ExitCode::from(2)
        }
    }
}
