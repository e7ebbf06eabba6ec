//! A request as numbers, for look-ups in the index.

use crate::engine::authorization::matching::{
    ClusterScoped, Narrowness, RequestedResource, asks_for_collection, namespace_of,
};
use crate::engine::{Attributes, ResourceAttributes, Target};

use super::namespaces::{InNamespace, NamespaceIndex};
use super::{Ids, Symbols};

/// A request, its texts looked up once. A text that no rule has is
/// [`Symbols::UNKNOWN`], which no rule has either.
#[derive(Debug)]
pub(crate) enum Query<'s, 'r> {
    Resource(ResourceQuery<'s, 'r>),
    Path(PathQuery<'r>),
}

#[derive(Debug)]
pub(crate) struct ResourceQuery<'s, 'r> {
    pub(super) request: &'r ResourceAttributes<'r>,
    pub(super) narrowness: Narrowness<'r>,
    /// Which resources have no namespace.
    pub(super) scoped: &'s ClusterScoped,
    pub(super) verb: u32,
    pub(super) group: u32,
    /// `pods/log` as RBAC's rules write it.
    pub(super) full_resource: u32,
    /// `*/log`, if a subresource is requested.
    pub(super) any_with_subresource: u32,
    /// `pods`, as policies are found by.
    pub(super) resource: u32,
    pub(super) namespace: u32,
    /// The namespace, and the prefixes that it begins with.
    pub(super) namespaces: Ids,
    /// Whose labels selectors ask for; empty for no namespace's.
    pub(super) namespace_of_labels: &'r str,
    /// What is known of these.
    pub(super) in_namespace: InNamespace<'s>,
    pub(super) name: u32,
    /// No namespace, and about all there are.
    pub(super) all_namespaces: bool,
    /// No name, and about all there are.
    pub(super) all_names: bool,
    /// Whether there is a namespace for RoleBindings to be in.
    pub(super) has_namespace: bool,
}

#[derive(Debug)]
pub(crate) struct PathQuery<'r> {
    pub(super) asked_path: &'r str,
    pub(super) asked_verb: &'r str,
    pub(super) verb: u32,
    pub(super) path: u32,
    /// The path, and the prefixes that it begins with.
    pub(super) paths: Ids,
}

impl<'s, 'r> Query<'s, 'r> {
    #[inline]
    pub(crate) fn new(
        attributes: &'r Attributes<'r>,
        symbols: &Symbols,
        namespaces: &'s NamespaceIndex,
        scoped: &'s ClusterScoped,
    ) -> Self {
        match &attributes.target {
            Target::Resource(resource) => {
                Self::Resource(ResourceQuery::new(resource, symbols, namespaces, scoped))
            }
            Target::NonResource { path, verb } => Self::Path(PathQuery::new(path, verb, symbols)),
        }
    }
}

impl<'s, 'r> ResourceQuery<'s, 'r> {
    #[inline]
    fn new(
        request: &'r ResourceAttributes<'r>,
        symbols: &Symbols,
        namespaces: &'s NamespaceIndex,
        scoped: &'s ClusterScoped,
    ) -> Self {
        let namespace_of_labels = namespace_of(request);
        let is_collection = asks_for_collection(&request.verb);
        let has_namespace = !request.namespace.is_empty();
        let whole = symbols.find(&request.resource);
        let (full_resource, any_with_subresource) = if request.subresource.is_empty() {
            (whole, Symbols::UNKNOWN)
        } else {
            (
                find_joined(symbols, &request.resource, &request.subresource),
                find_joined(symbols, "*", &request.subresource),
            )
        };
        let resource = RequestedResource::of(request).resource;
        let namespace = symbols.find(&request.namespace);
        let mut namespace_ids = Ids::default();
        namespace_ids.push(namespace);
        if has_namespace {
            symbols.find_namespace_prefixes(&request.namespace, &mut namespace_ids);
        }
        Self {
            request,
            narrowness: Narrowness::new(&request.selectors),
            scoped,
            verb: symbols.find(&request.verb),
            group: symbols.find(&request.group),
            full_resource,
            any_with_subresource,
            resource: if resource.len() == request.resource.len() {
                whole
            } else {
                symbols.find(resource)
            },
            namespace_of_labels,
            in_namespace: namespaces.find(namespace_of_labels),
            namespace,
            namespaces: namespace_ids,
            name: symbols.find(&request.name),
            all_namespaces: is_collection && !has_namespace,
            all_names: is_collection && request.name.is_empty(),
            has_namespace,
        }
    }
}

impl<'r> PathQuery<'r> {
    fn new(asked_path: &'r str, asked_verb: &'r str, symbols: &Symbols) -> Self {
        let path = symbols.find(asked_path);
        let mut paths = Ids::default();
        paths.push(path);
        symbols.find_path_prefixes(asked_path, &mut paths);
        Self {
            asked_path,
            asked_verb,
            verb: symbols.find(asked_verb),
            path,
            paths,
        }
    }
}

/// The number of `resource/subresource`, joined without allocation if short.
fn find_joined(symbols: &Symbols, resource: &str, subresource: &str) -> u32 {
    let mut joined = [0; 96];
    let length = resource.len() + 1 + subresource.len();
    let Some(text) = joined.get_mut(..length) else {
        return symbols.find(&format!("{resource}/{subresource}"));
    };
    let (before, after) = text.split_at_mut(resource.len());
    before.copy_from_slice(resource.as_bytes());
    if let Some((slash, rest)) = after.split_first_mut() {
        *slash = b'/';
        rest.copy_from_slice(subresource.as_bytes());
    }
    // Two texts and a slash are text; should they ever not be, RBAC grants nothing by them.
    std::str::from_utf8(text).map_or(Symbols::UNKNOWN, |text| symbols.find(text))
}
