//! `portcullis replay`: decides recorded reviews again, by other policies.
//!
//! ```text
//! files ─line─▶ RecordLine ─▶ decided by NEW ──────────────┐
//!                   └───────▶ recorded, or decided by OLD ─┴─▶ same · change · unknown
//! ```
//!
//! Nobody is called: webhooks and authorizers answer as they are recorded to have answered.

mod decide;
mod report;

use std::cell::RefCell;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use decide::ReplayDecider;
use regex_automata::hybrid::regex::Regex;
use report::{ChangeExample, ReplayReport};

use super::output::{self, Output, ProgressLine};
use super::{CommandError, CommandResult, policy_files};
use crate::config::files;
use crate::recording::{PREFIX, RecordLine, RecordingError, RecordingHeader};
use portcullis_cel::Program;
use portcullis_cel::json::{Document, patch};
use portcullis_policy::engine::Time;
use portcullis_policy::engine::admission::exceptions::NotExcused;
use portcullis_policy::engine::admission::matching::Mismatch;
use portcullis_policy::engine::admission::may_read;
use portcullis_policy::engine::admission::trace::{MatchFinding, PolicyExpression, Recorder, TraceStep};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::recorded::{ReplaySummary, ReviewComparison};
use portcullis_policy::field::Faults;

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
    /// Changes that do not fail: a regular expression for `FROM->TO CAUSE`, such as
    /// `deny->allow AuthorizationPolicy/trial`.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    allow_changes: Option<String>,
    /// Files of a recording, or folders of them; `-` for standard input.
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    #[command(flatten)]
    output: Output<ReplayFormat>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis replay --config new.yaml recordings
  portcullis replay --config new.yaml recordings --allow-changes 'deny->allow AuthorizationPolicy/trial' -o junit";

