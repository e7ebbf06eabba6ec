//! The result of a conversion: objects, or the reasons why a policy is refused, with the fields
//! concerned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_policy::document;
use portcullis_policy::document::Document;
use portcullis_policy::field::{FieldPath, PathSegment, Place, Severity};
use portcullis_policy::manifest::{Compilation, ObjectSet, Options, Source, SourceObjects};
use portcullis_policy::model::Deadline;
use serde_json::{Value, json};

/// The objects that policies are converted to, and the reasons why others are refused.
#[derive(Debug, Default)]
pub struct Conversion {
    /// The converted policies, in the order of their sources.
    pub objects: Vec<Value>,
    /// Why a policy is refused. A refused policy has no objects.
    pub refusals: Vec<Remark>,
    /// Notes on the objects.
    pub notes: Vec<Remark>,
    /// The number of converted policies.
    pub converted: usize,
    /// The path of the fields from which the objects' `spec` is made; `None` for `spec`.
    pub(crate) base: Option<FieldPath>,
}

/// A remark on a field of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    /// The object and its field.
    pub place: Place,
    /// The remark.
    pub text: String,
}

/// A policy of `kind` in `admissionregistration.k8s.io/v1`, and a binding with the same name.
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

/// Joins the lines of a message, because those of admission policies must be one line.
pub(crate) fn on_one_line(text: &str) -> String {
    if text.trim() == text && !text.contains(['\n', '\r']) {
        return text.to_owned();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The reason for a refusal, and the path of the field concerned, below the value that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    /// The steps of the path, the last one first.
    steps: Vec<PathSegment>,
    pub(crate) reason: String,
}

/// Refuses the field `name`.
pub(crate) fn of<T>(name: &str, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(name, reason))
}

/// Refuses the first field that is not one of `known`.
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
    /// Adds a reason why the policy of `document` is refused.
    pub(crate) fn refuse(&mut self, document: &Document, path: &FieldPath, text: impl Into<String>) {
        let remark = Remark::new(document, path, text);
        if !self.refusals.contains(&remark) {
            self.refusals.push(remark);
        }
    }

    /// Adds a note on the converted policy of `document`.
    pub(crate) fn note(&mut self, document: &Document, path: &FieldPath, text: impl Into<String>) {
        let remark = Remark::new(document, path, text);
        if !self.notes.contains(&remark) {
            self.notes.push(remark);
        }
    }

    /// Drops objects and notes if anything was refused: a policy is converted completely or not at
    /// all.
    pub(crate) fn all_or_nothing(mut self) -> Self {
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

    /// Counts converted and refused policies, and the reasons.
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

/// The numbers of converted and refused policies, with the reasons.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    /// The number of converted policies.
    pub converted: usize,
    /// The number of refused policies.
    pub refused: usize,
    /// For each reason, the number of policies refused for it; the most frequent one first.
    pub reasons: Vec<(String, usize)>,
}

/// Replaces what a reason quotes by `…`, so that reasons of the same kind are equal.
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

    /// The remark as JSON.
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

// Checks that converted objects load. An API server would reject those that do not.

/// Refuses the conversion if its objects have errors. An error is reported at the same path in
/// `document`, the source of the objects, or for the object as a whole. After the deadline nothing
/// is compiled, and every object with expressions is refused.
pub(crate) fn checked(document: &Document, mut made: Conversion, deadline: Deadline<'_>) -> Conversion {
    if made.objects.is_empty() {
        return made.all_or_nothing();
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
    made.all_or_nothing()
}

/// The message of an API server, shortened if a name is undeclared.
fn reason(message: &str) -> String {
    let undeclared = message
        .split_once("undeclared reference to '")
        .and_then(|(_, rest)| rest.split_once('\''));
    match undeclared {
        Some((name, _)) => format!("Kubernetes has no `{name}` for this expression"),
        None => format!("an API server would refuse it: {message}"),
    }
}

/// Replaces `spec` at the start of a path by `base`.
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

    /// A refusal of the whole value.
    pub(crate) fn whole(reason: impl Into<String>) -> Self {
        Self {
            steps: Vec::new(),
            reason: reason.into(),
        }
    }

    /// The same refusal, seen from the object that has the value in the field `name`.
    pub(crate) fn within(mut self, name: &str) -> Self {
        self.steps.push(PathSegment::Field(name.into()));
        self
    }

    /// The same refusal, seen from the list that has the value at `index`.
    pub(crate) fn within_index(mut self, index: usize) -> Self {
        self.steps.push(PathSegment::Index(index));
        self
    }

    /// The full path, if the value that was read is at `base`.
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
