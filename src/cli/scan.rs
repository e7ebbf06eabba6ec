//! `portcullis scan`: judges objects that exist, or are proposed, by the policies.
//!
//! ```text
//! manifests (files, folders, standard input) ──┐
//! objects of a cluster, a page at a time ──────┴─▶ judge, as `admit -f` ─▶ report, as it comes
//!                                  the Pods that workloads make ─▶┘
//! ```

#[cfg(test)]
mod agreement;
mod formats;
mod input;
mod judge;
mod report;
mod tape;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use super::output::{self, Output};
use super::policy_files::{self, At, PolicyFiles};
use super::{CommandError, CommandResult};
use crate::cluster::LiveCluster;
use crate::config::MISSING_NAMESPACE;
use formats::OpenReports;
use input::{InputPart, ScanInput, Survey};
use judge::{CREATED, JudgedObject, ObjectJudge, STORED};
use portcullis_cel::json;
use portcullis_policy::document::Document;
use portcullis_policy::engine::NAMESPACE_NAME_LABEL;
use portcullis_policy::engine::admission::ParamKind;
use portcullis_policy::engine::admission::matching::MissingNamespace;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::objects::{CustomKinds, ManifestRequest};
use portcullis_policy::field::{Fault, Faults};
use report::{ScanReport, ScanTotals};

/// Judge objects that exist, or the manifests of a change, by the admission policies.
///
/// Each object is judged as if it were created now, by a user without a name: what depends on the
/// user or on an object before is skipped, and said to be. Workloads are also judged as the Pods
/// that they would make. Webhooks are not called. Without `-f`, the objects are those of a cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Scan {
    /// Manifests in YAML or JSON: a file, a folder, `-` for standard input; repeat for each.
    #[arg(
        short,
        long,
        value_name = "FILE or FOLDER",
        num_args = 1..
    )]
    filename: Vec<PathBuf>,
    /// The namespace whose objects are judged, or of manifests that name none [default: that of the
    /// context, or else `default`]
    #[arg(short, long)]
    namespace: Option<String>,
    /// The objects of all namespaces, and those without.
    #[arg(short = 'A', long, conflicts_with_all = ["filename", "namespace"])]
    all_namespaces: bool,
    /// Write the results to the cluster, as Reports and a ClusterReport of openreports.io.
    #[arg(long, conflicts_with = "filename")]
    write_reports: bool,
    /// Fail where no policy applies to an object, or none that applies could judge it.
    #[arg(long)]
    require_match: bool,
    /// Labels of a namespace, in place of those of its manifest; repeat for each namespace.
    #[arg(long, value_name = "NS:KEY=VALUE,…", value_parser = NamespaceLabels::parse)]
    namespace_labels: Vec<NamespaceLabels>,
    /// What holds for namespaces of which no manifest tells the labels [default: that of the
    /// configuration, or else `Fail`]
    #[arg(long, value_name = "Fail or NameOnly", value_parser = missing_namespace)]
    missing_namespace: Option<MissingNamespace>,
    #[command(flatten)]
    files: PolicyFiles,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<ScanFormat>,
}

/// What `--namespace-labels` says of one namespace.
#[derive(Debug, Clone)]
struct NamespaceLabels {
    namespace: String,
    labels: BTreeMap<String, String>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis scan --manifests policies -f shop.yaml
  helm template web | portcullis scan --manifests policies -f -
  portcullis scan --kubeconfig ~/.kube/config -A";

/// The formats of `scan`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum ScanFormat {
    /// A line for each result that is not `pass`.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// JUnit's XML, for CI services.
    Junit,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
    /// Report and ClusterReport of openreports.io/v1alpha1, as JSON.
    Openreports,
}

/// How many files are read at once, and objects judged between two outputs.
const BATCH: usize = 256;

