//! `portcullis diff`: what a change of policies grants and takes, over all requests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::access::TimeLimit;
use super::invariants;
use super::output::{self, CommandError, CommandResult, Output};
use super::policy_files::{At, PolicyFiles, PolicyPurpose, refuse_unknown_cluster};
use super::revision::Revision;
use crate::config::{self, DEFAULT_CLUSTER, files};
use portcullis_policy::authorization::proof;
use portcullis_policy::engine::Deadline;
use portcullis_policy::explain::difference::DifferenceReport;
use portcullis_policy::explain::invariants::{ChangedInvariant, changed_invariants};
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
/// opinion. Of service accounts, the groups are those that their names imply. ClusterRoles that an
/// API server makes by itself count where the policies do not have them; what a binding to any other
/// role that neither side has may grant is said as not decided.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Diff {
    /// A configuration, a manifest, a folder of manifests, or `git:REVISION:PATH` for one of these
    /// in a revision.
    old: String,
    /// The same after the change.
    new: String,
    /// The cluster that the requests come from [default: `default`; the others are compared too, and
    /// those that differ are named]
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// Exit 1 where anybody gains anything, under a condition too, or is no more denied what the next
    /// authorizer may allow.
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

// === impl Diff ===

impl Diff {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let [old, new] = [self.load(&self.old)?, self.load(&self.new)?];
        let time = TimeLimit::new();
        let report = self.report([&old, &new], self.cluster(), &time)?;
        let print = |lines: &Lines| output::write(lines.as_str());
        match self.output.output {
            DiffFormat::Text => print(&report.in_words())?,
            DiffFormat::Json => output::print_json(&report)?,
            DiffFormat::Markdown => print(&report.as_markdown())?,
        }
        let fails = self.fails(&report);
        Ok(match self.fails_elsewhere([&old, &new], &time)? || fails {
            true => CommandResult::Failure,
            false => CommandResult::Success,
        })
    }

    fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or(DEFAULT_CLUSTER)
    }

    fn report(
        &self,
        loaded: [&LoadedPolicies; 2],
        cluster: &str,
        time: &TimeLimit,
    ) -> Result<DifferenceReport, CommandError> {
        let [old, new] = loaded.map(|loaded| loaded.policies.for_cluster(cluster));
        let expired = || time.has_passed();
        let limit = proof::WorkLimit {
            parts: MAX_PARTS,
            deadline: Deadline::new(&expired),
        };
        let changes = proof::difference(old, new, self.at.time(), limit);
        let changes = changes.map_err(|error| CommandError::Usage(error.to_string()))?;
        let before = invariants::checked(old, cluster, self.at.time(), time)?;
        let after = invariants::checked(new, cluster, self.at.time(), time)?;
        Ok(DifferenceReport::new(
            &changes,
            changed_invariants(&before, &after),
        ))
    }

    /// Where no cluster is named, whether the others fail, each of which is named that differs.
    fn fails_elsewhere(&self, loaded: [&LoadedPolicies; 2], time: &TimeLimit) -> Result<bool, CommandError> {
        if self.cluster.is_some() {
            return Ok(false);
        }
        let clusters: BTreeSet<&String> = loaded
            .iter()
            .flat_map(|loaded| loaded.policies.clusters.keys())
            .collect();
        let mut fails = false;
        for cluster in clusters {
            let report = self.report(loaded, cluster, time)?;
            if cluster != DEFAULT_CLUSTER && !report.same {
                output::complain(format_args!(
                    "note: the cluster `{cluster}` has differences of its own: see `--cluster {cluster}`"
                ));
                fails |= self.fails(&report);
            }
        }
        Ok(fails)
    }

    fn fails(&self, report: &DifferenceReport) -> bool {
        let fails = |on: &FailOn| match on {
            FailOn::Gain => !report.gains.is_empty(),
            FailOn::Loss => !report.losses.is_empty(),
            FailOn::Any => !report.same,
        };
        let breaks = report.invariants.iter().any(ChangedInvariant::is_refused);
        breaks || self.no_new_access && report.may_grant() || self.fail_on.iter().any(fails)
    }

    fn load(&self, written: &str) -> Result<LoadedPolicies, CommandError> {
        let revision = written.strip_prefix(REVISION).map(Revision::read).transpose()?;
        let path = match &revision {
            Some(revision) => revision.path().to_owned(),
            None => PathBuf::from(written),
        };
        let is_config = is_configuration(&path);
        let policies = PolicyFiles {
            config: is_config.then(|| path.clone()),
            manifests: if is_config { Vec::new() } else { vec![path.clone()] },
            cluster: self.cluster().to_owned(),
            live: super::policy_files::LiveArguments::default(),
        };
        if let (true, Some(cluster)) = (is_config, &self.cluster) {
            refuse_unknown_cluster(&path, cluster)?;
        }
        let mut loaded = policies.load(PolicyPurpose::Authorization)?;
        if is_config {
            policies.warn_of_unknown_rbac(&loaded);
        }
        loaded.add_default_roles();
        Ok(loaded)
    }
}

/// Whether a file is a gateway's configuration, and no manifest. One that cannot be read is
/// refused when it is loaded.
fn is_configuration(path: &Path) -> bool {
    let text = files::read_text(path, MAX_CONFIGURATION_BYTES).unwrap_or_default();
    let first = text.lines().find(|line| line.starts_with("apiVersion:"));
    first.is_some_and(|line| line.contains(config::API_VERSION))
}
