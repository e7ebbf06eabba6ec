//! What came of a conversion: objects, or why there are none.

use serde_json::{Value, json};

use portcullis_policy::document::Document;
use portcullis_policy::field::{FieldPath, Place};

/// The objects that a policy becomes, or why it becomes none.
#[derive(Debug, Default)]
pub struct Conversion {
    /// The converted policies, in the order of what they come from.
    pub objects: Vec<Value>,
    /// Why it is not converted; with any of them there are no objects.
    pub refusals: Vec<Remark>,
    /// What to know about the objects.
    pub notes: Vec<Remark>,
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
    }
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
