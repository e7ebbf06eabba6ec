//! The warnings about bindings, kept from one load to the next: they depend on the roles,
//! which change seldom, and there may be very many bindings.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::binding::{self, RoleGrants, RolesByCluster};
use super::{Lint, labels};
use crate::authorization::{Binding, NeverDeny, Role};
use crate::field::{Fault, Faults};
use crate::manifest::Options;
use crate::manifest::object::{Content, ManifestObject};
use crate::manifest::source_objects::SourceObjects;

/// What was found about the bindings of each source.
pub(crate) struct BindingLint {
    basis: Basis,
    found: Vec<(Arc<SourceObjects>, Arc<FoundOfBindings>)>,
}

/// What there is to tell of the bindings of one source.
#[derive(Default)]
pub(crate) struct FoundOfBindings {
    /// By the place of the binding in the source.
    pub(crate) warnings: Vec<(usize, Vec<Fault>)>,
    /// Whom they let change labels of Namespaces.
    labellers: Vec<String>,
}

/// What that depends on beside the bindings.
struct Basis {
    never_deny: NeverDeny,
    clusters: BTreeSet<Option<String>>,
    /// With the cluster that each is for.
    roles: Vec<(Option<Arc<str>>, Arc<Role>)>,
}

// === impl BindingLint ===

impl BindingLint {
    /// Looks at the bindings of those `sources` alone that `earlier` does not know, where the
    /// roles are those of then.
    pub(crate) fn new(sources: &[Arc<SourceObjects>], options: &Options, earlier: Option<&Self>) -> Self {
        let basis = Basis::new(sources, options);
        let earlier = earlier.filter(|earlier| earlier.basis.is(&basis));
        let known: HashMap<*const SourceObjects, &Arc<FoundOfBindings>> = earlier
            .iter()
            .flat_map(|earlier| &earlier.found)
            .map(|(source, found)| (Arc::as_ptr(source), found))
            .collect();
        let is_known = |source: &Arc<SourceObjects>| known.contains_key(&Arc::as_ptr(source));
        if sources
            .iter()
            .all(|source| is_known(source) || !source.has_bindings())
        {
            return Self::of(basis, sources, |source| {
                known.get(&Arc::as_ptr(source)).map(|found| Arc::clone(found))
            });
        }
        let roles = RolesByCluster::new(sources);
        let grants = RoleGrants::new(&roles, &options.never_deny);
        Self::of(basis, sources, |source| {
            let found = known.get(&Arc::as_ptr(source)).map(|found| Arc::clone(found));
            found.or_else(|| Some(Arc::new(FoundOfBindings::new(source, &grants))))
        })
    }

    fn of(
        basis: Basis,
        sources: &[Arc<SourceObjects>],
        find: impl Fn(&Arc<SourceObjects>) -> Option<Arc<FoundOfBindings>>,
    ) -> Self {
        let found = sources
            .iter()
            .map(|source| (Arc::clone(source), find(source).unwrap_or_default()));
        Self {
            found: found.collect(),
            basis,
        }
    }

    /// What was found, of each source in order.
    pub(crate) fn found(&self) -> impl Iterator<Item = &FoundOfBindings> {
        self.found.iter().map(|(_, found)| &**found)
    }

    /// Whom bindings let change labels of Namespaces, each with its only cluster.
    pub(crate) fn labellers(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        self.found.iter().flat_map(|(source, found)| {
            let cluster = source.cluster();
            found.labellers.iter().map(move |who| (cluster, who.as_str()))
        })
    }
}

// === impl FoundOfBindings ===

impl FoundOfBindings {
    fn new<'r>(source: &'r SourceObjects, grants: &RoleGrants<'r>) -> Self {
        let mut found = Self::default();
        for (place, object) in source.objects().enumerate() {
            if let Content::Binding(binding) = &object.content {
                found.look_at((place, object), binding, source.cluster(), grants);
            }
        }
        found
    }

    fn look_at<'r>(
        &mut self,
        (place, object): (usize, &ManifestObject),
        binding: &Binding,
        cluster: Option<&'r str>,
        grants: &RoleGrants<'r>,
    ) {
        let mut faults = Faults::new();
        let mut lint = Lint {
            document: &object.document,
            faults: &mut faults,
        };
        binding::lint(binding, cluster, grants, &mut lint);
        if !faults.is_empty() {
            self.warnings.push((place, faults.into_iter().collect()));
        }
        if grants.labels_namespaces(binding, cluster) {
            self.labellers.extend(labels::names(&binding.subjects));
        }
    }
}

// === impl Basis ===

impl Basis {
    fn new(sources: &[Arc<SourceObjects>], options: &Options) -> Self {
        let roles = sources.iter().flat_map(|source| source.others());
        Self {
            never_deny: options.never_deny.clone(),
            clusters: sources
                .iter()
                .map(|source| source.cluster().map(str::to_owned))
                .collect(),
            roles: roles
                .filter_map(|object| match &object.content {
                    Content::Role(role) => Some((object.cluster.clone(), Arc::clone(role))),
                    _ => None,
                })
                .collect(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        let same = |((one_of, one), (other_of, other)): (&(_, Arc<Role>), &(_, Arc<Role>))| {
            one_of == other_of && Arc::ptr_eq(one, other)
        };
        self.never_deny == other.never_deny
            && self.clusters == other.clusters
            && self.roles.len() == other.roles.len()
            && self.roles.iter().zip(&other.roles).all(same)
    }
}
