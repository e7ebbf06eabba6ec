//! The attributes of an authorization request: who wants to do what, as in
//! `SubjectAccessReview.spec`.

use std::borrow::Cow;
use std::fmt;

/// The attributes of one authorization request.
///
/// Strings are borrowed from the review where possible. Kubernetes' counterpart is
/// `authorizer.Attributes` (`apiserver/pkg/authorization/authorizer/interfaces.go`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// The user.
    pub user: User<'a>,
    /// What the user wants to do.
    pub target: Target<'a>,
}

/// The user who sent the request to the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User<'a> {
    /// The user name; a service account's is `system:serviceaccount:NAMESPACE:NAME`.
    pub name: Cow<'a, str>,
    /// The user's unique ID from the authenticator; often empty.
    pub uid: Cow<'a, str>,
    /// The groups, in the order received.
    pub groups: Vec<Cow<'a, str>>,
    /// Further attributes from the authenticator, in the order received; keys keep their case.
    pub extra: Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)>,
}

/// What the user wants to do, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target<'a> {
    /// An object, or a collection of objects, of the API. Boxed because it is much larger than the
    /// other variant.
    Resource(Box<ResourceAttributes<'a>>),
    /// A path that is not part of any API group, such as `/healthz`.
    NonResource {
        /// The path, without query.
        path: Cow<'a, str>,
        /// The HTTP method in lower case.
        verb: Cow<'a, str>,
    },
}

/// A request for a resource. An empty string means that a field is absent, as on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, …, or `*`.
    pub verb: Cow<'a, str>,
    /// The namespace; empty for cluster scope and for lists of all namespaces.
    pub namespace: Cow<'a, str>,
    /// The API group; empty for the core group.
    pub group: Cow<'a, str>,
    /// The API version. No rule depends on it.
    pub version: Cow<'a, str>,
    /// The resource in the plural, such as `pods`.
    pub resource: Cow<'a, str>,
    /// The subresource, such as `log`.
    pub subresource: Cow<'a, str>,
    /// The object's name; empty for collections and most creates.
    pub name: Cow<'a, str>,
    /// The field and label selectors of a list, watch or deletecollection.
    pub selectors: Selectors<'a>,
    /// Selectors as the user wrote them, which do not count as narrowing the request.
    pub raw_selectors: RawSelectors<'a>,
}

/// `rawSelector` of `fieldSelector` and `labelSelector`; empty if absent.
///
/// API servers send requirements instead, and never a `rawSelector`. Only CEL conditions can read
/// it; rules do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawSelectors<'a> {
    /// `fieldSelector.rawSelector`.
    pub field: Cow<'a, str>,
    /// `labelSelector.rawSelector`.
    pub label: Cow<'a, str>,
}

/// The requirements of the field and label selectors of a request, all of which hold.
///
/// Invalid requirements, `rawSelector`, and requirements sent together with a `rawSelector` are
/// left out. That only widens the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selectors<'a> {
    /// Requirements on fields. Only [`Operator::In`] and [`Operator::NotIn`] narrow the request.
    pub field: Vec<Requirement<'a>>,
    /// Requirements on labels.
    pub label: Vec<Requirement<'a>>,
}

/// `key operator values`, as in `FieldSelectorRequirement` and `LabelSelectorRequirement`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement<'a> {
    /// The field path or label key.
    pub key: Cow<'a, str>,
    /// How the value must relate to `values`.
    pub operator: Operator<'a>,
    /// The values; empty for [`Operator::Exists`] and [`Operator::DoesNotExist`].
    pub values: Vec<Cow<'a, str>>,
}

/// A selector operator; its spelling is case-sensitive, as upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator<'a> {
    /// The value is one of the listed values.
    In,
    /// The value is none of the listed values, or the key is absent.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// An operator of a later Kubernetes. This requirement is ignored; the others still count.
    Unknown(Cow<'a, str>),
}

// === impl Operator ===

impl Operator<'_> {
    /// The operator as spelled on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Unknown(operator) => operator,
        }
    }
}

/// In kubectl's notation: `team in (a,b)`.
impl fmt::Display for Requirement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            operator,
            values,
        } = self;
        let values = values.join(",");
        match operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Unknown(operator) => write!(f, "{key} {operator} ({values})"),
        }
    }
}

// === impl Selectors ===

impl Selectors<'_> {
    /// Whether there are no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.field.is_empty() && self.label.is_empty()
    }
}

// Attributes that own their strings.

impl Attributes<'_> {
    /// The same attributes with owned strings.
    #[must_use]
    pub fn into_owned(self) -> Attributes<'static> {
        Attributes {
            user: user(self.user),
            target: target(self.target),
        }
    }
}

fn user(user: User<'_>) -> User<'static> {
    User {
        name: text(user.name),
        uid: text(user.uid),
        groups: texts(user.groups),
        extra: user
            .extra
            .into_iter()
            .map(|(key, values)| (text(key), texts(values)))
            .collect(),
    }
}

fn target(target: Target<'_>) -> Target<'static> {
    match target {
        Target::Resource(resource) => Target::Resource(Box::new(self::resource(*resource))),
        Target::NonResource { path, verb } => Target::NonResource {
            path: text(path),
            verb: text(verb),
        },
    }
}

fn resource(resource: ResourceAttributes<'_>) -> ResourceAttributes<'static> {
    ResourceAttributes {
        verb: text(resource.verb),
        namespace: text(resource.namespace),
        group: text(resource.group),
        version: text(resource.version),
        resource: text(resource.resource),
        subresource: text(resource.subresource),
        name: text(resource.name),
        selectors: Selectors {
            field: requirements(resource.selectors.field),
            label: requirements(resource.selectors.label),
        },
        raw_selectors: RawSelectors {
            field: text(resource.raw_selectors.field),
            label: text(resource.raw_selectors.label),
        },
    }
}

fn requirements(requirements: Vec<Requirement<'_>>) -> Vec<Requirement<'static>> {
    let owned = |requirement: Requirement<'_>| Requirement {
        key: text(requirement.key),
        operator: operator(requirement.operator),
        values: texts(requirement.values),
    };
    requirements.into_iter().map(owned).collect()
}

fn operator(operator: Operator<'_>) -> Operator<'static> {
    match operator {
        Operator::In => Operator::In,
        Operator::NotIn => Operator::NotIn,
        Operator::Exists => Operator::Exists,
        Operator::DoesNotExist => Operator::DoesNotExist,
        Operator::Unknown(name) => Operator::Unknown(text(name)),
    }
}

fn texts(texts: Vec<Cow<'_, str>>) -> Vec<Cow<'static, str>> {
    texts.into_iter().map(text).collect()
}

fn text(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}
