//! Trace events of policies and bindings.

use crate::engine::CauseKind;
use crate::engine::authorization::{AuthorizationPolicy, Binding, Event, Finding};

pub(super) fn policy_event(policy: &AuthorizationPolicy, finding: Finding) -> Event {
    Event {
        kind: CauseKind::AuthorizationPolicy,
        namespace: String::new(),
        name: policy.name.clone(),
        effect: Some(policy.effect),
        mode: Some(policy.mode),
        role: None,
        finding,
    }
}

pub(super) fn binding_event(binding: &Binding, finding: Finding) -> Event {
    Event {
        kind: binding.kind(),
        namespace: binding.namespace.clone(),
        name: binding.name.clone(),
        effect: None,
        mode: None,
        role: Some(format!("{}/{}", binding.role.kind, binding.role.name)),
        finding,
    }
}
