//! `portcullis check`: reports all errors and warnings of a configuration and its manifests, as
//! text, JSON or SARIF 2.1.0. With `--migrate`, prints the modern equivalents of legacy kinds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;
use serde_json::{Value, json};

use super::access::TimeLimit;
use super::live_policies::LiveArguments;
use super::output::{CommandError, CommandResult, Format, Output};
use super::{output, policy_files, set_checks};
use crate::config::files;
use crate::{config, state};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::document::Document;
use portcullis_policy::explain::invariants::OUT_OF_SIGHT;
use portcullis_policy::explain::{Lines, LoadedPolicies, is_escaped, one_line};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place, Severity};
use portcullis_policy::manifest::MigratedObject;
use portcullis_policy::model::User;
use portcullis_policy::{document, manifest};

/// Report all errors of a configuration and its manifests, and warn about dangerous policies.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The configuration to check, with its manifests, keys, certificates and kubeconfigs.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print InitializerConfigurations and ExternalAdmissionHookConfigurations as current kinds, in
    /// YAML.
    #[arg(long)]
    migrate: bool,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    /// Also warn about Denies and Limits that apply to this user, for example yourself.
    #[arg(long = "as", value_name = "USER[,GROUP…]")]
    asker: Option<String>,
    /// Also warn about Denies and Limits that apply to the user of this kubeconfig.
    ///
    /// The API server is asked for the name and groups of the user.
    #[arg(long, value_name = "FILE", conflicts_with = "asker")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", conflicts_with = "asker")]
    context: Option<String>,
    /// Manifests to check, as files or folders, in addition to those of `--config`.
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output<CheckFormat>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis check --config /etc/portcullis/portcullis.yaml --strict
  portcullis check policies -o sarif > check.sarif
  portcullis check policies --as jane@example.com,platform
  portcullis check policies --kubeconfig ~/.kube/config";

/// The formats of `check`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum CheckFormat {
    /// A line for each problem; on a terminal, with the line of the file.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
}

impl CheckFormat {
    /// The corresponding common format; `None` for SARIF.
    const fn plain(self) -> Option<Format> {
        match self {
            Self::Text => Some(Format::Text),
            Self::Json => Some(Format::Json),
            Self::Sarif => None,
        }
    }
}

/// The JSON output.
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
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        for path in &self.paths {
            policy_files::check_readable(path)?;
        }
        let paths = policy_files::applied_files(&self.paths)?;
        if self.migrate {
            let format = self.output.output.plain().ok_or_else(|| {
                CommandError::Usage("`--migrate` prints text or JSON: remove `-o sarif`".to_owned())
            })?;
            return run(self.config.as_deref(), &paths, format);
        }
        let config = match self.config.is_none() && !paths.is_empty() {
            true => None,
            false => Some(policy_files::configuration(self.config.as_deref())?),
        };
        let mut faults = match &config {
            None => policy_files::load_paths(&paths).1,
            Some(config) => policy_files::faults_of_configuration(config, &paths),
        };
        if !paths.is_empty() && !faults.has_errors() && !policy_files::has_objects(&paths) {
            return Err(CommandError::Usage(format!(
                "nothing was checked: there are no objects in `{}` (`portcullis test` reads suites)",
                policy_files::joined_paths(&self.paths)
            )));
        }
        let mut holding = 0;
        if !faults.has_errors()
            && let Some((mut loaded, documents)) = load_policies_and_documents(config.as_deref(), &paths)
        {
            if let Some(asker) = self.asker()? {
                faults.append(set_checks::user_faults(&loaded, &documents, &asker));
            }
            let sets: Vec<&PolicySet> = loaded.sets().map(|(_, set)| set).collect();
            let idle = set_checks::idle_faults(&sets, &documents, &faults, &TimeLimit::new());
            faults.append(idle);
            loaded.add_default_roles();
            let (held, found) = set_checks::invariant_faults(&loaded, &documents)?;
            faults.append(found);
            holding = held;
        }
        report(self.output.output, &faults, holding)?;
        let is_valid = !faults.has_errors() && (!self.strict || faults.is_empty());
        Ok(if is_valid {
            CommandResult::Success
        } else {
            CommandResult::Failure
        })
    }

    /// The user about whose Denies `check` warns: the one of `--as`, or the user of the kubeconfig.
    fn asker(&self) -> Result<Option<User<'static>>, CommandError> {
        let live = LiveArguments {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        };
        Ok(match &self.asker {
            Some(text) => Some(set_checks::parse_user(text)),
            None if live.is_named() => {
                let (name, groups) = live.connect()?.user()?;
                Some(set_checks::asker_user(name, groups))
            }
            None => None,
        })
    }
}

