//! Objects that exist in a cluster, and the reports written to it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Scan;
use super::judge::ObjectJudge;
use super::openreports::{API_VERSION, NAME, OpenReports};
use super::report::ScanReport;
use super::workers::in_order;
use crate::cli::progress::ProgressLine;
use crate::cli::{Error, output};
use crate::cluster::{ListedPlace, LiveCluster, ServedResource};
use portcullis_cel::json;
use portcullis_policy::document::{Document, Node};
use portcullis_policy::engine::admission::{AdmissionSet, ParamKind};

/// What makes Pods.
const WORKLOADS: [(&str, &str); 7] = [
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("apps", "replicasets"),
    ("", "replicationcontrollers"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
];

/// Judges every object of the cluster, or of one namespace, that a policy may be about.
///
/// # Errors
///
/// Objects cannot be listed, or standard output takes no more.
pub(crate) fn judge_cluster(
    judge: &ObjectJudge,
    cluster: &LiveCluster,
    place: ListedPlace<'_>,
    (report, reports): (&mut ScanReport, &mut OpenReports),
) -> Result<(), Error> {
    let mut progress = ProgressLine::new();
    let mut judged = 0_u64;
    let set = judge.loaded.admission.for_cluster(&judge.cluster);
    for resource in scanned(cluster, set, place) {
        cluster.list(resource, place, |page| {
            progress.show(|| format!("{}: {}", resource.name(), output::count(judged, "object")));
            let objects: Vec<Document> = page
                .into_iter()
                .map(|object| Document::new(None, Node::from_json(object)))
                .collect();
            judged += objects.len() as u64;
            let found = in_order(&objects, |object| judge.judge(object));
            progress.clear();
            for one in found {
                match one {
                    Ok(one) => {
                        one.findings.iter().for_each(|finding| reports.add(finding));
                        report.object(&one.findings)?;
                    }
                    Err(fault) => output::complain(format_args!("warning: {fault}; it is not judged")),
                }
            }
            report.flush()
        })?;
    }
    progress.clear();
    Ok(())
}

/// What is listed: each resource in the version that the API server prefers.
fn scanned<'c>(
    cluster: &'c LiveCluster,
    set: &AdmissionSet,
    place: ListedPlace<'_>,
) -> Vec<&'c ServedResource> {
    let mut seen = BTreeSet::new();
    let judges_pods = set.may_judge_creation("pods");
    let is_scanned = |resource: &&'c ServedResource| {
        let (group, name) = (resource.group.as_str(), resource.resource.as_str());
        let is_workload = judges_pods && WORKLOADS.contains(&(group, name));
        resource.has_verbs(&["create", "get", "list"])
            && (resource.is_namespaced || place == ListedPlace::Everywhere)
            // They are records of what happened, and gone within the hour.
            && name != "events"
            && (is_workload || set.may_judge_creation(name))
            && seen.insert((group, name))
    };
    cluster.resources().iter().filter(is_scanned).collect()
}

/// What expressions look at beside the object: every Namespace, and the parameters of the
/// policies.
///
/// # Errors
///
/// They cannot be listed.
pub(crate) fn surroundings(
    cluster: &LiveCluster,
    kinds: &[ParamKind],
) -> Result<[Vec<std::sync::Arc<json::Document<'static>>>; 2], Error> {
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

/// Writes the reports. After a scan of everything, those of namespaces without any object that
/// was judged are deleted.
///
/// # Errors
///
/// The API server takes one of them not.
pub(crate) fn write_reports(
    cluster: &LiveCluster,
    place: ListedPlace<'_>,
    reports: &OpenReports,
) -> Result<(), Error> {
    let objects = reports.objects();
    for object in &objects {
        cluster.apply(object)?;
    }
    if place != ListedPlace::Everywhere {
        return Ok(());
    }
    let name = |object: &Value, field: &str| {
        let text = object
            .get("metadata")
            .and_then(|metadata| metadata.get(field)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    let written: BTreeSet<String> = objects.iter().map(|object| name(object, "namespace")).collect();
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
        Ok::<_, Error>(())
    })?;
    for namespace in stale {
        cluster.delete(served, (&namespace, NAME))?;
    }
    Ok(())
}

impl Scan {
    /// Where objects are listed: in the namespace of the context unless something else is said.
    pub(crate) fn place<'s>(&'s self, cluster: &'s LiveCluster) -> ListedPlace<'s> {
        if self.all_namespaces {
            return ListedPlace::Everywhere;
        }
        let named = self.namespace.as_deref().filter(|name| !name.is_empty());
        ListedPlace::Namespace(named.unwrap_or_else(|| cluster.namespace()))
    }
}
