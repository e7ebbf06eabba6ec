//! Resources and subresources: `*`, `pods`, `pods/log`, `pods/*`, `*/scale`.

use std::borrow::Cow;

use crate::engine::ResourceAttributes;

/// A requested resource, with its subresource separated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedResource<'r> {
    /// The resource, such as `pods`.
    pub resource: &'r str,
    /// The subresource, such as `log`; empty for the resource itself.
    pub subresource: Cow<'r, str>,
}

impl<'r> RequestedResource<'r> {
    /// What `request` asks for. Whoever writes `pods/log` as the resource means
    /// the subresource, as RBAC understands it too.
    #[must_use]
    pub fn of(request: &'r ResourceAttributes<'r>) -> Self {
        let subresource = Cow::Borrowed(request.subresource.as_ref());
        match request.resource.split_once('/') {
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

/// Whether all that is requested lies within `pattern`.
#[must_use]
pub fn resource_includes(pattern: &str, requested: &RequestedResource<'_>) -> bool {
    let subresource = requested.subresource.as_ref();
    match pattern.split_once('/') {
        None => pattern == "*" || pattern == requested.resource && subresource.is_empty(),
        Some((resource, sub)) => {
            !subresource.is_empty()
                && (resource == "*" || resource == requested.resource)
                && (sub == "*" || sub == subresource)
        }
    }
}

/// Whether something of what is requested lies within `pattern`: a requested
/// `*` is every resource with its subresources, `*/log` that subresource of
/// every resource, `pods/*` every subresource of pods.
#[must_use]
pub fn resource_touches(pattern: &str, requested: &RequestedResource<'_>) -> bool {
    let subresource = requested.subresource.as_ref();
    if requested.resource == "*" && matches!(subresource, "" | "*") {
        return true;
    }
    match pattern.split_once('/') {
        None => pattern == "*" || pattern == requested.resource && subresource.is_empty(),
        Some((resource, sub)) => {
            !subresource.is_empty()
                && (resource == "*" || requested.resource == "*" || resource == requested.resource)
                && (sub == "*" || subresource == "*" || sub == subresource)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        question: fn(&str, &RequestedResource<'_>) -> bool,
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
                let actual = question(pattern, &RequestedResource::of(&request));
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
        check(resource_includes, "*", ALL, &[]);
        check(
            resource_includes,
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
            resource_includes,
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
            resource_includes,
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
            resource_includes,
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
        check(resource_touches, "*", ALL, &[]);
        check(
            resource_touches,
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
            resource_touches,
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
            resource_touches,
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
            resource_touches,
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
