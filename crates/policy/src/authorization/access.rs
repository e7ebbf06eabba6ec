//! Who may do something, and what a user may do: determined from a policy set for requests that
//! leave parts open.
//!
//! ```text
//! OpenRequest ──▶ query: rules of bindings and Allow policies that may allow it
//!                    │  for each: the requests that it allows (represented by examples)
//!                    ▼
//!                 denies: which of these each Deny touches and no Limit includes, and for which users
//! ```
//!
//! The rules are not interpreted a second time: whether a rule allows or denies is determined by
//! the code that decides requests, with example requests. An example represents all requests that
//! no rule distinguishes from it, so that a few are enough: a name that a rule contains, a name
//! that none contains, and no name; and so for namespaces.
//!
//! In this module, a Deny policy is also a Limit, which touches the requests that lie within none
//! of its rules.

pub(crate) mod query;
mod requests;
mod subject_scope;
mod who_can;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

pub(crate) use subject_scope::SubjectScope;
pub use who_can::{AllowedShare, Grantee, Permission, Via};

use super::index::{IndexedPolicy, IndexedRule, PolicyQuery};
use super::matching::{ClusterScoped, is_collection_verb};
use super::{AuthorizationPolicy, Criterion, Effect, PolicySet, ResourceRule, RuleMatch, Subject};
use crate::model::{Attributes, RawSelectors, ResourceAttributes, Selectors, Target, Time, User};

/// A request without its user, which may leave other parts open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    /// The exact verb: `*` is the verb `*`, which only a rule for all verbs allows.
    pub verb: String,
    /// The requested resource or path.
    pub target: OpenTarget,
}

/// The target of an [`OpenRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenTarget {
    /// Objects of the API.
    Resource(OpenResource),
    /// A non-resource path, such as `/metrics`.
    Path(String),
}

/// Requested objects of the API. Selectors are left open.
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
    /// The namespace of the object.
    pub within: Within,
}

/// The namespace of an [`OpenResource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Within {
    /// No namespace: for cluster-scoped resources, and for requests for all namespaces.
    NoNamespace,
    /// This namespace.
    Namespace(String),
    /// Any namespace, or none.
    AnyNamespace,
}

/// Whether a Deny or Limit applies to certain users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenyApplicability {
    /// It applies to none of them.
    Never,
    /// It applies to some of them or, if it has conditions, to some of their requests.
    Possibly,
    /// It applies to all of them, whatever the rest of their requests.
    Always,
}

/// The Denies and Limits in force, by their index in the set, and whether each applies.
pub(crate) type ApplicableDenies<'s> = BTreeMap<usize, (&'s IndexedPolicy, DenyApplicability)>;

/// The rules of Denies that may touch a request, and of Limits that may include it.
pub(crate) struct TouchingDenies<'s> {
    /// The policies in force, by their index in the set.
    policies: BTreeMap<usize, &'s IndexedPolicy>,
    /// The Limits among them for requests of this kind.
    limits: Vec<&'s IndexedPolicy>,
    /// The rules of these policies that match the verb, group and resource.
    pub(crate) rules: Vec<(&'s IndexedPolicy, &'s ResourceRule)>,
}

// === impl OpenRequest ===

