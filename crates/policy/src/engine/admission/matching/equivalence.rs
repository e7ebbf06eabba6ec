//! Equivalent resources: `matchPolicy: Equivalent`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::custom::{CustomResources, Named};
use super::versions::is_single;
use crate::engine::admission::{GroupVersionKind, GroupVersionResource};

/// What is known of equivalent resources: `EquivalentResourceRegistry` of
/// `apimachinery/pkg/runtime/mapper.go`.
///
/// The versions of one resource are equivalent, and so are the resources of
/// several groups of which the API server stores one.
#[derive(Debug, Clone, Default)]
pub struct Equivalents {
    /// In an order, so that the same is found first each time.
    classes: BTreeMap<String, Vec<Registered>>,
    /// Pairs of a group and resource, to the class they are in.
    class_of: HashMap<(String, String), String>,
    custom: CustomResources,
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

    /// The same with these custom resources.
    #[must_use]
    pub fn with(&self, custom: CustomResources) -> Self {
        Self {
            custom,
            ..self.clone()
        }
    }

    /// Those that are custom.
    pub(crate) const fn custom(&self) -> &CustomResources {
        &self.custom
    }

    /// The equivalents of a resource with its subresource, itself included, in the order
    /// registered, each with its kind. `None` if nothing is known of the resource.
    pub(crate) fn of(
        &self,
        resource: &GroupVersionResource<'_>,
        subresource: &str,
    ) -> Option<Vec<Named<'_>>> {
        let Some(class) = self.class(&resource.group, &resource.resource) else {
            return match is_single(resource) {
                true => Some(Vec::new()),
                false => self.custom.named(resource, subresource),
            };
        };
        let same = class.iter().filter(|one| one.subresource == subresource);
        Some(same.map(|one| (one.resource.clone(), one.kind.clone())).collect())
    }

    /// Every group and version under which a resource of `group` is known, or, for `*`, each of
    /// its resources by itself; none of one that has one name alone, or is not known.
    pub fn names(
        &self,
        group: &str,
        resource: &str,
    ) -> impl Iterator<Item = Vec<GroupVersionResource<'static>>> {
        let classes = self.meant(group, resource).into_iter();
        classes.map(|class| {
            let whole = class.iter().filter(|one| one.subresource.is_empty());
            whole.map(|one| one.resource.clone()).collect()
        })
    }

    /// The groups and resources under which other groups have `resource` of `group`, or, for `*`,
    /// any resource of it.
    pub(crate) fn in_other_groups(&self, group: &str, resource: &str) -> BTreeSet<(&str, &str)> {
        let meant = self.meant(group, resource).into_iter().flatten();
        let others = meant.filter(|one| one.resource.group != group);
        others
            .map(|one| (one.resource.group.as_ref(), one.resource.resource.as_ref()))
            .collect()
    }

    /// The classes of `resource` of `group`, which may be `*`.
    fn meant(&self, group: &str, resource: &str) -> Vec<&[Registered]> {
        if resource != "*" {
            return self.class(group, resource).into_iter().collect();
        }
        let classes = self.classes.values().map(Vec::as_slice);
        classes
            .filter(|class| class.iter().any(|one| one.resource.group == group))
            .collect()
    }

    fn class(&self, group: &str, resource: &str) -> Option<&[Registered]> {
        let names = (group.to_owned(), resource.to_owned());
        // Of each name that has a class there is the class: both are registered at once.
        let class = self.class_of.get(&names)?;
        self.classes.get(class).map(Vec::as_slice)
    }
}
