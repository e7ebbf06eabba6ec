//! `portcullis admit`: answers one AdmissionReview offline, with the server's code.

pub(super) mod answer;
mod explain;
mod trace;

use std::path::PathBuf;

use super::answers::RecordedAnswers;
use super::at::At;
use super::output::{self, Format};
use super::{CommandResult, Error, authorize, loading};
use crate::config::DEFAULT_CLUSTER;
use crate::telemetry::metrics;
use answer::OfflineReview;
use explain::AdmitExplained;
pub(super) use explain::AdmitInWords;

/// Answer an AdmissionReview offline, and explain the answer.
///
/// Without `--phase`, the object is first mutated and the result validated, as by an API server
/// that calls both endpoints. Webhooks are not called: their answers are read from `--answers`, and
/// if one is missing there is no decision.
#[derive(Debug, clap::Args)]
pub(super) struct Admit {
    /// The configuration whose policies decide [default: that of the development set-up]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// An AdmissionReview in JSON, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    review: PathBuf,
    /// Only mutate, or only validate [default: both]
    #[arg(long, value_enum)]
    phase: Option<PhaseArgument>,
    /// Use only this policy or webhook configuration, as `/validate/NAME` and `/mutate/NAME` do.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Recorded answers of webhooks, in YAML or JSON.
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// The cluster that the request comes from.
    #[arg(long, default_value = DEFAULT_CLUSTER)]
    cluster: String,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PhaseArgument {
    /// What `/mutate` answers.
    Mutate,
    /// What `/validate` answers.
    Validate,
}

/// The phases, in the order in which an API server asks.
pub(super) const PHASES: [metrics::Phase; 2] = [metrics::Phase::Mutate, metrics::Phase::Validate];

// === impl Admit ===

impl Admit {
    pub(super) fn run(self, format: Format) -> Result<CommandResult, Error> {
        let Self {
            config,
            review,
            phase,
            policy,
            answers,
            cluster,
            at,
        } = self;
        let body = authorize::read(&review)?;
        let answers = answers.map(|path| RecordedAnswers::of_file(&path)).transpose()?;
        let path = loading::configuration(config.as_deref())?;
        let (loaded, faults) = loading::of_configuration(&path);
        let loaded = loaded.ok_or_else(|| Error::Faulty {
            path: path.display().to_string(),
            faults,
        })?;
        let answers = answers.unwrap_or_default();
        if let Some(name) = answers.foreign(loaded.admission.for_cluster(&cluster)).next() {
            return Err(Error::Usage(format!("there is no webhook `{name}`")));
        }
        let phases = match phase {
            None => &PHASES[..],
            Some(PhaseArgument::Mutate) => &[metrics::Phase::Mutate],
            Some(PhaseArgument::Validate) => &[metrics::Phase::Validate],
        };
        if let Some(name) = &policy
            && !loaded.has_policy(&cluster, phases, name)
        {
            return Err(Error::Usage(format!(
                "there is no policy or webhook configuration `{name}` for this endpoint"
            )));
        }
        let asked = OfflineReview {
            loaded: &loaded,
            cluster: &cluster,
            phases,
            only: policy.as_deref(),
            now: at.time(),
            answers: &answers,
        };
        let answered = asked
            .answer(&body)
            .map_err(|error| Error::Usage(format!("cannot answer `{}`: {error}", review.display())))?;
        output::print(format, AdmitInWords(&answered), &AdmitExplained::new(&answered))?;
        Ok(match &answered.decided {
            Ok(decided) if decided.outcome.denial.is_none() => CommandResult::Success,
            _ => CommandResult::Failure,
        })
    }
}