impl OpenRequest {
    /// The request in the form that an API server would send: a request for a cluster-scoped
    /// resource has no namespace, and a request for a Namespace has this namespace, unless it is
    /// for a collection, which has a name only through its field selector (`NewRequestInfo`).
    pub(crate) fn normalized(mut self, scoped: &ClusterScoped) -> Self {
        let is_collection = is_collection_verb(&self.verb) || self.verb == "create";
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

    /// An example of these requests, without a user.
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

    /// The namespace; for a path, none.
    pub(crate) const fn within(&self) -> &Within {
        match &self.target {
            OpenTarget::Resource(asked) => &asked.within,
            OpenTarget::Path(_) => &Within::NoNamespace,
        }
    }

    /// Whether the name is open.
    pub(crate) const fn is_name_open(&self) -> bool {
        matches!(
            &self.target,
            OpenTarget::Resource(OpenResource { name: None, .. })
        )
    }

    /// The requested name; empty for none, or if it is open.
    pub(crate) fn name(&self) -> &str {
        match &self.target {
            OpenTarget::Resource(asked) => asked.name.as_deref().unwrap_or_default(),
            OpenTarget::Path(_) => "",
        }
    }

    /// The parts that are open.
    pub(crate) fn openness(&self) -> Openness {
        let name = self.is_name_open();
        let namespace = matches!(self.within(), Within::AnyNamespace);
        Openness {
            name,
            namespace,
            counted_namespace: namespace || name && self.is_for_namespaces(),
        }
    }

    /// Whether it is for Namespaces, whose requests have the namespace that they name.
    pub(crate) fn is_for_namespaces(&self) -> bool {
        matches!(&self.target, OpenTarget::Resource(asked) if asked.is_namespaces())
    }
}

impl OpenResource {
    fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.resource == "namespaces"
    }
}

// Describes the limits of a policy in words.

/// The open parts of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Openness {
    pub(crate) name: bool,
    pub(crate) namespace: bool,
    /// Whether the namespace is open to which a `namespaceSelector`, and the `excludeNamespaces` of
    /// an Allow, refer. For a request for a Namespace without a namespace, this is the named
    /// Namespace.
    pub(crate) counted_namespace: bool,
}

/// `names: a, b`; `None` if there are no names.
pub(crate) fn limits_of_names(names: &[String]) -> Option<String> {
    let quoted: Vec<String> = names
        .iter()
        .map(|name| {
            if name.is_empty() {
                "\"\"".to_owned()
            } else {
                name.clone()
            }
        })
        .collect();
    (!names.is_empty()).then(|| format!("names: {}", quoted.join(", ")))
}

/// The limits of a policy's `rule` on the open parts.
pub(crate) fn limits_of_rule(effect: Effect, rule: &ResourceRule, open: Openness) -> Vec<String> {
    let mut limits = Vec::new();
    if open.name {
        limits.extend(limits_of_names(&rule.names));
    }
    let is_exclusion_open = match effect {
        Effect::Allow | Effect::Limit => open.counted_namespace,
        Effect::Deny => open.namespace,
    };
    let fields = [
        ("namespaces", &rule.namespaces, open.namespace),
        ("excludeNamespaces", &rule.exclude_namespaces, is_exclusion_open),
    ];
    for (field, patterns, _) in fields.into_iter().filter(|(_, _, is_open)| *is_open) {
        let namespaces = list(patterns.iter().map(|pattern| match pattern.to_string() {
            none if none.is_empty() => "\"\"".to_owned(),
            pattern => pattern,
        }));
        limits.extend(namespaces.map(|namespaces| format!("{field}: {namespaces}")));
    }
    if open.counted_namespace {
        let selector = rule.namespace_selector.iter();
        limits.extend(selector.map(|selector| format!("namespaceSelector: {selector}")));
    }
    let field = match effect {
        Effect::Allow | Effect::Limit => "selectors",
        Effect::Deny => "unlessSelectors",
    };
    for (kind, requirements) in [("field", &rule.selectors.field), ("label", &rule.selectors.label)] {
        limits.extend(list(requirements.iter()).map(|all| format!("{field}.{kind}: {all}")));
    }
    limits
}

/// The limits that apply to all rules of a policy. Excluded subjects are left out if they cannot be
/// among `scope`.
pub(crate) fn limits_of_policy(policy: &AuthorizationPolicy, scope: Option<&SubjectScope>) -> Vec<String> {
    let mut limits = Vec::new();
    let meets = |subject: &&Subject| scope.is_none_or(|scope| scope.may_match(subject));
    let excluded = list(policy.exclude_subjects.iter().filter(meets));
    limits.extend(excluded.map(|excluded| format!("excludeSubjects: {excluded}")));
    limits.extend(limits_of_conditions(policy));
    limits
}

