//! The reasons why a policy or webhook does not apply to a request.

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
