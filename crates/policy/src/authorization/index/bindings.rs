//! Role bindings by namespace and subject: finds the first that allows a request, and all that
//! apply to a user (`VisitRulesFor` of `pkg/registry/rbac/validation/rule.go`).
//!
//! Each namespace has its own index, with an entry for each subject. A change copies the entries
//! that it affects and shares all others; the whole index is built by adding all bindings to an
//! empty one.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::authorization::interner::FastMap;
use crate::authorization::rbac::{RoleResolver, RuleTable};
use crate::authorization::{Binding, Role, SubjectKind};
use crate::model::{Attributes, Target, User};

/// The bindings of a set.
#[derive(Debug, Clone, Default)]
pub(crate) struct BindingIndex {
    cluster_role_bindings: Arc<NamespaceBindings>,
    /// RoleBindings by namespace.
    role_bindings: FastMap<Arc<str>, Arc<NamespaceBindings>>,
}

/// A binding and the role that it grants.
#[derive(Debug, Clone)]
pub(crate) struct BoundRole {
    pub(crate) binding: Arc<Binding>,
    /// `None` if the role does not exist: the binding grants nothing.
    pub(crate) role: Option<Arc<Role>>,
}

/// A binding that allows a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllowingRule<'s> {
    pub(crate) bound: &'s BoundRole,
    /// The index of the rule in its role.
    pub(crate) rule: usize,
}

/// The bindings of one namespace, or the ClusterRoleBindings.
#[derive(Debug, Clone, Default)]
struct NamespaceBindings {
    /// Sorted by name, which is the order in which they are tried.
    bindings: Vec<BoundRole>,
    /// By user name, including those of service accounts.
    users: SubjectMap,
    groups: SubjectMap,
}

type SubjectMap = FastMap<Arc<str>, Arc<SubjectBindings>>;

/// The bindings of one subject in one namespace.
#[derive(Debug, Clone, Default)]
struct SubjectBindings {
    /// Sorted by name.
    bindings: SmallVec<[BoundRole; 1]>,
    /// The rules of the bound roles, if there are too many to try one by one. The owner of a rule
    /// is the index of its binding.
    table: Option<Arc<RuleTable>>,
    /// Whether a change has left the bindings unsorted and the table outdated.
    is_stale: bool,
}

/// A subject with more bindings than this in one namespace has a table of their rules. In tests the
/// limit is low enough for random sets to have subjects of both kinds.
const MAX_BINDINGS_TO_COMPARE: usize = if cfg!(test) { 2 } else { 8 };

/// The size of a subject's table in bytes for each of its bindings, which bounds it in proportion
/// to the memory of the bindings. Roles that do not fit are tried one by one.
const TABLE_BYTES_OF_BINDING: usize = 1 << 10;

// === impl BindingIndex ===

impl BindingIndex {
    /// Adds bindings, and resolves their roles among `roles`.
    pub(crate) fn add(&mut self, bindings: &[Arc<Binding>], roles: &[Arc<Role>]) {
        if bindings.is_empty() {
            return;
        }
        let roles = RoleResolver::new(roles);
        let mut by_namespace: FastMap<&str, Vec<BoundRole>> = FastMap::default();
        for binding in bindings {
            let role = roles.resolve(&binding.role, &binding.namespace).ok();
            let bound = BoundRole {
                binding: Arc::clone(binding),
                role: role.cloned(),
            };
            by_namespace.entry(&binding.namespace).or_default().push(bound);
        }
        for (namespace, bindings) in by_namespace {
            self.namespace_mut(namespace).add(bindings);
        }
    }

    /// Removes bindings by their addresses. Returns `false` if one is not in the index.
    #[must_use]
    pub(crate) fn remove(&mut self, bindings: &[Arc<Binding>]) -> bool {
        let mut by_namespace: FastMap<&str, Vec<&Arc<Binding>>> = FastMap::default();
        for binding in bindings {
            by_namespace.entry(&binding.namespace).or_default().push(binding);
        }
        by_namespace.into_iter().all(|(namespace, bindings)| {
            let index = self.namespace_mut(namespace);
            let are_there = index.remove(&bindings);
            if index.bindings.is_empty() {
                self.role_bindings.remove(namespace);
            }
            are_there
        })
    }

    fn namespace_mut(&mut self, namespace: &str) -> &mut NamespaceBindings {
        Arc::make_mut(if namespace.is_empty() {
            &mut self.cluster_role_bindings
        } else {
            self.role_bindings.entry(namespace.into()).or_default()
        })
    }