/// The limits of a policy for every user: its conditions, and its end.
pub(crate) fn limits_of_conditions(policy: &AuthorizationPolicy) -> Vec<String> {
    let conditions = policy.conditions.iter();
    let conditions = conditions.map(|one| format!("condition {}: {}", one.name(), one.expression()));
    let of_object = policy.object_conditions.iter();
    let of_object = of_object.map(|one| format!("objectCondition {}: {}", one.name(), one.expression()));
    let end = policy.validity.not_after.map(|end| format!("notAfter: {end}"));
    conditions.chain(of_object).chain(end).collect()
}

/// All values, separated by commas; `None` if there are none.
fn list(all: impl Iterator<Item = impl Display>) -> Option<String> {
    let all: Vec<String> = all.map(|one| one.to_string()).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

impl AuthorizationPolicy {
    /// Its limits in the words of a manifest's fields, except for subjects, verbs and resources:
    /// names, namespaces, selectors, excluded subjects, conditions, and its end.
    #[must_use]
    pub fn limits(&self) -> Vec<String> {
        let rules = self.resource_rules.iter();
        let mut limits: Vec<String> = rules
            .flat_map(|rule| Self::limits_of_rule(self.effect, rule))
            .collect();
        limits.extend(self.limits_of_all_rules());
        limits.dedup();
        limits
    }

    /// The limits of one rule.
    #[must_use]
    pub fn limits_of_rule(effect: Effect, rule: &ResourceRule) -> Vec<String> {
        let open = Openness {
            name: true,
            namespace: true,
            counted_namespace: true,
        };
        limits_of_rule(effect, rule, open)
    }

    /// The limits that apply to all rules: excluded subjects, conditions, and its end.
    #[must_use]
    pub fn limits_of_all_rules(&self) -> Vec<String> {
        limits_of_policy(self, None)
    }
}

// === impl TouchingDenies ===

impl<'s> TouchingDenies<'s> {
    /// Those of `policies` that may touch `request`.
    pub(crate) fn touching(
        set: &'s PolicySet,
        request: &OpenRequest,
        policies: impl Iterator<Item = &'s IndexedPolicy>,
    ) -> Self {
        let policies: BTreeMap<usize, &IndexedPolicy> =
            policies.map(|indexed| (indexed.place, indexed)).collect();
        let mut rules = Vec::new();
        let example = request.example("", request.name(), <_>::default());
        let query = set.query(&example);
        let is_path = query.is_for_path();
        let of_sort = policies
            .values()
            .filter(|indexed| indexed.policy.limits_requests(is_path));
        let limits = of_sort.copied().collect();
        for indexed in set.policies.deny.rules() {
            if let Some(rule) = indexed.resource_rule()
                && policies.contains_key(&indexed.policy.place)
                && may_apply(&query, indexed)
            {
                rules.push((&*indexed.policy, rule));
            }
        }
        Self {
            policies,
            limits,
            rules,
        }
    }

    /// The indexes of the policies that touch a request, ascending and without duplicates.
    pub(crate) fn touching_policies(&self, set: &'s PolicySet, attributes: &Attributes<'_>) -> Vec<usize> {
        let is_resource = matches!(attributes.target, Target::Resource(_));
        let is_idle = is_resource && self.rules.is_empty() && self.limits.is_empty();
        if is_idle || self.policies.is_empty() || set.is_protected(attributes) {
            return Vec::new();
        }
        let query = set.query(attributes);
        let places = set
            .policies
            .deny
            .applying_to(&query)
            .map(|rule| rule.policy.place);
        let mut places: Vec<usize> = places.filter(|place| self.policies.contains_key(place)).collect();
        if !self.limits.is_empty() {
            let deny = &set.policies.deny;
            let holds = |limit: &&IndexedPolicy| {
                let mut rules = deny.rules_of(limit).iter();
                rules.any(|rule| query.is_same_kind_as(rule) && query.compare(rule).is_match())
            };
            let beyond = self.limits.iter().filter(|limit| !holds(limit));
            places.extend(beyond.map(|limit| limit.place));
            places.sort_unstable();
        }
        places.dedup();
        places
    }

    /// Whether there are Limits among them.
    pub(crate) fn have_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// The names in rules of Limits.
    pub(crate) fn names_within_limits(&self) -> impl Iterator<Item = &'s str> {
        let rules = self.rules.iter();
        let of_limits = rules.filter(|(indexed, _)| indexed.policy.effect == Effect::Limit);
        of_limits.flat_map(|(_, rule)| rule.names.iter().map(String::as_str))
    }

    /// Whether the namespace of a request may determine which of them touch it.
    pub(crate) fn depend_on_namespace(&self) -> bool {
        self.rules.iter().any(|(_, rule)| rule.depends_on_namespace())
    }
}

