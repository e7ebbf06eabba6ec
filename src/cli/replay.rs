//! `portcullis replay`: decides recorded reviews again, with other policies.
//!
//! ```text
//! files ─line─▶ RecordLine ─▶ decided by NEW ──────────────┐
//!                   └───────▶ recorded, or decided by OLD ─┴─▶ same · change · unknown
//! ```
//!
//! No calls are made: webhooks and authorizers respond as recorded.

mod decide;
mod report;

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use portcullis_cel::json::Document;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::recorded::{ReplayDecision, ReplaySummary, ReviewComparison};
use portcullis_policy::field::Faults;
use portcullis_policy::model::Time;
use regex_automata::hybrid::regex::Regex;

use super::file_jobs::{FileJob, FileJobs, FileShard, is_standard_input};
use super::output::{self, CommandError, CommandResult, Output, ProgressLine};
use super::{access_requests, policy_files};
use crate::columns::{ColumnFile, RowKind, StoredRow, column_files, is_column_file};
use crate::config::{Endpoint, files};
use crate::identity::PATH_TOKEN_NAME;
use crate::recording::{PREFIX, RecordLine, RecordingError, RecordingHeader};

use decide::{DistinctReviews, ReplayDecider};
use report::{ChangeExample, ChangeWeights, ReplayFormat, ReplayReport};

/// Decide recorded reviews again, and show which decisions would change.
///
/// Each review is decided for the time at which it was recorded. Webhooks and other authorizers
/// are not called: their recorded answers are used. A review whose decision depends on something
/// that was redacted or not recorded counts as unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Replay {
    /// The configuration with the policies [default: that of the development set-up]
    #[arg(long, value_name = "NEW")]
    config: Option<PathBuf>,
    /// Manifests of the policies, as files or folders, instead of a configuration.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    manifests: Vec<PathBuf>,
    /// Compare with the decisions of this configuration, instead of the recorded ones.
    #[arg(long, value_name = "OLD")]
    baseline: Option<PathBuf>,
    /// Decide for this time instead of the recorded ones, in RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = super::policy_files::parse_time)]
    at: Option<Time>,
    /// Include reviews of callers with `pathToken`: users who know the token can forge them.
    #[arg(long)]
    with_path_token: bool,
    /// Ignore changes that match this regular expression, for the exit code.
    ///
    /// It must match `FROM->TO CAUSE`, such as `deny->allow AuthorizationPolicy/trial`.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    allow_changes: Option<String>,
    /// Show how often the changed requests were made: folders of `usage.folder`, or files in them.
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    weigh: Vec<PathBuf>,
    /// Decide only part I of N of the files, such as `1/4`: the JSON results of all parts can be
    /// added up.
    #[arg(long, value_name = "I/N", default_value = "1/1", hide_default_value = true, value_parser = FileShard::parse)]
    shard: FileShard,
    #[command(flatten)]
    jobs: FileJobs,
    /// Recordings or the files that `pack` wrote, or folders of these; `-` for standard input.
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    #[command(flatten)]
    output: Output<ReplayFormat>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis replay --config new.yaml recordings
  portcullis replay --config new.yaml packed --shard 1/4 -o json
  portcullis replay --config new.yaml recordings --weigh usage
  portcullis replay --config new.yaml recordings --allow-changes 'deny->allow AuthorizationPolicy/trial' -o junit";

fn expression(text: &str) -> Result<Regex, CommandError> {
    let wrong = |error| {
        CommandError::Usage(format!(
            "`--allow-changes {text}` is not a regular expression: {error}"
        ))
    };
    Regex::new(text).map_err(wrong)
}

/// The maximum length of a line, in bytes: twice the size of the gateway's queue of recorded
/// reviews.
pub(crate) const MAX_LINE_BYTES: u64 = 128 << 20;

/// The length of a line that several threads may hold at the same time, in bytes. A thread waits
/// for its turn before it reads a longer one.
const LONG_LINE_BYTES: u64 = 4 << 20;