    /// The first rule that allows the request. `visited` counts the rules compared.
    pub(crate) fn first_allowing(
        &self,
        attributes: &Attributes<'_>,
        visited: &mut usize,
    ) -> Option<AllowingRule<'_>> {
        let mut namespaces = self.namespaces_of(&attributes.target);
        namespaces.find_map(|bindings| bindings.first_allowing(attributes, visited))
    }

    /// The bindings that apply to the user in the namespace of the request, in the order in which
    /// they are tried; at most `limit` for each of the user's names and groups.
    pub(crate) fn applying_to(&self, attributes: &Attributes<'_>, limit: usize) -> Vec<&BoundRole> {
        let namespaces = self.namespaces_of(&attributes.target);
        let applying = namespaces.flat_map(|bindings| bindings.applying_to(&attributes.user, limit));
        applying.collect()
    }

    /// The bindings of `user` in all namespaces, in the order in which they are tried.
    pub(crate) fn bindings_of_user(&self, user: &User<'_>) -> Vec<&BoundRole> {
        let applying = self.in_order(|_| true);
        applying
            .flat_map(|bindings| bindings.applying_to(user, usize::MAX))
            .collect()
    }

    /// All bindings, in the order in which they are tried.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &BoundRole> {
        self.in_namespaces(|_| true)
    }

    /// The ClusterRoleBindings, and the RoleBindings of the namespaces for which `is_one` holds, in
    /// the same order.
    pub(crate) fn in_namespaces(&self, is_one: impl Fn(&str) -> bool) -> impl Iterator<Item = &BoundRole> {
        self.in_order(is_one).flat_map(|bindings| &bindings.bindings)
    }

    /// The bindings of the namespaces in which the two indexes differ, and the ClusterRoleBindings
    /// if any of these differs.
    pub(crate) fn not_shared_with<'s>(&'s self, other: &Self) -> impl Iterator<Item = &'s BoundRole> {
        let cluster_wide = Some(&self.cluster_role_bindings);
        let cluster_wide =
            cluster_wide.filter(|bindings| !Arc::ptr_eq(bindings, &other.cluster_role_bindings));
        let namespaces = self.role_bindings.iter().filter(|(namespace, bindings)| {
            let others = other.role_bindings.get(*namespace);
            !others.is_some_and(|others| Arc::ptr_eq(bindings, others))
        });
        let mut namespaces: Vec<_> = namespaces.collect();
        namespaces.sort_unstable_by_key(|(namespace, _)| *namespace);
        let namespaces = namespaces.into_iter().map(|(_, bindings)| bindings);
        cluster_wide
            .into_iter()
            .chain(namespaces)
            .flat_map(|bindings| &bindings.bindings)
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order(|_| true)
            .map(|bindings| bindings.bindings.len())
            .sum()
    }

    fn in_order(&self, is_one: impl Fn(&str) -> bool) -> impl Iterator<Item = &NamespaceBindings> {
        let namespaces = self.role_bindings.iter();
        let mut namespaces: Vec<_> = namespaces.filter(|(namespace, _)| is_one(namespace)).collect();
        namespaces.sort_unstable_by_key(|(namespace, _)| *namespace);
        let namespaces = namespaces.into_iter().map(|(_, bindings)| &**bindings);
        std::iter::once(&*self.cluster_role_bindings).chain(namespaces)
    }

    /// The ClusterRoleBindings, then the RoleBindings of the requested namespace.
    fn namespaces_of(&self, target: &Target<'_>) -> impl Iterator<Item = &NamespaceBindings> {
        let namespace = match target {
            Target::Resource(request) if !request.namespace.is_empty() => {
                self.role_bindings.get(request.namespace.as_ref())
            }
            Target::Resource(_) | Target::NonResource { .. } => None,
        };
        std::iter::once(&*self.cluster_role_bindings).chain(namespace.map(AsRef::as_ref))
    }
}

// === impl NamespaceBindings ===

impl NamespaceBindings {
    fn add(&mut self, mut added: Vec<BoundRole>) {
        added.sort_by(by_name);
        for bound in &added {
            self.each_subject_of(&bound.binding, |subjects, name| match subjects.get_mut(name) {
                Some(subject) => Arc::make_mut(subject).push(bound),
                None => {
                    let mut subject = SubjectBindings::default();
                    subject.push(bound);
                    subjects.insert(name.into(), Arc::new(subject));
                }
            });
        }
        added
            .iter()
            .for_each(|bound| self.refresh_subjects_of(&bound.binding));
        self.bindings.extend(added);
        self.bindings.sort_by(by_name);
    }

    fn remove(&mut self, removed: &[&Arc<Binding>]) -> bool {
        let count = self.bindings.len();
        let removed_set: HashSet<*const Binding> =
            removed.iter().map(|binding| Arc::as_ptr(binding)).collect();
        self.bindings
            .retain(|bound| !removed_set.contains(&Arc::as_ptr(&bound.binding)));
        for binding in removed {
            self.each_subject_of(binding, |subjects, name| {
                if let Some(subject) = subjects.get_mut(name) {
                    Arc::make_mut(subject).remove(&removed_set);
                }
            });
        }
        removed
            .iter()
            .for_each(|binding| self.refresh_subjects_of(binding));
        self.bindings.len() + removed.len() == count
    }

