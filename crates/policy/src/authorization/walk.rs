//! The walk through Denies and Limits, RBAC and Allows, recorded or not: how a
//! [`PolicySet`] decides.

mod policies;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use super::access_request::AccessGrant;
use super::answer::{Finding, Observer, Trace, TraceEntry};
use super::condition::{Condition, ConditionsResult, RequestActivation};
use super::index::{BoundRole, Grant, PolicyQuery, TermIds};
use super::rbac::{RoleNotFoundError, applying_subject, compare_rule};
use super::{
    Authorization, AuthorizationPolicy, AuthorizationReason, Criterion, Effect, NearMisses, NotGranted,
    PolicySet, Rule, RuleMatch, Shadow,
};
use crate::model::{Attributes, Cause, CauseKind, Deadline, Decision, PolicyResult, Time};

/// What is reported of a walk.
trait WalkRecorder {
    /// Whether what does not apply is wanted too.
    const DETAILED: bool;

    fn evaluated(&mut self, policy: usize, result: PolicyResult);

    fn spent(&mut self, policy: usize, cost: u64);

    fn record(&mut self, event: TraceEntry);
}

/// Reports the results of policies alone.
struct ObserverRecorder<'o, O>(&'o mut O);

/// Keeps everything.
#[derive(Default)]
struct TraceRecorder(Trace);

/// A request to a policy set, and what of it is worked out at most once.
struct WalkRequest<'s, 'r> {
    set: &'s PolicySet,
    attributes: &'r Attributes<'r>,
    now: Time,
    /// The numbers by which policies know the user, where a rule fits in all else.
    user_ids: OnceCell<TermIds>,
    deadline: Deadline<'r>,
    /// Whether an Allow with objectConditions may grant it.
    grants_on_condition: bool,
    /// Whether AccessRequests count.
    uses_access_requests: bool,
    query: PolicyQuery<'s, 'r>,
    activation: RequestActivation<'r>,
    is_protected: OnceCell<bool>,
}

/// One request on its way to a decision.
struct Walk<'q, 's, 'r, R> {
    request: &'q WalkRequest<'s, 'r>,
    visited: usize,
    shadow: Vec<Shadow>,
    /// What lifted a Deny or Limit that is enforced, and the rule by which it grants the request.
    lifted: Option<(&'s AccessGrant, usize)>,
    recorder: R,
}

/// A policy that decides.
struct DecidingPolicy<'s> {
    policy: &'s AuthorizationPolicy,
    /// The rule that applies; none of a Limit.
    rule: Option<usize>,
    /// The condition that has no result, where that decides.
    failed: Option<&'s str>,
}

/// The rule of a role that comes nearest to a request.
enum NearestRule {
    Allows(usize),
    Mismatch(usize, Criterion),
    NoRule,
}

// === impl PolicySet ===

impl PolicySet {
    /// Decides, as at `now`, in as much time as that takes.
    #[must_use]
    pub fn authorize<'s>(&'s self, attributes: &Attributes<'_>, now: Time) -> Authorization<'s> {
        self.authorize_observed(attributes, now, Deadline::NEVER, &mut ())
    }