impl Scan {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let report = ScanReport::new(self.output.output, OpenReports::new(self.at.time()));
        if self.filename.is_empty() || self.files.is_live() {
            let cluster = self.files.live.connect()?;
            return if self.filename.is_empty() {
                self.run_on_cluster(report, &cluster)
            } else {
                self.run_on_files(report, |input| self.judge_by(&cluster, Some(input)))
            };
        }
        self.run_on_files(report, |input| {
            let loaded = self.files.load_files()?;
            self.judge(loaded, Some(input), CustomKinds::default(), |_| {
                Ok([Vec::new(), Vec::new()])
            })
        })
    }

    fn run_on_files(
        &self,
        mut report: ScanReport,
        judge: impl FnOnce(&ScanInput) -> Result<ObjectJudge, CommandError>,
    ) -> Result<CommandResult, CommandError> {
        let input = ScanInput::of(&self.filename)?;
        let judge = judge(&input)?;
        report.skipped(&judge.not_asked())?;
        let (mut faults, mut notes) = (Faults::new(), BTreeSet::new());
        for parts in input.parts.chunks(BATCH) {
            for (findings, own_faults) in in_order_of_parts(&judge, parts) {
                faults.append(own_faults);
                for judged in findings {
                    report.object(&judged)?;
                    notes.extend(judged.notes);
                }
            }
        }
        notes
            .iter()
            .for_each(|note| output::complain(format_args!("note: {note}")));
        let totals = report.finish()?;
        if faults.has_errors() {
            let path = policy_files::shown(&self.filename);
            return Err(CommandError::Faulty { path, faults });
        }
        self.result(totals, &format!("`{}`", policy_files::shown(&self.filename)))
    }

    /// The result of a scan of what is in `place`. One that read nothing is none.
    fn result(&self, totals: ScanTotals, place: &str) -> Result<CommandResult, CommandError> {
        if totals.objects == 0 {
            return Err(CommandError::Usage(format!(
                "nothing was scanned: there is no object in {place}"
            )));
        }
        let is_matched = !self.require_match || totals.unmatched == 0;
        if !is_matched {
            let objects = output::count(totals.unmatched, "object");
            output::complain(format_args!(
                "{objects} matched by no policy, which --require-match does not allow"
            ));
        }
        let is_judged = !self.require_match || totals.unjudged == 0;
        if totals.unjudged > 0 {
            let objects = output::count(totals.unjudged, "object");
            let means = if is_judged {
                ""
            } else {
                ", which --require-match does not allow"
            };
            output::complain(format_args!(
                "warning: {objects} judged by no policy{means}: every policy that applies was skipped, because it depends on \
                 what a scan does not know; ask `portcullis admit --user USER` for them"
            ));
        }
        Ok(match totals.is_sound && is_matched && is_judged {
            true => CommandResult::Success,
            false => CommandResult::Failure,
        })
    }

    fn run_on_cluster(
        &self,
        mut report: ScanReport,
        cluster: &LiveCluster,
    ) -> Result<CommandResult, CommandError> {
        let judge = self.judge_by(cluster, None)?;
        let (place, mut reports) = (self.place(cluster), OpenReports::new(self.at.time()));
        report.skipped(&judge.not_asked())?;
        input::judge_cluster(&judge, cluster, place, (&mut report, &mut reports))?;
        if self.write_reports {
            input::write_reports(cluster, place, &reports)?;
        }
        self.result(report.finish()?, "what was listed of the cluster")
    }

    /// What judges by the policies of files or else of `cluster`, and by the Namespaces and
    /// parameters of the cluster.
    fn judge_by(
        &self,
        cluster: &LiveCluster,
        input: Option<&ScanInput>,
    ) -> Result<ObjectJudge, CommandError> {
        let loaded = if self.files.names_files() {
            self.files.load_files()?
        } else {
            let purpose = crate::cluster::LivePurpose::Admission;
            super::policy_files::live_policies(cluster, &self.files.cluster, purpose, self.at.time())?
        };
        let kinds = policy_files::served_kinds(cluster);
        let mut judge = self.judge(loaded, input, kinds, |kinds| input::surroundings(cluster, kinds))?;
        if input.is_none() {
            judge.phases = STORED;
        }
        Ok(judge)
    }

    /// What judges by the policies `loaded`, and by the Namespaces and parameters that `input`
    /// has, or else `elsewhere`. `kinds` are those that a cluster serves.
    fn judge(
        &self,
        mut loaded: LoadedPolicies,
        input: Option<&ScanInput>,
        mut kinds: CustomKinds,
        elsewhere: impl FnOnce(&[ParamKind]) -> Result<SurroundingObjects, CommandError>,
    ) -> Result<ObjectJudge, CommandError> {
        let cluster = self.files.cluster.clone();
        let shared = || CommandError::Usage("the policies cannot be changed for a scan".to_owned());
        let set = loaded.admission.for_cluster_mut(&cluster).ok_or_else(shared)?;
        let wanted: Vec<ParamKind> = set.param_kinds().cloned().collect();
        let [namespaces, parameters] = elsewhere(&wanted)?;
        set.add(namespaces, parameters);
        let documents = self.files.documents();
        let mut faults = Faults::new();
        faults.extend(documents.iter().filter_map(|document| kinds.add(document).err()));
        let mut survey = match input {
            Some(input) => input.survey(set, kinds),
            None => Survey {
                kinds,
                ..Survey::default()
            },
        };
        survey.faults.append(faults);
        if survey.faults.has_errors() {
            let path = policy_files::shown(&self.filename);
            return Err(CommandError::Faulty {
                path,
                faults: survey.faults,
            });
        }
        set.add(survey.namespaces, survey.parameters);
        let labelled = self.namespace_labels.iter().filter_map(NamespaceLabels::document);
        set.add(labelled.collect(), Vec::new());
        if let Some(missing) = self.missing_namespace {
            set.set_missing_namespace(missing);
        }
        let webhooks = set.take_webhooks();
        if !webhooks.is_empty() {
            let names = webhooks.into_iter().collect::<Vec<_>>().join(", ");
            output::complain(format_args!(
                "note: webhooks are not called, so what they refuse or change is not seen: {names}"
            ));
        }
        if !set.has_bound_policies() {
            return Err(CommandError::Usage(
                "nothing was scanned: there is no ValidatingAdmissionPolicy or \
                 MutatingAdmissionPolicy that a binding names"
                    .to_owned(),
            ));
        }
        let namespace = self.namespace.clone().or_else(|| loaded.namespace.clone());
        Ok(ObjectJudge {
            loaded,
            cluster,
            now: self.at.time(),
            kinds: survey.kinds,
            manifests: ManifestRequest::in_namespace(namespace),
            phases: CREATED,
        })
    }
}

