//! `portcullis diff`: what a change of policies grants and takes, over all requests.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::access::TimeLimit;
use super::output::{self, CommandError, CommandResult, Output};
use super::policy_files::{At, PolicyFiles, PolicyPurpose};
use crate::config::{self, DEFAULT_CLUSTER, files};
use portcullis_policy::authorization::proof;
use portcullis_policy::engine::Deadline;
use portcullis_policy::explain::difference::DifferenceReport;
use portcullis_policy::explain::{Lines, LoadedPolicies};

/// More than a configuration has.
const MAX_CONFIGURATION_BYTES: usize = 16 << 20;

/// The most differences that are listed, before any are joined.
const MAX_PARTS: usize = 20_000;

/// What begins the name of a revision.
const REVISION: &str = "git:";

/// Say what a change of policies decides otherwise, over all requests.
///
/// RBAC and AuthorizationPolicies, with their Denies, selectors, namespaces and periods from now
/// on. A condition in CEL is an unknown, the same wherever it stands: what hangs on one is said
/// with it. system:masters is a group like others here, and `authorization.webhooks` have no
/// opinion.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Diff {
    /// A configuration, a manifest, a folder of manifests, or `git:REVISION:PATH` for one of these
    /// in a revision.
    old: String,
    /// The same after the change.
    new: String,
    /// The cluster that the requests come from.
    #[arg(long, default_value = DEFAULT_CLUSTER)]
    cluster: String,
    /// Exit 1 where anybody gains anything, under a condition too.
    #[arg(long)]
    no_new_access: bool,
    /// Exit 1 where there are such differences.
    #[arg(long, value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<DiffFormat>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis diff git:main:policies policies --no-new-access
  portcullis diff old/portcullis.yaml new/portcullis.yaml --fail-on gain,loss -o markdown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// Something is allowed that was not.
    Gain,
    /// Something was allowed and is not.
    Loss,
    /// Anything is decided otherwise.
    Any,
}

/// The formats of `diff`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum DiffFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// Tables, for a comment on a change that is reviewed.
    Markdown,
}

/// Files on which policies are loaded, and the folder that is removed after it.
struct Files {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

// === impl Diff ===

impl Diff {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let [old, new] = [self.load(&self.old)?, self.load(&self.new)?];
        let [old, new] = [&old, &new].map(|loaded| loaded.policies.for_cluster(&self.cluster));
        let time = TimeLimit::new();
        let expired = || time.has_passed();
        let limit = proof::WorkLimit {
            parts: MAX_PARTS,
            deadline: Deadline::new(&expired),
        };
        let changes = proof::difference(old, new, self.at.time(), limit);
        let changes = changes.map_err(|error| CommandError::Usage(error.to_string()))?;
        let report = DifferenceReport::new(&changes);
        let print = |lines: &Lines| output::write(lines.as_str());
        match self.output.output {
            DiffFormat::Text => print(&report.in_words())?,
            DiffFormat::Json => output::print_json(&report)?,
            DiffFormat::Markdown => print(&report.as_markdown())?,
        }
        Ok(match self.fails(&report) {
            true => CommandResult::Failure,
            false => CommandResult::Success,
        })
    }

    fn fails(&self, report: &DifferenceReport) -> bool {
        let fails = |on: &FailOn| match on {
            FailOn::Gain => !report.gains.is_empty(),
            FailOn::Loss => !report.losses.is_empty(),
            FailOn::Any => !report.same,
        };
        self.no_new_access && !report.gains.is_empty() || self.fail_on.iter().any(fails)
    }

    fn load(&self, written: &str) -> Result<LoadedPolicies, CommandError> {
        let files = match written.strip_prefix(REVISION) {
            Some(revision) => of_revision(revision)?,
            None => Files {
                path: PathBuf::from(written),
                _folder: None,
            },
        };
        let is_config = is_configuration(&files.path);
        let policies = PolicyFiles {
            config: is_config.then(|| files.path.clone()),
            manifests: if is_config {
                Vec::new()
            } else {
                vec![files.path.clone()]
            },
            cluster: self.cluster.clone(),
            live: super::policy_files::LiveArguments::default(),
        };
        policies.load(PolicyPurpose::Authorization)
    }
}

/// Whether a file is a gateway's configuration, and no manifest. One that cannot be read is
/// refused when it is loaded.
fn is_configuration(path: &Path) -> bool {
    let text = files::read_text(path, MAX_CONFIGURATION_BYTES).unwrap_or_default();
    let first = text.lines().find(|line| line.starts_with("apiVersion:"));
    first.is_some_and(|line| line.contains(config::API_VERSION))
}

/// The files of `REVISION:PATH`, or of all of `REVISION`, as git has them.
fn of_revision(written: &str) -> Result<Files, CommandError> {
    let (revision, path) = written.split_once(':').unwrap_or((written, "."));
    let failed = |reason: &str| CommandError::Usage(format!("git:{written}: {}", reason.trim()));
    if revision.is_empty() || revision.starts_with('-') {
        return Err(failed("name a revision, such as git:main:policies"));
    }
    let folder = tempfile::tempdir().map_err(|error| failed(&error.to_string()))?;
    let archive = folder.path().join("archive.tar");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).map_err(|error| failed(&error.to_string()))?;
    let run = |program: &mut Command| {
        let done = program.output().map_err(|error| failed(&error.to_string()))?;
        match done.status.success() {
            true => Ok(()),
            false => Err(failed(&String::from_utf8_lossy(&done.stderr))),
        }
    };
    run(Command::new("git")
        .args(["archive", "--format=tar", "-o"])
        .arg(&archive)
        .arg(revision)
        .args(["--", path]))?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&tree))?;
    Ok(Files {
        path: tree.join(path),
        _folder: Some(folder),
    })
}
