//! `portcullis admit`: answers one AdmissionReview offline, with the server's code.

mod manifests;

use std::path::{Path, PathBuf};

use super::at::At;
use super::output::{self, Format, Output};
use super::policy_files::{PolicyFiles, PolicyPurpose};
use super::{CommandResult, Error, authorize};
use crate::config::files;
use manifests::ManifestArguments;
use portcullis_policy::engine::admission::Phase;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{
    AdmitAllExplained, AdmitAllInWords, AdmitExplained, AdmitInWords, Answered, AnsweredObject,
    OfflineReview, PHASES,
};
use portcullis_policy::explain::manifests::ReviewsOfManifests;
use portcullis_policy::explain::recorded::RecordedAnswers;

/// Answer an AdmissionReview, or what would be asked about a manifest, offline, and explain the
/// answer.
///
/// Without `--phase`, the object is first mutated and the result validated, as by an API server
/// that calls both endpoints. Webhooks are not called: their answers are read from `--answers`, and
/// if one is missing there is no decision.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Admit {
    #[command(flatten)]
    files: PolicyFiles,
    /// An AdmissionReview in JSON or YAML, `-` for standard input.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "filename",
        conflicts_with = "filename"
    )]
    review: Option<PathBuf>,
    #[command(flatten)]
    manifests: ManifestArguments,
    /// Only mutate, or only validate [default: both]
    #[arg(long, value_enum)]
    phase: Option<PhaseArgument>,
    /// Use only this policy or webhook configuration, as `/validate/NAME` and `/mutate/NAME` do.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Recorded answers of webhooks, in YAML or JSON.
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis admit --manifests policies -f deployment.yaml
  helm template web | portcullis admit --manifests policies -f - --user jane --group dev
  portcullis admit --config portcullis.yaml --review review.json --phase validate";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PhaseArgument {
    /// What `/mutate` answers.
    Mutate,
    /// What `/validate` answers.
    Validate,
}

// === impl Admit ===

impl Admit {
    pub(crate) fn run(self) -> Result<CommandResult, Error> {
        let format = self.output.output;
        let answers = self.answers.as_deref().map(recorded_answers).transpose()?;
        let answers = answers.unwrap_or_default();
        let review = self.review.as_deref().map(authorize::read_review).transpose()?;
        let loaded = self.files.load(PolicyPurpose::Admission)?;
        self.refuse_unknown_names(&loaded, &answers)?;
        let asked = OfflineReview {
            loaded: &loaded,
            cluster: &self.files.cluster,
            phases: self.phases(),
            only: self.policy.as_deref(),
            now: self.at.time(),
            clock: std::time::Instant::now,
            answers: &answers,
            nobody_asks: false,
            deadline: None,
            recorder: None,
        };
        match (review, &self.review, &self.manifests.filename) {
            (Some(_), ..) if self.manifests.is_any_named() => Err(Error::Usage(
                "a review says itself what is done by whom: `--operation`, `--user` and the like are for `-f`".to_owned(),
            )),
            (Some(review), Some(path), _) => {
                let answered = answer(&asked, path, &review)?;
                output::print(format, &AdmitInWords(&answered).lines(), &AdmitExplained::new(&answered))?;
                Ok(result(&answered))
            }
            (_, _, Some(path)) => {
                let reviews = self.manifests.reviews(path, || self.files.documents())?;
                answer_all(format, &asked, reviews)
            }
            _ => Err(Error::Usage(
                "name an AdmissionReview with `--review`, or manifests with `-f`".to_owned(),
            )),
        }
    }

    fn phases(&self) -> &'static [Phase] {
        match self.phase {
            None => &PHASES,
            Some(PhaseArgument::Mutate) => &[Phase::Mutate],
            Some(PhaseArgument::Validate) => &[Phase::Validate],
        }
    }

    fn refuse_unknown_names(&self, loaded: &LoadedPolicies, answers: &RecordedAnswers) -> Result<(), Error> {
        let cluster = &self.files.cluster;
        if let Some(name) = answers.foreign(loaded.admission.for_cluster(cluster)).next() {
            return Err(Error::Usage(format!("there is no webhook `{name}`")));
        }
        match &self.policy {
            Some(name) if !loaded.has_policy(cluster, self.phases(), name) => Err(Error::Usage(format!(
                "there is no policy or webhook configuration `{name}` for this endpoint"
            ))),
            _ => Ok(()),
        }
    }
}

fn answer(asked: &OfflineReview<'_>, path: &Path, review: &[u8]) -> Result<Answered, Error> {
    asked
        .answer(review)
        .map_err(|error| Error::Usage(format!("cannot answer `{}`: {error}", path.display())))
}

fn recorded_answers(path: &Path) -> Result<RecordedAnswers, Error> {
    let text = files::read_text(path, files::CONFIGURATION_BYTES);
    let text = text.map_err(|source| Error::file("read", path, source))?;
    let path = path.display().to_string();
    RecordedAnswers::of_text(&path, &text).map_err(|faults| Error::Faulty { path, faults })
}

fn result(answered: &Answered) -> CommandResult {
    match &answered.decided {
        Ok(decided) if decided.outcome.denial.is_none() => CommandResult::Success,
        _ => CommandResult::Failure,
    }
}

/// Answers about each object of `-f`. One alone is reported as a review is.
fn answer_all(
    format: Format,
    asked: &OfflineReview<'_>,
    ReviewsOfManifests { reviews, notes }: ReviewsOfManifests,
) -> Result<CommandResult, Error> {
    let mut objects = Vec::new();
    for about in reviews {
        let answered = answer(asked, Path::new(&about.file), about.review.as_bytes())?;
        objects.push(AnsweredObject { about, answered });
    }
    let report = AdmitAllExplained::new(&objects, &notes);
    output::print(format, &AdmitAllInWords(&objects, &notes).lines(), &report)?;
    let is_admitted = objects
        .iter()
        .all(|object| result(&object.answered) == CommandResult::Success);
    Ok(if is_admitted {
        CommandResult::Success
    } else {
        CommandResult::Failure
    })
}