/// The beginning of the first line of a recording.
pub(crate) const HEADER: &[u8] = b"{\"portcullisRecording\"";

/// The size of the read buffer, in bytes.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// The files on the command line, in order. Folders are replaced by the recordings in them, oldest
/// first.
///
/// # Errors
///
/// A folder cannot be read, or has no recordings.
pub(crate) fn recording_files(named: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut within = recordings_of(path)
            .and_then(|found| Ok([found, column_files(path)?].concat()))
            .map_err(|source| CommandError::file("read", path, source))?;
        if within.is_empty() {
            let path = path.display();
            return Err(CommandError::Usage(format!("there is no recording in `{path}`")));
        }
        within.sort();
        files.append(&mut within);
    }
    Ok(files)
}

pub(crate) fn recordings_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// A recording that is being read.
pub(crate) struct RecordingFile {
    pub(crate) path: PathBuf,
    /// The number of the last line that was read, from 1.
    pub(crate) line: u64,
    /// Whether a recording in the file ends with an incomplete line.
    pub(crate) is_cut: bool,
    pub(crate) reader: Box<dyn BufRead>,
    pub(crate) buffer: Vec<u8>,
}

// === impl Replay ===

impl Replay {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let allowed = self.allow_changes.as_deref().map(expression).transpose()?;
        let new = self.new_policies()?;
        let old = self.baseline.as_deref().map(configured).transpose()?;
        let run = ReplayRun {
            command: &self,
            new: &new,
            old: old.as_ref(),
            weights: ChangeWeights::read(&self.weigh)?.map(Mutex::new),
            distinct: DistinctReviews::of([Some(&new), old.as_ref()]),
        };
        let files = self.shard.of(recording_files(&self.recordings)?);
        let (mut all, mut cut, mut progress) = (ReplayedPart::default(), Vec::new(), ProgressLine::new());
        self.jobs.run(
            &files,
            |job| run.replay(job),
            |path, part| {
                if part.is_cut {
                    cut.push(shown(path));
                }
                all.unauthenticated += part.unauthenticated;
                all.replayed.append(part.replayed);
                progress.show(|| format!("{} replayed", output::count(all.reviews(), "review")));
                Ok(())
            },
        )?;
        progress.clear();
        if all.unauthenticated > 0 {
            let reviews = output::count(all.unauthenticated, "review");
            output::print_error(format_args!(
                "{reviews} of callers with a path token were skipped: include them with `--with-path-token`"
            ));
        }
        let weights = run
            .weights
            .map(|weights| weights.into_inner().unwrap_or_else(PoisonError::into_inner));
        let report = ReplayReport::new(all.replayed, cut, allowed.as_ref(), weights.as_ref());
        report.print(self.output.output)?;
        // Otherwise there may be more shares than files.
        if report.is_empty() && self.shard.count == 1 {
            let recordings = policy_files::joined_paths(&self.recordings);
            return Err(CommandError::Usage(format!(
                "no reviews in `{recordings}` were decided"
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
            policy_files::check_readable(path)?;
        }
        let mut loaded = valid(
            &policy_files::joined_paths(&self.manifests),
            policy_files::load_paths(&self.manifests),
        )?;
        // Errors in the files were reported by the loading above.
        let _ = access_requests::apply_access_requests_of_files(&mut loaded, None, &self.manifests);
        Ok(loaded)
    }
}

/// The data that the threads of one run share.
struct ReplayRun<'r> {
    command: &'r Replay,
    new: &'r LoadedPolicies,
    old: Option<&'r LoadedPolicies>,
    weights: Option<Mutex<ChangeWeights>>,
    distinct: DistinctReviews,
}

/// The number of reviews after which a thread sends a summary.
const PART_REVIEWS: u64 = 100_000;

/// The results for a part of a file.
#[derive(Default)]
struct ReplayedPart {
    replayed: ReplaySummary<Box<ChangeExample>>,
    /// How many reviews were left out, because any user could have sent them.
    unauthenticated: u64,
    /// Whether the last line of the file is incomplete.
    is_cut: bool,
}

// === impl ReplayedPart ===

impl ReplayedPart {
    const fn reviews(&self) -> u64 {
        self.replayed.decided + self.replayed.unknown
    }
}

// === impl ReplayRun ===

impl ReplayRun<'_> {
    /// Decides the reviews of a file.
    fn replay(&self, job: &FileJob<'_, ReplayedPart>) -> Result<(), CommandError> {
        let mut part = ReplayedPart::default();
        if !is_standard_input(job.path) && is_column_file(job.path) {
            self.replay_rows(job, &mut part)?;
            return job.send(part);
        }
        let make_room = |bytes| job.wait_if_large(bytes);
        let mut file = RecordingFile::open(job.path, &make_room)?;
        while file.read_line(&make_room)? {
            match file.document()? {
                Some(document) => self.decide(job, &file, &document, &mut part)?,
                None => part.is_cut = true,
            }
        }
        part.is_cut |= file.is_cut;
        job.send(part)
    }

