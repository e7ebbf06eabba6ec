//! The rules of bindings and Allow policies that may allow a request.

use std::collections::HashMap;
use std::sync::Arc;

use crate::authorization::index::{BoundRole, IndexedPolicy, IndexedRule, PolicyQuery};
use crate::authorization::rbac::compare_rule;
use crate::authorization::{AccessGrant, Binding, Criterion, PolicySet, ResourceRule, Role, RuleMatch};
use crate::model::{CauseKind, Time, User};

use super::query::{GrantedRequests, NameSet, PolicyRulePlace};
use super::{OpenRequest, Within, may_apply};

/// A rule that may allow a request.
pub(crate) struct GrantingRule<'s> {
    pub(crate) source: GrantSource<'s>,
    /// Its number among those of the role or policy.
    pub(crate) number: usize,
    pub(crate) granted: GrantedRequests<'s>,
}

/// What grants.
#[derive(Clone, Copy)]
pub(crate) enum GrantSource<'s> {
    /// A binding, and the names to which the rule of its role is limited.
    Binding(&'s Binding, &'s [String]),
    /// A policy, and its rule for resources.
    Policy(&'s IndexedPolicy, Option<&'s ResourceRule>),
}

// === impl GrantSource ===

impl<'s> GrantSource<'s> {
    pub(crate) const fn kind(self) -> CauseKind {
        match self {
            Self::Binding(binding, _) => binding.kind(),
            Self::Policy(..) => CauseKind::AuthorizationPolicy,
        }
    }

    /// Its namespace and name.
    pub(crate) fn names(self) -> (&'s str, &'s str) {
        match self {
            Self::Binding(binding, _) => (&binding.namespace, &binding.name),
            Self::Policy(indexed, _) => ("", &indexed.name),
        }
    }

    /// The rule of an Allow policy for resources.
    pub(crate) const fn rule(self) -> Option<&'s ResourceRule> {
        match self {
            Self::Binding(..) => None,
            Self::Policy(_, rule) => rule,
        }
    }
}

// === impl PolicySet ===

impl PolicySet {
    /// This set with a binding in place of each AccessRequest in force at `now`, of `user` alone if there is
    /// one: for answers that leave the user or the request open. `None` where there is none in force. What
    /// one lifts is left aside.
    pub(crate) fn with_access_requests_bound(&self, user: Option<&User<'_>>, now: Time) -> Option<Self> {
        let grants = self.access.as_deref()?.in_force(now);
        let own = grants.into_iter();
        let own = own.filter(|grant| user.is_none_or(|user| grant.request.is_of(user)));
        let bindings: Vec<Arc<Binding>> = own.flat_map(AccessGrant::bindings).map(Arc::new).collect();
        let mut set = Self {
            access: None,
            ..self.clone()
        };
        set.bindings.add(&bindings, &set.roles);
        Some(set)
    }

    /// The rules of `bindings` that allow `request`, but perhaps for its name.
    pub(crate) fn granted_by_bindings<'s>(
        &'s self,
        request: &'s OpenRequest,
        bindings: impl Iterator<Item = &'s BoundRole>,
    ) -> Vec<GrantingRule<'s>> {
        let mut fitting: HashMap<*const Role, Vec<(usize, &'s [String])>> = HashMap::new();
        let mut granting = Vec::new();
        for BoundRole { binding, role } in bindings {
            let (Some(role), Some(namespaces)) = (role, namespaces_of(request.within(), binding)) else {
                continue;
            };
            let rules = fitting.entry(Arc::as_ptr(role));
            let rules = rules.or_insert_with(|| fitting_rules(role, request));
            granting.extend(rules.iter().map(|&(number, names)| GrantingRule {
                source: GrantSource::Binding(binding, names),
                number,
                granted: GrantedRequests {
                    names: names_of(request, names),
                    namespaces,
                    policy: None,
                },
            }));
        }
        granting
    }

    /// The rules of Allow policies in force that may allow `request`.
    pub(crate) fn granted_by_policies<'s>(
        &'s self,
        request: &'s OpenRequest,
        now: Time,
    ) -> Vec<GrantingRule<'s>> {
        let example = request.example("", request.name(), <_>::default());
        let query = self.query(&example);
        let is_granting = |rule: &&IndexedRule| {
            rule.policy.policy.validity.contains(now)
                && self.may_grant(&rule.policy.policy)
                && match query {
                    PolicyQuery::Resource(_) => may_apply(&query, rule),
                    PolicyQuery::NonResource(_) => query.compare(rule).is_match(),
                }
        };
        let rules = self.policies.allow.rules().iter().filter(is_granting);
        let granting = |indexed: &'s IndexedRule| {
            let rule = indexed.resource_rule();
            GrantingRule {
                source: GrantSource::Policy(&indexed.policy, rule),
                number: indexed.number,
                granted: GrantedRequests {
                    names: names_of(request, rule.map_or(&[][..], |rule| rule.names.as_slice())),
                    namespaces: NameSet::Any,
                    policy: Some(PolicyRulePlace {
                        policy: indexed.policy.place,
                        number: indexed.number,
                    }),
                },
            }
        };
        rules.map(granting).collect()
    }
}

/// The rules of a role that allow `request`, but perhaps for its name, and the names to
/// which each is limited.
pub(crate) fn fitting_rules<'s>(role: &'s Role, request: &OpenRequest) -> Vec<(usize, &'s [String])> {
    let example = request.example("", request.name(), <_>::default());
    let mut fitting = Vec::new();
    for (number, rule) in role.rules.iter().enumerate() {
        match compare_rule(rule, &example) {
            RuleMatch::Match => fitting.push((number, rule.resource_names.as_slice())),
            RuleMatch::Mismatch(Criterion::Names) if request.is_name_open() => {
                fitting.push((number, rule.resource_names.as_slice()));
            }
            RuleMatch::Mismatch(_) => {}
        }
    }
    fitting
}

/// In which namespaces a binding grants something; `None` where in none that is asked about.
pub(crate) fn namespaces_of<'s>(within: &'s Within, binding: &'s Binding) -> Option<NameSet<'s>> {
    let namespace = binding.namespace.as_str();
    match within {
        _ if namespace.is_empty() => Some(NameSet::Any),
        Within::NoNamespace => None,
        Within::Namespace(asked) => (asked == namespace).then_some(NameSet::Only(namespace)),
        Within::AnyNamespace => Some(NameSet::Only(namespace)),
    }
}

pub(crate) fn names_of<'s>(request: &'s OpenRequest, names: &'s [String]) -> NameSet<'s> {
    if !request.is_name_open() {
        NameSet::Only(request.name())
    } else if names.is_empty() {
        NameSet::Any
    } else {
        NameSet::OneOf(names)
    }
}