    /// Decides, and reports to `observer` the result of each policy that was evaluated. A
    /// condition that has no result by the deadline is an error under its policy's failurePolicy.
    pub fn authorize_observed<'s>(
        &'s self,
        attributes: &Attributes<'_>,
        now: Time,
        deadline: Deadline<'_>,
        observer: &mut impl Observer,
    ) -> Authorization<'s> {
        let request = WalkRequest::new(self, attributes, now, deadline);
        Walk::new(&request, ObserverRecorder(observer)).decide().0
    }

    /// Decides whatever the object of the request is: Allows with objectConditions grant nothing.
    #[must_use]
    pub fn authorize_unconditionally<'s>(
        &'s self,
        attributes: &Attributes<'_>,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Authorization<'s> {
        let mut request = WalkRequest::new(self, attributes, now, deadline);
        request.grants_on_condition = false;
        Walk::new(&request, ObserverRecorder(&mut ())).decide().0
    }

    /// Whether RBAC or an Allow allows it, and no Deny or Limit refuses it; AccessRequests neither grant nor
    /// lift here.
    #[must_use]
    pub fn allows_without_access_requests(
        &self,
        attributes: &Attributes<'_>,
        now: Time,
        deadline: Deadline<'_>,
    ) -> bool {
        let mut request = WalkRequest::new(self, attributes, now, deadline);
        (request.grants_on_condition, request.uses_access_requests) = (false, false);
        let decided = Walk::new(&request, ObserverRecorder(&mut ())).decide().0;
        decided.decision == Decision::Allow
    }

    /// What Denies and Limits say, and those in Shadow: a Deny, or no opinion, whatever else would allow it.
    #[must_use]
    pub fn refuse<'s>(
        &'s self,
        attributes: &Attributes<'_>,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Authorization<'s> {
        let request = WalkRequest::new(self, attributes, now, deadline);
        Walk::new(&request, ObserverRecorder(&mut ())).refuse()
    }

    /// Decides by the same walk, and says of everything considered why it did
    /// or did not apply. Linear in the policies and in the user's bindings.
    #[must_use]
    pub fn explain<'s>(&'s self, attributes: &Attributes<'_>, now: Time) -> (Authorization<'s>, Trace) {
        let request = WalkRequest::new(self, attributes, now, Deadline::NEVER);
        let (authorization, recorder) = Walk::new(&request, TraceRecorder::default()).decide();
        (authorization, recorder.0)
    }

    /// Says why nothing decided; meaningful where [`PolicySet::authorize`] has
    /// no opinion. Linear in the user's bindings and the policies that allow,
    /// and bounded: it compares no more than a few thousand rules.
    #[must_use]
    pub fn unmatched(&self, attributes: &Attributes<'_>, now: Time) -> NearMisses {
        let request = WalkRequest::new(self, attributes, now, Deadline::NEVER);
        Walk::new(&request, ObserverRecorder(&mut ())).unmatched()
    }
}

// === impl ObserverRecorder and TraceRecorder ===

impl<O: Observer> WalkRecorder for ObserverRecorder<'_, O> {
    const DETAILED: bool = false;

    fn evaluated(&mut self, policy: usize, result: PolicyResult) {
        self.0.evaluated(policy, result);
    }

    fn spent(&mut self, policy: usize, cost: u64) {
        self.0.spent(policy, cost);
    }

    fn record(&mut self, _: TraceEntry) {}
}

impl WalkRecorder for TraceRecorder {
    const DETAILED: bool = true;

    fn evaluated(&mut self, _: usize, _: PolicyResult) {}

    fn spent(&mut self, _: usize, _: u64) {}

    fn record(&mut self, event: TraceEntry) {
        self.0.record(event);
    }
}

// === impl WalkRequest ===

impl<'s, 'r> WalkRequest<'s, 'r> {
    #[inline]
    fn new(set: &'s PolicySet, attributes: &'r Attributes<'r>, now: Time, deadline: Deadline<'r>) -> Self {
        let terms = &set.policies.terms;
        Self {
            set,
            attributes,
            now,
            user_ids: OnceCell::new(),
            deadline,
            grants_on_condition: true,
            uses_access_requests: true,
            query: PolicyQuery::new(attributes, terms, &set.namespaces, &set.cluster_scoped),
            activation: RequestActivation::new(attributes).until(deadline),
            is_protected: OnceCell::new(),
        }
    }

    /// The numbers by which policies know the user.
    fn user_ids(&self) -> &[u32] {
        let ids = || self.set.policies.terms.ids_of(&self.attributes.user);
        self.user_ids.get_or_init(ids)
    }

    fn is_in_force(&self, policy: &AuthorizationPolicy) -> bool {
        policy.validity.contains(self.now)
    }

    /// Why a policy with objectConditions that applies decides nothing here; `None` where an Allow grants.
    fn not_granted(&self, policy: &Arc<AuthorizationPolicy>) -> Option<NotGranted> {
        match policy.effect {
            Effect::Allow if !self.grants_on_condition => Some(NotGranted::AtValidate),
            Effect::Allow => self
                .set
                .not_granted(policy, self.attributes, (self.now, self.deadline)),
            Effect::Deny | Effect::Limit => Some(NotGranted::AtValidate),
        }
    }

