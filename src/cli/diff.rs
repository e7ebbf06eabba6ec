//! `portcullis diff`: which requests a change of policies decides differently, over all requests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::access::TimeLimit;
use super::access_requests;
use super::live_policies::LiveArguments;
use super::output::{self, CommandError, CommandResult, Output};
use super::policy_files::{
    At, ObjectPlaces, PolicyFiles, PolicyPurpose, applied_documents, refuse_unknown_cluster,
};
use super::revision::GitRevision;
use super::set_checks;
use crate::config::{self, DEFAULT_CLUSTER, files};
use portcullis_policy::authorization::proof;
use portcullis_policy::document::Document;
use portcullis_policy::explain::difference::{DifferenceReport, ReportedChange};
use portcullis_policy::explain::invariants::{ChangedInvariant, changed_invariants};
use portcullis_policy::explain::{Lines, LoadedPolicies};
use portcullis_policy::field::FieldPath;
use portcullis_policy::model::Deadline;

/// The maximum size that is read to recognize a configuration, in bytes.
const MAX_CONFIGURATION_BYTES: usize = 16 << 20;

/// The maximum number of differences, before any are joined.
const MAX_DIFFERENCES: usize = 20_000;

/// The prefix of paths in a git revision.
const REVISION: &str = "git:";

/// Compare policies before and after a change, over all possible requests.
///
/// Compares RBAC and AuthorizationPolicies, including their Denies, selectors, namespaces and
/// future validity periods. CEL conditions that compare fields with constants are decided; a
/// difference that depends on any other condition is listed with that condition. system:masters is
/// treated like any other group, and `authorization.webhooks` have no opinion. Service accounts
/// have the groups that their names imply. If the policies lack the ClusterRoles that an API server
/// creates by default, those of Kubernetes are used; what a binding to any other missing role
/// grants is reported as not decided.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Diff {
    /// A configuration, a manifest, a folder of manifests, or `git:REVISION:PATH` for one in a
    /// revision.
    ///
    /// With `--kubeconfig` and without NEW, it is compared with the cluster.
    #[arg(value_name = "OLD")]
    first: Option<String>,
    /// The same after the change.
    #[arg(value_name = "NEW")]
    second: Option<String>,
    /// Compare the cluster of `--kubeconfig` before and after applying these manifests (files or
    /// folders).
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1.., conflicts_with = "first")]
    applied: Vec<PathBuf>,
    /// The configuration of the cluster's gateway, whose files also apply.
    #[arg(long, value_name = "FILE", conflicts_with = "second")]
    config: Option<PathBuf>,
    #[command(flatten)]
    live: LiveArguments,
    /// The cluster that the requests come from [default: `default`]
    ///
    /// The other clusters are compared, too, and those that differ are named.
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// Exit with 1 if anybody gains access, even under a condition.
    ///
    /// Also if a request is no longer denied, and the next authorizer may allow it.
    #[arg(long)]
    no_new_access: bool,
    /// Exit with 1 if there are differences of this kind.
    #[arg(long, value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Also list requests with the same decision by another object.
    #[arg(long)]
    reasons: bool,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<DiffFormat>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis diff git:main:policies policies --no-new-access
  portcullis diff old/portcullis.yaml new/portcullis.yaml --fail-on gain,loss -o markdown
  portcullis diff --kubeconfig ~/.kube/config -f policies --no-new-access";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// Something is allowed that was not.
    Gain,
    /// Something was allowed and is not.
    Loss,
    /// Anything is decided differently.
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
    /// SARIF 2.1.0, for code review tools.
    Sarif,
}

/// The policies before and after the change, and the manifests after it.
struct Sides {
    old: LoadedPolicies,
    new: LoadedPolicies,
    files: ChangedFiles,
}

/// Whether there are no policies, invariants or bindings. Roles alone grant nothing.
fn is_empty(loaded: &LoadedPolicies) -> bool {
    loaded.sets().all(|(_, set)| {
        set.policies().len() == 0 && set.invariants().len() == 0 && set.bindings().next().is_none()
    })
}

/// The rules of the SARIF log, one for each list of the report.
const RULES: [(&str, &str); 5] = [
    ("gain", "Requests that are allowed, and were not"),
    ("loss", "Requests that were allowed, and are not"),
    (
        "otherwise",
        "Requests that are denied where there was no opinion, or the reverse",
    ),
    (
        "reason",
        "Requests with the same decision, made by another object",
    ),
    (
        "invariant",
        "An AuthorizationInvariant that does not hold after the change",
    ),
];

