//! Why an exception does not excuse a denial.

/// Why an exception that names a policy does not excuse its denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotExcused {
    /// Its `notAfter` has passed.
    Ended,
    /// None of its `subjects` asks.
    Subjects,
    /// Its `namespaceSelector` does not select the namespace, or there is none, or it is not known.
    Namespace,
    /// Its `objectSelector` does not select the object.
    Object,
    /// None of its `resourceRules` is about such a request, or one of `excludeResourceRules` is.
    Rules,
    /// One of its `matchConditions` is false or has no result.
    Conditions,
}

impl NotExcused {
    /// Why, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "its `notAfter` has passed",
            Self::Subjects => "none of its `subjects` asks",
            Self::Namespace => {
                "its `namespaceSelector` selects no namespace that is known and of this request"
            }
            Self::Object => "its `objectSelector` does not select the object",
            Self::Rules => "none of its `resourceRules` is about such a request",
            Self::Conditions => "one of its `matchConditions` is false or has no result",
        }
    }
}
