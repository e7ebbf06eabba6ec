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

mod constraints;
mod custom;
mod equivalence;
mod namespace;
mod rule;

pub use constraints::{Constraints, Index, MatchPolicy, MatchSubject, MatchedResource, NoRules};
pub use custom::{CustomResource, CustomResources};
pub use equivalence::Equivalents;
pub use namespace::{FixedNamespaces, MissingNamespace, Namespaces, selects_namespace, selects_object};
pub use rule::{MatchRule, Operations, RuleScope, RuleTarget};

pub(crate) use equivalence::is_own_group;
pub(crate) use namespace::{LayeredNamespaces, label};

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

// The reasons why a policy or webhook does not apply to a request.

/// Why a policy or binding does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// No binding names the policy.
    Unbound,
    /// None of `resourceRules` is about such a request.
    Rules,
    /// One of `excludeResourceRules` is.
    Excluded,
    /// `namespaceSelector` does not select the namespace.
    Namespace,
    /// `objectSelector` selects neither the object nor the old one.
    Object,
    /// There is no parameter, which the binding allows.
    NoParameter,
    /// Reviews of access and of tokens are shown to no webhook.
    Exempt,
    /// What configures admission is shown to static policies and webhooks alone.
    NotStatic,
}

impl Mismatch {
    /// Why, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unbound => "no binding names it",
            Self::Rules => "no rule is about such a request",
            Self::Excluded => "excludeResourceRules leaves such requests out",
            Self::Namespace => "namespaceSelector does not select the namespace",
            Self::Object => "objectSelector selects neither the object nor the old one",
            Self::NoParameter => "there is no parameter, which the binding allows",
            Self::Exempt => "no webhook is shown such objects",
            Self::NotStatic => {
                "only those of files with names that end in `.static.k8s.io` see what configures admission"
            }
        }
    }
}

#[cfg(test)]
mod tests;
