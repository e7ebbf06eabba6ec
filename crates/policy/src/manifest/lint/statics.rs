//! Static policies, bindings and webhooks, and what they must do without.
//!
//! `apiserver/pkg/admission/plugin/{webhook,policy}/manifest/loader/loader.go`: an API server
//! reads such objects before it serves anything, so nothing in them refers to what it stores.

use super::Lint;
use crate::engine::admission::webhook::{WebhookConfiguration, WebhookTarget};
use crate::engine::admission::{Applicability, PolicyBinding, STATIC_SUFFIX};
use crate::field::FieldPath;
use crate::manifest::admission::AdmissionObject;

/// What kube-apiserver does with an object that breaks one of its rules.
const NOT_LOADED: &str = "kube-apiserver loads no file of its `staticManifestsDir` that has one";

/// Warns where `admission` is static and breaks a rule for such objects, or binds what is static
/// and is not static itself.
pub(crate) fn lint(admission: &AdmissionObject, lint: &mut Lint<'_>) {
    match admission {
        AdmissionObject::ValidatingPolicy(policy) => policy_alone(&policy.applicability, lint),
        AdmissionObject::MutatingPolicy(policy) => policy_alone(&policy.applicability, lint),
        AdmissionObject::ValidatingBinding(binding) | AdmissionObject::MutatingBinding(binding) => {
            binding_alone(binding, lint);
        }
        AdmissionObject::ValidatingWebhooks(configuration)
        | AdmissionObject::MutatingWebhooks(configuration) => services(configuration, lint),
        AdmissionObject::Initializers(_) => {}
    }
}

fn policy_alone(policy: &Applicability, lint: &mut Lint<'_>) {
    if policy.is_static && policy.param_kind.is_some() {
        let message = format!(
            "a static policy, whose name ends in `{STATIC_SUFFIX}`, takes no parameters: {NOT_LOADED}. Write the \
             values into its expressions, or give it another name"
        );
        lint.suspicious(&FieldPath::root().field("spec").field("paramKind"), message);
    }
}

fn binding_alone(binding: &PolicyBinding, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    let binds_static = binding.policy.ends_with(STATIC_SUFFIX);
    if binding.is_static && !binds_static {
        let message = format!(
            "a static binding, whose name ends in `{STATIC_SUFFIX}`, binds static policies alone: {NOT_LOADED} \
             for another. Give the policy such a name, or the binding another"
        );
        lint.suspicious(&spec.field("policyName"), message);
    }
    if binding.is_static && binding.param_ref.is_some() {
        let message = format!("a static binding has no parameters: {NOT_LOADED}");
        lint.suspicious(&spec.field("paramRef"), message);
    }
    if binds_static && !binding.is_static {
        let message = format!(
            "`{}` is static, and this binding is not, so by it the policy never judges policies and bindings: \
             give the binding a name that ends in `{STATIC_SUFFIX}`",
            binding.policy
        );
        lint.suspicious(&spec.field("policyName"), message);
    }
}

fn services(configuration: &WebhookConfiguration, lint: &mut Lint<'_>) {
    if !configuration.is_static {
        return;
    }
    for (index, webhook) in configuration.webhooks.iter().enumerate() {
        if matches!(webhook.client.target, WebhookTarget::Service { .. }) {
            let path = FieldPath::root().field("webhooks").index(index);
            let message = format!(
                "a webhook of a static configuration, whose name ends in `{STATIC_SUFFIX}`, is called by `url`: \
                 {NOT_LOADED} with a `service`"
            );
            lint.suspicious(&path.field("clientConfig").field("service"), message);
        }
    }
}