/// The formats of `replay`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum ReplayFormat {
    /// Changes by cause, each with an example.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// JUnit's XML, for CI services.
    Junit,
}

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
        let (mut replayed, mut cut) = (ReplaySummary::default(), Vec::new());
        let (mut progress, mut count) = (ProgressLine::new(), 0_u64);
        for path in recording_files(&self.recordings)? {
            let mut file = RecordingFile::open(&path)?;
            let mut is_cut = false;
            while file.advance()? {
                let Some(document) = file.document()? else {
                    is_cut = true;
                    continue;
                };
                let compared = self.compare((&file, &document), &new, old.as_ref(), &replayed)?;
                replayed.add(compared);
                count += 1;
                progress.show(|| format!("{} replayed", output::count(count, "review")));
            }
            if is_cut || file.is_cut {
                cut.push(shown(&path));
            }
        }
        progress.clear();
        let report = ReplayReport::new(replayed, cut, allowed.as_ref());
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
        valid(
            &policy_files::shown(&self.manifests),
            policy_files::of_paths(&self.manifests),
        )
    }

    fn compare(
        &self,
        (file, document): (&RecordingFile, &Document<'_>),
        new: &LoadedPolicies,
        old: Option<&LoadedPolicies>,
        replayed: &ReplaySummary<Box<ChangeExample>>,
    ) -> Result<ReviewComparison<Box<ChangeExample>>, CommandError> {
        let recorded = RecordLine::read(document).map_err(|error| file.unreadable(&error))?;
        let deciding = |policies| ReplayDecider {
            policies,
            recorded: &recorded,
            now: self.at.unwrap_or(recorded.time),
        };
        let decide = |policies| {
            deciding(policies)
                .decide()
                .map_err(|error| file.unreadable(&error))
        };
        let before = match old {
            Some(old) => decide(old)?,
            None => decide::recorded_decision(&recorded),
        };
        let now = decide(new)?;
        let mut compared = report::compared(file, &recorded, before, now);
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
    valid(&shown(path), policy_files::of_configuration(path))
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

/// Says on standard error what is no failure.
fn note(what: impl std::fmt::Display) {
    output::complain(what);
}

/// The most bytes of a line: twice what the gateway queues of reviews that are to be written.
const MAX_LINE_BYTES: u64 = 128 << 20;

/// How the first line of a recording begins.
const HEADER: &[u8] = b"{\"portcullisRecording\"";

/// What is read at once.
const BUFFER: usize = 1 << 20;

/// The files that are named, in order; of folders those of recordings, the oldest first.
///
/// # Errors
///
/// One cannot be read, or a folder has none.
fn recording_files(named: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut within = recordings_of(path).map_err(|source| CommandError::file("read", path, source))?;
        if within.is_empty() {
            let path = path.display();
            return Err(CommandError::Usage(format!("there is no recording in `{path}`")));
        }
        within.sort();
        files.append(&mut within);
    }
    Ok(files)
}

fn recordings_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// One file that is being read.
pub(crate) struct RecordingFile {
    pub(crate) path: PathBuf,
    /// The number of the line that was read last, from 1.
    pub(crate) line: u64,
    /// Whether a recording in it ends with a line that is not whole.
    pub(crate) is_cut: bool,
    reader: Box<dyn BufRead>,
    buffer: Vec<u8>,
}

// === impl RecordingFile ===

impl RecordingFile {
    /// # Errors
    ///
    /// It cannot be read, or is no recording, or one of a later version.
    pub(crate) fn open(path: &Path) -> Result<Self, CommandError> {
        let reader: Box<dyn BufRead> = if path == Path::new("-") {
            Box::new(BufReader::with_capacity(BUFFER, io::stdin()))
        } else {
            let file = files::open(path).map_err(|source| CommandError::file("read", path, source))?;
            Box::new(BufReader::with_capacity(BUFFER, file))
        };
        let mut file = Self {
            path: path.to_owned(),
            line: 0,
            is_cut: false,
            reader,
            buffer: Vec::new(),
        };
        file.read()?;
        // A process that ended at once has left not even the first line.
        if file.buffer.is_empty() {
            file.is_cut = true;
            return Ok(file);
        }
        file.check_header()?;
        Ok(file)
    }

    /// Goes to the next line that is whole. Whether there is one.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(crate) fn advance(&mut self) -> Result<bool, CommandError> {
        self.read()?;
        // Recordings may be put one behind the other.
        while self.buffer.starts_with(HEADER) {
            self.check_header()?;
            self.read()?;
        }
        if self.buffer.is_empty() {
            return Ok(false);
        }
        if self.buffer.last() != Some(&b'\n') && Document::parse_bytes(&self.buffer).is_err() {
            self.is_cut = true;
            return Ok(false);
        }
        Ok(true)
    }

    /// What this line says; none where it is cut off, and another recording begins behind it.
    ///
    /// # Errors
    ///
    /// It is no JSON.
    pub(crate) fn document(&self) -> Result<Option<Document<'_>>, CommandError> {
        match Document::parse_bytes(&self.buffer) {
            Ok(document) => Ok(Some(document)),
            Err(_) if self.buffer.windows(HEADER.len()).any(|part| part == HEADER) => Ok(None),
            Err(error) => Err(self.unreadable(&error.into())),
        }
    }

    fn check_header(&self) -> Result<(), CommandError> {
        let header = RecordingHeader::read(&self.buffer);
        header.map(drop).map_err(|error| self.unreadable(&error))
    }

    fn read(&mut self) -> Result<(), CommandError> {
        self.buffer.clear();
        self.line += 1;
        let mut line = io::Read::take(&mut self.reader, MAX_LINE_BYTES);
        let read = line.read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| CommandError::file("read", &self.path, source))?;
        if read as u64 == MAX_LINE_BYTES {
            let error = RecordingError::TooLong {
                max_bytes: MAX_LINE_BYTES,
            };
            return Err(self.unreadable(&error));
        }
        Ok(())
    }

    /// That this line cannot be used.
    pub(crate) fn unreadable(&self, error: &RecordingError) -> CommandError {
        CommandError::Usage(format!(
            "cannot replay `{}`, line {}: {error}",
            self.path.display(),
            self.line
        ))
    }
}

// Watches a run for whether it looks at something that was redacted.

/// How many places are told apart. Of a review with more, all of its objects count as redacted:
/// each expression is compared with each place.
const MAX_PLACES: usize = 1000;

/// The places of a review that are redacted, and whether one of them counted.
pub(crate) struct RedactionWatch {
    /// Each as steps from the request on.
    places: Vec<Vec<String>>,
    touched: RefCell<Option<String>>,
}

// === impl RedactionWatch ===

