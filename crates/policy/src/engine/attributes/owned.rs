//! Attributes that own their text.

use std::borrow::Cow;

use super::{Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User};

impl Attributes<'_> {
    /// The same attributes with text of their own.
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
