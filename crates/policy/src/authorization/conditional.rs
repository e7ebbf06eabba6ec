//! `objectConditions` in a policy set: when an Allow with them grants although its object is not
//! yet known, and which policies with them match a request whose object is known.
//!
//! ```text
//! /authorize   an Allow applies ─▶ is /validate known to see the request, and is the Allow not new? ─▶ Allow
//! /validate    nothing unconditional allows it ─▶ an Allow's objectConditions must hold
//!              the objectConditions of a Deny hold ─▶ Deny
//! ```

use std::sync::Arc;

use super::condition::{ConditionsResult, RequestActivation};
use super::index::PolicyGroup;
use super::reviewed_resources::{
    GrantHistory, NotGranted, REMOVED_GRANT_RETENTION_SECONDS, ReviewKnowledge, ReviewedResources,
};
use super::{
    Authorization, AuthorizationPolicy, Condition, Criterion, Effect, MASTERS, Mode, NeverDeny, PolicySet,
    RuleMatch, SharedObjects,
};
use crate::model::{Attributes, CauseKind, Deadline, Decision, Target, Time, User};

/// A policy with objectConditions that has a rule for a request.
pub(crate) struct ConditionalPolicy<'s> {
    /// Its index among all policies of its set.
    pub(crate) place: usize,
    pub(crate) policy: &'s Arc<AuthorizationPolicy>,
    /// The rule that applies, or that would apply if the namespace had other labels.
    pub(crate) rule: usize,
    /// Whether the rule applies, including the labels of the namespace.
    pub(crate) applies: bool,
}

// === impl PolicySet ===

impl PolicySet {
    /// This set as the successor of `before` at `now`: new Allows with objectConditions start to
    /// grant after a delay, and those that were removed or changed continue to be checked for a
    /// while at `/validate`.
    #[must_use]
    pub fn with_history(&self, before: Option<&Self>, now: Time) -> Self {
        let granting = self.policies.allow.policies.iter();
        let granting = granting.filter(|one| !one.policy.object_conditions.is_empty());
        let granting = match &self.reviewed {
            Some(_) => granting.map(|one| Arc::clone(&one.policy)).collect(),
            None => Vec::new(),
        };
        let before = before.and_then(|before| before.history.as_deref());
        let history = GrantHistory::following(before, granting, now);
        let objects = SharedObjects {
            policies: history.former().cloned().collect(),
            namespaces: (*self.namespace_labels).clone(),
            cluster_scoped: self.cluster_scoped.clone(),
            ..SharedObjects::default()
        };
        let has_former = !objects.policies.is_empty();
        let former = has_former.then(|| Self::new(objects, &NeverDeny::nobody()));
        Self {
            history: (self.reviewed.is_some() || !history.is_empty()).then(|| Arc::new(history)),
            removed_grants: former.map(Arc::new),
            ..self.clone()
        }
    }

    /// Whether [`following`](Self::with_history) is necessary for this set after `before`.
    #[must_use]
    pub fn has_grant_history(&self, before: Option<&Self>) -> bool {
        let had = before.is_some_and(|before| before.history.is_some());
        had || self.reviewed.is_some()
    }

    /// This set with the requests that `/validate` is known to see of its cluster.
    #[must_use]
    pub fn with_reviewed_resources(self, reviewed: Option<ReviewedResources>) -> Self {
        Self { reviewed, ..self }
    }

    /// The requests that `/validate` is known to see, if any.
    #[must_use]
    pub const fn reviewed(&self) -> Option<&ReviewedResources> {
        self.reviewed.as_ref()
    }

    /// Whether a policy with objectConditions may apply to requests at `now`, or may have applied
    /// recently.
    #[must_use]
    pub fn has_object_conditions(&self, now: Time) -> bool {
        self.policies.has_object_conditions || self.removed_grants.is_some() || self.history_is_too_short(now)
    }

    /// Whether unknown Allows may have granted something shortly before `now`, because changes have
    /// not been tracked for long enough.
    pub(crate) fn history_is_too_short(&self, now: Time) -> bool {
        let history = self.history.as_ref().filter(|_| self.reviewed.is_some());
        history.is_some_and(|history| history.history_is_too_short(now))
    }

    /// The assumption behind the decision `decided` if the cluster was not queried: that
    /// `/validate` sees the request that an Allow with objectConditions grants.
    #[must_use]
    pub fn assumption(&self, decided: &Authorization<'_>) -> Option<String> {
        let reviewed = self.reviewed.as_ref()?;
        let cause = decided.cause.as_ref()?;
        let is_assumed = matches!(reviewed.knowledge, ReviewKnowledge::Assumed);
        let mut policies = self.authorization_policies();
        let is_conditional = policies.any(|policy| {
            cause.kind == CauseKind::AuthorizationPolicy
                && policy.name == cause.name
                && !policy.object_conditions.is_empty()
        });
        let is_so = is_assumed && is_conditional && decided.decision == Decision::Allow;
        is_so.then(|| {
            format!(
                "{cause} has objectConditions: the result assumes that `/validate` sees the request, as with \
                `admission: Declared`; `serve` checks this in the cluster"
            )
        })
    }

    /// Whether an Allow can grant at all: one with objectConditions can only if `/validate` is
    /// known to see requests.
    pub(crate) fn may_grant(&self, policy: &AuthorizationPolicy) -> bool {
        policy.object_conditions.is_empty() || self.reviewed.is_some()
    }