pub(crate) struct ChangedFiles {
    pub(crate) documents: Vec<Document>,
    /// For a git revision: the folder to which it was written, and its path in the repository.
    pub(crate) revision: Option<(PathBuf, PathBuf)>,
}

/// The SARIF log of `report`. Differences in lists that `fails` selects are errors, other gains are
/// warnings.
pub(crate) fn log(report: &DifferenceReport, files: &ChangedFiles, fails: impl Fn(&str) -> bool) -> Value {
    let places = ObjectPlaces::new(&files.documents);
    let level = |rule: &str| match rule {
        _ if fails(rule) => "error",
        "gain" | "invariant" => "warning",
        _ => "note",
    };
    let result = |rule: &str, level: &str, message: String, objects: Vec<[&str; 3]>| {
        let location = objects
            .into_iter()
            .find_map(|object| files.location(&places, object));
        json!({
            "ruleId": rule,
            "level": level,
            "message": output::sarif_message(&message),
            "locations": location.into_iter().collect::<Vec<_>>(),
        })
    };
    let lists: [(&str, &[ReportedChange]); 4] = [
        ("gain", &report.gains),
        ("loss", &report.losses),
        ("otherwise", &report.otherwise),
        ("reason", &report.reasons),
    ];
    let mut results = Vec::new();
    for (rule, changes) in lists {
        let changes = changes.iter();
        results.extend(changes.map(|change| result(rule, level(rule), change.message(), change.objects())));
    }
    for invariant in report.invariants.iter().filter(|invariant| invariant.is_news()) {
        let level = if invariant.is_refused() {
            "error"
        } else {
            level("invariant")
        };
        results.push(result(
            "invariant",
            level,
            invariant.message(),
            invariant.places(),
        ));
    }
    let rules = RULES.map(|(id, text)| json!({"id": id, "shortDescription": {"text": text}}));
    output::sarif_log(rules.to_vec(), results)
}

// === impl Diff ===

impl Diff {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let Sides { old, new, files } = self.sides()?;
        if is_empty(&old) && is_empty(&new) {
            let message = "nothing was compared: neither OLD nor NEW has a binding or an AuthorizationPolicy";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let time = TimeLimit::new();
        let report = self.report([&old, &new], self.cluster(), &time)?;
        let print = |lines: &Lines| output::write(lines.as_str());
        let expired = || time.has_passed();
        let deadline = Deadline::new(&expired);
        match self.output.output {
            DiffFormat::Text => print(&report.in_words(deadline))?,
            DiffFormat::Json => output::print_json(&report)?,
            DiffFormat::Markdown => print(&report.as_markdown(deadline))?,
            DiffFormat::Sarif => {
                output::print_json(&log(&report, &files, |list| self.fails_by(list)))?;
            }
        }
        let fails = self.fails(&report);
        Ok(match self.fails_elsewhere([&old, &new], &time)? || fails {
            true => CommandResult::Failure,
            false => CommandResult::Success,
        })
    }

