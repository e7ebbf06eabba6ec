//! `portcullis check`: reports all faults of a configuration and its manifests.

mod sarif;
mod snippet;

use std::path::PathBuf;

use serde::Serialize;

use super::output::{self, Format, Output};
use super::{CommandResult, Error, loading, migrate};
use portcullis_policy::field::{Fault, Faults, Severity};
use snippet::Snippets;

/// Report all faults of a configuration and its manifests, and warn about dangerous policies.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The configuration, which is checked with its manifests, keys, certificates and kubeconfigs.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the modern equivalents of InitializerConfigurations and
    /// ExternalAdmissionHookConfigurations instead, as YAML.
    #[arg(long)]
    migrate: bool,
    /// Fail also if there are only warnings.
    #[arg(long)]
    strict: bool,
    /// More manifests (files or folders); without `--config` only these are checked.
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output<CheckFormat>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis check --config /etc/portcullis/portcullis.yaml --strict
  portcullis check policies -o sarif > check.sarif";

/// The formats of `check`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum CheckFormat {
    /// A line for each fault, and on a terminal the line of the file.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
}

impl CheckFormat {
    /// The same among those of other commands; `None` for SARIF.
    const fn plain(self) -> Option<Format> {
        match self {
            Self::Text => Some(Format::Text),
            Self::Json => Some(Format::Json),
            Self::Sarif => None,
        }
    }
}

/// The faults, for programs.
#[derive(Debug, Serialize)]
struct CheckReport<'a> {
    errors: usize,
    warnings: usize,
    faults: Vec<FaultReport<'a>>,
}

#[derive(Debug, Serialize)]
struct FaultReport<'a> {
    severity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    object: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    kind: &'static str,
    message: &'a str,
}

// === impl Check ===

impl Check {
    pub(crate) fn run(self) -> Result<CommandResult, Error> {
        for path in &self.paths {
            loading::readable(path)?;
        }
        let paths = loading::applied(&self.paths)?;
        if self.migrate {
            let format = self.output.output.plain().ok_or_else(|| {
                Error::Usage("`--migrate` prints text or JSON: leave out `-o sarif`".to_owned())
            })?;
            return migrate::run(self.config.as_deref(), &paths, format);
        }
        let faults = if self.config.is_none() && !paths.is_empty() {
            loading::of_paths(&paths).1
        } else {
            loading::faults_of_configuration(&loading::configuration(self.config.as_deref())?, &paths)
        };
        if !paths.is_empty() && !faults.has_errors() && !loading::has_objects(&paths) {
            return Err(Error::Usage(format!(
                "nothing was checked: there is no object in `{}`",
                loading::shown(&self.paths)
            )));
        }
        report(self.output.output, &faults)?;
        let is_valid = !faults.has_errors() && (!self.strict || faults.is_empty());
        Ok(if is_valid {
            CommandResult::Success
        } else {
            CommandResult::Failure
        })
    }
}

fn report(format: CheckFormat, faults: &Faults) -> Result<(), Error> {
    let Some(format) = format.plain() else {
        return output::print_json(&sarif::log(faults));
    };
    let errors = faults
        .iter()
        .filter(|fault| fault.severity == Severity::Error)
        .count();
    let warnings = faults.len() - errors;
    let mut lines = if output::is_terminal() {
        Snippets::styled().render(faults)
    } else {
        faults.iter().collect()
    };
    let summary = match (errors, warnings) {
        (0, 0) => "valid".to_owned(),
        (0, warnings) => format!("valid, {}", output::count(warnings as u64, "warning")),
        (errors, warnings) => format!(
            "{}, {}",
            output::count(errors as u64, "error"),
            output::count(warnings as u64, "warning")
        ),
    };
    let report = CheckReport {
        errors,
        warnings,
        faults: faults.iter().map(FaultReport::from).collect(),
    };
    lines.line(summary);
    output::print(format, &lines, &report)
}

impl<'a> From<&'a Fault> for FaultReport<'a> {
    fn from(fault: &'a Fault) -> Self {
        Self {
            severity: match fault.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            file: fault.place.file.as_deref(),
            line: (fault.place.line > 0).then_some(fault.place.line),
            column: (fault.place.column > 0).then_some(fault.place.column),
            object: &fault.place.object,
            path: fault.place.path.to_string(),
            kind: fault.kind.as_str(),
            message: &fault.message,
        }
    }
}
