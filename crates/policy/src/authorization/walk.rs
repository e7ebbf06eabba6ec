//! How a [`PolicySet`] decides: the walk through Denies and Limits, RBAC, Allows and
//! AccessRequests, which can be recorded.

mod policies;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use super::access_request::AccessGrant;
use super::answer::{Finding, Observer, Trace, TraceEntry};
use super::condition::{Condition, ConditionsResult, RequestActivation};
use super::index::{AllowingRule, BoundRole, PolicyQuery, TermIds};
use super::rbac::{RoleNotFoundError, applying_subject, compare_rule};
use super::{
    Authorization, AuthorizationPolicy, AuthorizationReason, Criterion, Effect, NearMisses, NotGranted,
    PolicySet, Rule, RuleMatch, Shadow,
};
use crate::model::{Attributes, Cause, CauseKind, Deadline, Decision, PolicyResult, Time};

/// Records a walk.
trait WalkRecorder {
    /// Whether policies and bindings that do not apply are recorded, too.
    const DETAILED: bool;

    fn evaluated(&mut self, policy: usize, result: PolicyResult);

    fn spent(&mut self, policy: usize, cost: u64);

    fn record(&mut self, event: TraceEntry);
}

/// Reports the results of policies only.
struct ObserverRecorder<'o, O>(&'o mut O);

/// Records everything.
#[derive(Default)]
struct TraceRecorder(Trace);

/// A request to a policy set, with values that are computed at most once.
struct WalkRequest<'s, 'r> {
    set: &'s PolicySet,
    attributes: &'r Attributes<'r>,
    now: Time,
    /// The term numbers of the user in policies, computed when the first rule matches in everything
    /// but its subjects.
    user_ids: OnceCell<TermIds>,
    deadline: Deadline<'r>,
    /// Whether an Allow with objectConditions may grant the request.
    grants_on_condition: bool,
    /// Whether AccessRequests are considered.
    uses_access_requests: bool,
    query: PolicyQuery<'s, 'r>,
    activation: RequestActivation<'r>,
    is_protected: OnceCell<bool>,
}

/// The state of one walk.
struct Walk<'q, 's, 'r, R> {
    request: &'q WalkRequest<'s, 'r>,
    compared_rules: usize,
    shadow: Vec<Shadow>,
    /// The first AccessRequest that lifted an enforced Deny or Limit, and the rule by which it
    /// grants the request.
    lifted: Option<(&'s AccessGrant, usize)>,
    recorder: R,
}

/// A policy that decides.
struct DecidingPolicy<'s> {
    policy: &'s AuthorizationPolicy,
    /// The rule that applies; `None` for a Limit.
    rule: Option<usize>,
    /// The condition that could not be evaluated, if that decides.
    failed: Option<&'s str>,
}

/// The rule of a role that comes nearest to allowing a request.
enum NearestRule {
    Allows(usize),
    Mismatch(usize, Criterion),
    NoRule,
}

// === impl PolicySet ===

impl PolicySet {
    /// Decides as of `now`, without a deadline.
    #[must_use]
    pub fn authorize<'s>(&'s self, attributes: &Attributes<'_>, now: Time) -> Authorization<'s> {
        self.authorize_observed(attributes, now, Deadline::NEVER, &mut ())
    }

    /// Decides, and reports the result of each evaluated policy to `observer`. A condition that is
    /// not evaluated by the deadline is an error, to which its policy's failurePolicy applies.
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

    /// Decides regardless of the object of the request: Allows with objectConditions grant nothing.
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

    /// Whether RBAC or an Allow without objectConditions allows the request, and no Deny or Limit
    /// denies it. AccessRequests neither grant nor lift here.
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

    /// Evaluates Denies and Limits, including those in mode Shadow. The decision is a Deny or no
    /// opinion, whatever would allow the request.
    #[must_use]
    pub fn refuse<'s>(
        &'s self,
        attributes: &Attributes<'_>,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Authorization<'s> {
        let request = WalkRequest::new(self, attributes, now, deadline);
        Walk::new(&request, ObserverRecorder(&mut ())).evaluate_denies()
    }

    /// Decides by the same walk, and records for everything considered why it did or did not apply.
    /// Takes time linear in the policies and in the user's bindings.
    #[must_use]
    pub fn explain<'s>(&'s self, attributes: &Attributes<'_>, now: Time) -> (Authorization<'s>, Trace) {
        let request = WalkRequest::new(self, attributes, now, Deadline::NEVER);
        let (authorization, recorder) = Walk::new(&request, TraceRecorder::default()).decide();
        (authorization, recorder.0)
    }

    /// Returns why nothing decided; meaningful only if [`PolicySet::authorize`] has no opinion.
    /// Takes time linear in the user's bindings and in the Allows, and compares no more than a few
    /// thousand rules.
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

    /// The term numbers of the user in policies.
    fn user_ids(&self) -> &[u32] {
        let ids = || self.set.policies.terms.ids_of(&self.attributes.user);
        self.user_ids.get_or_init(ids)
    }

    fn is_in_force(&self, policy: &AuthorizationPolicy) -> bool {
        policy.validity.contains(self.now)
    }

    /// Why a policy with objectConditions that applies decides nothing here; `None` if it is an
    /// Allow that grants.
    fn not_granted(&self, policy: &Arc<AuthorizationPolicy>) -> Option<NotGranted> {
        match policy.effect {
            Effect::Allow if !self.grants_on_condition => Some(NotGranted::AtValidate),
            Effect::Allow => self
                .set
                .not_granted(policy, self.attributes, (self.now, self.deadline)),
            Effect::Deny | Effect::Limit => Some(NotGranted::AtValidate),
        }
    }

    /// The first AccessRequest in force that grants the request, and that lifts the policy `lifted`
    /// if one is given, with the rule of its role.
    fn access(&self, lifted: Option<&str>, visited: &mut usize) -> Option<(&'s AccessGrant, usize)> {
        let grants = self
            .set
            .access_grants
            .as_deref()
            .filter(|_| self.uses_access_requests)?;
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

    /// The result of the conditions of `policy`, and their CEL cost.
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
            compared_rules: 0,
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
            compared_rules: visited,
            recorder,
            ..
        } = self;
        let authorization = Authorization {
            decision,
            reason,
            cause,
            shadow,
            compared_rules: visited,
        };
        (authorization, recorder)
    }

    /// Walks through Denies and Limits only.
    fn evaluate_denies(mut self) -> Authorization<'s> {
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
            compared_rules: self.compared_rules,
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
        let found = request.access(None, &mut self.compared_rules);
        if R::DETAILED {
            let own = request.set.access_grants.iter();
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

    fn by_grant(&self, grant: AllowingRule<'s>) -> DecisionParts<'s> {
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
    fn rbac(&mut self) -> Option<AllowingRule<'s>> {
        let request = self.request;
        let bindings = &request.set.bindings;
        let grant = bindings.first_allowing(request.attributes, &mut self.compared_rules);
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

    /// Whether a binding that applies to the user allows the request, and why not.
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

    /// The first rule that allows, or otherwise the nearest one.
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
