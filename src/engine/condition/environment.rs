//! The names and types that a condition may use.

use std::sync::LazyLock;

use crate::cel::{Environment, Type, Version};

/// The one variable.
pub(super) const REQUEST: &str = "request";

pub(super) fn environment() -> &'static Environment {
    static ENVIRONMENT: LazyLock<Environment> =
        LazyLock::new(|| Environment::new(Version::DEFAULT).variable(REQUEST, spec()));
    &ENVIRONMENT
}

fn spec() -> Type {
    let texts = || Type::list(Type::String);
    Type::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", resource_attributes()),
            ("nonResourceAttributes", non_resource_attributes()),
            ("user", Type::String),
            ("groups", texts()),
            ("extra", Type::map(Type::String, texts())),
            ("uid", Type::String),
        ],
    )
}

fn resource_attributes() -> Type {
    let texts = [
        "namespace",
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "name",
    ];
    let selectors = [
        ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
        ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
    ];
    let fields = texts
        .into_iter()
        .map(|name| (name, Type::String))
        .chain(selectors);
    Type::object("kubernetes.ResourceAttributes", fields)
}

fn non_resource_attributes() -> Type {
    Type::object(
        "kubernetes.NonResourceAttributes",
        [("path", Type::String), ("verb", Type::String)],
    )
}

fn selector(name: &str) -> Type {
    let requirement = Type::object(
        "kubernetes.SelectorRequirement",
        [
            ("key", Type::String),
            ("operator", Type::String),
            ("values", Type::list(Type::String)),
        ],
    );
    Type::object(
        name,
        [
            ("rawSelector", Type::String),
            ("requirements", Type::list(requirement)),
        ],
    )
}
