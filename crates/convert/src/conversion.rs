//! What a conversion results in: objects, or why a policy is not converted, and at which of its fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_policy::document;
use portcullis_policy::document::Document;
use portcullis_policy::field::{FieldPath, PathSegment, Place, Severity};
use portcullis_policy::manifest::{Compilation, ObjectSet, Options, Source, SourceObjects};
use portcullis_policy::model::Deadline;
use serde_json::{Value, json};

/// The objects that a policy becomes, or why it becomes none.
#[derive(Debug, Default)]
pub struct Conversion {
    /// The converted policies, in the order of what they come from.
    pub objects: Vec<Value>,
    /// Why it is not converted; with any of them there are no objects.
    pub refusals: Vec<Remark>,
    /// What to know about the objects.
    pub notes: Vec<Remark>,
    /// How many policies were converted.
    pub converted: usize,
    /// Where the fields of the objects' `spec` come from; none: from `spec`.
    pub(crate) base: Option<FieldPath>,
}

/// Something about a place of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    /// The object and its field.
    pub place: Place,
    /// What is said of it.
    pub text: String,
}

/// A policy of `kind` in `admissionregistration.k8s.io/v1`, and a binding of the same name.
pub(crate) fn policy_and_binding(kind: &str, name: &str, spec: Value, mut binding: Value) -> [Value; 2] {
    let api_version = "admissionregistration.k8s.io/v1";
    if let Some(binding) = binding.as_object_mut() {
        binding.insert("policyName".to_owned(), name.into());
    }
    [
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }),
        json!({
            "apiVersion": api_version,
            "kind": format!("{kind}Binding"),
            "metadata": {"name": name},
            "spec": binding,
        }),
    ]
}

/// A message of an admission policy, which has one line.
pub(crate) fn on_one_line(text: &str) -> String {
    if text.trim() == text && !text.contains(['\n', '\r']) {
        return text.to_owned();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A reason, and the path below what was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    /// From the inside to the outside.
    steps: Vec<PathSegment>,
    pub(crate) reason: String,
}

/// A refusal of the field `name`.
pub(crate) fn of<T>(name: &str, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(name, reason))
}

/// Refuses the first field that is none of the `known` ones.
pub(crate) fn unknown(object: &Value, known: &[&str]) -> Result<(), Refusal> {
    let fields = object.as_object().into_iter().flatten();
    match fields
        .map(|(name, _)| name)
        .find(|name| !known.contains(&name.as_str()))
    {
        Some(name) => of(name, "this field has no counterpart"),
        None => Ok(()),
    }
}

// === impl Conversion ===

impl Conversion {
    /// Says why the policy of `document` is not converted.
    pub(crate) fn refuse(&mut self, document: &Document, path: &FieldPath, text: impl Into<String>) {
        let remark = Remark::new(document, path, text);
        if !self.refusals.contains(&remark) {
            self.refusals.push(remark);
        }
    }

    /// Says what to know about the policy of `document`.
    pub(crate) fn note(&mut self, document: &Document, path: &FieldPath, text: impl Into<String>) {
        let remark = Remark::new(document, path, text);
        if !self.notes.contains(&remark) {
            self.notes.push(remark);
        }
    }

    /// Without objects and notes, if anything was refused: nothing is half converted.
    pub(crate) fn whole(mut self) -> Self {
        if !self.refusals.is_empty() {
            self.objects.clear();
            self.notes.clear();
        }
        self
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.objects.append(&mut other.objects);
        self.refusals.append(&mut other.refusals);
        self.notes.append(&mut other.notes);
        self.converted += other.converted;
    }

    /// How many policies were converted and refused, and for which reasons.
    pub fn summary(&self) -> Summary {
        let mut refused = BTreeSet::new();
        let mut reasons: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
        for refusal in &self.refusals {
            let Place {
                file, line, object, ..
            } = &refusal.place;
            let line = object.is_empty().then_some(*line);
            let policy = (file.clone(), object.clone(), line);
            refused.insert(policy.clone());
            reasons
                .entry(kind_of_reason(&refusal.text))
                .or_default()
                .insert(policy);
        }
        let mut reasons: Vec<(String, usize)> = reasons
            .into_iter()
            .map(|(reason, policies)| (reason, policies.len()))
            .collect();
        reasons.sort_by_key(|(_, policies)| std::cmp::Reverse(*policies));
        Summary {
            converted: self.converted,
            refused: refused.len(),
            reasons,
        }
    }
}

