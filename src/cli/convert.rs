//! `portcullis convert`: converts policies of other kinds to ValidatingAdmissionPolicies and
//! MutatingAdmissionPolicies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::access::{MAX_TIME, TimeLimit};
use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files;
use crate::{config, state};
use portcullis_convert::{Conversion, Remark, Summary, TestSuites};
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::document::{self, Document};
use portcullis_policy::explain::Lines;
use portcullis_policy::manifest;
use portcullis_policy::model::Deadline;

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
    /// The configuration with `authorization.neverDeny` [default: the built-in list]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write a file for each admission policy to this folder, instead of all to standard output.
    ///
    /// The folder is created if it does not exist. Files with the same names are replaced.
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Convert Kyverno tests (`kyverno test`) among the files to PolicyTests in this folder.
    ///
    /// `portcullis test` runs them. Each is written together with a copy of its policies in which
    /// every violation is denied.
    #[arg(long, value_name = "FOLDER")]
    test: Option<PathBuf>,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis convert kyverno > policies.yaml
  portcullis convert kyverno --into policies/
  portcullis convert kyverno --into policies/ --test tests/ && portcullis test tests/
  portcullis convert guard.yaml --config portcullis.yaml";

// === impl Convert ===

impl Convert {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let never_deny = self.never_deny()?;
        for path in &self.files {
            policy_files::check_readable(path)?;
        }
        let files = policy_files::applied_files(&self.files)?;
        let (sources, mut faults) = state::read_manifests(&policy_files::for_all_clusters(&files));
        let documents: Vec<Document> = sources
            .iter()
            .flat_map(|source| manifest::documents(source, &mut faults))
            .collect();
        if faults.has_errors() {
            let path = policy_files::joined_paths(&self.files);
            return Err(CommandError::Faulty { path, faults });
        }
        let time = TimeLimit::new();
        let expired = || time.has_passed();
        let too_long = || {
            CommandError::Usage(format!(
                "the conversion takes longer than {} s: convert fewer policies at once",
                MAX_TIME.as_secs()
            ))
        };
        let deadline = Deadline::new(&expired);
        let converted =
            portcullis_convert::convert(&documents, &never_deny, deadline).ok_or_else(too_long)?;
        if let Some(folder) = &self.test {
            let made =
                portcullis_convert::kyverno_suites(&documents, &never_deny, deadline).ok_or_else(too_long)?;
            write_suites(&made, folder)?;
        }
        report(&converted, self.into.as_deref(), format)
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

fn report(all: &Conversion, into: Option<&Path>, format: Format) -> Result<CommandResult, CommandError> {
    for remark in &all.notes {
        output::print_error(format_args!("{}: note: {}", remark.place, remark.text));
    }
    for remark in &all.refusals {
        output::print_error(format_args!("{}: not converted: {}", remark.place, remark.text));
    }
    if all.objects.is_empty() && all.refusals.is_empty() {
        output::print_error("there are no policies to convert");
    }
    let summary = all.summary();
    if summary.converted + summary.refused > 1 {
        output::print_error_lines(&summary_lines(&summary));
    }
    let files = into.map(|folder| write_files(all, folder)).transpose()?;
    let lines = match &files {
        Some(files) => files.iter().cloned().collect(),
        None => yaml(&all.objects),
    };
    let listed = |remarks: &[Remark]| remarks.iter().map(Remark::for_programs).collect::<Vec<Value>>();
    let value = json!({
        "objects": all.objects,
        "refused": listed(&all.refusals),
        "notes": listed(&all.notes),
        "summary": {
            "converted": summary.converted,
            "refused": summary.refused,
            "reasons": summary.reasons.iter()
                .map(|(reason, policies)| json!({"reason": reason, "policies": policies}))
                .collect::<Vec<Value>>(),
        },
        "files": files,
    });
    output::print(format, &lines, &value)?;
    Ok(if all.refusals.is_empty() && !all.objects.is_empty() {
        CommandResult::Success
    } else {
        CommandResult::Failure
    })
}

fn yaml<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Lines {
    let mut lines = Lines::new();
    for object in objects {
        lines.line("---");
        lines.each("", &document::to_yaml(object));
    }
    lines
}

/// The summary as text: how many policies were converted, and the reasons for the others.
fn summary_lines(summary: &Summary) -> Lines {
    let Summary {
        converted,
        refused,
        reasons,
    } = summary;
    let all = converted + refused;
    let end = if reasons.is_empty() {
        ""
    } else {
        ", by policies and reason:"
    };
    let mut lines = Lines::from_iter([format!("{converted} of {all} policies converted{end}")]);
    for (reason, policies) in reasons {
        lines.line(format_args!("{policies:>5}  {reason}"));
    }
    lines
}

/// Writes each test suite and a file with its policies, and prints what is left out.
fn write_suites(made: &TestSuites, folder: &Path) -> Result<(), CommandError> {
    for note in &made.notes {
        output::print_error(format_args!("{}: not tested: {}", note.place, note.text));
    }
    std::fs::create_dir_all(folder).map_err(|error| CommandError::file("write", folder, error))?;
    let cases = |suite: &Value| {
        suite
            .pointer("/cases")
            .and_then(Value::as_array)
            .map_or(0, Vec::len)
    };
    for suite in &made.suites {
        let files = [
            ("test", yaml([&suite.suite])),
            ("policies", yaml(&suite.policies)),
        ];
        for (end, lines) in files {
            let path = folder.join(format!("{}_{end}.yaml", suite.name));
            config::files::replace_report(&path, &lines.to_string())
                .map_err(|error| CommandError::file("write", &path, error))?;
        }
    }
    let all: usize = made.suites.iter().map(|suite| cases(&suite.suite)).sum();
    output::print_error(format_args!(
        "{} tests with {all} cases in {}",
        made.suites.len(),
        folder.display()
    ));
    Ok(())
}

/// Writes each admission policy, with its bindings, to a file of its name.
fn write_files(all: &Conversion, folder: &Path) -> Result<Vec<String>, CommandError> {
    let mut by_file: BTreeMap<PathBuf, Vec<&Value>> = BTreeMap::new();
    let mut current = PathBuf::new();
    for object in &all.objects {
        let name = object.pointer("/spec/policyName");
        let is_policy = object
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.ends_with("Policy"));
        let name = if is_policy {
            object.pointer("/metadata/name")
        } else {
            name
        };
        // The parameter object of a binding follows it, into the same file.
        if let Some(name) = name.and_then(Value::as_str) {
            current = folder.join(file_name(name));
        }
        by_file.entry(current.clone()).or_default().push(object);
    }
    std::fs::create_dir_all(folder).map_err(|error| CommandError::file("write", folder, error))?;
    for (path, objects) in &by_file {
        let text = yaml(objects.iter().copied()).to_string();
        config::files::replace_report(path, &text)
            .map_err(|error| CommandError::file("write", path, error))?;
    }
    Ok(by_file.keys().map(|path| path.display().to_string()).collect())
}

/// Makes a file name of any name.
fn file_name(name: &str) -> String {
    let is_plain = |part: char| part.is_ascii_alphanumeric() || part == '-' || part == '.';
    let plain: String = name
        .chars()
        .map(|part| if is_plain(part) { part } else { '-' })
        .collect();
    format!("{}.yaml", plain.trim_start_matches('.'))
}
