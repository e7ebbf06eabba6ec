//! Selectors: which requirements follow from those of a request.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::engine::{Operator, Requirement, Selectors};

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
    keys.values_mut().for_each(ReceivedValues::settle);
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
    fn settle(&mut self) {
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
mod tests;
