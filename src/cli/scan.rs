//! `portcullis scan`: judges objects that exist, or are proposed, by the policies.
//!
//! ```text
//! manifests (files, folders, standard input) ──┐
//! objects of a cluster, a page at a time ──────┴─▶ judge, as `admit -f` ─▶ report, as it comes
//!                                  the Pods that workloads make ─▶┘
//! ```

#[cfg(test)]
mod agreement;
mod finding;
mod input;
mod judge;
mod junit;
mod openreports;
mod report;
mod sarif;
mod tape;
mod template;
mod workers;

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::admit::manifests::ManifestArguments;
use super::at::At;
use super::output::{self, Format};
use super::policy_files::PolicyFiles;
use super::{CommandResult, Error};
use crate::document::Document;
use crate::engine::admission::ParamKind;
use crate::field::{Fault, Faults};
use input::{InputPart, ScanInput};
use judge::{CREATED, JudgedObject, ObjectJudge};
use openreports::OpenReports;
use report::ScanReport;
use workers::in_order;

/// Judge objects that exist, or the manifests of a change, by the admission policies.
///
/// Each object is judged as if it were created now, by nobody in particular: what depends on the
/// user or on an object before is skipped, and said to be. Workloads are also judged as the Pods
/// that they would make. Webhooks are not called.
#[derive(Debug, clap::Args)]
pub(super) struct Scan {
    /// Manifests in YAML or JSON: a file, a folder, `-` for standard input; repeat for each.
    #[arg(short, long, value_name = "FILE or FOLDER", num_args = 1.., required = true)]
    filename: Vec<PathBuf>,
    /// The namespace of objects that name none [default: default]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    files: PolicyFiles,
    #[command(flatten)]
    at: At,
}

/// How many files are read at once, and objects judged between two outputs.
const BATCH: usize = 256;

impl Scan {
    pub(super) fn run(self, format: Format) -> Result<CommandResult, Error> {
        let mut report = ScanReport::new(format, OpenReports::new(self.at.time()))?;
        let input = ScanInput::of(&self.filename)?;
        let judge = self.judge(&input)?;
        report.skipped(&judge.not_asked())?;
        let (mut faults, mut notes) = (Faults::new(), BTreeSet::new());
        for parts in input.parts.chunks(BATCH) {
            for (findings, own_faults) in in_order_of_parts(&judge, parts) {
                faults.append(own_faults);
                for JudgedObject { findings, notes: own } in findings {
                    report.object(&findings)?;
                    notes.extend(own);
                }
            }
        }
        notes
            .iter()
            .for_each(|note| output::complain(format_args!("note: {note}")));
        let is_sound = report.finish()?;
        if faults.has_errors() {
            let paths = self.filename.iter().map(|path| path.display().to_string());
            let path = paths.collect::<Vec<_>>().join("`, `");
            return Err(Error::Faulty { path, faults });
        }
        Ok(if is_sound {
            CommandResult::Success
        } else {
            CommandResult::Failure
        })
    }

    /// What judges the objects of `input`, by the policies and by what it says about Namespaces
    /// and parameters.
    fn judge(&self, input: &ScanInput) -> Result<ObjectJudge, Error> {
        let mut loaded = self.files.load()?;
        let cluster = self.files.cluster.clone();
        let shared = || Error::Usage("the policies cannot be changed for a scan".to_owned());
        let set = loaded.admission.for_cluster_mut(&cluster).ok_or_else(shared)?;
        let wanted: Vec<ParamKind> = set.param_kinds().cloned().collect();
        let mut survey = input.survey(&wanted.iter().collect::<Vec<_>>());
        for document in self.files.documents() {
            survey.kinds.add(&document);
        }
        set.add(survey.namespaces, survey.parameters);
        let webhooks = set.take_webhooks();
        if !webhooks.is_empty() {
            let names = webhooks.into_iter().collect::<Vec<_>>().join(", ");
            output::complain(format_args!(
                "note: webhooks are not called, so what they refuse or change is not seen: {names}"
            ));
        }
        Ok(ObjectJudge {
            loaded,
            cluster,
            now: self.at.time(),
            kinds: survey.kinds,
            manifests: ManifestArguments::in_namespace(self.namespace.clone()),
            phases: CREATED,
        })
    }
}

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
