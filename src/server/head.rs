//! What is read of a request's head, for either version of HTTP.
//!
//! HTTP/1.1 and HTTP/2 come from crates with different types for the same fields. Both
//! are read once, field by field, into a [`RequestHead`]: what follows knows neither.

use actix_web::dev::Url;
use actix_web::http::Uri;

use super::accept::Connection;
use crate::config::kubeconfig::Secret;
use crate::telemetry::metrics::Phase;

/// The parts of a head that the routes look at, borrowed from it.
pub(crate) struct RequestHead<'r> {
    pub(crate) connection: &'r Connection,
    pub(crate) is_post: bool,
    pub(crate) path: &'r str,
    pub(crate) query: &'r str,
    /// The value of `Authorization`; none if there are several.
    pub(crate) authorization: SingleField<'r>,
    /// The first `Content-Type`.
    pub(crate) content_type: Option<&'r [u8]>,
    /// The first `Content-Encoding`.
    pub(crate) content_encoding: Option<&'r [u8]>,
    /// The first `Content-Length`.
    pub(crate) content_length: Option<&'r [u8]>,
    /// The first `traceparent`.
    pub(crate) traceparent: Option<&'r [u8]>,
    /// Every `Via`.
    pub(crate) via: Vec<&'r [u8]>,
}

/// A field that counts only where it is the only one of its name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SingleField<'r> {
    /// There is none.
    #[default]
    Absent,
    /// There is one.
    One(&'r [u8]),
    /// There are several.
    Several,
}

/// A path: the route, and the token before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReviewPath {
    pub(crate) route: ReviewRoute,
    /// That of `/t/TOKEN` before the route. It is nowhere else: what is logged, counted and recorded of a
    /// request knows the route alone.
    pub(crate) token: Option<Secret>,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReviewRoute {
    /// `/authorize`
    Authorize,
    /// `/validate` or `/mutate`, and the only policy that is to be asked.
    Admit(Phase, Option<String>),
}

// === impl RequestHead ===

impl<'r> RequestHead<'r> {
    /// The head of a request of `connection` with these header fields, whose names are in
    /// lower case.
    pub(crate) fn new(
        connection: &'r Connection,
        method: &str,
        (path, query): (&'r str, &'r str),
        fields: impl Iterator<Item = (&'r str, &'r [u8])>,
    ) -> Self {
        let mut head = Self {
            connection,
            is_post: method == "POST",
            path,
            query,
            authorization: SingleField::Absent,
            content_type: None,
            content_encoding: None,
            content_length: None,
            traceparent: None,
            via: Vec::new(),
        };
        for (name, value) in fields {
            head.add(name, value);
        }
        head
    }

    fn add(&mut self, name: &str, value: &'r [u8]) {
        match name {
            "authorization" => self.authorization.add(value),
            "content-type" => self.content_type = self.content_type.or(Some(value)),
            "content-encoding" => self.content_encoding = self.content_encoding.or(Some(value)),
            "content-length" => self.content_length = self.content_length.or(Some(value)),
            "traceparent" => self.traceparent = self.traceparent.or(Some(value)),
            "via" => self.via.push(value),
            _ => {}
        }
    }
}

// === impl SingleField ===

impl<'r> SingleField<'r> {
    fn add(&mut self, value: &'r [u8]) {
        *self = match self {
            Self::Absent => Self::One(value),
            Self::One(_) | Self::Several => Self::Several,
        };
    }

    /// The value, if there is exactly one.
    pub(crate) const fn value(self) -> Option<&'r [u8]> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Several => None,
        }
    }
}

// === impl ReviewPath ===

impl ReviewPath {
    /// What `path`, as it stands in the request, says.
    pub(crate) fn of(path: &str) -> Option<Self> {
        if path.contains('%') {
            let uri = Uri::try_from(path).ok()?;
            return Self::of_decoded(Url::new(uri).path());
        }
        Self::of_decoded(path)
    }

