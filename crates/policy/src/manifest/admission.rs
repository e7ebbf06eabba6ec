//! The kinds of `admissionregistration.k8s.io`: defaults, validation, and compilation to the
//! engine's types.

mod binding;
mod legacy;
mod policy;
mod rules;
#[cfg(test)]
mod tests;
mod webhooks;

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBinding,
};

pub use legacy::{MigratedObject, migrate};
pub(crate) use policy::conditions;
pub(crate) use rules::{compile_match_resources, default_match_resources, validate_match_resources};

use super::report::{ObjectCompilation, Report};
use crate::admission::webhook::WebhookConfiguration;
use crate::admission::{
    AdmissionObjects, InitializerConfiguration, MutatingPolicy, PolicyBinding, ValidatingPolicy,
};
use crate::document::Document;
use crate::field::Faults;
use portcullis_cel::json;

/// A compiled object of one of these kinds.
#[derive(Debug, Clone)]
pub(crate) enum AdmissionObject {
    ValidatingPolicy(Arc<ValidatingPolicy>),
    ValidatingBinding(Arc<PolicyBinding>),
    MutatingPolicy(Arc<MutatingPolicy>),
    MutatingBinding(Arc<PolicyBinding>),
    Initializers(Arc<InitializerConfiguration>),
    ValidatingWebhooks(Arc<WebhookConfiguration>),
    MutatingWebhooks(Arc<WebhookConfiguration>),
}

impl AdmissionObject {
    /// The names by which an AdmissionException can refer to it: the name of a
    /// ValidatingAdmissionPolicy, and `configuration/webhook` of validating webhooks.
    pub(crate) fn excusable(&self) -> Vec<String> {
        match self {
            Self::ValidatingPolicy(policy) => vec![policy.applicability.name.clone()],
            Self::ValidatingWebhooks(configuration) => configuration
                .webhooks
                .iter()
                .map(|webhook| webhook.id())
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Adds it to the list of its kind.
    pub(crate) fn add_to(self, objects: &mut AdmissionObjects) {
        match self {
            Self::ValidatingPolicy(policy) => objects.validating.push(policy),
            Self::ValidatingBinding(binding) => objects.validating_bindings.push(binding),
            Self::MutatingPolicy(policy) => objects.mutating.push(policy),
            Self::MutatingBinding(binding) => objects.mutating_bindings.push(binding),
            Self::Initializers(configuration) => objects.initializers.push(configuration),
            Self::ValidatingWebhooks(configuration) => objects.validating_webhooks.push(configuration),
            Self::MutatingWebhooks(configuration) => objects.mutating_webhooks.push(configuration),
        }
    }
}

/// The object as JSON, for expressions; `None` if it cannot be represented, and so is not a valid
/// object.
pub(crate) fn json(document: &Document) -> Option<Arc<json::Document<'static>>> {
    json::Document::parse(document.root().to_json().to_string())
        .ok()
        .map(Arc::new)
}

/// The version in which policies and bindings are decoded. v1beta1 has the same fields and
/// defaults, v1alpha1 has one more default ([`binding::default_v1alpha1`]).
const V1: &str = "admissionregistration.k8s.io/v1";

/// Reads the object and compiles its expressions. Errors are added to `faults`, and then there is
/// no object.
pub(crate) fn read(
    document: &Document,
    is_static: bool,
    compilation: &ObjectCompilation<'_>,
    faults: &mut Faults,
) -> Option<AdmissionObject> {
    match document.text("kind").unwrap_or_default() {
        "ValidatingAdmissionPolicy" => {
            let policy = document.in_version(V1).decode(faults)?;
            let mut report = Report::new(document, faults).compiling(compilation);
            let mut policy = policy::read_validating(policy, &mut report)?;
            policy.applicability.is_static = is_static;
            Some(AdmissionObject::ValidatingPolicy(Arc::new(policy)))
        }
        "ValidatingAdmissionPolicyBinding" => {
            let mut binding: ValidatingAdmissionPolicyBinding = document.in_version(V1).decode(faults)?;
            binding::default_v1alpha1(document, binding.spec.param_ref.as_mut());
            let mut binding = binding::read_validating(binding, &mut Report::new(document, faults))?;
            binding.is_static = is_static;
            Some(AdmissionObject::ValidatingBinding(Arc::new(binding)))
        }
        "MutatingAdmissionPolicy" => {
            let policy = document.in_version(V1).decode(faults)?;
            let mut report = Report::new(document, faults).compiling(compilation);
            let mut policy = policy::read_mutating(policy, &mut report)?;
            policy.applicability.is_static = is_static;
            Some(AdmissionObject::MutatingPolicy(Arc::new(policy)))
        }
        "MutatingAdmissionPolicyBinding" => {
            let mut binding: MutatingAdmissionPolicyBinding = document.in_version(V1).decode(faults)?;
            let spec = binding.spec.as_mut();
            binding::default_v1alpha1(document, spec.and_then(|spec| spec.param_ref.as_mut()));
            let mut binding = binding::read_mutating(binding, &mut Report::new(document, faults))?;
            binding.is_static = is_static;
            Some(AdmissionObject::MutatingBinding(Arc::new(binding)))
        }
        "InitializerConfiguration" => {
            let configuration = legacy::read_initializers(document, faults)?;
            Some(AdmissionObject::Initializers(Arc::new(legacy::compile(
                configuration,
            ))))
        }
        "ValidatingWebhookConfiguration" => {
            let kind = webhooks::ConfigurationKind::Validating;
            let mut configuration = webhooks::read(document, kind, compilation, faults)?;
            configuration.is_static = is_static;
            Some(AdmissionObject::ValidatingWebhooks(Arc::new(configuration)))
        }
        "MutatingWebhookConfiguration" => {
            let kind = webhooks::ConfigurationKind::Mutating;
            let mut configuration = webhooks::read(document, kind, compilation, faults)?;
            configuration.is_static = is_static;
            Some(AdmissionObject::MutatingWebhooks(Arc::new(configuration)))
        }
        "ExternalAdmissionHookConfiguration" => {
            let (_, configuration) = legacy::read_hooks(document, faults)?;
            Some(AdmissionObject::ValidatingWebhooks(Arc::new(configuration)))
        }
        _ => None,
    }
}