    fn refresh_subjects_of(&mut self, binding: &Binding) {
        self.each_subject_of(binding, |subjects, name| {
            if let Some(subject) = subjects.get_mut(name) {
                let subject = Arc::make_mut(subject);
                subject.refresh();
                if subject.bindings.is_empty() {
                    subjects.remove(name);
                }
            }
        });
    }

    /// Calls `edit` with the name of each subject, and the map that contains it.
    fn each_subject_of(&mut self, binding: &Binding, mut edit: impl FnMut(&mut SubjectMap, &str)) {
        for subject in &binding.subjects {
            let subjects = match subject.kind {
                SubjectKind::Group => &mut self.groups,
                SubjectKind::User | SubjectKind::ServiceAccount => &mut self.users,
            };
            // A service account without a namespace is no user.
            if let Some(name) = subject.authenticated_name(&binding.namespace) {
                edit(subjects, &name);
            }
        }
    }

    fn first_allowing(&self, attributes: &Attributes<'_>, visited: &mut usize) -> Option<AllowingRule<'_>> {
        let mut first: Option<AllowingRule<'_>> = None;
        for subject in self.subjects_of(&attributes.user) {
            let before = first.map(|grant| grant.bound);
            let found = subject.first_allowing(before, attributes, visited);
            first = found.or(first);
        }
        first
    }

    fn applying_to(&self, user: &User<'_>, limit: usize) -> Vec<&BoundRole> {
        let subjects = self.subjects_of(user);
        let mut applying: Vec<_> = subjects
            .flat_map(|subject| subject.bindings.iter().take(limit))
            .collect();
        applying.sort_by(|one, other| by_name(one, other));
        applying.dedup_by_key(|bound| Arc::as_ptr(&bound.binding));
        applying
    }

    #[inline]
    fn subjects_of<'b>(&'b self, user: &User<'_>) -> impl Iterator<Item = &'b SubjectBindings> {
        let own = self.users.get(user.name.as_ref()).into_iter();
        let groups = user.groups.iter();
        own.chain(groups.filter_map(|group| self.groups.get(group.as_ref())))
            .map(AsRef::as_ref)
    }
}

/// The order by name, which is unique within a namespace.
fn by_name(one: &BoundRole, other: &BoundRole) -> Ordering {
    one.binding.name.cmp(&other.binding.name)
}

// === impl SubjectBindings ===

impl SubjectBindings {
    /// Adds a binding, unless it was the last to be added: a binding may contain a subject twice.
    fn push(&mut self, bound: &BoundRole) {
        let last = self.bindings.last();
        if last.is_none_or(|last| !Arc::ptr_eq(&last.binding, &bound.binding)) {
            self.bindings.push(bound.clone());
            self.is_stale = true;
        }
    }

    /// Removes all of `removed`, unless another binding of the same change has caused this already.
    fn remove(&mut self, removed: &HashSet<*const Binding>) {
        if !self.is_stale {
            self.bindings
                .retain(|bound| !removed.contains(&Arc::as_ptr(&bound.binding)));
            self.is_stale = true;
        }
    }

    /// Sorts the bindings and rebuilds the table after a change.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        self.bindings.sort_by(by_name);
        self.table = None;
        if self.bindings.len() > MAX_BINDINGS_TO_COMPARE {
            let room = self.bindings.len() * TABLE_BYTES_OF_BINDING;
            let (mut table, mut roles) = (RuleTable::within(room), HashSet::new());
            for (place, bound) in (0..).zip(&self.bindings) {
                // If several bindings have the same role, the first decides.
                if let Some(role) = &bound.role
                    && roles.insert(Arc::as_ptr(role))
                {
                    role.rules.iter().for_each(|rule| table.add(rule, place));
                }
            }
            self.table = Some(Arc::new(table));
        }
    }

    /// The first binding that allows the request, if it comes before `limit`.
    #[inline]
    fn first_allowing(
        &self,
        limit: Option<&BoundRole>,
        attributes: &Attributes<'_>,
        visited: &mut usize,
    ) -> Option<AllowingRule<'_>> {
        let is_before = |bound: &&BoundRole| limit.is_none_or(|limit| by_name(bound, limit).is_lt());
        let grant = |bound, visited: &mut usize| grant(bound, attributes, visited);
        let Some(table) = &self.table else {
            let mut bindings = self.bindings.iter().take_while(is_before);
            return bindings.find_map(|bound| grant(bound, visited));
        };
        let bound = |place: u32| self.bindings.get(place as usize);
        let compare =
            |place, visited: &mut usize| bound(place).is_some_and(|bound| grant(bound, visited).is_some());
        let place = table.first_allowing(attributes, compare, visited)?;
        grant(bound(place).filter(is_before)?, visited)
    }
}

fn grant<'b>(
    bound: &'b BoundRole,
    attributes: &Attributes<'_>,
    visited: &mut usize,
) -> Option<AllowingRule<'b>> {
    let rule = bound.role.as_ref()?.rules.first_allowing(attributes, visited)?;
    Some(AllowingRule { bound, rule })
}
