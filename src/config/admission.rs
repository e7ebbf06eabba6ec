//! `admission`: settings of admission that are not in manifests.

use super::section::Section;
use crate::engine::admission::FailurePolicy;
use crate::engine::admission::matching::MissingNamespace;

/// Defaults of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionDefaults {
    /// For errors outside any policy or webhook, such as those of initializers.
    pub failure_policy: FailurePolicy,
    /// When a namespaceSelector asks about a namespace that no manifest describes.
    pub missing_namespace: MissingNamespace,
}

pub(super) fn admission(root: &Section<'_>) -> AdmissionDefaults {
    let section = root.section("admission", &["failurePolicy", "missingNamespace"]);
    let policies = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
    let missing = [
        ("Fail", MissingNamespace::Fail),
        ("NameOnly", MissingNamespace::NameOnly),
    ];
    AdmissionDefaults {
        failure_policy: section.choice("failurePolicy", &policies).unwrap_or_default(),
        missing_namespace: section.choice("missingNamespace", &missing).unwrap_or_default(),
    }
}
