//! The input of a scan: objects in the manifests of `-f`, which are read one at a time, or objects
//! in a cluster, to which the reports can be written.
//!
//! ```text
//! survey: Namespaces, parameters, CustomResourceDefinitions ─▶ what policies may refer to
//! each file again ─▶ its objects, evaluated and dropped
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::formats::{API_VERSION, NAME, OpenReports};
use super::report::{ScanFormat, ScanReport};
use super::scanner::ObjectScanner;
use crate::cli::output::{self, CommandError, Output, ProgressLine};
use crate::cli::policy_files::{At, PolicyFiles};
use crate::cli::{admit, policy_files};
use crate::cluster::{ListedPlace, LiveCluster, ServedResource};
use crate::config::MISSING_NAMESPACE;
use crate::state;
use portcullis_cel::json;
use portcullis_policy::admission::matching::MissingNamespace;
use portcullis_policy::admission::{AdmissionSet, ParamKind};
use portcullis_policy::document::{Document, Node};
use portcullis_policy::explain::objects::{self, KnownKinds};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest;
use portcullis_policy::model::NAMESPACE_NAME_LABEL;

/// Check existing objects, or the manifests of a change, against the admission policies.
///
/// Evaluates the policies as if an unknown user created each object now. Results that depend on the
/// user, unless `--user` names one, or on an earlier version of the object are reported as skipped.
/// For workloads, the Pods that they would create are checked, too. Webhooks are not called.
/// Without `-f`, scans the objects of a cluster.
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
    pub(crate) filename: Vec<PathBuf>,
    /// The namespace to scan [default: that of the context, or else `default`]
    ///
    /// With `-f`, the namespace of objects that name none.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// Scan all namespaces and cluster-scoped objects.
    #[arg(short = 'A', long, conflicts_with_all = ["filename", "namespace"])]
    pub(crate) all_namespaces: bool,
    /// Write the results to the cluster, as Reports and a ClusterReport of openreports.io.
    #[arg(long, conflicts_with = "filename")]
    pub(crate) write_reports: bool,
    /// Fail if no policy applies to an object, or all policies that apply were skipped.
    #[arg(long)]
    pub(crate) require_match: bool,
    /// The user who creates the objects [default: unknown; results that depend on it are skipped]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// A group of the user; repeat for each.
    #[arg(long = "group", value_name = "GROUP", requires = "user")]
    pub(crate) groups: Vec<String>,
    /// Labels of a namespace, instead of those in its manifest; repeat for each namespace.
    #[arg(long, value_name = "NS:KEY=VALUE,…", value_parser = GivenNamespaceLabels::parse)]
    pub(crate) namespace_labels: Vec<GivenNamespaceLabels>,
    /// How to treat namespaces without a manifest [default: as in the configuration, or else
    /// `Fail`]
    #[arg(long, value_name = "Fail or NameOnly", value_parser = missing_namespace)]
    pub(crate) missing_namespace: Option<MissingNamespace>,
    #[command(flatten)]
    pub(crate) files: PolicyFiles,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) output: Output<ScanFormat>,
}

/// The labels in `--namespace-labels` for one namespace.
#[derive(Debug, Clone)]
pub(crate) struct GivenNamespaceLabels {
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  portcullis scan --manifests policies -f shop.yaml
  helm template web | portcullis scan --manifests policies -f -
  portcullis scan --kubeconfig ~/.kube/config -A";

impl GivenNamespaceLabels {
    /// Parses `NS:KEY=VALUE,KEY=VALUE`.
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

    /// The Namespace object with these labels.
    pub(crate) fn document(&self) -> Option<Arc<json::Document<'static>>> {
        let mut labels = self.labels.clone();
        labels.insert(NAMESPACE_NAME_LABEL.to_owned(), self.namespace.clone());
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": self.namespace, "labels": labels}});
        json::Document::parse(namespace.to_string()).ok().map(Arc::new)
    }
}

/// Parses `--missing-namespace`.
fn missing_namespace(text: &str) -> Result<MissingNamespace, String> {
    let found = MISSING_NAMESPACE.into_iter().find(|(word, _)| *word == text);
    found
        .map(|(_, missing)| missing)
        .ok_or_else(|| "must be `Fail` or `NameOnly`".to_owned())
}

/// The manifests to read, in order.
pub(crate) struct ScanInput {
    pub(crate) parts: Vec<InputPart>,
}

/// A file of manifests, or standard input.
pub(crate) enum InputPart {
    /// A file, which is read when needed.
    File(PathBuf),
    /// The content of standard input, which can be read only once.
    Text(String),
}

/// The objects in the input to which policies may refer, and the definitions of kinds.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) namespaces: Vec<Arc<json::Document<'static>>>,
    pub(crate) parameters: Vec<Arc<json::Document<'static>>>,
    pub(crate) kinds: KnownKinds,
    /// The errors of definitions.
    pub(crate) faults: Faults,
}

