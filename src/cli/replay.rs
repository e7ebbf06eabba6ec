//! `portcullis replay`: decides recorded reviews again, by other policies.
//!
//! ```text
//! files ─line─▶ RecordLine ─▶ decided by NEW ──────────────┐
//!                   └───────▶ recorded, or decided by OLD ─┴─▶ same · change · unknown
//! ```
//!
//! Nobody is called: webhooks and authorizers answer as they are recorded to have answered.

mod decide;
mod files;
mod report;

use std::path::{Path, PathBuf};

use decide::ReplayDecider;
use files::{RecordingFile, recording_files};
use regex_automata::hybrid::regex::Regex;
use report::{ChangeExample, ChangeWeights, ReplayFormat, ReplayReport};

use super::output::{self, CommandError, CommandResult, Output, ProgressLine};
use super::{access_requests, policy_files};
use crate::identity::PATH_TOKEN_NAME;
use crate::recording::RecordLine;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::recorded::{ReplaySummary, ReviewComparison};
use portcullis_policy::field::Faults;
use portcullis_policy::model::Time;

/// Decide recorded reviews again, and show which decisions would change.
///
/// Each review is decided for the time at which it was recorded. Webhooks and other authorizers
/// are not called: their recorded answers are used. A review whose decision depends on something
/// that was redacted or not recorded counts as unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Replay {
    /// The configuration whose policies decide [default: that of the development set-up]
    #[arg(long, value_name = "NEW")]
    config: Option<PathBuf>,
    /// Manifests, as files or folders, that decide in place of a configuration.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    manifests: Vec<PathBuf>,
    /// Compare with what this configuration decides, instead of with what was recorded.
    #[arg(long, value_name = "OLD")]
    baseline: Option<PathBuf>,
    /// Decide for this time instead of the recorded ones, in RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = super::policy_files::parse_time)]
    at: Option<Time>,
    /// Decide reviews of callers with `pathToken` too: users can claim with its token what never happened.
    #[arg(long)]
    with_path_token: bool,
    /// Changes that do not affect the exit code: a regular expression for `FROM->TO CAUSE`, such as
    /// `deny->allow AuthorizationPolicy/trial`.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    allow_changes: Option<String>,
    /// Say how often what changes was asked: folders of `usage.folder`, or files in them.
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    weigh: Vec<PathBuf>,
    /// Files of a recording, or folders of them; `-` for standard input.
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    #[command(flatten)]
    output: Output<ReplayFormat>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis replay --config new.yaml recordings
  portcullis replay --config new.yaml recordings --weigh usage
  portcullis replay --config new.yaml recordings --allow-changes 'deny->allow AuthorizationPolicy/trial' -o junit";

fn expression(text: &str) -> Result<Regex, CommandError> {
    let wrong = |error| {
        CommandError::Usage(format!(
            "`--allow-changes {text}` is no regular expression: {error}"
        ))
    };
    Regex::new(text).map_err(wrong)
}

// === impl Replay ===

impl Replay {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let allowed = self.allow_changes.as_deref().map(expression).transpose()?;
        let new = self.new_policies()?;
        let old = self.baseline.as_deref().map(configured).transpose()?;
        let mut weights = ChangeWeights::read(&self.weigh)?;
        let (mut replayed, mut cut) = (ReplaySummary::default(), Vec::new());
        let (mut progress, mut count, mut unproven) = (ProgressLine::new(), 0_u64, 0_u64);
        for path in recording_files(&self.recordings)? {
            let mut file = RecordingFile::open(&path)?;
            let mut is_cut = false;
            while file.advance()? {
                let Some(document) = file.document()? else {
                    is_cut = true;
                    continue;
                };
                let recorded = RecordLine::read(&document).map_err(|error| file.unreadable(&error))?;
                if recorded.text("caller") == PATH_TOKEN_NAME && !self.with_path_token {
                    unproven += 1;
                    continue;
                }
                let compared = self.compare((&file, &recorded), &new, old.as_ref(), &replayed)?;
                if let Some(weights) = &mut weights {
                    weights.add(&recorded, &compared);
                }
                replayed.add(compared);
                count += 1;
                progress.show(|| format!("{} replayed", output::count(count, "review")));
            }
            if is_cut || file.is_cut {
                cut.push(shown(&path));
            }
        }
        progress.clear();
        if unproven > 0 {
            let reviews = output::count(unproven, "review");
            output::complain(format_args!(
                "{reviews} of callers with a path token left out: `--with-path-token` decides them"
            ));
        }
        let report = ReplayReport::new(replayed, cut, allowed.as_ref(), weights.as_ref());
        report.print(self.output.output)?;
        if report.is_empty() {
            let recordings = policy_files::shown(&self.recordings);
            return Err(CommandError::Usage(format!(
                "no review of `{recordings}` was decided"
            )));
        }
        Ok(if report.is_failure() {
            CommandResult::Failure
        } else {
            CommandResult::Success
        })
    }

    fn new_policies(&self) -> Result<LoadedPolicies, CommandError> {
        if self.manifests.is_empty() {
            return configured(&policy_files::configuration(self.config.as_deref())?);
        }
        for path in &self.manifests {
            policy_files::readable(path)?;
        }
        let mut loaded = valid(
            &policy_files::shown(&self.manifests),
            policy_files::of_paths(&self.manifests),
        )?;
        // What is wrong with them is known by now.
        let _ = access_requests::count_those_of_files(&mut loaded, None, &self.manifests);
        Ok(loaded)
    }

    fn compare(
        &self,
        (file, recorded): (&RecordingFile, &RecordLine<'_>),
        new: &LoadedPolicies,
        old: Option<&LoadedPolicies>,
        replayed: &ReplaySummary<Box<ChangeExample>>,
    ) -> Result<ReviewComparison<Box<ChangeExample>>, CommandError> {
        let deciding = |policies| ReplayDecider {
            policies,
            recorded,
            now: self.at.unwrap_or(recorded.time),
        };
        let decide = |policies| {
            deciding(policies)
                .decide()
                .map_err(|error| file.unreadable(&error))
        };
        let before = match old {
            Some(old) => decide(old)?,
            None => decide::recorded_decision(recorded),
        };
        let now = decide(new)?;
        let mut compared = report::compared(file, recorded, before, now);
        if let ReviewComparison::Changed(group, example) | ReviewComparison::Lost(group, _, example) =
            &mut compared
            && !replayed.changes.contains_key(&*group)
        {
            example.considered = deciding(new).explain();
        }
        Ok(compared)
    }
}

fn configured(path: &Path) -> Result<LoadedPolicies, CommandError> {
    policy_files::regular(path)?;
    let mut loaded = valid(&shown(path), policy_files::of_configuration(path))?;
    let _ = access_requests::count_those_of_files(&mut loaded, Some(path), &[]);
    Ok(loaded)
}

fn valid(
    path: &str,
    (loaded, faults): (Option<LoadedPolicies>, Faults),
) -> Result<LoadedPolicies, CommandError> {
    let path = path.to_owned();
    loaded.ok_or(CommandError::Faulty { path, faults })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