    /// Loads the two sides that the command line names.
    fn sides(&self) -> Result<Sides, CommandError> {
        let live = PolicyFiles {
            config: self.config.clone(),
            manifests: Vec::new(),
            cluster: self.cluster().to_owned(),
            live: self.live.clone(),
        };
        match (&self.first, &self.second) {
            (Some(_), Some(_)) if self.live.is_named() => Err(CommandError::Usage(
                "`--kubeconfig` and `--context` take the place of OLD: remove OLD".to_owned(),
            )),
            (Some(old), Some(new)) => {
                let (old, _) = self.load(old)?;
                let (new, files) = self.load(new)?;
                Ok(Sides { old, new, files })
            }
            (Some(new), None) if live.is_live() => {
                let old = live.load(PolicyPurpose::Authorization)?;
                let (new, files) = self.load(new)?;
                Ok(Sides { old, new, files })
            }
            (None, None) if live.is_live() && !self.applied.is_empty() => {
                let [old, new] = live.load_applied(&self.applied)?;
                let files = ChangedFiles {
                    documents: applied_documents(&self.applied)?,
                    revision: None,
                };
                Ok(Sides { old, new, files })
            }
            _ => Err(CommandError::Usage(
                "name two sets to compare: OLD and NEW, or `--kubeconfig FILE` for the cluster, with `-f \
                PATH` for manifests to apply to it or NEW for a set to replace it"
                    .to_owned(),
            )),
        }
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
            parts: MAX_DIFFERENCES,
            deadline: Deadline::new(&expired),
        };
        let changes = proof::difference(old, new, self.at.time(), limit);
        let failed = |error: proof::ProofLimitError| CommandError::Usage(error.to_string());
        let changes = changes.map_err(failed)?;
        let reasons = match self.reasons {
            true => proof::changed_causes(old, new, self.at.time(), limit).map_err(failed)?,
            false => Vec::new(),
        };
        let before = set_checks::check_invariants(old, cluster, self.at.time(), time)?;
        let after = set_checks::check_invariants(new, cluster, self.at.time(), time)?;
        Ok(DifferenceReport::new(
            &changes,
            &reasons,
            changed_invariants(&before, &after),
        ))
    }

    /// Without `--cluster`, compares the other clusters too, prints a note about each that differs,
    /// and returns whether one fails.
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
                output::print_error(format_args!(
                    "note: the cluster `{cluster}` has different results: see `--cluster {cluster}`"
                ));
                fails |= self.fails(&report);
            }
        }
        Ok(fails)
    }

    fn fails(&self, report: &DifferenceReport) -> bool {
        let lists = [
            ("gain", !report.gains.is_empty()),
            ("loss", !report.losses.is_empty()),
            ("otherwise", !report.otherwise.is_empty()),
        ];
        let breaks = report.invariants.iter().any(ChangedInvariant::is_refused);
        breaks
            || self.no_new_access && report.may_grant()
            || lists
                .iter()
                .any(|(list, is_there)| *is_there && self.fails_by(list))
    }

    /// Whether a difference in this list fails the command.
    fn fails_by(&self, list: &str) -> bool {
        let is_on = |on: &FailOn| match on {
            FailOn::Gain => list == "gain",
            FailOn::Loss => list == "loss",
            FailOn::Any => matches!(list, "gain" | "loss" | "otherwise"),
        };
        self.no_new_access && list == "gain" || self.fail_on.iter().any(is_on)
    }

    fn load(&self, written: &str) -> Result<(LoadedPolicies, ChangedFiles), CommandError> {
        let revision = written
            .strip_prefix(REVISION)
            .map(GitRevision::read)
            .transpose()?;
        let path = match &revision {
            Some(revision) => revision.path().to_owned(),
            None => PathBuf::from(written),
        };
        let is_config = is_configuration(&path);
        let policies = PolicyFiles {
            config: is_config.then(|| path.clone()),
            manifests: if is_config { Vec::new() } else { vec![path.clone()] },
            cluster: self.cluster().to_owned(),
            live: LiveArguments::default(),
        };
        if let (true, Some(cluster)) = (is_config, &self.cluster) {
            refuse_unknown_cluster(&path, cluster)?;
        }
        let mut loaded = policies.load_files()?;
        let config = policies.config.as_deref();
        // Errors in the files were reported by the loading above.
        let _ = access_requests::apply_access_requests_of_files(&mut loaded, config, &policies.manifests);
        if is_config {
            policies.warn_of_unknown_rbac(&loaded);
        }
        loaded.add_default_roles();
        let files = ChangedFiles {
            documents: policies.documents(),
            revision: revision.as_ref().map(|revision| {
                let (folder, tree) = revision.folder();
                (folder.to_owned(), tree.to_owned())
            }),
        };
        Ok((loaded, files))
    }
}

/// Whether a file is a configuration instead of a manifest. If it cannot be read, the loading of it
/// reports an error.
fn is_configuration(path: &Path) -> bool {
    let text = files::read_text(path, MAX_CONFIGURATION_BYTES).unwrap_or_default();
    let first = text.lines().find(|line| line.starts_with("apiVersion:"));
    first.is_some_and(|line| line.contains(config::API_VERSION))
}

// === impl ChangedFiles ===

impl ChangedFiles {
    fn location(&self, places: &ObjectPlaces<'_>, object: [&str; 3]) -> Option<Value> {
        let place = places.document(object)?.place(FieldPath::root());
        let file = place.file.as_deref()?;
        let within = self.revision.as_ref().and_then(|(folder, named)| {
            let path = Path::new(file).strip_prefix(folder).ok()?;
            Some(named.join(path).display().to_string())
        });
        let file = within.unwrap_or_else(|| file.to_owned());
        let physical = output::physical_location(&file, place.line, place.column)?;
        Some(json!({"physicalLocation": physical}))
    }
}
