//! A request as conditions see it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use cel::Value;
use cel::objects::{Key, Map};

use crate::engine::{Attributes, Requirement, ResourceAttributes, Target, User};

/// The variables of one request, made when the first condition asks for them.
pub struct Activation<'r> {
    attributes: &'r Attributes<'r>,
    request: OnceCell<Value>,
    weight: OnceCell<u64>,
}

impl<'r> Activation<'r> {
    /// The variables for `attributes`.
    #[must_use]
    pub const fn new(attributes: &'r Attributes<'r>) -> Self {
        Self {
            attributes,
            request: OnceCell::new(),
            weight: OnceCell::new(),
        }
    }

    /// The most steps that one visit to every part of the request takes.
    pub(super) fn weight(&self) -> u64 {
        *self.weight.get_or_init(|| weight(self.attributes))
    }

    /// The variable `request`.
    pub(super) fn request(&self) -> Value {
        self.request.get_or_init(|| request(self.attributes)).clone()
    }
}

fn weight(attributes: &Attributes<'_>) -> u64 {
    let user = &attributes.user;
    let texts = |texts: &[std::borrow::Cow<'_, str>]| texts.iter().map(|text| text_weight(text)).sum::<u64>();
    let extra = user
        .extra
        .iter()
        .map(|(key, values)| text_weight(key) + texts(values))
        .sum::<u64>();
    let requirements = |requirements: &[Requirement<'_>]| {
        requirements
            .iter()
            .map(|one| text_weight(&one.key) + texts(&one.values))
            .sum::<u64>()
    };
    let target = match &attributes.target {
        Target::Resource(resource) => {
            text_weight(&resource.name)
                + requirements(&resource.selectors.field)
                + requirements(&resource.selectors.label)
        }
        Target::NonResource { path, .. } => text_weight(path),
    };
    text_weight(&user.name) + texts(&user.groups) + extra + target
}

/// As Kubernetes counts: one step, and a tenth for each character.
fn text_weight(text: &str) -> u64 {
    1 + text.len() as u64 / 10
}

fn request(attributes: &Attributes<'_>) -> Value {
    let User {
        name,
        uid,
        groups,
        extra,
    } = &attributes.user;
    let mut request = HashMap::from([
        (key("user"), text(name)),
        (key("uid"), text(uid)),
        (key("groups"), texts(groups)),
        (
            key("extra"),
            map(extra
                .iter()
                .map(|(name, values)| (key(name), texts(values)))
                .collect()),
        ),
    ]);
    let (name, value) = match &attributes.target {
        Target::Resource(resource) => ("resourceAttributes", resource_attributes(resource)),
        Target::NonResource { path, verb } => (
            "nonResourceAttributes",
            map(HashMap::from([
                (key("path"), text(path)),
                (key("verb"), text(verb)),
            ])),
        ),
    };
    request.insert(key(name), value);
    map(request)
}

fn resource_attributes(resource: &ResourceAttributes<'_>) -> Value {
    let mut fields = HashMap::from([
        (key("namespace"), text(&resource.namespace)),
        (key("verb"), text(&resource.verb)),
        (key("group"), text(&resource.group)),
        (key("version"), text(&resource.version)),
        (key("resource"), text(&resource.resource)),
        (key("subresource"), text(&resource.subresource)),
        (key("name"), text(&resource.name)),
    ]);
    for (name, requirements) in [
        ("fieldSelector", &resource.selectors.field),
        ("labelSelector", &resource.selectors.label),
    ] {
        if !requirements.is_empty() {
            let list = Value::List(Arc::new(requirements.iter().map(requirement).collect()));
            fields.insert(key(name), map(HashMap::from([(key("requirements"), list)])));
        }
    }
    map(fields)
}

fn requirement(requirement: &Requirement<'_>) -> Value {
    map(HashMap::from([
        (key("key"), text(&requirement.key)),
        (key("operator"), text(requirement.operator.as_str())),
        (key("values"), texts(&requirement.values)),
    ]))
}

fn key(name: &str) -> Key {
    Key::from(name)
}

fn text(text: &str) -> Value {
    Value::from(text)
}

fn texts(texts: &[std::borrow::Cow<'_, str>]) -> Value {
    Value::List(Arc::new(texts.iter().map(|one| text(one)).collect()))
}

fn map(entries: HashMap<Key, Value>) -> Value {
    Value::Map(Map {
        map: Arc::new(entries),
    })
}