const STDIN: &str = "-";

// === impl ScanInput ===

impl ScanInput {
    /// The files at `paths`; `-` is standard input.
    ///
    /// # Errors
    ///
    /// A path does not exist or cannot be read.
    pub(crate) fn of(paths: &[PathBuf]) -> Result<Self, CommandError> {
        let mut parts = Vec::new();
        for path in paths {
            if path == Path::new(STDIN) {
                if parts.iter().any(|part| matches!(part, InputPart::Text(_))) {
                    return Err(CommandError::Usage(
                        "standard input can be read only once: name `-` once".into(),
                    ));
                }
                let text = String::from_utf8(admit::read(path)?);
                let text =
                    text.map_err(|error| CommandError::file("read", path, std::io::Error::other(error)))?;
                parts.push(InputPart::Text(text));
                continue;
            }
            let files = policy_files::applied_files(std::slice::from_ref(path))?;
            if path.is_dir() && files == [path.clone()] {
                output::print_error(format_args!(
                    "warning: there is no manifest in `{}`",
                    path.display()
                ));
                continue;
            }
            parts.extend(files.into_iter().map(InputPart::File));
        }
        Ok(Self { parts })
    }

    /// Reads all input once to find parameters, Namespaces and CustomResourceDefinitions. Other
    /// errors than those of definitions are reported by the second reading.
    pub(crate) fn survey(&self, set: &AdmissionSet, kinds: KnownKinds) -> Survey {
        let mut survey = Survey {
            kinds,
            ..Survey::default()
        };
        let wanted: Vec<&ParamKind> = set.param_kinds().collect();
        let mut unread = Faults::new();
        for part in &self.parts {
            let Ok(text) = part.text() else { continue };
            let names = wanted.iter().map(|kind| kind.kind.as_str());
            let mut names = names.chain(["Namespace", "CustomResourceDefinition"]);
            if names.any(|name| text.contains(name)) {
                part.each_in(text.into_owned(), &mut unread, |document| {
                    survey.add(&document, &wanted);
                    let is_named = |group: &str, resource: &str| set.names_resource(group, resource);
                    let added = survey.kinds.add_unless_named(&document, is_named);
                    survey.faults.extend(added.err());
                    ControlFlow::Continue(())
                });
            }
        }
        survey
    }
}

// === impl InputPart ===

impl InputPart {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => STDIN.to_owned(),
        }
    }

    fn text(&self) -> std::io::Result<std::borrow::Cow<'_, str>> {
        match self {
            Self::File(path) => state::read_manifest(path).map(Into::into),
            Self::Text(text) => Ok(text.into()),
        }
    }

    fn each_in(&self, text: String, faults: &mut Faults, mut take: impl FnMut(Document) -> ControlFlow<()>) {
        let source = manifest::Source {
            file: self.name(),
            text,
            cluster: None,
        };
        manifest::each_object(&source, faults, |document| {
            match objects::is_portcullis_file(&document) {
                true => ControlFlow::Continue(()),
                false => take(document),
            }
        });
    }

    /// Passes each object to `take` before the next one is read, until it breaks. Errors go to
    /// `faults`.
    pub(crate) fn each_object(&self, faults: &mut Faults, take: impl FnMut(Document) -> ControlFlow<()>) {
        match self.text() {
            Ok(text) => self.each_in(text.into_owned(), faults, take),
            Err(error) => {
                let place = Place {
                    file: Some(self.name().into()),
                    ..Place::default()
                };
                faults.push(Fault::error(place, FaultKind::Unreadable, error.to_string()));
            }
        }
    }
}

// === impl Survey ===

impl Survey {
    fn add(&mut self, document: &Document, kinds: &[&ParamKind]) {
        let (version, kind) = (document.text("apiVersion"), document.text("kind"));
        let (Some(version), Some(kind)) = (version, kind) else {
            return;
        };
        let json = || json::Document::parse(document.root().to_json().to_string()).map(Arc::new);
        if (version, kind) == ("v1", "Namespace") {
            self.namespaces.extend(json());
        }
        if kinds
            .iter()
            .any(|wanted| (wanted.api_version.as_str(), wanted.kind.as_str()) == (version, kind))
        {
            self.parameters.extend(json());
        }
    }
}

