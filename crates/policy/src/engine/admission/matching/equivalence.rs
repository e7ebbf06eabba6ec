//! Equivalent resources: `matchPolicy: Equivalent`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::versions::is_single;
use crate::engine::admission::{GroupVersionKind, GroupVersionResource};

/// What is known of equivalent resources: `EquivalentResourceRegistry` of
/// `apimachinery/pkg/runtime/mapper.go`.
///
/// The versions of one resource are equivalent, and so are the resources of
/// several groups of which the API server stores one.
#[derive(Debug, Clone, Default)]
pub struct Equivalents {
    classes: HashMap<String, Vec<Registered>>,
    /// Pairs of a group and resource, to the class they are in.
    class_of: HashMap<(String, String), String>,
}

#[derive(Debug, Clone)]
struct Registered {
    resource: GroupVersionResource<'static>,
    subresource: String,
    kind: GroupVersionKind<'static>,
}

// === impl Equivalents ===

impl Equivalents {
    /// Nothing known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource. Those of one `class` are equivalent; an empty class is
    /// that of all versions of the resource in its group.
    pub fn register(
        &mut self,
        class: &str,
        resource: GroupVersionResource<'static>,
        subresource: &str,
        kind: GroupVersionKind<'static>,
    ) {
        let class = match class {
            "" => format!("{}/{}", resource.group, resource.resource),
            class => class.to_owned(),
        };
        let names = (resource.group.to_string(), resource.resource.to_string());
        self.class_of.insert(names, class.clone());
        let registered = Registered {
            resource,
            subresource: subresource.to_owned(),
            kind,
        };
        self.classes.entry(class).or_default().push(registered);
    }

    /// The equivalents of a resource with its subresource, itself included, in
    /// the order registered, each with its kind. `None` if nothing is known of
    /// the resource, as of custom ones.
    pub(super) fn of(
        &self,
        resource: &GroupVersionResource<'_>,
        subresource: &str,
    ) -> Option<Vec<(&GroupVersionResource<'static>, &GroupVersionKind<'static>)>> {
        let Some(class) = self.class(&resource.group, &resource.resource) else {
            return is_single(resource).then(Vec::new);
        };
        let same = class.iter().filter(|one| one.subresource == subresource);
        Some(same.map(|one| (&one.resource, &one.kind)).collect())
    }

    /// Every group and version under which a resource of `group` is known;
    /// empty if it has one alone, or nothing is known of it.
    #[must_use]
    pub fn names(&self, group: &str, resource: &str) -> Vec<GroupVersionResource<'static>> {
        let class = self.class(group, resource);
        let whole = class
            .into_iter()
            .flatten()
            .filter(|one| one.subresource.is_empty());
        whole.map(|one| one.resource.clone()).collect()
    }

    /// The groups under which a resource of `group` is known, that one included.
    pub(super) fn groups_of(&self, group: &str, resource: &str) -> Vec<Cow<'static, str>> {
        let class = self.class(group, resource);
        let mut groups: Vec<Cow<'static, str>> = vec![Cow::Owned(group.to_owned())];
        for one in class.into_iter().flatten() {
            if !groups.contains(&one.resource.group) {
                groups.push(one.resource.group.clone());
            }
        }
        groups
    }

    fn class(&self, group: &str, resource: &str) -> Option<&[Registered]> {
        let names = (group.to_owned(), resource.to_owned());
        // Of each name that has a class there is the class: both are registered at once.
        let class = self.class_of.get(&names)?;
        self.classes.get(class).map(Vec::as_slice)
    }
}
