//! Resources and subresources: `*`, `pods`, `pods/log`, `pods/*`, `*/scale`.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fmt;

use foldhash::fast::RandomState;

use crate::model::{Operator, Requirement, ResourceAttributes, Selectors};

/// Selects resources in a rule of an AuthorizationPolicy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ResourcePattern {
    /// `*`: every resource with its subresources.
    Everything,
    /// `pods`: the resource without its subresources.
    Resource(String),
    /// `pods/log`, `pods/*`, `*/scale`, `*/*`: subresources only.
    Subresource(Wildcard, Wildcard),
}

/// A name or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Wildcard {
    /// `*`.
    Any,
    /// This name.
    Named(String),
}

/// A requested resource, with the subresource separated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedResource<'r> {
    /// The resource, such as `pods`.
    pub resource: &'r str,
    /// The subresource, such as `log`; empty for the resource itself.
    pub subresource: Cow<'r, str>,
}

impl<'r> RequestedResource<'r> {
    /// The resource of `request`. If its `resource` is `pods/log`, this means the subresource, as
    /// in RBAC.
    #[must_use]
    pub fn of(request: &'r ResourceAttributes<'r>) -> Self {
        let subresource = Cow::Borrowed(request.subresource.as_ref());
        // Hardly any resource contains a slash, and this runs for each request.
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
    /// Whether everything that is requested is within the pattern.
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

    /// Whether anything that is requested is within the pattern: a requested `*` is every resource
    /// with its subresources, `*/log` this subresource of every resource, and `pods/*` every
    /// subresource of pods.
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

/// The pattern as manifests spell it.
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
    /// Whether `name` matches.
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

/// The name as manifests spell it, or `*`.
impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "*",
            Self::Named(name) => name,
        })
    }
}

// Selectors: which requirements are implied by those of a request.

type ValueSet<'r> = HashSet<&'r str, RandomState>;
type ReceivedKeys<'r> = HashMap<&'r str, PossibleValues<'r>, RandomState>;

/// The selector requirements of one request, intersected for each key.
///
/// They are collected when the first rule needs them, in time linear in the request. A comparison
/// then takes time linear in the rule only, however many requirements a user sends.
#[derive(Debug)]
pub struct Narrowness<'r> {
    received: &'r Selectors<'r>,
    field: OnceCell<ReceivedKeys<'r>>,
    label: OnceCell<ReceivedKeys<'r>>,
}

/// The possible values of one key.
#[derive(Debug, Default)]
struct PossibleValues<'r> {
    /// The key is present, with one of these values.
    within: Option<ValueSet<'r>>,
    /// If the key is present, its value is none of these.
    without: ValueSet<'r>,
    exists: bool,
    does_not_exist: bool,
}

// === impl Narrowness ===

impl<'r> Narrowness<'r> {
    /// Keeps the selectors `received`, which are evaluated later.
    #[must_use]
    pub const fn new(received: &'r Selectors<'r>) -> Self {
        Self {
            received,
            field: OnceCell::new(),
            label: OnceCell::new(),
        }
    }

    /// Whether the received requirements imply every requirement of `written`.
    #[must_use]
    pub fn implies(&self, written: &Selectors<'_>) -> bool {
        written.field.iter().all(|one| implied(self.field(), one))
            && written.label.iter().all(|one| implied(self.label(), one))
    }

    fn field(&self) -> &ReceivedKeys<'r> {
        self.field.get_or_init(|| {
            // The presence of a field cannot be required.
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
    keys.values_mut().for_each(PossibleValues::subtract_excluded);
    keys
}

fn implied(keys: &ReceivedKeys<'_>, written: &Requirement<'_>) -> bool {
    keys.get(written.key.as_ref())
        .is_some_and(|received| received.implies(written))
}

// === impl PossibleValues ===

impl<'r> PossibleValues<'r> {
    fn add(&mut self, requirement: &'r Requirement<'r>) {
        let values = requirement.values.iter().map(Cow::as_ref);
        match (&requirement.operator, requirement.values.is_empty()) {
            (Operator::In, false) => match &mut self.within {
                None => self.within = Some(values.collect()),
                // The set only shrinks, so the time is linear in the values received.
                Some(within) => {
                    let values: ValueSet<'_> = values.collect();
                    within.retain(|value| values.contains(value));
                }
            },
            (Operator::NotIn, false) => self.without.extend(values),
            (Operator::Exists, true) => self.exists = true,
            (Operator::DoesNotExist, true) => self.does_not_exist = true,
            // Other requirements imply nothing.
            _ => {}
        }
    }

    /// Removes the excluded values from the possible ones, after all requirements were added.
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

    /// Whether every object that meets the received requirements also meets `written`.
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

    /// Whether all possible values are in `values`, which may contain duplicates.
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

    /// Whether no object can meet the received requirements.
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