    fn of_decoded(path: &str) -> Option<Self> {
        let Some(rest) = path.strip_prefix("/t/") else {
            let route = ReviewRoute::of(path)?;
            return Some(Self { route, token: None });
        };
        let (token, path) = rest.split_at(rest.find('/')?);
        let route = ReviewRoute::of(path)?;
        (!token.is_empty()).then(|| Self {
            route,
            token: Some(Secret::new(token)),
        })
    }
}

// === impl ReviewRoute ===

impl ReviewRoute {
    fn of(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let (endpoint, name) = match path.split_once('/') {
            None => (path, None),
            Some((_, name)) if name.is_empty() || name.contains('/') => return None,
            Some((endpoint, name)) => (endpoint, Some(name)),
        };
        match (endpoint, name) {
            ("authorize", None) => Some(Self::Authorize),
            ("validate", name) => Some(Self::Admit(Phase::Validate, name.map(str::to_owned))),
            ("mutate", name) => Some(Self::Admit(Phase::Mutate, name.map(str::to_owned))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stands_for_an_endpoint_and_the_name_of_a_policy() {
        let admit = |phase, name: &str| Some(ReviewRoute::Admit(phase, Some(name.to_owned())));
        for (path, expected) in [
            ("/authorize", Some(ReviewRoute::Authorize)),
            ("/%61uthorize", Some(ReviewRoute::Authorize)),
            ("/authorize/", None),
            ("/authorize/x", None),
            ("/Authorize", None),
            ("authorize", None),
            ("//authorize", None),
            ("/", None),
            ("", None),
            ("*", None),
            ("/validate", Some(ReviewRoute::Admit(Phase::Validate, None))),
            ("/validate/", None),
            ("/validate/limits", admit(Phase::Validate, "limits")),
            ("/validate/limits/", None),
            ("/validate/limits/x", None),
            ("/validate/a%62c", admit(Phase::Validate, "abc")),
            ("/validate/a%2Fb", admit(Phase::Validate, "a%2Fb")),
            ("/mutate", Some(ReviewRoute::Admit(Phase::Mutate, None))),
            (
                "/mutate/labels.example.com",
                admit(Phase::Mutate, "labels.example.com"),
            ),
            ("/validates", None),
        ] {
            let found = ReviewPath::of(path);
            let expected = expected.map(|route| ReviewPath { route, token: None });
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_token_stands_before_the_route() {
        let admit = |phase| ReviewRoute::Admit(phase, None);
        for (path, expected) in [
            ("/t/abc/validate", Some(("abc", admit(Phase::Validate)))),
            ("/t/abc/mutate", Some(("abc", admit(Phase::Mutate)))),
            ("/t/%61bc/validate", Some(("abc", admit(Phase::Validate)))),
            ("/t/ABC/validate", Some(("ABC", admit(Phase::Validate)))),
            ("/t/abc/authorize", Some(("abc", ReviewRoute::Authorize))),
            (
                "/t/abc/validate/limits",
                Some((
                    "abc",
                    ReviewRoute::Admit(Phase::Validate, Some("limits".to_owned())),
                )),
            ),
            ("/t/abc", None),
            ("/t/abc/", None),
            ("/t//validate", None),
            ("//t/abc/validate", None),
            ("/t/abc//validate", None),
            ("/t%2Fabc/validate", None),
            ("/t/abc%2Fvalidate", None),
            ("/T/abc/validate", None),
            ("/t/abc/t/abc/validate", None),
            ("/t/../validate", Some(("..", admit(Phase::Validate)))),
        ] {
            let expected = expected.map(|(token, route)| ReviewPath {
                route,
                token: Some(Secret::new(token)),
            });
            assert_eq!(ReviewPath::of(path), expected, "{path}");
        }
        let written = format!("{:?}", ReviewPath::of("/t/abc/validate"));
        assert!(!written.contains("abc"), "{written}");
    }

    #[test]
    fn a_field_that_must_be_alone_has_no_value_beside_another() {
        let mut field = SingleField::default();
        assert_eq!(field.value(), None);
        field.add(b"one");
        assert_eq!(field.value(), Some(&b"one"[..]));
        field.add(b"one");
        assert_eq!((field, field.value()), (SingleField::Several, None));
    }
}