/// The policies of a configuration or of manifests, and the objects that define them.
fn load_policies_and_documents(
    config: Option<&Path>,
    paths: &[PathBuf],
) -> Option<(LoadedPolicies, Vec<Document>)> {
    let mut manifests = policy_files::for_all_clusters(paths);
    let loaded = match config {
        None => policy_files::load_paths(paths).0,
        Some(config) => {
            manifests.extend(config::load_valid_parts(config).0.manifests);
            policy_files::load_configuration_with(config, paths).0
        }
    }?;
    let (sources, mut unread) = state::read_manifests(&manifests);
    let documents = sources
        .iter()
        .flat_map(|source| manifest::documents(source, &mut unread))
        .collect();
    Some((loaded, documents))
}

/// Prints the result. `holding` is the number of invariants that hold.
fn report(format: CheckFormat, faults: &Faults, holding: usize) -> Result<(), CommandError> {
    let Some(format) = format.plain() else {
        return output::print_json(&log(faults));
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
    if holding > 0 {
        let holding = output::count(holding as u64, "invariant");
        lines.line(format_args!("proven: {holding}; {OUT_OF_SIGHT}"));
    }
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

/// The SARIF log of `faults`.
pub(crate) fn log(faults: &Faults) -> Value {
    let rules = FaultKind::ALL.map(rule).to_vec();
    output::sarif_log(rules, faults.iter().map(result).collect())
}

fn rule(kind: FaultKind) -> Value {
    json!({"id": kind.code(), "shortDescription": {"text": kind.as_str()}})
}

fn result(fault: &Fault) -> Value {
    let mut text = fault.message.clone();
    let place = &fault.place;
    let within = [place.object.clone(), place.path.to_string()];
    let within = within.into_iter().filter(|part| !part.is_empty());
    let within = within.collect::<Vec<_>>().join(": ");
    if !within.is_empty() {
        text = format!("{within}: {text}");
    }
    json!({
        "ruleId": fault.kind.code(),
        "level": match fault.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        "message": output::sarif_message(&text),
        "locations": location(place).into_iter().collect::<Vec<_>>(),
    })
}

/// The SARIF location of a fault, if it is in a file.
fn location(place: &Place) -> Option<Value> {
    let physical = output::physical_location(place.file.as_ref()?, place.line, place.column)?;
    Some(json!({"physicalLocation": physical}))
}

/// Prints the modern equivalents of legacy objects in the manifests of `config` and in `paths`.
pub(crate) fn run(
    config: Option<&Path>,
    paths: &[PathBuf],
    format: Format,
) -> Result<CommandResult, CommandError> {
    let mut manifests = policy_files::for_all_clusters(paths);
    let mut faults = Faults::new();
    if config.is_some() || paths.is_empty() {
        let (config, found) = config::load(&policy_files::configuration(config)?);
        faults.append(found);
        manifests.extend(config.map(|config| config.manifests).unwrap_or_default());
    }
    let (sources, found) = state::read_manifests(&manifests);
    faults.append(found);
    let (migrated, found) = manifest::migrate(&sources);
    faults.append(found);
    faults.iter().for_each(output::print_error);
    let objects: Vec<_> = migrated.iter().filter_map(|one| one.object.as_ref()).collect();
    output::print(format, &in_words(&migrated), &objects)?;
    Ok(if faults.has_errors() {
        CommandResult::Failure
    } else {
        CommandResult::Success
    })
}

/// A YAML stream of the objects, with the remarks about each one above it.
fn in_words(migrated: &[MigratedObject]) -> Lines {
    let mut lines = Lines::new();
    for one in migrated {
        if one.object.is_some() {
            lines.line("---");
        }
        for remark in &one.remarks {
            lines.line(format_args!("# {remark}"));
        }
        let yaml = one.object.as_ref().map(document::to_yaml);
        lines.each("", &yaml.unwrap_or_default());
    }
    lines
}

// Text output on a terminal: each fault with the affected line of the file.

/// Renders faults with the affected lines.
pub(crate) struct Snippets {
    renderer: Renderer,
    files: HashMap<Arc<str>, String>,
}

impl Snippets {
    /// Uses colours.
    pub(crate) fn styled() -> Self {
        Self::with(Renderer::styled())
    }

    fn with(renderer: Renderer) -> Self {
        Self {
            renderer,
            files: HashMap::new(),
        }
    }

    /// Renders all faults.
    pub(crate) fn render(&mut self, faults: &Faults) -> Lines {
        let mut lines = Lines::new();
        for fault in faults.iter() {
            lines.rendered(&self.fault(fault));
            lines.rendered("\n");
        }
        lines
    }

    fn fault(&mut self, fault: &Fault) -> String {
        let level = match fault.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let place = &fault.place;
        let shown = place
            .file
            .as_ref()
            .and_then(|file| Some((file, self.line(file, place.line)?)));
        let Some((file, line)) = shown else {
            let text = fault.to_string();
            let title = Group::with_title(level.primary_title(one_line(&text)));
            return self.renderer.render(&[title]);
        };
        let title = format!("{}: {}", fault.kind.as_str(), one_line(&fault.message));
        let within = [place.object.clone(), place.path.to_string()];
        let within: Vec<String> = within.into_iter().filter(|part| !part.is_empty()).collect();
        let annotation = AnnotationKind::Primary
            .span(marked(&line, fault))
            .label(one_line(&within.join(": ")).into_owned());
        let snippet = Snippet::source(line)
            .line_start(place.line as usize)
            .path(one_line(file))
            .annotation(annotation);
        self.renderer
            .render(&[level.primary_title(title).element(snippet)])
    }

    fn line(&mut self, file: &Arc<str>, line: u32) -> Option<String> {
        let text = self.files.entry(Arc::clone(file)).or_insert_with(|| read(file));
        let line = text.lines().nth((line as usize).checked_sub(1)?)?;
        // The renderer replaces tabs itself.
        let visible = |c: char| if c != '\t' && is_escaped(c) { '\u{fffd}' } else { c };
        (!line.trim().is_empty()).then(|| line.chars().map(visible).collect())
    }
}

/// If the file cannot be read, faults are rendered without lines.
fn read(file: &str) -> String {
    files::read_text(Path::new(file), files::CONFIGURATION_BYTES).unwrap_or_default()
}

/// The part of `line` to mark.
fn marked(line: &str, fault: &Fault) -> std::ops::Range<usize> {
    let at = (fault.place.column as usize).checked_sub(1);
    let start = at.and_then(|at| line.char_indices().nth(at)).map(|(at, _)| at);
    start.map_or_else(
        || quoted_value_range(line, &fault.message),
        |start| word(line, start),
    )
}

/// The word that begins at `start`, or the single character there.
fn word(line: &str, start: usize) -> std::ops::Range<usize> {
    let rest = line.get(start..).unwrap_or_default();
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
    let first = rest.chars().next().map_or(0, char::len_utf8);
    start..start + end.max(first)
}

/// The first value that `message` quotes and `line` contains, or else the trimmed line.
fn quoted_value_range(line: &str, message: &str) -> std::ops::Range<usize> {
    let quoted = message.split('`').skip(1).step_by(2);
    for value in quoted.filter(|value| !value.is_empty()) {
        if let Some(start) = line.find(value) {
            return start..start + value.len();
        }
    }
    let start = line.len() - line.trim_start().len();
    start..line.trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::field::{FaultKind, FieldPath, Place};

    #[test]
    fn a_fault_is_a_result_at_its_line() {
        let mut faults = Faults::new();
        let place = Place {
            file: Some("./a b.yaml".into()),
            line: 7,
            column: 3,
            object: "Role/r".into(),
            path: FieldPath::root().field("rules"),
        };
        faults.push(Fault::warning(place, FaultKind::Suspicious, "odd"));
        faults.push(Fault::error(Place::default(), FaultKind::Required, "missing"));
        let log = log(&faults);
        let results = &log["runs"][0]["results"];
        assert_eq!(results[0]["ruleId"], "suspicious");
        assert_eq!(results[0]["level"], "warning");
        assert_eq!(results[0]["message"]["text"], "Role/r: rules: odd");
        let location = &results[0]["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], "a%20b.yaml");
        assert_eq!(location["region"], json!({"startLine": 7, "startColumn": 3}));
        assert_eq!(results[1]["level"], "error");
        assert_eq!(results[1]["locations"], json!([]));
    }

    #[test]
    fn the_line_is_shown_and_what_is_meant_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("role.yaml");
        std::fs::write(&path, "kind: Role\nrules:\n- verbs: [gett]\n").unwrap();
        let place = Place {
            file: Some(path.display().to_string().into()),
            line: 3,
            column: 0,
            object: "Role/r".into(),
            path: FieldPath::root().field("rules").index(0).field("verbs").index(0),
        };
        let mut faults = Faults::new();
        faults.push(Fault::warning(
            place,
            FaultKind::Suspicious,
            "Kubernetes has no verb `gett`",
        ));
        let text = Snippets::with(Renderer::plain()).render(&faults);
        let text = text.as_str();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "warning: Suspicious: Kubernetes has no verb `gett`");
        assert!(lines[1].ends_with("role.yaml:3:11"), "{text}");
        assert!(lines.contains(&"3 | - verbs: [gett]"), "{text}");
        assert!(text.contains("^^^^ Role/r: rules[0].verbs[0]"), "{text}");
    }

    #[test]
    fn a_place_within_a_line_is_marked_up_to_the_end_of_its_word() {
        let mut fault = Fault::error(Place::default(), FaultKind::Invalid, "`(`");
        fault.place.column = 7;
        assert_eq!(marked("  é || has(x)", &fault), 7..8);
        fault.place.column = 8;
        assert_eq!(marked("  é || has_(x)", &fault), 8..12);
        fault.place.column = 90;
        assert_eq!(marked("  (", &fault), 2..3);
    }

    #[test]
    fn a_fault_without_a_file_is_a_line() {
        let mut faults = Faults::new();
        faults.push(Fault::error(
            Place::default(),
            FaultKind::Required,
            "name a caller",
        ));
        let text = Snippets::with(Renderer::plain()).render(&faults);
        assert_eq!(text.as_str(), "error: Required value: name a caller\n");
    }
}
