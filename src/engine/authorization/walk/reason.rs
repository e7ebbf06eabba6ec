//! The reason of a decision, for the user.

use crate::cel::{quote, quote_joined};
use crate::engine::authorization::index::Grant;
use crate::engine::authorization::rbac::applying_subject;
use crate::engine::authorization::{Authorization, Subject, SubjectKind};
use crate::engine::text::cut;
use crate::engine::{Cause, CauseKind, Decision};

use super::considered::Applied;
use super::event::binding_kind;
use super::{Walk, WalkRecorder};

/// Room for the reason of most grants, so that it is allocated once.
const USUAL_REASON_BYTES: usize = 192;

type Decided = (Decision, String, Option<Cause>);

impl<R: WalkRecorder> Walk<'_, '_, '_, R> {
    /// `denied by AuthorizationPolicy "name": reason`.
    pub(super) fn by_policy(decision: Decision, applied: &Applied<'_>) -> Decided {
        let policy = applied.policy;
        let verb = if decision == Decision::Deny {
            "denied"
        } else {
            "allowed"
        };
        let mut reason = format!("{verb} by AuthorizationPolicy ");
        quote(&mut reason, &policy.name);
        if !policy.reason.is_empty() {
            reason.push_str(": ");
            reason.push_str(&policy.reason);
        }
        if let Some(condition) = &applied.failed {
            reason.push_str(" (condition ");
            quote(&mut reason, condition);
            reason.push_str(" could not be evaluated)");
        }
        let cause = Cause {
            kind: CauseKind::AuthorizationPolicy,
            namespace: String::new(),
            name: policy.name.clone(),
            rule: Some(applied.rule),
        };
        (
            decision,
            cut(reason, Authorization::MAX_REASON_BYTES),
            Some(cause),
        )
    }

    /// As kube-apiserver words it (`pkg/registry/rbac/validation/rule.go`).
    pub(super) fn by_grant(&self, grant: Grant) -> Decided {
        let Some(binding) = self.request.set.bindings.get(grant.binding) else {
            // Nothing is allowed for which no binding can be named.
            return (Decision::NoOpinion, String::new(), None);
        };
        let kind = binding_kind(&binding.namespace);
        let mut reason = String::with_capacity(USUAL_REASON_BYTES);
        reason.push_str("RBAC: allowed by ");
        reason.push_str(kind.as_str());
        reason.push(' ');
        quote_object(&mut reason, &binding.name, &binding.namespace);
        reason.push_str(" of ");
        reason.push_str(binding.role.kind.as_str());
        reason.push(' ');
        quote(&mut reason, &binding.role.name);
        let user = &self.request.attributes.user;
        if let Some(subject) = applying_subject(&binding.subjects, user, &binding.namespace)
            .and_then(|place| binding.subjects.get(place))
        {
            reason.push_str(" to ");
            describe(&mut reason, subject, &binding.namespace);
        }
        let (namespace, name) = (binding.namespace.clone(), binding.name.clone());
        let cause = Cause {
            kind,
            namespace,
            name,
            rule: Some(grant.rule),
        };
        (
            Decision::Allow,
            cut(reason, Authorization::MAX_REASON_BYTES),
            Some(cause),
        )
    }
}

fn describe(reason: &mut String, subject: &Subject, binding_namespace: &str) {
    reason.push_str(subject.kind.as_str());
    reason.push(' ');
    match (subject.kind, subject.namespace.is_empty()) {
        (SubjectKind::ServiceAccount, true) => quote_joined(reason, &[&subject.name, "/", binding_namespace]),
        (SubjectKind::ServiceAccount, false) => {
            quote_joined(reason, &[&subject.name, "/", &subject.namespace]);
        }
        (SubjectKind::User | SubjectKind::Group, _) => quote(reason, &subject.name),
    }
}

fn quote_object(reason: &mut String, name: &str, namespace: &str) {
    if namespace.is_empty() {
        quote(reason, name);
    } else {
        quote_joined(reason, &[name, "/", namespace]);
    }
}