    /// The first AccessRequest in force that grants the request, and lifts `lifted` if that is wanted, with
    /// the rule of its role.
    fn access(&self, lifted: Option<&str>, visited: &mut usize) -> Option<(&'s AccessGrant, usize)> {
        let grants = self.set.access.as_deref().filter(|_| self.uses_access_requests)?;
        let mut own = grants.of(&self.attributes.user, self.now);
        own.find_map(|grant| {
            if !lifted.is_none_or(|name| grant.lifts(name)) {
                return None;
            }
            let rule = grant.allowing_rule(self.attributes, visited)?;
            Some((grant, rule))
        })
    }

    /// Whether `neverDeny` protects the request.
    fn is_protected(&self) -> bool {
        let is_protected = || self.set.is_protected(self.attributes);
        *self.is_protected.get_or_init(is_protected)
    }

    /// The result of the conditions of `policy`, and what they cost.
    fn conditions<'p>(&self, policy: &'p AuthorizationPolicy) -> (ConditionsResult<'p>, u64) {
        let before = self.activation.cost();
        let result = Condition::all(&policy.conditions, &self.activation);
        (result, self.activation.cost().saturating_sub(before))
    }
}

// === impl Walk ===

type DecisionParts<'s> = (Decision, AuthorizationReason<'s>, Option<Cause<'s>>);

impl<'q, 's, 'r, R: WalkRecorder> Walk<'q, 's, 'r, R> {
    const fn new(request: &'q WalkRequest<'s, 'r>, recorder: R) -> Self {
        Self {
            request,
            visited: 0,
            shadow: Vec::new(),
            lifted: None,
            recorder,
        }
    }

    /// Walks to the first object that decides.
    fn decide(mut self) -> (Authorization<'s>, R) {
        let policies = &self.request.set.policies;
        self.first_deciding(&policies.shadow);
        let (decision, reason, cause) = if let Some(deciding) = self.first_deciding(&policies.deny) {
            Self::by_policy(Decision::Deny, &deciding)
        } else if let Some((grant, rule)) = self.lifted {
            Self::by_access(grant, rule)
        } else if let Some(grant) = self.rbac() {
            self.by_grant(grant)
        } else if let Some(deciding) = self.first_deciding(&policies.allow) {
            Self::by_policy(Decision::Allow, &deciding)
        } else if let Some((grant, rule)) = self.access() {
            Self::by_access(grant, rule)
        } else {
            (Decision::NoOpinion, AuthorizationReason::default(), None)
        };
        let Self {
            shadow,
            visited,
            recorder,
            ..
        } = self;
        let authorization = Authorization {
            decision,
            reason,
            cause,
            shadow,
            visited,
        };
        (authorization, recorder)
    }