    fn replay_rows(
        &self,
        job: &FileJob<'_, ReplayedPart>,
        part: &mut ReplayedPart,
    ) -> Result<(), CommandError> {
        let columns = ColumnFile::open(job.path, RowKind::Recording)?;
        let mut place = RecordingFile::of_rows(job.path);
        let make_room = |bytes| job.wait_if_large(bytes);
        columns.each_row(|_| true, false, &make_room, &mut |row: StoredRow<'_>| {
            place.line = row.number;
            let document = Document::parse(row.line).map_err(|error| place.unreadable(&error.into()))?;
            self.decide(job, &place, &document, part)
        })
    }

    fn decide(
        &self,
        job: &FileJob<'_, ReplayedPart>,
        file: &RecordingFile,
        document: &Document<'_>,
        part: &mut ReplayedPart,
    ) -> Result<(), CommandError> {
        let recorded = RecordLine::read(document).map_err(|error| file.unreadable(&error))?;
        if recorded.text("caller") == PATH_TOKEN_NAME && !self.command.with_path_token {
            part.unauthenticated += 1;
            return Ok(());
        }
        self.add(file, &recorded, &mut part.replayed)?;
        if part.reviews() >= PART_REVIEWS {
            job.send(std::mem::take(part))?;
        }
        Ok(())
    }

    /// Adds the result of a review, which may be known from an equal one. The first change of a
    /// group in a part is always decided, because it is the example of the group.
    fn add(
        &self,
        file: &RecordingFile,
        recorded: &RecordLine<'_>,
        replayed: &mut ReplaySummary<Box<ChangeExample>>,
    ) -> Result<(), CommandError> {
        let key = self.distinct.key(recorded, self.time_of(recorded));
        if let Some(known) = key.and_then(|key| self.distinct.known(key))
            && known
                .group()
                .is_none_or(|group| replayed.changes.contains_key(group))
        {
            replayed.add(known.with_example(None));
            return Ok(());
        }
        let compared = self.compare(file, recorded, replayed)?;
        if let Some(key) = key {
            self.distinct.keep(key, compared.with_example(()));
        }
        if let Some(weights) = &self.weights {
            let mut weights = weights.lock().unwrap_or_else(PoisonError::into_inner);
            weights.add(recorded, &compared);
        }
        replayed.add(compared);
        Ok(())
    }

    /// The time for which the review is decided.
    fn time_of(&self, recorded: &RecordLine<'_>) -> Time {
        self.command.at.unwrap_or(recorded.time)
    }

    fn compare(
        &self,
        file: &RecordingFile,
        recorded: &RecordLine<'_>,
        seen: &ReplaySummary<Box<ChangeExample>>,
    ) -> Result<ReviewComparison<Box<ChangeExample>>, CommandError> {
        let deciding = |policies| ReplayDecider {
            policies,
            recorded,
            now: self.time_of(recorded),
        };
        let decide = |policies| {
            deciding(policies)
                .decide()
                .map_err(|error| file.unreadable(&error))
        };
        let now = decide(self.new)?;
        let before = match self.old {
            Some(old) => decide(old)?,
            None if is_as_recorded(recorded, &now) => return Ok(ReviewComparison::Same),
            None => decide::recorded_decision(recorded),
        };
        let mut compared = report::compared((&file.path, file.line), recorded, before, now);
        if let ReviewComparison::Changed(group, example) | ReviewComparison::UnknownDenial(group, _, example) =
            &mut compared
            && !seen.changes.contains_key(&*group)
        {
            example.considered = deciding(self.new).explain();
        }
        Ok(compared)
    }
}