// === impl NamespaceLabels ===

impl NamespaceLabels {
    /// `NS:KEY=VALUE,KEY=VALUE`.
    fn parse(text: &str) -> Result<Self, String> {
        let (namespace, labels) = text
            .split_once(':')
            .filter(|(namespace, _)| !namespace.is_empty())
            .ok_or("must be a namespace, a colon and labels, such as `shop:tier=prod,team=web`")?;
        let label = |pair: &str| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("`{pair}` must be a label, such as `tier=prod`")),
        };
        let pairs = labels.split(',').filter(|pair| !pair.is_empty());
        Ok(Self {
            namespace: namespace.to_owned(),
            labels: pairs.map(label).collect::<Result<_, _>>()?,
        })
    }

    /// The Namespace.
    fn document(&self) -> Option<Arc<json::Document<'static>>> {
        let mut labels = self.labels.clone();
        labels.insert(NAMESPACE_NAME_LABEL.to_owned(), self.namespace.clone());
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": self.namespace, "labels": labels}});
        json::Document::parse(namespace.to_string()).ok().map(Arc::new)
    }
}

/// What `--missing-namespace` says.
fn missing_namespace(text: &str) -> Result<MissingNamespace, String> {
    let found = MISSING_NAMESPACE.into_iter().find(|(word, _)| *word == text);
    found
        .map(|(_, missing)| missing)
        .ok_or_else(|| "must be `Fail` or `NameOnly`".to_owned())
}

/// Namespaces, and parameters.
type SurroundingObjects = [Vec<Arc<json::Document<'static>>>; 2];

type Judged = (Vec<JudgedObject>, Faults);

/// The findings of each part. Many files are judged side by side, a long one in pieces.
fn in_order_of_parts(judge: &ObjectJudge, parts: &[InputPart]) -> Vec<Judged> {
    if let [part] = parts {
        let mut faults = Faults::new();
        let objects = part.objects(&mut faults);
        let judged = in_order(&objects, |object| judge.judge(object));
        return vec![gather(judged, faults)];
    }
    in_order(parts, |part| {
        let mut faults = Faults::new();
        let objects: Vec<Document> = part.objects(&mut faults);
        gather(objects.iter().map(|object| judge.judge(object)), faults)
    })
}

fn gather(judged: impl IntoIterator<Item = Result<JudgedObject, Fault>>, mut faults: Faults) -> Judged {
    let mut objects = Vec::new();
    for one in judged {
        match one {
            Ok(one) => objects.push(one),
            Err(fault) => faults.push(fault),
        }
    }
    (objects, faults)
}

/// `work` on each of `items`, on as many threads as there are processors.
pub(crate) fn in_order<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    if threads == 1 || items.len() < 2 {
        return items.iter().map(work).collect();
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                while let Some((place, item)) = take(items, &next) {
                    let result = work(item);
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

fn take<'i, T>(items: &'i [T], next: &AtomicUsize) -> Option<(usize, &'i T)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    items.get(place).map(|item| (place, item))
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..1000).collect();
        assert_eq!(
            in_order(&items, |item| item * 2),
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert_eq!(in_order(&[] as &[u32], |item| *item), Vec::<u32>::new());
    }
}
