//! `admission`: what holds for admission beside the manifests.

use super::section::Section;

/// Defaults of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Admission {
    /// For errors outside any policy or webhook, such as those of initializers.
    pub failure_policy: FailurePolicy,
    /// When a namespaceSelector asks about a namespace that no manifest describes.
    pub missing_namespace: MissingNamespace,
}

/// What an error makes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// It is refused.
    #[default]
    Fail,
    /// It goes on as if there had been no error.
    Ignore,
}

/// What a selector sees of a namespace that no manifest describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingNamespace {
    /// Nothing: the policy or webhook fails, unless the selector asks for the name alone.
    #[default]
    Fail,
    /// The label `kubernetes.io/metadata.name` alone.
    NameOnly,
}

pub(super) fn admission(root: &Section<'_>) -> Admission {
    let section = root.section("admission", &["failurePolicy", "missingNamespace"]);
    let policies = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
    let missing = [
        ("Fail", MissingNamespace::Fail),
        ("NameOnly", MissingNamespace::NameOnly),
    ];
    Admission {
        failure_policy: section.choice("failurePolicy", &policies).unwrap_or_default(),
        missing_namespace: section.choice("missingNamespace", &missing).unwrap_or_default(),
    }
}
