//! Reports about escalations: who can become whom.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use super::access::{QuestionError, WhoCanQuestion};
use super::authorization::object;
use super::{Lines, one_line};
use crate::authorization::{
    EscalationPath, EscalationStep, EscalationTarget, Escalations, Identity, ObjectName, RUNS, Subject,
    Within, WorkloadAdmission,
};

/// Why arguments on the command line are not a valid question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EscalationQuestionError {
    /// Not a subject.
    #[error(
        "`{0}` is not a subject: expected `User NAME`, `Group NAME` or `ServiceAccount NAMESPACE/NAME`, or \
        the name of a user"
    )]
    Subject(String),
    /// Not a request.
    #[error(
        "`{0}` is not a request: expected `VERB RESOURCE[.GROUP][/SUBRESOURCE] [--name NAME] [-n NS or -A]`, \
        or a verb and a path"
    )]
    Request(String),
}

/// The paths by which subjects can become others, sorted by name.
#[derive(Debug)]
pub struct EscalationAnswer(pub Escalations);

/// The report as JSON.
#[derive(Debug, Serialize)]
pub struct EscalationReport<'a> {
    paths: Vec<PathReport<'a>>,
    refuted: Vec<PathReport<'a>>,
}

#[derive(Debug, Serialize)]
struct PathReport<'a> {
    from: IdentityReport<'a>,
    to: IdentityReport<'a>,
    steps: Vec<StepReport<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepReport<'a> {
    by: &'a str,
    #[serde(serialize_with = "objects")]
    via: &'a [ObjectName],
    becomes: IdentityReport<'a>,
    limits: &'a [String],
    #[serde(serialize_with = "objects", skip_serializing_if = "<[ObjectName]>::is_empty")]
    refuted_by: &'a [ObjectName],
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<AdmissionReport<'a>>,
}

/// Whether admission policies admit the Pod that a step needs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReport<'a> {
    /// `null` if it is not known.
    allowed: Option<bool>,
    #[serde(serialize_with = "objects", skip_serializing_if = "<[ObjectName]>::is_empty")]
    refused_by: &'a [ObjectName],
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct IdentityReport<'a> {
    kind: &'a str,
    name: &'a str,
    namespace: &'a str,
}

fn objects<S: Serializer>(objects: &[ObjectName], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct ObjectReport<'a> {
        kind: &'a str,
        namespace: &'a str,
        name: &'a str,
    }
    serializer.collect_seq(objects.iter().map(|object| ObjectReport {
        kind: object.kind,
        namespace: &object.namespace,
        name: &object.name,
    }))
}

/// Parses a subject: `Group dev`, `ServiceAccount shop/backup`, `User alice` or `alice`.
///
/// # Errors
///
/// The text is not a subject.
pub fn subject(text: &str) -> Result<Subject, EscalationQuestionError> {
    let odd = || EscalationQuestionError::Subject(text.to_owned());
    let text = text.trim();
    let (kind, name) = text.split_once(' ').unwrap_or(("User", text));
    let name = name.trim();
    let subject = match kind.to_ascii_lowercase().as_str() {
        "user" => Subject::user(name),
        "group" => Subject::group(name),
        "serviceaccount" => {
            let (namespace, name) = name.split_once('/').ok_or_else(odd)?;
            if namespace.is_empty() {
                return Err(odd());
            }
            Subject::service_account(namespace, name)
        }
        _ => return Err(odd()),
    };
    match subject.name.is_empty() {
        true => Err(odd()),
        false => Ok(subject),
    }
}

/// Parses a subject, or a request such as `get secrets -n prod`. `namespace` is the default
/// namespace of a request.
///
/// # Errors
///
/// The text is neither.
pub fn target(text: &str, namespace: &str) -> Result<EscalationTarget, EscalationQuestionError> {
    if let Ok(subject) = subject(text) {
        return Ok(EscalationTarget::Subject(subject));
    }
    let odd = |_: QuestionError| EscalationQuestionError::Request(text.to_owned());
    let incomplete = || odd(QuestionError::Incomplete);
    let (mut words, mut plain) = (text.split_whitespace(), Vec::new());
    let (mut name, mut place) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "-A" | "--all-namespaces" => place = Some(Within::AnyNamespace),
            "-n" | "--namespace" => {
                place = Some(Within::Namespace(words.next().ok_or_else(incomplete)?.to_owned()));
            }
            "--name" => name = Some(words.next().ok_or_else(incomplete)?),
            _ => plain.push(word),
        }
    }
    let [verb, target] = plain[..] else {
        return Err(incomplete());
    };
    let is_path = target.starts_with('/');
    let place = place.or_else(|| (!is_path).then(|| Within::Namespace(namespace.to_owned())));
    let question = WhoCanQuestion::new(verb, target, name, place).map_err(odd)?;
    Ok(EscalationTarget::Request(question.request))
}

