//! `admission`: settings of admission that are not in manifests.

use super::section::Section;
use portcullis_cel::Version;
use portcullis_policy::engine::admission::FailurePolicy;
use portcullis_policy::engine::admission::matching::MissingNamespace;

/// The values of `missingNamespace`, as the configuration and `scan` spell them.
pub(crate) const MISSING_NAMESPACE: [(&str, MissingNamespace); 2] = [
    ("Fail", MissingNamespace::Fail),
    ("NameOnly", MissingNamespace::NameOnly),
];

/// Defaults of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionDefaults {
    /// For errors outside any policy or webhook, such as those of initializers.
    pub failure_policy: FailurePolicy,
    /// When a namespaceSelector asks about a namespace that no manifest describes.
    pub missing_namespace: MissingNamespace,
    /// Whether `/validate` refuses what Denies and Limits refuse.
    pub enforce_authorization: bool,
    /// What expressions are compiled for, those of authorization too.
    pub cel_version: Version,
}

pub(crate) fn admission(root: &Section<'_>) -> AdmissionDefaults {
    let fields = [
        "failurePolicy",
        "missingNamespace",
        "celVersion",
        "enforceAuthorization",
    ];
    let section = root.section("admission", &fields);
    let policies = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
    let names = Version::EXACT.map(|version| version.to_string());
    let versions: Vec<_> = names.iter().map(String::as_str).zip(Version::EXACT).collect();
    AdmissionDefaults {
        cel_version: section.choice("celVersion", &versions).unwrap_or_default(),
        enforce_authorization: section.boolean("enforceAuthorization").unwrap_or_default(),
        failure_policy: section.choice("failurePolicy", &policies).unwrap_or_default(),
        missing_namespace: section
            .choice("missingNamespace", &MISSING_NAMESPACE)
            .unwrap_or_default(),
    }
}
