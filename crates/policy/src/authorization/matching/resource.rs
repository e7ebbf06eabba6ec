//! Resources and subresources: `*`, `pods`, `pods/log`, `pods/*`, `*/scale`.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fmt;

use foldhash::fast::RandomState;

use crate::model::{Operator, Requirement, ResourceAttributes, Selectors};

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

// Selectors: which requirements follow from those of a request.

type ValueSet<'r> = HashSet<&'r str, RandomState>;
type ReceivedKeys<'r> = HashMap<&'r str, ReceivedValues<'r>, RandomState>;

/// The requirements of one request, those for one key intersected.
///
/// They are gathered when the first rule asks, in time linear in what was
/// received; an answer then takes time linear in the rule alone, however many
/// requirements a user sends.
#[derive(Debug)]
pub struct Narrowness<'r> {
    received: &'r Selectors<'r>,
    field: OnceCell<ReceivedKeys<'r>>,
    label: OnceCell<ReceivedKeys<'r>>,
}

/// What is left possible for one key.
#[derive(Debug, Default)]
struct ReceivedValues<'r> {
    /// Present, with one of these values.
    within: Option<ValueSet<'r>>,
    /// If present, with none of these values.
    without: ValueSet<'r>,
    exists: bool,
    does_not_exist: bool,
}

// === impl Narrowness ===

impl<'r> Narrowness<'r> {
    /// The narrowness of a request that came with `received`.
    #[must_use]
    pub const fn new(received: &'r Selectors<'r>) -> Self {
        Self {
            received,
            field: OnceCell::new(),
            label: OnceCell::new(),
        }
    }

    /// Whether every requirement of `written` follows from those received.
    #[must_use]
    pub fn implies(&self, written: &Selectors<'_>) -> bool {
        written.field.iter().all(|one| implied(self.field(), one))
            && written.label.iter().all(|one| implied(self.label(), one))
    }

    fn field(&self) -> &ReceivedKeys<'r> {
        self.field.get_or_init(|| {
            // Of a field, presence cannot be required.
            let known = |one: &&Requirement<'_>| matches!(one.operator, Operator::In | Operator::NotIn);
            gather(self.received.field.iter().filter(known))
        })
    }

    fn label(&self) -> &ReceivedKeys<'r> {
        self.label.get_or_init(|| gather(self.received.label.iter()))
    }
}

fn gather<'r>(requirements: impl Iterator<Item = &'r Requirement<'r>>) -> ReceivedKeys<'r> {
    let mut keys = ReceivedKeys::default();
    for requirement in requirements {
        keys.entry(requirement.key.as_ref()).or_default().add(requirement);
    }
    keys.values_mut().for_each(ReceivedValues::subtract_excluded);
    keys
}

fn implied(keys: &ReceivedKeys<'_>, written: &Requirement<'_>) -> bool {
    keys.get(written.key.as_ref())
        .is_some_and(|received| received.implies(written))
}

// === impl ReceivedValues ===

impl<'r> ReceivedValues<'r> {
    fn add(&mut self, requirement: &'r Requirement<'r>) {
        let values = requirement.values.iter().map(Cow::as_ref);
        match (&requirement.operator, requirement.values.is_empty()) {
            (Operator::In, false) => match &mut self.within {
                None => self.within = Some(values.collect()),
                // What is kept is never more than what was just read.
                Some(within) => {
                    let values: ValueSet<'_> = values.collect();
                    within.retain(|value| values.contains(value));
                }
            },
            (Operator::NotIn, false) => self.without.extend(values),
            (Operator::Exists, true) => self.exists = true,
            (Operator::DoesNotExist, true) => self.does_not_exist = true,
            // Proves nothing.
            _ => {}
        }
    }

    /// Takes what is ruled out from what is possible, once all is received.
    fn subtract_excluded(&mut self) {
        let Self {
            within: Some(within),
            without,
            ..
        } = self
        else {
            return;
        };
        within.retain(|value| !without.contains(value));
    }

    /// Whether an object that meets what was received meets `written`.
    fn implies(&self, written: &Requirement<'_>) -> bool {
        let values = &written.values;
        match (&written.operator, values.is_empty()) {
            (Operator::In, false) => self.is_empty() || self.is_within(values),
            (Operator::NotIn, false) => {
                self.does_not_exist || values.iter().all(|value| self.rules_out(value))
            }
            (Operator::Exists, true) => self.exists || self.within.is_some() || self.is_empty(),
            (Operator::DoesNotExist, true) => self.does_not_exist || self.is_empty(),
            _ => false,
        }
    }

    /// Whether no value but some of `values` is possible. Values may be repeated.
    fn is_within(&self, values: &[Cow<'_, str>]) -> bool {
        self.within.as_ref().is_some_and(|within| {
            let accepted = || {
                values
                    .iter()
                    .map(Cow::as_ref)
                    .filter(|value| within.contains(value))
            };
            within.len() <= values.len() && accepted().collect::<ValueSet<'_>>().len() == within.len()
        })
    }

    fn rules_out(&self, value: &str) -> bool {
        self.without.contains(value) || self.within.as_ref().is_some_and(|within| !within.contains(value))
    }

    /// Whether nothing at all can meet what was received.
    fn is_empty(&self) -> bool {
        let present = self.exists || self.within.is_some();
        present && self.does_not_exist || self.within.as_ref().is_some_and(HashSet::is_empty)
    }
}

#[cfg(test)]
mod tests {
    mod narrowness;

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
