//! The CEL variable `request` of conditions.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};

use crate::engine::{Attributes, Deadline, Requirement, ResourceAttributes, Target, User};
use portcullis_cel::{
    Budget, Entries, Environment, EvalError, Key, PerVersion, Program, Text, Value, Version, cost,
};

/// The one variable of conditions.
const REQUEST: &str = "request";

/// The variables of one request, made when the first condition asks for them,
/// and what all its conditions may still take.
pub struct RequestActivation<'r> {
    attributes: &'r Attributes<'r>,
    request: OnceCell<Value<'r>>,
    budget: Cell<Budget<'r>>,
}

/// What conditions may use.
pub(crate) fn environment(version: Version) -> &'static Environment {
    static ENVIRONMENTS: PerVersion<Environment> = PerVersion::new();
    ENVIRONMENTS.of(version, Environment::authorization)
}

// === impl RequestActivation ===

impl<'r> RequestActivation<'r> {
    /// The most units that the conditions of one request may cost together.
    pub const MAX_COST: u64 = cost::PER_BINDING;

    /// The variables for `attributes`.
    #[must_use]
    pub const fn new(attributes: &'r Attributes<'r>) -> Self {
        Self {
            attributes,
            request: OnceCell::new(),
            budget: Cell::new(Budget::new(Self::MAX_COST)),
        }
    }

    /// The same with a deadline: once it has passed, no condition has a result.
    #[must_use]
    pub fn until(self, deadline: Deadline<'r>) -> Self {
        Self {
            budget: Cell::new(deadline.budget(Self::MAX_COST)),
            ..self
        }
    }

    /// What the conditions of the request may still cost.
    pub(crate) const fn remaining(&self) -> u64 {
        self.budget.get().remaining()
    }

    pub(crate) fn evaluate<'v>(&'v self, program: &'v Program) -> Result<Value<'v>, EvalError> {
        // Where `request` stands is the same in each.
        let environment = environment(Version::NEWEST);
        let mut variables = portcullis_cel::Activation::new(environment);
        if let Some(slot) = environment.slot(REQUEST) {
            variables.set(
                slot,
                self.request.get_or_init(|| request(self.attributes)).clone(),
            );
        }
        let mut budget = self.budget.get();
        let result = program.evaluate(&mut variables, &mut budget);
        self.budget.set(budget);
        result
    }
}

fn request<'r>(attributes: &'r Attributes<'r>) -> Value<'r> {
    let User {
        name,
        uid,
        groups,
        extra,
    } = &attributes.user;
    let mut entries = fields([
        ("user", Value::str(name)),
        ("uid", Value::str(uid)),
        ("groups", texts(groups)),
    ]);
    let mut extras = Entries::new();
    for (name, values) in extra {
        extras.insert(Key::String(Text::Borrowed(name)), texts(values));
    }
    entries.insert(field("extra"), Value::map(extras));
    match &attributes.target {
        Target::Resource(resource) => {
            entries.insert(field("resourceAttributes"), resource_attributes(resource));
        }
        Target::NonResource { path, verb } => {
            let attributes = fields([("path", Value::str(path)), ("verb", Value::str(verb))]);
            entries.insert(field("nonResourceAttributes"), Value::map(attributes));
        }
    }
    Value::map(entries)
}

fn resource_attributes<'r>(resource: &'r ResourceAttributes<'r>) -> Value<'r> {
    let mut entries = fields([
        ("namespace", Value::str(&resource.namespace)),
        ("verb", Value::str(&resource.verb)),
        ("group", Value::str(&resource.group)),
        ("version", Value::str(&resource.version)),
        ("resource", Value::str(&resource.resource)),
        ("subresource", Value::str(&resource.subresource)),
        ("name", Value::str(&resource.name)),
    ]);
    let (selectors, raw) = (&resource.selectors, &resource.raw_selectors);
    for (name, raw, requirements) in [
        ("fieldSelector", &raw.field, &selectors.field),
        ("labelSelector", &raw.label, &selectors.label),
    ] {
        if let Some(selector) = selector(raw, requirements) {
            entries.insert(field(name), selector);
        }
    }
    Value::map(entries)
}

/// There only where it says something; a raw one hides the requirements beside it.
fn selector<'r>(raw: &'r str, requirements: &'r [Requirement<'r>]) -> Option<Value<'r>> {
    let selector = if !raw.is_empty() {
        ("rawSelector", Value::str(raw))
    } else if !requirements.is_empty() {
        (
            "requirements",
            Value::list(requirements.iter().map(requirement).collect()),
        )
    } else {
        return None;
    };
    Some(Value::map(fields([selector])))
}

fn requirement<'r>(requirement: &'r Requirement<'r>) -> Value<'r> {
    Value::map(fields([
        ("key", Value::str(&requirement.key)),
        ("operator", Value::str(requirement.operator.as_str())),
        ("values", texts(&requirement.values)),
    ]))
}

fn fields<'r, const N: usize>(fields: [(&'static str, Value<'r>); N]) -> Entries<'r> {
    let mut entries = Entries::new();
    for (name, value) in fields {
        entries.insert(field(name), value);
    }
    entries
}

fn field(name: &'static str) -> Key<'static> {
    Key::String(Text::Borrowed(name))
}

fn texts<'r>(texts: &'r [Cow<'r, str>]) -> Value<'r> {
    Value::list(texts.iter().map(|text| Value::str(text)).collect())
}