// === impl PolicySet ===

impl PolicySet {
    /// The request in the form in which policies are queried.
    pub(crate) fn query<'s, 'r>(&'s self, attributes: &'r Attributes<'r>) -> PolicyQuery<'s, 'r> {
        PolicyQuery::new(
            attributes,
            &self.policies.terms,
            &self.namespaces,
            &self.cluster_scoped,
        )
    }

    /// Whether the Denies and Limits at the indexes `places` apply to the users of `scope`.
    pub(crate) fn denies_for<'s>(
        &'s self,
        scope: &SubjectScope,
        places: &BTreeSet<usize>,
        now: Time,
    ) -> ApplicableDenies<'s> {
        let is_protected = scope.is_protected(&self.never_deny);
        let may_be_protected = scope.may_be_protected(self.never_deny());
        let of = |indexed: &'s IndexedPolicy| {
            let applicability = match applicability(&indexed.policy, scope) {
                _ if is_protected => DenyApplicability::Never,
                DenyApplicability::Always if may_be_protected => DenyApplicability::Possibly,
                applicability => applicability,
            };
            (indexed.place, (indexed, applicability))
        };
        let policies = self.denies_in_force(now);
        policies
            .filter(|indexed| places.contains(&indexed.place))
            .map(of)
            .collect()
    }

    /// The Denies and Limits in force that apply to `user`, all of whose groups are known.
    pub(crate) fn denies_for_user(&self, user: &User<'_>, now: Time) -> ApplicableDenies<'_> {
        let mut denies = ApplicableDenies::new();
        if self.never_deny.matches_user(user) {
            return denies;
        }
        let user = self.policies.terms.ids_of(user);
        for rule in self.policies.deny.rules_for(&user) {
            let indexed = &*rule.policy;
            if indexed.policy.validity.contains(now) {
                let is_certain = indexed.policy.is_unconditional();
                let applicability = if is_certain {
                    DenyApplicability::Always
                } else {
                    DenyApplicability::Possibly
                };
                denies.insert(indexed.place, (indexed, applicability));
            }
        }
        denies
    }

    pub(crate) fn denies_in_force(&self, now: Time) -> impl Iterator<Item = &IndexedPolicy> {
        let policies = self.policies.deny.policies.iter().map(AsRef::as_ref);
        policies.filter(move |indexed| indexed.policy.validity.contains(now))
    }
}

/// Whether a rule matches the verb, group and resource of `query`. The other fields may not match.
pub(crate) fn may_apply(query: &PolicyQuery<'_, '_>, rule: &IndexedRule) -> bool {
    !matches!(
        query.compare(rule),
        RuleMatch::Mismatch(
            Criterion::Target | Criterion::Verbs | Criterion::ApiGroups | Criterion::Resources
        )
    )
}

fn applicability(policy: &AuthorizationPolicy, scope: &SubjectScope) -> DenyApplicability {
    let (subjects, excluded) = (&policy.subjects, &policy.exclude_subjects);
    let may_meet = subjects.iter().any(|subject| scope.may_match(subject));
    if !may_meet || excluded.iter().any(|subject| scope.is_matched_by(subject)) {
        DenyApplicability::Never
    } else if policy.is_unconditional()
        && subjects.iter().any(|subject| scope.is_matched_by(subject))
        && !excluded.iter().any(|subject| scope.may_match(subject))
    {
        DenyApplicability::Always
    } else {
        DenyApplicability::Possibly
    }
}