// === impl EscalationAnswer ===

impl EscalationAnswer {
    /// The report as JSON.
    pub fn report(&self) -> EscalationReport<'_> {
        EscalationReport {
            paths: self.0.paths.iter().map(PathReport::from).collect(),
            refuted: self.0.refuted.iter().map(PathReport::from).collect(),
        }
    }

    /// The report as text.
    pub fn in_words(&self) -> Lines {
        let mut lines = Lines::new();
        let (own, others): (Vec<_>, Vec<_>) = self.0.paths.iter().partition(|path| is_of_kubernetes(path));
        let mut subjects: Vec<String> = own.iter().map(|path| in_words(&path.from)).collect();
        subjects.dedup();
        let are_grouped = subjects.len() > 1;
        let shown = if are_grouped {
            others
        } else {
            self.0.paths.iter().collect()
        };
        for path in shown {
            describe(path, &mut lines);
        }
        if are_grouped {
            lines.line(format_args!(
                "{} subjects of Kubernetes itself can, by its own bindings (`--from SUBJECT` shows how): {}",
                subjects.len(),
                subjects.join(", ")
            ));
        }
        if self.0.paths.is_empty() {
            lines.line("No path was found.");
        }
        if !self.0.refuted.is_empty() {
            lines.line("");
            lines.line("Prevented only by policies:");
        }
        for path in &self.0.refuted {
            describe(path, &mut lines);
        }
        lines
    }

    /// The paths as a graph in the DOT language of Graphviz.
    pub fn dot(&self) -> String {
        let drawing = Drawing::of(&self.0);
        let mut text = "digraph escalations {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
        for (name, number) in drawing.nodes() {
            let _ = writeln!(text, "  n{number} [label=\"{}\"];", in_dot(&name));
        }
        for edge in &drawing.edges {
            let style = if edge.is_refuted { ", style=dashed" } else { "" };
            let label = in_dot(&edge.label);
            let _ = writeln!(
                text,
                "  n{} -> n{} [label=\"{label}\"{style}];",
                edge.from, edge.to
            );
        }
        text.push_str("}\n");
        text
    }

    /// The paths as a Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        let drawing = Drawing::of(&self.0);
        let mut text = "flowchart LR\n".to_owned();
        for (name, number) in drawing.nodes() {
            let _ = writeln!(text, "  n{number}[\"{}\"]", in_mermaid(&name));
        }
        for edge in &drawing.edges {
            let arrow = if edge.is_refuted { "-.->" } else { "-->" };
            let label = in_mermaid(&edge.label);
            let _ = writeln!(text, "  n{} {arrow}|\"{label}\"| n{}", edge.from, edge.to);
        }
        text
    }
}

/// Whether the path is that of a component of Kubernetes, by default bindings of an API server,
/// which nobody has to fix.
fn is_of_kubernetes(path: &EscalationPath) -> bool {
    let Identity {
        kind,
        namespace,
        name,
    } = &path.from;
    let is_component = match *kind {
        "ServiceAccount" => namespace == "kube-system",
        _ => name.starts_with("system:"),
    };
    let via = path
        .steps
        .first()
        .map(|step| step.via.as_slice())
        .unwrap_or_default();
    is_component && !via.is_empty() && via.iter().all(|object| object.name.starts_with("system:"))
}

fn describe(path: &EscalationPath, lines: &mut Lines) {
    lines.line(format_args!(
        "{} can become {}",
        in_words(&path.from),
        in_words(&path.to)
    ));
    for step in &path.steps {
        let via = step
            .via
            .iter()
            .map(|via| object(via.kind, &via.namespace, &via.name));
        let via: Vec<String> = via.collect();
        let via = match via.is_empty() {
            true => String::new(),
            false => format!(" ({})", via.join(", ")),
        };
        lines.line(format_args!("  {} -> {}{via}", step.by, in_words(&step.becomes)));
        for limit in &step.limits {
            lines.line(format_args!(
                "    {}",
                limit.split_whitespace().collect::<Vec<_>>().join(" ")
            ));
        }
        if let Some(admission) = admission_of(step) {
            lines.line(format_args!("    {}", admission_in_words(admission)));
        }
        for policy in &step.refuted_by {
            let policy = object(policy.kind, &policy.namespace, &policy.name);
            lines.line(format_args!("    prevented by {policy}"));
        }
    }
}

fn admission_of(step: &EscalationStep) -> Option<&WorkloadAdmission> {
    step.workload.as_ref()?.admission.as_ref()
}

fn admission_in_words(admission: &WorkloadAdmission) -> String {
    let message = one_line(&admission.message);
    match (admission.is_admitted, &admission.refused_by) {
        (Some(true), _) => "no admission policy refuses a Pod of this kind".to_owned(),
        (Some(false), Some(policy)) => {
            let policy = object(policy.kind, &policy.namespace, &policy.name);
            format!("the simplest Pod of this kind is refused by {policy}: {message}")
        }
        (Some(false), None) => format!("the simplest Pod of this kind is refused: {message}"),
        (None, _) => format!("whether a Pod of this kind is admitted is not known: {message}"),
    }
}

