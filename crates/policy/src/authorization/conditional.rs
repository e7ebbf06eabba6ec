//! `objectConditions` in a policy set: what an Allow with them grants before its object is known, and which
//! policies with them are about a request whose object is.
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
    FORMER_GRANT_RETENTION_SECONDS, GrantHistory, NotGranted, ReviewKnowledge, ReviewedResources,
};
use super::{
    Authorization, AuthorizationPolicy, Condition, Criterion, Effect, MASTERS, Mode, NeverDeny, PolicySet,
    RuleMatch, SharedObjects,
};
use crate::model::{Attributes, CauseKind, Deadline, Decision, Target, Time, User};

/// A policy with objectConditions that is about a request.
pub(crate) struct ConditionalPolicy<'s> {
    /// Its place among all policies of its set.
    pub(crate) place: usize,
    pub(crate) policy: &'s Arc<AuthorizationPolicy>,
    /// The rule that applies, or that would but for the labels of the namespace.
    pub(crate) rule: usize,
    /// Whether it applies, labels included.
    pub(crate) applies: bool,
}

// === impl PolicySet ===

impl PolicySet {
    /// This set where it follows `before` at `now`: Allows with objectConditions that are new grant a
    /// little later, and what they granted before is judged a while longer.
    #[must_use]
    pub fn following(&self, before: Option<&Self>, now: Time) -> Self {
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
            namespaces: (*self.labels).clone(),
            cluster_scoped: self.cluster_scoped.clone(),
            ..SharedObjects::default()
        };
        let has_former = !objects.policies.is_empty();
        let former = has_former.then(|| Self::new(objects, &NeverDeny::nobody()));
        Self {
            history: (self.reviewed.is_some() || !history.is_empty()).then(|| Arc::new(history)),
            former: former.map(Arc::new),
            ..self.clone()
        }
    }

    /// Whether [`following`](Self::following) has anything to say of this set after `before`.
    #[must_use]
    pub fn has_grant_history(&self, before: Option<&Self>) -> bool {
        let had = before.is_some_and(|before| before.history.is_some());
        had || self.reviewed.is_some()
    }

    /// This set, where it is known what `/validate` sees of its cluster.
    #[must_use]
    pub fn reviewing(self, reviewed: Option<ReviewedResources>) -> Self {
        Self { reviewed, ..self }
    }

    /// What `/validate` is known to see, if anything.
    #[must_use]
    pub const fn reviewed(&self) -> Option<&ReviewedResources> {
        self.reviewed.as_ref()
    }

    /// Whether a policy with objectConditions may be about requests at `now`, or may have been a short
    /// while ago.
    #[must_use]
    pub fn has_object_conditions(&self, now: Time) -> bool {
        self.policies.has_object_conditions || self.former.is_some() || self.may_lack_former(now)
    }

    /// Whether an Allow may have granted something a short while before `now` that is not known, because
    /// changes are not followed for so long.
    pub(crate) fn may_lack_former(&self, now: Time) -> bool {
        let history = self.history.as_ref().filter(|_| self.reviewed.is_some());
        history.is_some_and(|history| history.history_is_too_short(now))
    }

    /// What `decided` takes for granted, where nobody asks the cluster: that `/validate` sees the request of an
    /// Allow with objectConditions.
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
                "{cause} has objectConditions: it is taken for granted that `/validate` sees the request, as with \
                 `admission: Declared`; `serve` asks the cluster"
            )
        })
    }

    /// Whether an Allow may grant at all: one with objectConditions only where `/validate` is known to
    /// see requests.
    pub(crate) fn may_grant(&self, policy: &AuthorizationPolicy) -> bool {
        policy.object_conditions.is_empty() || self.reviewed.is_some()
    }

    /// Why `policy`, an Allow with objectConditions that applies, does not grant the request.
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

    /// Whether `/validate` lets the request pass whatever policies say: `neverDeny` protects it, or an API
    /// server never asks whether the user may.
    pub(crate) fn is_never_refused(&self, attributes: &Attributes<'_>, deadline: Deadline<'_>) -> bool {
        let reviewed = self.reviewed.as_ref();
        self.protects(&attributes.user)
            || self.is_protected(attributes)
            || is_master(&attributes.user)
            || reviewed.is_some_and(|reviewed| reviewed.is_never_asked(attributes, deadline))
    }

    /// The policies of `effect` with objectConditions one of whose rules is about the request at `now`,
    /// those in Shadow if that is wanted; of Allows those too that ended a short while ago.
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

    /// The same of Allows that were removed or changed a short while ago.
    pub(crate) fn former_policies(
        &self,
        attributes: &Attributes<'_>,
        now: Time,
    ) -> Vec<ConditionalPolicy<'_>> {
        let (Some(history), Some(set)) = (&self.history, &self.former) else {
            return Vec::new();
        };
        let mut found = set.conditional_policies((Effect::Allow, Mode::Enforce), attributes, now);
        found.retain(|found| history.judges(found.policy, now));
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
            if !needs_validation || !is_in_force(policy, now) || !query.is_of_sort(rule) {
                continue;
            }
            // Labels may have been others when it was allowed.
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

/// Whether it holds at `now`, or of an Allow did a short while ago.
fn is_in_force(policy: &AuthorizationPolicy, now: Time) -> bool {
    let validity = &policy.validity;
    let has_begun = validity.not_before.is_none_or(|start| start <= now);
    let lag = match policy.effect {
        Effect::Allow => FORMER_GRANT_RETENTION_SECONDS,
        Effect::Deny | Effect::Limit => 0,
    };
    has_begun && validity.not_after.is_none_or(|end| now < end.plus_seconds(lag))
}

/// Whether an API server allows everything to the user without asking.
fn is_master(user: &User<'_>) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// The result of the `conditions` of a policy for a request that was put together from what admission
/// shows.
pub(crate) fn conditions_of<'p>(
    policy: &'p AuthorizationPolicy,
    attributes: &Attributes<'_>,
    deadline: Deadline<'_>,
) -> ConditionsResult<'p> {
    let activation = RequestActivation::new(attributes).until(deadline);
    Condition::all(&policy.conditions, &activation)
}
