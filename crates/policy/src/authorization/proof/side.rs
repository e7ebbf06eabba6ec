//! The fields of requests that regions tell apart.

/// A side of a region that is a set of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The API group.
    ApiGroup,
    /// The resource, without subresource.
    Resource,
    /// The subresource; `""` for none.
    Subresource,
    /// The verb.
    Verb,
    /// The namespace; `""` for none.
    Namespace,
    /// The name; `""` for none.
    Name,
    /// The path of a request that is for no resource.
    Path,
    /// The user name.
    User,
}

/// A text of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// One that is a side of regions.
    Side(Side),
    /// The user's uid, of which conditions alone may ask.
    Uid,
    /// The version of the resource, of which conditions alone may ask.
    Version,
}

// === impl Side ===

impl Side {
    pub(crate) const COUNT: usize = 8;
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::ApiGroup,
        Self::Resource,
        Self::Subresource,
        Self::Verb,
        Self::Namespace,
        Self::Name,
        Self::Path,
        Self::User,
    ];
}