fn in_words(identity: &Identity) -> String {
    let Identity {
        kind,
        namespace,
        name,
    } = identity;
    match (*kind, namespace.as_str()) {
        ("ServiceAccount" | "Role", namespace) => format!("{kind} {namespace}/{name}"),
        (_, "") => format!("{kind} {name}"),
        (_, "*") => format!("{kind} {name} in several namespaces"),
        (_, namespace) => format!("{kind} {name} in {namespace}"),
    }
}

fn in_dot(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Escapes text for Mermaid, in which `#` begins an entity.
fn in_mermaid(text: &str) -> String {
    let escaped = |c: char| match c {
        '#' | '"' | '<' | '>' | '&' | '`' | '\\' | '|' | '[' | ']' => format!("#{};", u32::from(c)),
        c => c.to_string(),
    };
    one_line(text).chars().map(escaped).collect()
}

/// The graph of the steps of all paths, without duplicates.
struct Drawing {
    numbers: BTreeMap<Identity, usize>,
    edges: Vec<DrawnEdge>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DrawnEdge {
    from: usize,
    to: usize,
    label: String,
    is_refuted: bool,
}

// === impl Drawing ===

impl Drawing {
    fn of(escalations: &Escalations) -> Self {
        let (mut numbers, mut edges) = (BTreeMap::new(), Vec::new());
        for path in escalations.paths.iter().chain(&escalations.refuted) {
            let mut at = number(&mut numbers, &path.from);
            for step in &path.steps {
                let to = number(&mut numbers, &step.becomes);
                edges.push(DrawnEdge::of(at, to, step));
                at = to;
            }
        }
        edges.sort();
        edges.dedup();
        Self { numbers, edges }
    }

    fn nodes(&self) -> impl Iterator<Item = (String, usize)> {
        self.numbers
            .iter()
            .map(|(identity, number)| (in_words(identity), *number))
    }
}

fn number(numbers: &mut BTreeMap<Identity, usize>, identity: &Identity) -> usize {
    let next = numbers.len();
    *numbers.entry(identity.clone()).or_insert(next)
}

impl DrawnEdge {
    fn of(from: usize, to: usize, step: &EscalationStep) -> Self {
        let by = |policy: &ObjectName| format!(", prevented by {}/{}", policy.kind, policy.name);
        let refuted: String = step.refuted_by.iter().map(by).collect();
        Self {
            from,
            to,
            label: format!("{}{refuted}", step.by),
            is_refuted: !step.refuted_by.is_empty(),
        }
    }
}

/// The name of a running Pod, by namespace and name of its service account.
pub type RunningPods = BTreeMap<(String, String), String>;

impl EscalationAnswer {
    /// Adds to each step that needs a running Pod the name of one. `running` must have a Pod for
    /// each service account that has any.
    pub fn name_running(&mut self, running: &RunningPods) {
        let paths = self.0.paths.iter_mut().chain(&mut self.0.refuted);
        for step in paths.flat_map(|path| &mut path.steps) {
            let Identity { namespace, name, .. } = &step.becomes;
            let is_end = |rest: &&str| rest.is_empty() || rest.starts_with(',');
            for limit in &mut step.limits {
                let Some(rest) = limit.strip_prefix(RUNS).filter(is_end) else {
                    continue;
                };
                *limit = match running.get(&(namespace.clone(), name.clone())) {
                    Some(pod) => format!("Pod {namespace}/{pod} runs as it{rest}"),
                    None => format!("{RUNS}, which none does now{rest}"),
                };
            }
        }
    }
}

// === impl PathReport ===

impl<'a> From<&'a EscalationPath> for PathReport<'a> {
    fn from(path: &'a EscalationPath) -> Self {
        Self {
            from: (&path.from).into(),
            to: (&path.to).into(),
            steps: path.steps.iter().map(StepReport::from).collect(),
        }
    }
}

impl<'a> From<&'a EscalationStep> for StepReport<'a> {
    fn from(step: &'a EscalationStep) -> Self {
        Self {
            by: &step.by,
            via: &step.via,
            becomes: (&step.becomes).into(),
            limits: &step.limits,
            refuted_by: &step.refuted_by,
            admission: admission_of(step).map(|admission| AdmissionReport {
                allowed: admission.is_admitted,
                refused_by: admission.refused_by.as_slice(),
                message: &admission.message,
            }),
        }
    }
}

impl<'a> From<&'a Identity> for IdentityReport<'a> {
    fn from(identity: &'a Identity) -> Self {
        Self {
            kind: identity.kind,
            name: &identity.name,
            namespace: &identity.namespace,
        }
    }
}