/// Whether a SubjectAccessReview is decided as it was. Nothing else of it is compared, and most are: the texts of what
/// was recorded are not made for these.
fn is_as_recorded(recorded: &RecordLine<'_>, now: &ReplayDecision) -> bool {
    recorded.endpoint == Endpoint::Authorize
        && matches!(now, ReplayDecision::Known(now) if now.decision == recorded.decision)
}

fn configured(path: &Path) -> Result<LoadedPolicies, CommandError> {
    policy_files::check_regular_file(path)?;
    let mut loaded = valid(&shown(path), policy_files::load_configuration(path))?;
    let _ = access_requests::apply_access_requests_of_files(&mut loaded, Some(path), &[]);
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

// === impl RecordingFile ===

impl RecordingFile {
    /// # Errors
    ///
    /// The file cannot be read, is not a recording, or has a later version.
    fn open(path: &Path, make_room: &dyn Fn(usize)) -> Result<Self, CommandError> {
        let reader: Box<dyn BufRead> = if is_standard_input(path) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin()))
        } else {
            let file = files::open(path).map_err(|source| CommandError::file("read", path, source))?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, file))
        };
        let mut file = Self {
            path: path.to_owned(),
            line: 0,
            is_cut: false,
            reader,
            buffer: Vec::new(),
        };
        file.read(make_room)?;
        // A process that ended immediately may not even have written the first line.
        if file.buffer.is_empty() {
            file.is_cut = true;
            return Ok(file);
        }
        file.check_header()?;
        Ok(file)
    }

    /// For rows of a Parquet file that are read elsewhere: error messages contain the path and
    /// `line`.
    fn of_rows(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            line: 0,
            is_cut: false,
            reader: Box::new(io::empty()),
            buffer: Vec::new(),
        }
    }

    /// Reads the next complete line, and returns whether there is one. Calls `wait_if_large` before
    /// allocating memory for a long line.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    fn read_line(&mut self, make_room: &dyn Fn(usize)) -> Result<bool, CommandError> {
        self.read(make_room)?;
        // Recordings may be concatenated.
        while self.buffer.starts_with(HEADER) {
            self.check_header()?;
            self.read(make_room)?;
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

    /// Parses the line; `None` if it is incomplete and the header of another recording follows on
    /// it.
    ///
    /// # Errors
    ///
    /// The line is not JSON.
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

    fn read(&mut self, make_room: &dyn Fn(usize)) -> Result<(), CommandError> {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES);
        self.line += 1;
        for (begin, end) in [(0, LONG_LINE_BYTES), (LONG_LINE_BYTES, MAX_LINE_BYTES)] {
            let mut line = io::Read::take(&mut self.reader, end - begin);
            let read = line.read_until(b'\n', &mut self.buffer);
            read.map_err(|source| CommandError::file("read", &self.path, source))?;
            if (self.buffer.len() as u64) < end || self.buffer.ends_with(b"\n") {
                return Ok(());
            }
            make_room(usize::try_from(MAX_LINE_BYTES).unwrap_or(usize::MAX));
        }
        Err(self.unreadable(&RecordingError::TooLong {
            max_bytes: MAX_LINE_BYTES,
        }))
    }

    /// The error that this line cannot be used.
    pub(crate) fn unreadable(&self, error: &RecordingError) -> CommandError {
        CommandError::Usage(format!(
            "cannot replay `{}`, line {}: {error}",
            self.path.display(),
            self.line
        ))
    }
}
