//! Kyverno's policies in CEL (`policies.kyverno.io`).
//!
//! A ValidatingPolicy is a ValidatingAdmissionPolicy with its binding in one object; what Kyverno
//! adds to Kubernetes' CEL and to admission is refused. For policies on Pods Kyverno also makes
//! policies on what makes Pods, and so does the conversion (`autogen`).

mod autogen;
mod expressions;
mod mutating;
mod patches;
mod spec;
mod validating;

use super::conversion::Conversion;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// Converts the object that `document` is, of the kind `kind` of `policies.kyverno.io`.
pub(crate) fn convert(document: &Document, kind: &str) -> Conversion {
    match kind {
        "ValidatingPolicy" => validating::convert(document),
        "MutatingPolicy" => mutating::convert(document),
        _ => refused(document, kind),
    }
}

/// Refuses an object of a kind that has no counterpart.
pub(crate) fn refused(document: &Document, kind: &str) -> Conversion {
    let mut made = Conversion::default();
    let reason = match kind {
        "ClusterPolicy" | "Policy" => {
            "its patterns and JMESPath are no CEL: only kinds of `policies.kyverno.io` are converted"
        }
        "ImageValidatingPolicy" | "NamespacedImageValidatingPolicy" => "admission policies verify no images",
        "GeneratingPolicy" | "NamespacedGeneratingPolicy" => "admission policies create no objects",
        "DeletingPolicy" | "NamespacedDeletingPolicy" => "admission policies delete no objects",
        "PolicyException" => {
            "write an AdmissionException, which names whom and what it excuses, and until when"
        }
        "NamespacedValidatingPolicy" | "NamespacedMutatingPolicy" => {
            "admission policies belong to no namespace: write a policy for the cluster"
        }
        _ => "objects of this kind are not converted",
    };
    made.refuse(document, &FieldPath::root().field("kind"), reason);
    made
}

#[cfg(test)]
mod tests;
