//! What decided, and the reason for the user.

use std::borrow::Cow;

use crate::engine::authorization::AuthorizationReason;
use crate::engine::authorization::index::Grant;
use crate::engine::authorization::rbac::applying_subject;
use crate::engine::{Cause, CauseKind, Decision};

use super::considered::Applied;
use super::{Walk, WalkRecorder};

type Decided<'s> = (Decision, AuthorizationReason<'s>, Option<Cause<'s>>);

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    pub(super) fn by_policy(decision: Decision, applied: &Applied<'s>) -> Decided<'s> {
        let policy = applied.policy;
        let cause = Cause {
            kind: CauseKind::AuthorizationPolicy,
            namespace: Cow::Borrowed(""),
            name: Cow::Borrowed(&policy.name),
            rule: Some(applied.rule),
        };
        let reason = AuthorizationReason::of_policy(policy, decision, applied.failed);
        (decision, reason, Some(cause))
    }

    pub(super) fn by_grant(&self, grant: Grant) -> Decided<'s> {
        let Some(binding) = self.request.set.bindings.get(grant.binding) else {
            // Nothing is allowed for which no binding can be named.
            return (Decision::NoOpinion, AuthorizationReason::default(), None);
        };
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
}
