//! A request of which the name, the namespace and the selectors may be left open.

use crate::authorization::matching::{ClusterScoped, asks_for_collection};
use crate::engine::{Attributes, RawSelectors, ResourceAttributes, Selectors, Target, User};

use super::Openness;

/// A request without its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    /// The verb, exactly: `*` is the verb `*`, which only a rule for all verbs allows.
    pub verb: String,
    /// What for.
    pub target: OpenTarget,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenTarget {
    /// Objects of the API.
    Resource(OpenResource),
    /// A path that is of no API group, such as `/metrics`.
    Path(String),
}

/// Objects of the API. Selectors are left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, such as `pods`.
    pub resource: String,
    /// The subresource; empty for none.
    pub subresource: String,
    /// The object's name; `None` leaves it open: any name, or none.
    pub name: Option<String>,
    /// Where the object is.
    pub within: Within,
}

/// In which namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Within {
    /// In none: for cluster-scoped resources and requests about all namespaces.
    NoNamespace,
    /// In this one.
    Namespace(String),
    /// Any, or none.
    AnyNamespace,
}

// === impl OpenRequest ===

impl OpenRequest {
    /// The request as an API server would ask it: one for a resource that is known to have
    /// no namespace is in none, and one for a namespace is in it, under its name, unless it
    /// is for a list, which has a name by its field selector alone (`NewRequestInfo`).
    pub(crate) fn normalized(mut self, scoped: &ClusterScoped) -> Self {
        let is_collection = asks_for_collection(&self.verb) || self.verb == "create";
        let is_any_verb = self.verb == "*";
        if let OpenTarget::Resource(asked) = &mut self.target
            && scoped.contains(&asked.group, &asked.resource)
        {
            asked.within = match &asked.name {
                Some(name) if asked.is_namespaces() && (is_any_verb || !is_collection) => {
                    Within::Namespace(name.clone())
                }
                None if asked.is_namespaces() && !is_collection => Within::AnyNamespace,
                _ => Within::NoNamespace,
            };
        }
        self
    }

    /// One of these requests, without a user.
    pub(crate) fn example<'r>(
        &'r self,
        namespace: &'r str,
        name: &'r str,
        selectors: Selectors<'r>,
    ) -> Attributes<'r> {
        let verb = self.verb.as_str().into();
        let target = match &self.target {
            OpenTarget::Path(path) => Target::NonResource {
                path: path.as_str().into(),
                verb,
            },
            OpenTarget::Resource(asked) => Target::Resource(Box::new(ResourceAttributes {
                verb,
                namespace: namespace.into(),
                group: asked.group.as_str().into(),
                version: "*".into(),
                resource: asked.resource.as_str().into(),
                subresource: asked.subresource.as_str().into(),
                name: name.into(),
                selectors,
                raw_selectors: RawSelectors::default(),
            })),
        };
        Attributes {
            user: User::default(),
            target,
        }
    }

    /// Where it is; paths are in no namespace.
    pub(crate) const fn within(&self) -> &Within {
        match &self.target {
            OpenTarget::Resource(asked) => &asked.within,
            OpenTarget::Path(_) => &Within::NoNamespace,
        }
    }

    /// Whether any name will do.
    pub(crate) const fn is_name_open(&self) -> bool {
        matches!(
            &self.target,
            OpenTarget::Resource(OpenResource { name: None, .. })
        )
    }

    /// The name asked for; empty for none, and where any will do.
    pub(crate) fn name(&self) -> &str {
        match &self.target {
            OpenTarget::Resource(asked) => asked.name.as_deref().unwrap_or_default(),
            OpenTarget::Path(_) => "",
        }
    }

    /// What it leaves open.
    pub(crate) fn openness(&self) -> Openness {
        let name = self.is_name_open();
        let namespace = matches!(self.within(), Within::AnyNamespace);
        Openness {
            name,
            namespace,
            labels: namespace || name && self.is_for_namespaces(),
        }
    }

    /// Whether it is for namespaces, which are in themselves.
    pub(crate) fn is_for_namespaces(&self) -> bool {
        matches!(&self.target, OpenTarget::Resource(asked) if asked.is_namespaces())
    }
}

impl OpenResource {
    fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.resource == "namespaces"
    }
}
