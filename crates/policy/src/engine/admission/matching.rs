//! Matching: the requests to which a policy or webhook applies, with one implementation
//! for both.
//!
//! ```text
//! request ─▶ index: by group and resource ─▶ namespaceSelector ─▶ objectSelector
//!                                                                        │
//!     the resource, in one version ◀─ rules, exact then equivalent ◀─────┘
//! ```
//!
//! Follows `ShouldCallHook` of `apiserver/pkg/admission/plugin/webhook/generic`
//! and `Matches` of `…/plugin/policy/matching`, which share their parts too.

mod builtin;
mod constraints;
mod custom;
mod equivalence;
mod index;
mod labels;
mod mismatch;
mod namespace;
mod rule;
mod versions;

pub use constraints::{Constraints, MatchPolicy, MatchSubject, MatchedResource, NoRules};
pub use custom::{CustomResource, CustomResources};
pub use equivalence::Equivalents;
pub use index::Index;
pub(crate) use labels::label;
pub use labels::selects_object;
pub use mismatch::Mismatch;
pub(crate) use namespace::LayeredNamespaces;
pub use namespace::{FixedNamespaces, MissingNamespace, Namespaces, selects_namespace};
pub use rule::{MatchRule, Operations, RuleScope, RuleTarget};
pub(crate) use versions::is_own_group;

/// Why it cannot be said whether something applies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatchError {
    /// A selector asks about labels of a namespace that is not known.
    #[error(
        "namespaces \"{name}\" not found: the gateway knows no such namespace, and a namespaceSelector asks for its \
         labels; add the Namespace to the manifests, watch it by `clusters`, or set \
         `admission.missingNamespace: NameOnly`"
    )]
    UnknownNamespace {
        /// The namespace.
        name: String,
    },
    /// A Namespace without metadata.
    #[error("object does not implement the Object interfaces")]
    NoMetadata,
    /// It applies to the object in a version in which the API server did not send it.
    #[error(
        "unable to convert to {wanted}: the API server sent {sent}; \
         register this webhook for the version that the policy names"
    )]
    OtherVersion {
        /// The version that the rule names.
        wanted: String,
        /// The version in which the object came.
        sent: String,
    },
    /// It applies to the object as another resource, whose kind is not known.
    #[error("unable to convert to {wanted}: unknown kind")]
    UnknownKind {
        /// The resource that the rule names.
        wanted: String,
    },
}

#[cfg(test)]
mod tests;