/// How many policies were converted, and why the others were not.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many policies became objects.
    pub converted: usize,
    /// How many did not.
    pub refused: usize,
    /// For how many of these each reason was given, the most frequent one first.
    pub reasons: Vec<(String, usize)>,
}

/// A reason with `…` in place of what it quotes, so that those of one kind are the same.
fn kind_of_reason(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts: Vec<&str> = parts
        .map(|(index, part)| if index % 2 == 1 { "…" } else { part })
        .collect();
    parts.join("`")
}

// === impl Remark ===

impl Remark {
    pub(crate) fn new(document: &Document, path: &FieldPath, text: impl Into<String>) -> Self {
        Self {
            place: document.place(path.clone()),
            text: text.into(),
        }
    }

    /// The same as JSON.
    pub fn for_programs(&self) -> Value {
        let Place {
            file,
            line,
            object,
            path,
            ..
        } = &self.place;
        json!({"file": file.as_deref(), "line": line, "object": object, "path": path.to_string(), "reason": self.text})
    }
}

// Whether what was made loads: an API server would refuse what does not.

/// The same, refused where the objects have a fault. `document` is what they come from, whose
/// fields have the same paths, or else the fault is reported for the object as a whole. After the deadline
/// nothing is compiled, and everything that has expressions is refused.
pub(crate) fn checked(document: &Document, mut made: Conversion, deadline: Deadline<'_>) -> Conversion {
    if made.objects.is_empty() {
        return made.whole();
    }
    let options = Options::default();
    let version = options.cel_version;
    let read = |object| {
        let source = Source {
            file: String::new(),
            text: document::to_yaml(object),
            cluster: None,
        };
        Arc::new(SourceObjects::read(
            &source,
            Compilation { version, deadline },
            None,
        ))
    };
    let (_, faults) = ObjectSet::new(made.objects.iter().map(read).collect(), &options, None);
    for fault in faults.iter().filter(|fault| fault.severity == Severity::Error) {
        let path = rebased(&fault.place.path, made.base.as_ref());
        made.refuse(document, &path, reason(&fault.message));
    }
    made.whole()
}

/// What an API server would say, in fewer words where a name is missing.
fn reason(message: &str) -> String {
    let undeclared = message
        .split_once("undeclared reference to '")
        .and_then(|(_, rest)| rest.split_once('\''));
    match undeclared {
        Some((name, _)) => format!("Kubernetes has no `{name}` for this expression"),
        None => format!("an API server would refuse it: {message}"),
    }
}

/// `spec.a` as `base.a`.
fn rebased(path: &FieldPath, base: Option<&FieldPath>) -> FieldPath {
    let Some(base) = base else {
        return path.clone();
    };
    let within = path.steps().iter().skip(1);
    within.fold(base.clone(), |path, step| match step {
        PathSegment::Field(name) => path.field(name),
        PathSegment::Key(key) => path.key(key),
        PathSegment::Index(index) => path.index(*index),
    })
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn new(name: &str, reason: impl Into<String>) -> Self {
        Self {
            steps: vec![PathSegment::Field(name.into())],
            reason: reason.into(),
        }
    }

    /// A refusal of the whole.
    pub(crate) fn here(reason: impl Into<String>) -> Self {
        Self {
            steps: Vec::new(),
            reason: reason.into(),
        }
    }

    /// The same, seen from what has it in the field `name`.
    pub(crate) fn within(mut self, name: &str) -> Self {
        self.steps.push(PathSegment::Field(name.into()));
        self
    }

    /// The same, seen from the list that has it.
    pub(crate) fn within_index(mut self, index: usize) -> Self {
        self.steps.push(PathSegment::Index(index));
        self
    }

    /// Where it is below `base`.
    pub(crate) fn path(&self, base: &FieldPath) -> FieldPath {
        self.steps
            .iter()
            .rev()
            .fold(base.clone(), |path, step| match step {
                PathSegment::Field(name) => path.field(name),
                PathSegment::Key(key) => path.key(key),
                PathSegment::Index(index) => path.index(*index),
            })
    }
}