impl RedactionWatch {
    /// For a review of which `redacted` was removed, as JSON Pointers.
    pub(crate) fn new(redacted: &[String]) -> Self {
        let steps = |pointer: &String| {
            // `/request` or `/spec` comes first.
            let steps = patch::steps(pointer).unwrap_or_default().into_iter().skip(1);
            steps.map(|step| step.into_owned()).collect()
        };
        let places = if redacted.len() > MAX_PLACES {
            ["object", "oldObject", "options"]
                .map(|name| vec![name.to_owned()])
                .to_vec()
        } else {
            redacted.iter().map(steps).collect()
        };
        Self {
            places,
            touched: RefCell::default(),
        }
    }

    /// Whether anything is redacted.
    pub(crate) fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// Says that something redacted would count.
    pub(crate) fn touch(&self, why: impl FnOnce() -> String) {
        let mut touched = self.touched.borrow_mut();
        if touched.is_none() {
            *touched = Some(why());
        }
    }

    /// Why it cannot be said what would be decided, if so.
    pub(crate) fn into_touched(self) -> Option<String> {
        self.touched.into_inner()
    }

    /// Whether what is redacted overlaps with `path` of either object.
    fn hides(&self, path: &[&str]) -> bool {
        self.places.iter().any(|place| {
            let is_object = matches!(place.first().map(String::as_str), Some("object" | "oldObject"));
            let mut both = place.iter().skip(1).zip(path);
            is_object && both.all(|(step, name)| step == name)
        })
    }

    /// Whether a pointer into the object leads to something redacted, into it or to what is
    /// around it.
    pub(crate) fn overlaps(&self, target: &str) -> bool {
        let Some(steps) = patch::steps(target) else {
            return true;
        };
        let steps: Vec<&str> = steps.iter().map(AsRef::as_ref).collect();
        self.hides(&steps)
    }

    fn look(&self, program: &Program, what: impl Fn() -> String) {
        if self.is_any() && may_read(program, &self.places) {
            self.touch(|| format!("{} may look at what is redacted", what()));
        }
    }

    /// Labels decide whether something applies.
    fn selects(&self, finding: &MatchFinding<'_>, what: impl Fn() -> String) {
        let is_by_labels = match finding {
            MatchFinding::Applies { .. } | MatchFinding::Fails(_) => true,
            MatchFinding::Misses(mismatch) => matches!(mismatch, Mismatch::Object | Mismatch::Namespace),
        };
        if is_by_labels && self.hides(&["metadata", "labels"]) {
            self.touch(|| format!("{} selects by labels, which are redacted", what()));
        }
    }
}

impl Recorder for RedactionWatch {
    fn record(&self, step: TraceStep<'_>) {
        match step {
            TraceStep::Policy { kind, name, finding } => self.selects(&finding, || format!("{kind}/{name}")),
            TraceStep::Binding { name, finding } => self.selects(&finding, || format!("the binding {name}")),
            TraceStep::Webhook { webhook, finding } => {
                self.selects(&finding, || format!("the webhook {}", webhook.id()));
            }
            TraceStep::Variable { name, program, .. } => {
                self.look(program, || format!("the variable `{name}`"));
            }
            TraceStep::Expression {
                part, program, text, ..
            } => match part {
                // These decide nothing.
                PolicyExpression::Message(_) | PolicyExpression::Annotation(_) => {}
                PolicyExpression::Condition(_) | PolicyExpression::Validation(_) => {
                    self.look(program, || format!("`{text}`"));
                }
                // What it makes of the object is typed and compared as a whole.
                PolicyExpression::Mutation(_) => {
                    self.touch(|| "a mutation changes an object of which something is redacted".to_owned());
                }
            },
            TraceStep::Exception { name, found, .. } => {
                if !matches!(
                    found,
                    Err(NotExcused::Ended | NotExcused::Subjects | NotExcused::Rules)
                ) && self.hides(&["metadata", "labels"])
                {
                    self.touch(|| format!("AdmissionException/{name} selects by labels, which are redacted"));
                }
            }
            TraceStep::Initializer { .. } => {
                if self.hides(&["metadata", "initializers"]) {
                    self.touch(|| "the initializers of the object are redacted".to_owned());
                }
            }
            TraceStep::Run { .. }
            | TraceStep::Changed { .. }
            | TraceStep::Decided(_)
            | TraceStep::Again
            | TraceStep::Asked { .. }
            | TraceStep::Answered(_) => {}
        }
    }
}