    /// Walks through Denies and Limits alone.
    fn refuse(mut self) -> Authorization<'s> {
        let policies = &self.request.set.policies;
        self.first_deciding(&policies.shadow);
        self.shadow.retain(|shadow| shadow.decision == Decision::Deny);
        let nothing = (Decision::NoOpinion, AuthorizationReason::default(), None);
        let (decision, reason, cause) = self
            .first_deciding(&policies.deny)
            .map_or(nothing, |deciding| Self::by_policy(Decision::Deny, &deciding));
        Authorization {
            decision,
            reason,
            cause,
            shadow: self.shadow,
            visited: self.visited,
        }
    }

    fn by_policy(decision: Decision, deciding: &DecidingPolicy<'s>) -> DecisionParts<'s> {
        let policy = deciding.policy;
        let cause = Cause {
            kind: CauseKind::AuthorizationPolicy,
            namespace: Cow::Borrowed(""),
            name: Cow::Borrowed(&policy.name),
            rule: deciding.rule,
        };
        let reason = AuthorizationReason::of_policy(policy, decision, deciding.failed);
        (decision, reason, Some(cause))
    }

    fn by_access(grant: &'s AccessGrant, rule: usize) -> DecisionParts<'s> {
        let cause = Cause {
            kind: CauseKind::AccessRequest,
            namespace: Cow::Borrowed(""),
            name: Cow::Borrowed(&grant.request.name),
            rule: Some(rule),
        };
        let reason = AuthorizationReason::of_access(grant);
        (Decision::Allow, reason, Some(cause))
    }

    /// The first AccessRequest in force that grants the request.
    fn access(&mut self) -> Option<(&'s AccessGrant, usize)> {
        let request = self.request;
        let found = request.access(None, &mut self.visited);
        if R::DETAILED {
            let own = request.set.access.iter();
            for grant in own.flat_map(|grants| grants.of(&request.attributes.user, request.now)) {
                let rule = grant.allowing_rule(request.attributes, &mut 0);
                let finding = rule.map_or(
                    Finding::NoMatch {
                        rule: None,
                        criterion: Criterion::Target,
                    },
                    |rule| Finding::Match {
                        rule,
                        decision: Decision::Allow,
                    },
                );
                self.recorder
                    .record(TraceEntry::of_access(&grant.request, finding));
            }
        }
        found
    }

    fn by_grant(&self, grant: Grant<'s>) -> DecisionParts<'s> {
        let binding = &*grant.bound.binding;
        let user = &self.request.attributes.user;
        let subject = applying_subject(&binding.subjects, user, &binding.namespace)
            .and_then(|place| binding.subjects.get(place));
        let cause = Cause {
            kind: binding.kind(),
            namespace: Cow::Borrowed(&binding.namespace),
            name: Cow::Borrowed(&binding.name),
            rule: Some(grant.rule),
        };
        let reason = AuthorizationReason::of_grant(binding, subject);
        (Decision::Allow, reason, Some(cause))
    }

    /// The first rule of a binding that allows.
    fn rbac(&mut self) -> Option<Grant<'s>> {
        let request = self.request;
        let bindings = &request.set.bindings;
        let grant = bindings.first_allowing(request.attributes, &mut self.visited);
        if R::DETAILED {
            let is_deciding = |bound: &BoundRole| {
                grant.is_some_and(|grant| Arc::ptr_eq(&grant.bound.binding, &bound.binding))
            };
            for bound in bindings.applying_to(request.attributes, usize::MAX) {
                self.recorder.record(self.binding_event(bound));
                if is_deciding(bound) {
                    break;
                }
            }
        }
        grant
    }

    /// Why a binding that applies to the user allows the request or not.
    fn binding_event(&self, bound: &BoundRole) -> TraceEntry {
        let nearest = bound.role.as_ref().map(|role| self.nearest_rule(&role.rules));
        let finding = match nearest {
            Some(NearestRule::Allows(rule)) => Finding::Match {
                rule,
                decision: Decision::Allow,
            },
            Some(NearestRule::Mismatch(rule, criterion)) => Finding::NoMatch {
                rule: Some(rule),
                criterion,
            },
            Some(NearestRule::NoRule) => Finding::NoMatch {
                rule: None,
                criterion: Criterion::Target,
            },
            None => Finding::MissingRole {
                error: RoleNotFoundError::of(&bound.binding.role).to_string(),
            },
        };
        TraceEntry::of_binding(&bound.binding, finding)
    }

    /// The first rule that allows, or else the one that comes nearest.
    fn nearest_rule(&self, rules: &[Rule]) -> NearestRule {
        let mut nearest = None;
        for (number, rule) in rules.iter().enumerate() {
            match compare_rule(rule, self.request.attributes) {
                RuleMatch::Match => return NearestRule::Allows(number),
                RuleMatch::Mismatch(criterion) if nearest.is_none_or(|(_, other)| other < criterion) => {
                    nearest = Some((number, criterion));
                }
                RuleMatch::Mismatch(_) => {}
            }
        }
        nearest.map_or(NearestRule::NoRule, |(number, criterion)| {
            NearestRule::Mismatch(number, criterion)
        })
    }
}
