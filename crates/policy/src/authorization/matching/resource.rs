//! Resources and subresources: `*`, `pods`, `pods/log`, `pods/*`, `*/scale`.

use std::borrow::Cow;
use std::fmt;

use crate::engine::ResourceAttributes;

/// Which resources a rule of an AuthorizationPolicy means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ResourcePattern {
    /// `*`: every resource with its subresources.
    Everything,
    /// `pods`: the resource without its subresources.
    Resource(String),
    /// `pods/log`, `pods/*`, `*/scale`, `*/*`: subresources alone.
    Subresource(Wildcard, Wildcard),
}

/// A name, or any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Wildcard {
    /// `*`.
    Any,
    /// This one.
    Named(String),
}

/// A requested resource, its subresource told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedResource<'r> {
    /// The resource, such as `pods`.
    pub resource: &'r str,
    /// The subresource, such as `log`; empty for the resource itself.
    pub subresource: Cow<'r, str>,
}

impl<'r> RequestedResource<'r> {
    /// What `request` asks for. A request that has `pods/log` as the resource means
    /// the subresource, as RBAC understands it too.
    #[must_use]
    pub fn of(request: &'r ResourceAttributes<'r>) -> Self {
        let subresource = Cow::Borrowed(request.subresource.as_ref());
        // Nearly none has one, and this is asked for each request.
        let slash = memchr::memchr(b'/', request.resource.as_bytes());
        let parts = slash.and_then(|_| request.resource.split_once('/'));
        match parts {
            None => Self {
                resource: &request.resource,
                subresource,
            },
            Some((resource, rest)) if subresource.is_empty() => Self {
                resource,
                subresource: rest.into(),
            },
            Some((resource, rest)) => Self {
                resource,
                subresource: format!("{rest}/{subresource}").into(),
            },
        }
    }
}

// === impl ResourcePattern ===

impl ResourcePattern {
    /// Whether all that is requested lies within it.
    #[must_use]
    pub fn includes(&self, requested: &RequestedResource<'_>) -> bool {
        match self {
            Self::Everything => true,
            Self::Resource(name) => name == requested.resource && requested.subresource.is_empty(),
            Self::Subresource(resource, subresource) => {
                !requested.subresource.is_empty()
                    && resource.includes(requested.resource)
                    && subresource.includes(&requested.subresource)
            }
        }
    }

    /// Whether something of what is requested lies within it: a requested `*` is every
    /// resource with its subresources, `*/log` that subresource of every resource,
    /// `pods/*` every subresource of pods.
    #[must_use]
    pub fn touches(&self, requested: &RequestedResource<'_>) -> bool {
        let (resource, subresource) = (requested.resource, requested.subresource.as_ref());
        if resource == "*" && matches!(subresource, "" | "*") {
            return true;
        }
        match self {
            Self::Everything => true,
            Self::Resource(name) => name == resource && subresource.is_empty(),
            Self::Subresource(own, own_subresource) => {
                !subresource.is_empty()
                    && (resource == "*" || own.includes(resource))
                    && (subresource == "*" || own_subresource.includes(subresource))
            }
        }
    }
}

impl From<&str> for ResourcePattern {
    fn from(written: &str) -> Self {
        Self::from(written.to_owned())
    }
}

impl From<String> for ResourcePattern {
    fn from(written: String) -> Self {
        match written.split_once('/') {
            None if written == "*" => Self::Everything,
            None => Self::Resource(written),
            Some((resource, subresource)) => Self::Subresource(resource.into(), subresource.into()),
        }
    }
}

/// As it is written.
impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("*"),
            Self::Resource(name) => write!(f, "{name}"),
            Self::Subresource(resource, subresource) => write!(f, "{resource}/{subresource}"),
        }
    }
}

// === impl Wildcard ===

impl Wildcard {
    /// Whether it stands for `name`.
    #[must_use]
    pub fn includes(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(own) => own == name,
        }
    }
}

