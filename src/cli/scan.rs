//! `portcullis scan`: evaluates admission policies for objects that exist or are proposed.
//!
//! ```text
//! manifests (files, folders, standard input) ──┐
//! objects of a cluster, a page at a time ──────┴─▶ evaluate, like `admit -f` ─▶ report
//!                                the Pods that workloads create ─▶┘
//! ```

mod formats;
mod input;
mod report;
mod scanner;
mod tape;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};

use super::output::{self, CommandError, CommandResult};
use super::policy_files::{self};
use crate::cluster::LiveCluster;
use formats::OpenReports;
pub(crate) use input::Scan;
use input::{GivenNamespaceLabels, InputPart, ScanInput, Survey, parallel_map};
use portcullis_cel::json;
use portcullis_policy::admission::ParamKind;
use portcullis_policy::document::Document;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::objects::{KnownKinds, ManifestRequest};
use portcullis_policy::field::{Fault, Faults};
use report::{ScanReport, ScanTotals};
use scanner::{CREATED, ObjectScanner, STORED, ScannedObject};

/// How many objects are evaluated at a time.
const BATCH: usize = 256;

impl Scan {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let report = ScanReport::new(self.output.output, OpenReports::new(self.at.time()));
        if self.filename.is_empty() || self.files.is_live() {
            let cluster = self.files.live.connect()?;
            return if self.filename.is_empty() {
                self.run_on_cluster(report, &cluster)
            } else {
                self.run_on_files(report, |input| self.scanner_of_cluster(&cluster, Some(input)))
            };
        }
        self.run_on_files(report, |input| {
            let loaded = self.files.load_files()?;
            self.scanner(loaded, Some(input), KnownKinds::default(), |_| {
                Ok([Vec::new(), Vec::new()])
            })
        })
    }

    fn run_on_files(
        &self,
        report: ScanReport,
        scanner: impl FnOnce(&ScanInput) -> Result<ObjectScanner, CommandError>,
    ) -> Result<CommandResult, CommandError> {
        let input = ScanInput::of(&self.filename)?;
        let scanner = scanner(&input)?;
        let mut found = FileFindings::new(report);
        found.report.add_skipped(&scanner.policies_not_at_creation())?;
        found.scan(&scanner, &input.parts)?;
        let FileFindings {
            report,
            faults,
            notes,
        } = found;
        notes
            .iter()
            .for_each(|note| output::print_error(format_args!("note: {note}")));
        let totals = report.finish()?;
        if faults.has_errors() {
            let path = policy_files::joined_paths(&self.filename);
            return Err(CommandError::Faulty { path, faults });
        }
        self.result(
            totals,
            &format!("`{}`", policy_files::joined_paths(&self.filename)),
        )
    }

    /// The result of a scan of `place`. It is an error if no object was read.
    fn result(&self, totals: ScanTotals, place: &str) -> Result<CommandResult, CommandError> {
        if totals.objects == 0 {
            return Err(CommandError::Usage(format!(
                "nothing was scanned: there is no object in {place}"
            )));
        }
        let is_matched = !self.require_match || totals.unmatched == 0;
        if !is_matched {
            let objects = output::count(totals.unmatched, "object");
            output::print_error(format_args!(
                "{objects} matched by no policy (not allowed by --require-match)"
            ));
        }
        let needs_validation = !self.require_match || totals.unknown == 0;
        if totals.unknown > 0 {
            let objects = output::count(totals.unknown, "object");
            let means = if needs_validation {
                ""
            } else {
                " (not allowed by --require-match)"
            };
            output::print_error(format_args!(
                "warning: {objects} evaluated by no policy{means}: every policy that applies depends on \
                something that a scan does not know, and was skipped; name the user with `--user`, or use \
                `portcullis admit`"
            ));
        }
        Ok(match totals.is_sound && is_matched && needs_validation {
            true => CommandResult::Success,
            false => CommandResult::Failure,
        })
    }

    fn run_on_cluster(
        &self,
        mut report: ScanReport,
        cluster: &LiveCluster,
    ) -> Result<CommandResult, CommandError> {
        let scanner = self.scanner_of_cluster(cluster, None)?;
        let (place, mut reports) = (self.place(cluster), OpenReports::new(self.at.time()));
        report.add_skipped(&scanner.policies_not_at_creation())?;
        input::scan_cluster(&scanner, cluster, place, (&mut report, &mut reports))?;
        if self.write_reports {
            input::write_reports(cluster, place, &reports)?;
        }
        self.result(report.finish()?, "the objects listed from the cluster")
    }

    /// A scanner with the policies of files or of `cluster`, and the Namespaces and parameters of
    /// `cluster`.
    fn scanner_of_cluster(
        &self,
        cluster: &LiveCluster,
        input: Option<&ScanInput>,
    ) -> Result<ObjectScanner, CommandError> {
        let loaded = if self.files.names_files() {
            self.files.load_files()?
        } else {
            let purpose = crate::cluster::LivePurpose::Admission;
            super::live_policies::live_policies(cluster, &self.files.cluster, purpose, self.at.time())?
        };
        let kinds = super::live_policies::served_kinds(cluster);
        let mut scanner = self.scanner(loaded, input, kinds, |kinds| {
            input::namespaces_and_parameters(cluster, kinds)
        })?;
        if input.is_none() {
            scanner.phases = STORED;
        }
        Ok(scanner)
    }

    /// A scanner with the policies `loaded`, and the Namespaces and parameters of `elsewhere` and
    /// of `input`. `kinds` are those that a cluster serves.
    fn scanner(
        &self,
        mut loaded: LoadedPolicies,
        input: Option<&ScanInput>,
        mut kinds: KnownKinds,
        elsewhere: impl FnOnce(&[ParamKind]) -> Result<NamespacesAndParameters, CommandError>,
    ) -> Result<ObjectScanner, CommandError> {
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
            let path = policy_files::joined_paths(&self.filename);
            return Err(CommandError::Faulty {
                path,
                faults: survey.faults,
            });
        }
        set.add(survey.namespaces, survey.parameters);
        let labelled = self
            .namespace_labels
            .iter()
            .filter_map(GivenNamespaceLabels::document);
        set.add(labelled.collect(), Vec::new());
        if let Some(missing) = self.missing_namespace {
            set.set_missing_namespace(missing);
        }
        let webhooks = set.take_webhooks();
        if !webhooks.is_empty() {
            let names = webhooks.into_iter().collect::<Vec<_>>().join(", ");
            output::print_error(format_args!(
                "note: webhooks are not called, so what they would refuse or change is not reported: {names}"
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
        Ok(ObjectScanner {
            loaded,
            cluster,
            now: self.at.time(),
            kinds: survey.kinds,
            manifests: ManifestRequest {
                user: self.user.clone().map(|user| (user, self.groups.clone())),
                ..ManifestRequest::in_namespace(namespace)
            },
            phases: CREATED,
        })
    }
}

/// Namespaces and parameter objects.
type NamespacesAndParameters = [Vec<Arc<json::Document<'static>>>; 2];

/// The results for objects in files.
struct FileFindings {
    report: ScanReport,
    faults: Faults,
    notes: BTreeSet<String>,
}

impl FileFindings {
    const fn new(report: ScanReport) -> Self {
        Self {
            report,
            faults: Faults::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Evaluates the objects of `parts` in batches. Only one batch is evaluated and another one
    /// read at the same time, which bounds the memory.
    fn scan(&mut self, scanner: &ObjectScanner, parts: &[InputPart]) -> Result<(), CommandError> {
        std::thread::scope(|scope| {
            let (sender, batches) = mpsc::sync_channel(1);
            let reader = scope.spawn(move || read(parts, &sender));
            // If this ends early, the reader cannot send the next batch and ends, too.
            for batch in batches {
                let batch: Vec<Document> = batch;
                self.report_batch(parallel_map(&batch, |object| scanner.scan(object)))?;
            }
            self.faults
                .append(reader.join().unwrap_or_else(|panic| resume_unwind(panic)));
            Ok(())
        })
    }

    fn report_batch(&mut self, judged: Vec<Result<ScannedObject, Fault>>) -> Result<(), CommandError> {
        for one in judged {
            match one {
                Ok(one) => {
                    self.report.object(&one)?;
                    self.notes.extend(one.notes);
                }
                Err(fault) => self.faults.push(fault),
            }
        }
        Ok(())
    }
}

/// Sends the objects of `parts` in batches, and returns the errors of what cannot be read.
fn read(parts: &[InputPart], batches: &mpsc::SyncSender<Vec<Document>>) -> Faults {
    let (mut faults, mut batch, mut is_taken) = (Faults::new(), Vec::new(), true);
    for part in parts {
        part.each_object(&mut faults, |object| {
            batch.push(object);
            if batch.len() == BATCH {
                is_taken = batches.send(std::mem::take(&mut batch)).is_ok();
            }
            match is_taken {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        if !is_taken {
            break;
        }
    }
    // Fails if the scan has ended early.
    let _ = batches.send(batch);
    faults
}

#[cfg(test)]
mod tests;