/// The resources whose objects make Pods.
const WORKLOADS: [(&str, &str); 7] = [
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("apps", "replicasets"),
    ("", "replicationcontrollers"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
];

/// Evaluates all objects of the cluster, or of one namespace, to which a policy may apply.
///
/// # Errors
///
/// Objects cannot be listed, or standard output cannot be written to.
pub(crate) fn scan_cluster(
    scanner: &ObjectScanner,
    cluster: &LiveCluster,
    place: ListedPlace<'_>,
    (report, reports): (&mut ScanReport, &mut OpenReports),
) -> Result<(), CommandError> {
    let mut progress = ProgressLine::new();
    let mut judged = 0_u64;
    let set = scanner.loaded.admission.for_cluster(&scanner.cluster);
    for resource in scanned_resources(cluster, set, place) {
        cluster.list(resource, place, |page| {
            progress.show(|| format!("{}: {}", resource.name(), output::count(judged, "object")));
            let objects: Vec<Document> = page
                .into_iter()
                .map(|object| Document::new(None, Node::from_json(object)))
                .collect();
            judged += objects.len() as u64;
            let found = parallel_map(&objects, |object| scanner.scan(object));
            progress.clear();
            for one in found {
                match one {
                    Ok(one) => {
                        one.findings.iter().for_each(|finding| reports.add(finding));
                        report.object(&one)?;
                    }
                    Err(fault) => output::print_error(format_args!("warning: {fault}; it is skipped")),
                }
            }
            report.flush()
        })?;
    }
    progress.clear();
    Ok(())
}

/// The resources to list, each in the version that the API server prefers.
fn scanned_resources<'c>(
    cluster: &'c LiveCluster,
    set: &AdmissionSet,
    place: ListedPlace<'_>,
) -> Vec<&'c ServedResource> {
    let mut seen = BTreeSet::new();
    let judges_pods = set.may_validate_creation("pods");
    let is_scanned = |resource: &&'c ServedResource| {
        let (group, name) = (resource.group.as_str(), resource.resource.as_str());
        let is_workload = judges_pods && WORKLOADS.contains(&(group, name));
        resource.has_verbs(&["create", "get", "list"])
            && (resource.is_namespaced || place == ListedPlace::Everywhere)
            // Events are records that are deleted within the hour.
            && name != "events"
            && (is_workload || set.may_validate_creation(name))
            && seen.insert((group, name))
    };
    cluster.resources().iter().filter(is_scanned).collect()
}

/// The other objects that expressions access: all Namespaces, and the parameters of policies.
///
/// # Errors
///
/// The objects cannot be listed.
pub(crate) fn namespaces_and_parameters(
    cluster: &LiveCluster,
    kinds: &[ParamKind],
) -> Result<[Vec<std::sync::Arc<json::Document<'static>>>; 2], CommandError> {
    let parsed = |objects: Vec<Value>| {
        let documents = objects
            .iter()
            .filter_map(|object| json::Document::parse(object.to_string()).ok());
        documents.map(std::sync::Arc::new).collect::<Vec<_>>()
    };
    let namespace = ParamKind {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
    };
    let mut parameters = Vec::new();
    for kind in kinds.iter().collect::<BTreeSet<_>>() {
        parameters.extend(parsed(cluster.all(kind)?));
    }
    Ok([parsed(cluster.all(&namespace)?), parameters])
}

/// Writes the reports to the cluster. After a scan of all namespaces, deletes the reports of
/// namespaces in which no object was evaluated.
///
/// # Errors
///
/// The API server rejects a report.
pub(crate) fn write_reports(
    cluster: &LiveCluster,
    place: ListedPlace<'_>,
    reports: &OpenReports,
) -> Result<(), CommandError> {
    let name = |object: &Value, field: &str| {
        let text = object
            .get("metadata")
            .and_then(|metadata| metadata.get(field)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    let mut written = BTreeSet::new();
    for object in reports.objects() {
        cluster.apply(&object)?;
        written.insert(name(&object, "namespace"));
    }
    if place != ListedPlace::Everywhere {
        return Ok(());
    }
    let mut resources = cluster.resources().iter();
    let Some(served) = resources.find(|one| one.api_version() == API_VERSION && one.resource == "reports")
    else {
        return Ok(());
    };
    let mut stale = Vec::new();
    cluster.list(served, place, |page| {
        let own = page.iter().filter(|report| name(report, "name") == NAME);
        let namespaces = own.map(|report| name(report, "namespace"));
        stale.extend(namespaces.filter(|namespace| !written.contains(namespace)));
        Ok::<_, CommandError>(())
    })?;
    for namespace in stale {
        cluster.delete(served, (&namespace, NAME))?;
    }
    Ok(())
}

impl Scan {
    /// The namespace in which objects are listed, by default that of the context.
    pub(crate) fn place<'s>(&'s self, cluster: &'s LiveCluster) -> ListedPlace<'s> {
        if self.all_namespaces {
            return ListedPlace::Everywhere;
        }
        let named = self.namespace.as_deref().filter(|name| !name.is_empty());
        ListedPlace::Namespace(named.unwrap_or_else(|| cluster.namespace()))
    }
}

/// Applies `work` to all `items`, in as many threads as there are processors. The results are in
/// order.
pub(crate) fn parallel_map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
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
    use super::parallel_map;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..1000).collect();
        assert_eq!(
            parallel_map(&items, |item| item * 2),
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert_eq!(parallel_map(&[] as &[u32], |item| *item), Vec::<u32>::new());
    }
}