impl From<&str> for Wildcard {
    fn from(written: &str) -> Self {
        match written {
            "*" => Self::Any,
            name => Self::Named(name.to_owned()),
        }
    }
}

/// As it is written.
impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "*",
            Self::Named(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        question: fn(&ResourcePattern, &RequestedResource<'_>) -> bool,
        pattern: &str,
        matches: &[(&str, &str)],
        no_match: &[(&str, &str)],
    ) {
        for (expected, requests) in [(true, matches), (false, no_match)] {
            for &(resource, subresource) in requests {
                let request = ResourceAttributes {
                    resource: resource.into(),
                    subresource: subresource.into(),
                    ..ResourceAttributes::default()
                };
                let read = ResourcePattern::from(pattern);
                assert_eq!(read.to_string(), pattern);
                let actual = question(&read, &RequestedResource::of(&request));
                assert_eq!(actual, expected, "{pattern} of {resource}/{subresource}");
            }
        }
    }

    const ALL: &[(&str, &str)] = &[
        ("pods", ""),
        ("pods", "log"),
        ("pods", "*"),
        ("*", ""),
        ("*", "log"),
        ("*", "*"),
        ("pods/log", ""),
    ];

    #[test]
    fn an_allow_includes_what_lies_within() {
        check(ResourcePattern::includes, "*", ALL, &[]);
        check(
            ResourcePattern::includes,
            "pods",
            &[("pods", "")],
            &[
                ("pods", "log"),
                ("pods", "*"),
                ("*", ""),
                ("*", "log"),
                ("nodes", ""),
                ("pods/log", ""),
            ],
        );
        check(
            ResourcePattern::includes,
            "pods/log",
            &[("pods", "log"), ("pods/log", "")],
            &[
                ("pods", ""),
                ("pods", "exec"),
                ("pods", "*"),
                ("*", "log"),
                ("*", ""),
                ("pods/log", "x"),
            ],
        );
        check(
            ResourcePattern::includes,
            "pods/*",
            &[("pods", "log"), ("pods", "*"), ("pods/exec", "")],
            &[
                ("pods", ""),
                ("nodes", "log"),
                ("*", ""),
                ("*", "log"),
                ("*", "*"),
            ],
        );
        check(
            ResourcePattern::includes,
            "*/scale",
            &[
                ("deployments", "scale"),
                ("*", "scale"),
                ("deployments/scale", ""),
            ],
            &[
                ("deployments", ""),
                ("deployments", "status"),
                ("*", ""),
                ("*", "*"),
                ("scale", ""),
            ],
        );
    }

    #[test]
    fn a_deny_touches_what_overlaps() {
        check(ResourcePattern::touches, "*", ALL, &[]);
        check(
            ResourcePattern::touches,
            "pods",
            &[("pods", ""), ("*", ""), ("*", "*")],
            &[
                ("pods", "log"),
                ("pods", "*"),
                ("*", "log"),
                ("nodes", ""),
                ("pods/log", ""),
            ],
        );
        check(
            ResourcePattern::touches,
            "pods/log",
            &[
                ("pods", "log"),
                ("pods", "*"),
                ("*", "log"),
                ("*", ""),
                ("*", "*"),
                ("pods/log", ""),
            ],
            &[
                ("pods", ""),
                ("pods", "exec"),
                ("*", "exec"),
                ("nodes", "log"),
                ("nodes", "*"),
            ],
        );
        check(
            ResourcePattern::touches,
            "pods/*",
            &[
                ("pods", "log"),
                ("pods", "*"),
                ("*", "log"),
                ("*", "*"),
                ("*", ""),
            ],
            &[("pods", ""), ("nodes", "log")],
        );
        check(
            ResourcePattern::touches,
            "*/scale",
            &[
                ("deployments", "scale"),
                ("*", "scale"),
                ("deployments", "*"),
                ("*", ""),
                ("*", "*"),
            ],
            &[("deployments", ""), ("deployments", "status"), ("*", "status")],
        );
    }
}
