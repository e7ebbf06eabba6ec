//! The kinds of `admissionregistration.k8s.io`: defaults, validation with every
//! fault at its field, and the engine's form.

mod binding;
mod expressions;
mod parameters;
mod policy;
mod rules;
mod validating;

use std::sync::Arc;

use super::report::Report;
use super::{Manifests, Scope};
use crate::document::Document;
use crate::engine::admission::{
    AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings, Binding, ValidatingPolicy,
};
use crate::field::{FaultKind, Faults, FieldPath};
use crate::json;

/// What such an object says.
#[derive(Debug, Clone)]
pub(super) enum Admission {
    ValidatingPolicy(Arc<ValidatingPolicy>),
    ValidatingBinding(Arc<Binding>),
}

impl Admission {
    /// Puts it where the engine looks for it.
    pub(super) fn add_to(self, objects: &mut AdmissionObjects) {
        match self {
            Self::ValidatingPolicy(policy) => objects.validating.push(policy),
            Self::ValidatingBinding(binding) => objects.validating_bindings.push(binding),
        }
    }
}

/// The object as expressions see it. What cannot be JSON was no object either.
pub(super) fn json(document: &Document) -> Option<Arc<json::Document<'static>>> {
    json::Document::parse(document.root().to_json().to_string())
        .ok()
        .map(Arc::new)
}

impl Manifests {
    /// What decides admission for every cluster: a cluster with manifests of
    /// its own is decided for by these and the shared ones together.
    #[must_use]
    pub fn admission(&self, settings: &AdmissionSettings) -> AdmissionPolicies {
        let set = |own: Option<&Scope>| {
            let objects = own.into_iter().fold(self.shared.admission.clone(), together);
            Arc::new(AdmissionSet::new(objects, settings))
        };
        AdmissionPolicies {
            shared: set(None),
            clusters: self
                .clusters
                .iter()
                .map(|(name, scope)| (name.clone(), set(Some(scope))))
                .collect(),
        }
    }
}

fn together(mut shared: AdmissionObjects, own: &Scope) -> AdmissionObjects {
    let AdmissionObjects {
        validating,
        validating_bindings,
        namespaces,
        parameters,
    } = own.admission.clone();
    shared.validating.extend(validating);
    shared.validating_bindings.extend(validating_bindings);
    shared.namespaces.extend(namespaces);
    shared.parameters.extend(parameters);
    shared
}

/// Reads the object; what is wrong with it goes to `faults`, and then there is none.
pub(super) fn read(document: &Document, faults: &mut Faults) -> Option<Admission> {
    match document.text("kind").unwrap_or_default() {
        "ValidatingAdmissionPolicy" => {
            let policy = document.decode(faults)?;
            let policy = validating::read(policy, &mut Report::new(document, faults))?;
            Some(Admission::ValidatingPolicy(Arc::new(policy)))
        }
        "ValidatingAdmissionPolicyBinding" => {
            let binding = document.decode(faults)?;
            let binding = binding::read_validating(binding, &mut Report::new(document, faults))?;
            Some(Admission::ValidatingBinding(Arc::new(binding)))
        }
        "MutatingAdmissionPolicyBinding" => {
            let binding = document.decode(faults)?;
            binding::read_mutating(binding, &mut Report::new(document, faults));
            unsupported(document, faults)
        }
        _ => unsupported(document, faults),
    }
}

/// A kind that nothing here acts on must not look as if it were in force.
fn unsupported(document: &Document, faults: &mut Faults) -> Option<Admission> {
    let kind = document.text("kind").unwrap_or_default();
    let message = format!("`{kind}` is not supported by this version");
    Report::new(document, faults).fault(FaultKind::NotSupported, &FieldPath::root().field("kind"), message);
    None
}
