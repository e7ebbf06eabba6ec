//! Whether a reply repeats the question that was asked.
//!
//! An authorizer that decodes a review, sets its status and sends it back repeats the spec. One
//! that was built before Kubernetes had a field leaves that field out.

use std::borrow::Cow;

use super::object::Extra;
use super::{RawResource, RawSelector, RawSpec};

/// What a reply says about the question that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// It is the question that was asked, whole.
    Whole,
    /// What it says is of the question that was asked; it does not say all of it, or nothing.
    Part,
    /// It is another question.
    Other,
}

// === impl Echo ===

impl Echo {
    /// That of the spec of a reply, to a question with the spec `asked`.
    pub(crate) fn of(spec: &RawSpec<'_>, asked: &RawSpec<'_>) -> Self {
        let none = RawResource::default();
        let (resource, asked_resource) = (
            spec.resource.as_ref().unwrap_or(&none),
            asked.resource.as_ref().unwrap_or(&none),
        );
        let path = |spec: &'_ RawSpec<'_>| match &spec.non_resource {
            Some(target) => [target.path.to_string(), target.verb.to_string()],
            None => Default::default(),
        };
        let ([path, verb], [asked_path, asked_verb]) = (path(spec), path(asked));
        let (one, other) = (&resource.attributes, &asked_resource.attributes);
        Self::Whole
            .and(text(&spec.user, &asked.user))
            .and(text(&spec.uid, &asked.uid))
            .and(groups(&spec.groups, &asked.groups))
            .and(extra(&spec.extra, &asked.extra))
            .and(text(&path, &asked_path))
            .and(text(&verb, &asked_verb))
            .and(text(&one.namespace, &other.namespace))
            .and(text(&one.verb, &other.verb))
            .and(text(&one.group, &other.group))
            .and(text(&one.version, &other.version))
            .and(text(&one.resource, &other.resource))
            .and(text(&one.subresource, &other.subresource))
            .and(text(&one.name, &other.name))
            .and(selector(&resource.field_selector, &asked_resource.field_selector))
            .and(selector(&resource.label_selector, &asked_resource.label_selector))
    }

    fn of_part(is_empty: bool, is_same: impl FnOnce() -> bool) -> Self {
        match is_empty {
            _ if is_same() => Self::Whole,
            true => Self::Part,
            false => Self::Other,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Other, _) | (_, Self::Other) => Self::Other,
            (Self::Part, _) | (_, Self::Part) => Self::Part,
            (Self::Whole, Self::Whole) => Self::Whole,
        }
    }
}

fn text(one: &str, asked: &str) -> Echo {
    Echo::of_part(one.is_empty(), || one == asked)
}

/// In any order.
fn groups(one: &[Cow<'_, str>], asked: &[Cow<'_, str>]) -> Echo {
    let sorted = |groups: &[Cow<'_, str>]| {
        let mut sorted: Vec<String> = groups.iter().map(ToString::to_string).collect();
        sorted.sort_unstable();
        sorted
    };
    Echo::of_part(one.is_empty(), || one == asked || sorted(one) == sorted(asked))
}

/// By key, in any order.
fn extra(one: &Extra<'_>, asked: &Extra<'_>) -> Echo {
    let sorted = |extra: &Extra<'_>| {
        let mut sorted: Vec<(String, Vec<String>)> = extra
            .iter()
            .map(|(key, values)| (key.to_string(), values.iter().map(ToString::to_string).collect()))
            .collect();
        sorted.sort_unstable();
        sorted
    };
    Echo::of_part(one.is_empty(), || one == asked || sorted(one) == sorted(asked))
}

fn selector(one: &Option<RawSelector<'_>>, asked: &Option<RawSelector<'_>>) -> Echo {
    let none = RawSelector::default();
    let (one, asked) = (one.as_ref().unwrap_or(&none), asked.as_ref().unwrap_or(&none));
    let is_empty = one.raw.is_empty() && one.requirements.is_empty();
    Echo::of_part(is_empty, || {
        one.raw == asked.raw && one.requirements == asked.requirements
    })
}
