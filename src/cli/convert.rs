//! `portcullis convert`: policies of other kinds as ValidatingAdmissionPolicies and
//! MutatingAdmissionPolicies.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::access::{MAX_TIME, TimeLimit};
use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files;
use crate::{config, reload};
use portcullis_convert::{Conversion, Remark};
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::document::{self, Document};
use portcullis_policy::engine::Deadline;
use portcullis_policy::explain::Lines;
use portcullis_policy::manifest;

/// Convert policies to ValidatingAdmissionPolicies and MutatingAdmissionPolicies.
///
/// AuthorizationPolicies that deny writes and connects become ValidatingAdmissionPolicies with a
/// binding. Kyverno's ValidatingPolicies and MutatingPolicies of `policies.kyverno.io` become the
/// corresponding kinds of Kubernetes, and each rule of its ClusterPolicies with patterns or CEL becomes a
/// policy. Gatekeeper's ConstraintTemplates with CEL and their constraints become what Gatekeeper itself
/// generates. A policy is converted completely, with the same meaning, or not at all. What is not
/// converted is reported with file, line and reason, and the exit code is 1. Other kinds are ignored.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Convert {
    /// Manifests, as files or folders.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The configuration whose `authorization.neverDeny` applies [default: its default]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis convert kyverno > policies.yaml
  portcullis convert guard.yaml --config portcullis.yaml";

// === impl Convert ===

impl Convert {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let never_deny = self.never_deny()?;
        for path in &self.files {
            policy_files::readable(path)?;
        }
        let files = policy_files::applied(&self.files)?;
        let (sources, mut faults) = reload::read_manifests(&policy_files::everywhere(&files));
        let documents: Vec<Document> = sources
            .iter()
            .flat_map(|source| manifest::documents(source, &mut faults))
            .collect();
        if faults.has_errors() {
            let path = policy_files::shown(&self.files);
            return Err(CommandError::Faulty { path, faults });
        }
        let time = TimeLimit::new();
        let expired = || time.has_passed();
        let converted = portcullis_convert::convert(&documents, &never_deny, Deadline::new(&expired));
        match converted {
            Some(converted) => report(&converted, format),
            None => Err(CommandError::Usage(format!(
                "the conversion takes longer than {} s: convert fewer policies at once",
                MAX_TIME.as_secs()
            ))),
        }
    }

    fn never_deny(&self) -> Result<NeverDeny, CommandError> {
        let Some(path) = &self.config else {
            return Ok(NeverDeny::default());
        };
        let path = policy_files::configuration(Some(path))?;
        let (config, faults) = config::load(&path);
        let path = path.display().to_string();
        match config.filter(|_| !faults.has_errors()) {
            Some(config) => Ok(config.authorization.never_deny),
            None => Err(CommandError::Faulty { path, faults }),
        }
    }
}

fn report(all: &Conversion, format: Format) -> Result<CommandResult, CommandError> {
    for remark in &all.notes {
        output::complain(format_args!("{}: note: {}", remark.place, remark.text));
    }
    for remark in &all.refusals {
        output::complain(format_args!("{}: not converted: {}", remark.place, remark.text));
    }
    if all.objects.is_empty() && all.refusals.is_empty() {
        output::complain("there is no policy to convert");
    }
    let mut yaml = Lines::new();
    for object in &all.objects {
        yaml.line("---");
        yaml.each("", &document::to_yaml(object));
    }
    let listed = |remarks: &[Remark]| remarks.iter().map(Remark::for_programs).collect::<Vec<Value>>();
    let value = json!({
        "objects": all.objects,
        "refused": listed(&all.refusals),
        "notes": listed(&all.notes),
    });
    output::print(format, &yaml, &value)?;
    Ok(if all.refusals.is_empty() && !all.objects.is_empty() {
        CommandResult::Success
    } else {
        CommandResult::Failure
    })
}
