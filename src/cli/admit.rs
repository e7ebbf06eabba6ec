//! `portcullis admit`: decides an AdmissionReview, or a review of each object in a manifest,
//! offline with the server's code.

use std::path::{Path, PathBuf};

use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files::{At, PolicyFiles, PolicyPurpose};
use crate::config::files;
use portcullis_policy::admission::{Operation, Phase};
use portcullis_policy::document::{self, Document};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{
    AdmitAllExplained, AdmitAllInWords, AdmitExplained, AdmitInWords, AnsweredObject, OfflineReview,
    OfflineReviewResult, PHASES,
};
use portcullis_policy::explain::objects::{
    self, ADD_DEFINITION, KnownKinds, ManifestRequest, ReviewOfManifest, ReviewsOfManifests,
};
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::field::Faults;

/// Decide an AdmissionReview, or the admission of a manifest, offline, and explain the decision.
///
/// Without `--phase`, mutates the object and then validates the result, like an API server that
/// calls both endpoints. Webhooks are not called: their responses are read from `--answers`, and
/// without a response that is needed there is no decision.
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
    /// Recorded responses of webhooks, in YAML or JSON.
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
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let answers = self.answers.as_deref().map(recorded_answers).transpose()?;
        let answers = answers.unwrap_or_default();
        let review = self.review.as_deref().map(read_review).transpose()?;
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
            requester_unknown: false,
            deadline: None,
            recorder: None,
        };
        match (review, &self.review, &self.manifests.filename) {
            (Some(_), ..) if self.manifests.has_other_arguments() => Err(CommandError::Usage(
                "a review already contains the operation and the user: use `--operation`, `--user` and \
                similar flags only with `-f`"
                    .to_owned(),
            )),
            (Some(review), Some(path), _) => {
                let answered = answer(&asked, path, &review)?;
                output::print(
                    format,
                    &AdmitInWords(&answered).lines(),
                    &AdmitExplained::new(&answered),
                )?;
                Ok(command_result(&answered))
            }
            (_, _, Some(path)) => {
                let set = loaded.admission.for_cluster(&self.files.cluster);
                let is_named = |group: &str, resource: &str| set.names_resource(group, resource);
                let reviews =
                    self.manifests
                        .reviews(path, &loaded.kinds, || self.files.documents(), is_named)?;
                answer_all(format, &asked, reviews)
            }
            _ => Err(CommandError::Usage(
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

    fn refuse_unknown_names(
        &self,
        loaded: &LoadedPolicies,
        answers: &RecordedAnswers,
    ) -> Result<(), CommandError> {
        let cluster = &self.files.cluster;
        if let Some(name) = answers.foreign(loaded.admission.for_cluster(cluster)).next() {
            return Err(CommandError::Usage(format!("there is no webhook `{name}`")));
        }
        match &self.policy {
            Some(name) if !loaded.has_policy(cluster, self.phases(), name) => Err(CommandError::Usage(
                format!("there is no policy or webhook configuration `{name}` for this endpoint"),
            )),
            _ => Ok(()),
        }
    }
}

fn answer(
    asked: &OfflineReview<'_>,
    path: &Path,
    review: &[u8],
) -> Result<OfflineReviewResult, CommandError> {
    asked
        .answer(review)
        .map_err(|error| CommandError::Usage(format!("cannot answer `{}`: {error}", path.display())))
}

fn recorded_answers(path: &Path) -> Result<RecordedAnswers, CommandError> {
    let text = files::read_text(path, files::CONFIGURATION_BYTES);
    let text = text.map_err(|source| CommandError::file("read", path, source))?;
    let path = path.display().to_string();
    RecordedAnswers::of_text(&path, &text).map_err(|faults| CommandError::Faulty { path, faults })
}

fn command_result(answered: &OfflineReviewResult) -> CommandResult {
    match &answered.decided {
        Ok(decided) if decided.outcome.denial.is_none() => CommandResult::Success,
        _ => CommandResult::Failure,
    }
}

/// Decides and prints a review of each object.
fn answer_all(
    format: Format,
    asked: &OfflineReview<'_>,
    ReviewsOfManifests { reviews, notes }: ReviewsOfManifests,
) -> Result<CommandResult, CommandError> {
    let objects = answer_each(asked, reviews)?;
    let report = AdmitAllExplained::new(&objects, &notes);
    output::print(format, &AdmitAllInWords(&objects, &notes).lines(), &report)?;
    Ok(result_of_all(&objects))
}

/// Decides the reviews, in their order.
///
/// # Errors
///
/// A review cannot be decoded or decided.
pub(crate) fn answer_each(
    asked: &OfflineReview<'_>,
    reviews: Vec<ReviewOfManifest>,
) -> Result<Vec<AnsweredObject>, CommandError> {
    let answered = |about: ReviewOfManifest| {
        let answered = answer(asked, Path::new(&about.file), about.review.as_bytes())?;
        Ok(AnsweredObject { about, answered })
    };
    reviews.into_iter().map(answered).collect()
}

/// Success if all objects are admitted.
pub(crate) fn result_of_all(objects: &[AnsweredObject]) -> CommandResult {
    let mut objects = objects.iter();
    match objects.all(|object| command_result(&object.answered) == CommandResult::Success) {
        true => CommandResult::Success,
        false => CommandResult::Failure,
    }
}

/// `-f`, and what is done with the objects in it.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ManifestArguments {
    /// Manifests in YAML or JSON, `-` for standard input: a review is made of each object.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<std::path::PathBuf>,
    /// The operation on the objects of `-f` [default: CREATE]
    #[arg(long, value_enum, ignore_case = true)]
    operation: Option<OperationArgument>,
    /// The objects of `-f` before the change, for UPDATE.
    #[arg(long, value_name = "FILE")]
    old: Option<std::path::PathBuf>,
    /// The user of the requests [default: system:admin of the groups system:masters and
    /// system:authenticated]
    #[arg(long)]
    user: Option<String>,
    /// A group of the user; repeat for each.
    #[arg(long = "group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
    /// The subresource that is written, such as `status`.
    #[arg(long, value_name = "NAME")]
    subresource: Option<String>,
    /// The resource of the objects, if it cannot be found from their kind.
    #[arg(long, value_name = "RESOURCE[.GROUP]")]
    resource: Option<String>,
    /// The namespace of objects that name none [default: default]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Decide as for a dry run.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
enum OperationArgument {
    /// The objects are new.
    Create,
    /// They replace those of `--old`.
    Update,
    /// They are deleted.
    Delete,
    /// They are options of a connection, such as PodExecOptions.
    Connect,
}

// === impl ManifestArguments ===

impl ManifestArguments {
    /// Makes a review of each object in the file at `path`. `definitions` is only called if the
    /// kind of an object is unknown.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or no review can be made of an object.
    pub(crate) fn reviews(
        &self,
        path: &Path,
        kinds: &KnownKinds,
        definitions: impl FnOnce() -> Vec<Document>,
        is_named: impl Fn(&str, &str) -> bool,
    ) -> Result<ReviewsOfManifests, CommandError> {
        let objects = read_objects(path)?;
        let old = match (self.operation, &self.old) {
            (Some(OperationArgument::Update), Some(old)) => read_objects(old)?,
            (Some(OperationArgument::Update), None) => {
                let message = "an UPDATE needs the objects before the change: add `--old FILE`";
                return Err(CommandError::Usage(message.to_owned()));
            }
            (_, Some(_)) => {
                let message = "`--old` is only for `--operation UPDATE`; for a DELETE, pass the objects with \
                    `-f`";
                return Err(CommandError::Usage(message.to_owned()));
            }
            (_, None) => Vec::new(),
        };
        let reviews = self
            .request()
            .reviews(&objects, &old, kinds.clone(), definitions, is_named);
        let mut found = reviews.map_err(|faults| CommandError::Faulty {
            path: path.display().to_string(),
            faults,
        })?;
        if found.reviews.is_empty() {
            return Err(no_manifest(path));
        }
        for note in found
            .notes
            .iter_mut()
            .filter(|note| note.ends_with(ADD_DEFINITION))
        {
            note.push_str(", or name it with `--resource`");
        }
        Ok(found)
    }

    /// Whether an argument other than `-f` is present.
    pub(crate) const fn has_other_arguments(&self) -> bool {
        let Self {
            user, operation, old, ..
        } = self;
        let is_named = self.subresource.is_some() || self.resource.is_some() || self.namespace.is_some();
        is_named || user.is_some() || operation.is_some() || old.is_some() || self.dry_run
    }

    fn request(&self) -> ManifestRequest {
        ManifestRequest {
            operation: self.operation.map(OperationArgument::operation),
            user: self.user.clone().map(|user| (user, self.groups.clone())),
            subresource: self.subresource.clone().unwrap_or_default(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            dry_run: self.dry_run,
            default_namespace: None,
        }
    }
}

// === impl OperationArgument ===

impl OperationArgument {
    const fn operation(self) -> Operation {
        match self {
            Self::Create => Operation::Create,
            Self::Update => Operation::Update,
            Self::Delete => Operation::Delete,
            Self::Connect => Operation::Connect,
        }
    }
}

/// The error for a file without objects.
pub(crate) fn no_manifest(path: &Path) -> CommandError {
    CommandError::Usage(format!("there is no manifest in `{}`", path.display()))
}

/// Reads the objects in a file, including the items of lists.
pub(crate) fn read_objects(path: &Path) -> Result<Vec<Document>, CommandError> {
    let bytes = read(path)?;
    let invalid = |error| CommandError::file("read", path, std::io::Error::other(error));
    let text = String::from_utf8(bytes).map_err(invalid)?;
    let path = path.display().to_string();
    objects::read(&path, text).map_err(|faults| CommandError::Faulty { path, faults })
}

/// Reads the review at `path` as JSON. A YAML file is converted.
pub(crate) fn read_review(path: &Path) -> Result<Vec<u8>, CommandError> {
    let bytes = read(path)?;
    if bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(bytes);
    }
    let name = path.display().to_string();
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Ok(bytes);
    };
    let documents = document::parse(Some(&name), text).map_err(|fault| {
        let mut faults = Faults::new();
        faults.push(fault);
        CommandError::Faulty {
            path: name.clone(),
            faults,
        }
    })?;
    match documents.as_slice() {
        [review] => Ok(review.root().to_json().to_string().into_bytes()),
        several => Err(CommandError::Usage(format!(
            "`{name}` has {} documents: write one review",
            several.len()
        ))),
    }
}

/// Reads the file at `path`, or standard input if it is `-`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    let bytes = if path == Path::new("-") {
        files::read_rest(std::io::stdin().lock(), 0, files::MANIFEST_BYTES)
    } else {
        files::read(path, files::MANIFEST_BYTES)
    };
    bytes.map_err(|source| CommandError::file("read", path, source))
}
