//! Test fixture: a webhook call with defaults.

use std::sync::Arc;
use std::time::Duration;

use crate::admission::Reinvocation;
use crate::admission::matching::Constraints;
use crate::admission::webhook::{Call, ClientConfig, SideEffects, Webhook, WebhookTarget};
use crate::admission::{FailurePolicy, GroupVersionKind, GroupVersionResource};
use crate::api::admission_review::ReviewVersion;

/// A call of `hook.example.com` about pods.
pub(crate) fn call(version: ReviewVersion) -> Call {
    Call {
        webhook: Arc::new(webhook(version)),
        version,
        kind: GroupVersionKind {
            group: "".into(),
            version: "v1".into(),
            kind: "Pod".into(),
        },
        resource: GroupVersionResource {
            group: "".into(),
            version: "v1".into(),
            resource: "pods".into(),
        },
        object: None,
    }
}

fn webhook(version: ReviewVersion) -> Webhook {
    Webhook {
        configuration: "hooks".to_owned(),
        name: "hook.example.com".to_owned(),
        client: ClientConfig {
            target: WebhookTarget::Url("https://hook.example.com".to_owned()),
            ca_bundle: Vec::new(),
        },
        constraints: Constraints::default(),
        match_conditions: Vec::new(),
        failure_policy: FailurePolicy::Fail,
        timeout: Duration::from_secs(10),
        side_effects: Some(SideEffects::None),
        version: Some(version),
        reinvocation: Reinvocation::Never,
    }
}