    /// Why `policy`, an Allow with objectConditions that applies, does not grant the request;
    /// `None` if it does.
    pub(crate) fn not_granted(
        &self,
        policy: &Arc<AuthorizationPolicy>,
        attributes: &Attributes<'_>,
        (now, deadline): (Time, Deadline<'_>),
    ) -> Option<NotGranted> {
        let (Some(reviewed), Target::Resource(request)) = (&self.reviewed, &attributes.target) else {
            return Some(NotGranted::NotReviewed);
        };
        let is_cluster_scoped = self.cluster_scoped.contains(&request.group, &request.resource);
        let unseen = reviewed.why_not_seen((attributes, request), is_cluster_scoped, (now, deadline));
        if unseen.is_some() {
            return unseen;
        }
        if self.is_never_refused(attributes, deadline) {
            return Some(NotGranted::NeverRefused);
        }
        let history = self.history.as_ref();
        let is_new = history.is_some_and(|history| history.is_new(policy, now));
        is_new.then_some(NotGranted::New)
    }

    /// Whether `/validate` never denies the request, whatever the policies are: `neverDeny`
    /// protects it, or the API server calls no authorization webhook for this user.
    pub(crate) fn is_never_refused(&self, attributes: &Attributes<'_>, deadline: Deadline<'_>) -> bool {
        let reviewed = self.reviewed.as_ref();
        self.never_denies_user(&attributes.user)
            || self.is_protected(attributes)
            || is_master(&attributes.user)
            || reviewed.is_some_and(|reviewed| reviewed.calls_no_webhook(attributes, deadline))
    }

    /// The policies with objectConditions of this effect and mode that have a rule for the request
    /// at `now`, including Allows that ended recently.
    pub(crate) fn conditional_policies(
        &self,
        (effect, mode): (Effect, Mode),
        attributes: &Attributes<'_>,
        now: Time,
    ) -> Vec<ConditionalPolicy<'_>> {
        if !self.policies.has_object_conditions {
            return Vec::new();
        }
        let group = match (effect, mode) {
            (_, Mode::Shadow) => &self.policies.shadow,
            (Effect::Allow, _) => &self.policies.allow,
            (Effect::Deny | Effect::Limit, _) => &self.policies.deny,
        };
        self.conditional_of(group, effect, attributes, now)
    }

    /// The same for Allows that were removed or changed recently.
    pub(crate) fn removed_policies(
        &self,
        attributes: &Attributes<'_>,
        now: Time,
    ) -> Vec<ConditionalPolicy<'_>> {
        let (Some(history), Some(set)) = (&self.history, &self.removed_grants) else {
            return Vec::new();
        };
        let mut found = set.conditional_policies((Effect::Allow, Mode::Enforce), attributes, now);
        found.retain(|found| history.still_checks(found.policy, now));
        found
    }

    fn conditional_of<'s>(
        &'s self,
        group: &'s PolicyGroup,
        effect: Effect,
        attributes: &Attributes<'_>,
        now: Time,
    ) -> Vec<ConditionalPolicy<'s>> {
        let query = self.query(attributes);
        let ids = self.policies.terms.ids_of(&attributes.user);
        let mut found: Vec<ConditionalPolicy<'s>> = Vec::new();
        for rule in group.rules_for(&ids) {
            let policy = &rule.policy.policy;
            let needs_validation = policy.effect == effect && !policy.object_conditions.is_empty();
            if !needs_validation || !is_in_force(policy, now) || !query.is_same_kind_as(rule) {
                continue;
            }
            // The labels may have been different when the request was allowed.
            let applies = match query.compare(rule) {
                RuleMatch::Match => true,
                RuleMatch::Mismatch(Criterion::NamespaceSelector) if effect == Effect::Allow => false,
                RuleMatch::Mismatch(_) => continue,
            };
            match found.last_mut().filter(|last| Arc::ptr_eq(last.policy, policy)) {
                Some(last) if last.applies || !applies => {}
                Some(last) => (last.rule, last.applies) = (rule.number, applies),
                None => found.push(ConditionalPolicy {
                    place: rule.policy.place,
                    policy,
                    rule: rule.number,
                    applies,
                }),
            }
        }
        found
    }
}

/// Whether the policy is in force at `now`, or is an Allow that was in force recently.
fn is_in_force(policy: &AuthorizationPolicy, now: Time) -> bool {
    let validity = &policy.validity;
    let has_begun = validity.not_before.is_none_or(|start| start <= now);
    let lag = match policy.effect {
        Effect::Allow => REMOVED_GRANT_RETENTION_SECONDS,
        Effect::Deny | Effect::Limit => 0,
    };
    has_begun && validity.not_after.is_none_or(|end| now < end.plus_seconds(lag))
}

/// Whether the user is in the group to which an API server allows everything, without calling an
/// authorizer.
fn is_master(user: &User<'_>) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// The result of the `conditions` of a policy for a request that was reconstructed from an
/// AdmissionReview.
pub(crate) fn conditions_of<'p>(
    policy: &'p AuthorizationPolicy,
    attributes: &Attributes<'_>,
    deadline: Deadline<'_>,
) -> ConditionsResult<'p> {
    let activation = RequestActivation::new(attributes).until(deadline);
    Condition::all(&policy.conditions, &activation)
}
