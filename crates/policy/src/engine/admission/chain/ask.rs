//! Decides whether a webhook is called, and with which object and version.
//!
//! ```text
//! selectors, rules ─▶ version of the object ─▶ matchConditions ─▶ dry run ─▶ version of the review
//! ```
//!
//! `ShouldCallHook` of `apiserver/pkg/admission/plugin/webhook/generic/webhook.go`
//! and the beginnings of `callAttrMutatingHook` and `callHook`.

use std::cell::Cell;

use super::objection::Objection;
use crate::engine::admission::conditions::{self, MatchConditions};
use crate::engine::admission::invocation::finding;
use crate::engine::admission::matching::{MatchError, MatchedResource};
use crate::engine::admission::run::RunContext;
use crate::engine::admission::trace::TraceStep;
use crate::engine::admission::variables::{Inputs, NamespaceObject, RequestView};
use crate::engine::admission::webhook::{Call, SideEffects, Webhook};
use crate::engine::admission::webhooks::Listed;
use crate::engine::admission::{AdmissionSet, Denial, Request, status};
use portcullis_cel::json::Node;

/// Whether a webhook is to be asked.
pub(crate) enum Matching {
    /// No.
    Not,
    /// Yes, about the object as this resource.
    As(MatchedResource<'static>),
    /// Yes, but it cannot be.
    Fails(Objection),
}

impl AdmissionSet {
    /// Whether the webhook is for this request, with the object as it is now.
    ///
    /// # Errors
    ///
    /// What refuses the request whatever `failurePolicy` says.
    pub(crate) fn matches(
        &self,
        listed: &Listed,
        context: RunContext<'_>,
        object: Option<Node<'_>>,
    ) -> Result<Matching, Box<Denial>> {
        let webhook = &*listed.webhook;
        let subject = self.subject(context.request, object);
        let found = webhook.constraints.matches(subject);
        context.run.record(|| TraceStep::Webhook {
            webhook,
            finding: finding(&webhook.constraints, subject, &found),
        });
        let matched = match found {
            Ok(Some(matched)) => matched,
            Ok(None) => return Ok(Matching::Not),
            Err(fault) => return Err(Box::new(refusal(&fault))),
        };
        if let Err(fault) = matched.as_sent(context.request) {
            return Ok(Matching::Fails(Objection::Call(unconverted(&fault))));
        }
        match self.conditions(webhook, context, &matched, object) {
            MatchConditions::Match => Ok(Matching::As(matched.into_owned())),
            MatchConditions::NoMatch(_) => Ok(Matching::Not),
            MatchConditions::Error(why) => Err(Box::new(status::forbidden(context.request, &why))),
        }
    }

    fn conditions(
        &self,
        webhook: &Webhook,
        context: RunContext<'_>,
        matched: &MatchedResource<'_>,
        object: Option<Node<'_>>,
    ) -> MatchConditions {
        let view = RequestView::for_conditions(context.request, matched);
        let inputs = Inputs {
            object,
            old_object: context.request.old_object,
            request: &view,
            params: None,
            namespace: NamespaceObject::Null,
            access: context.access,
            recorder: context.run.recorder,
            // It is counted for policies alone.
            spent: &Cell::new(0),
        };
        let Webhook {
            match_conditions,
            failure_policy,
            ..
        } = webhook;
        conditions::evaluate(
            match_conditions,
            *failure_policy,
            &self.webhook_environment,
            &inputs,
            context.run.deadline,
        )
    }
}

/// How to ask a webhook that matched, but for the object.
pub(crate) fn call(
    listed: &Listed,
    request: &Request<'_>,
    matched: MatchedResource<'static>,
) -> Result<Call, Objection> {
    let webhook = &listed.webhook;
    if request.dry_run {
        match webhook.side_effects {
            None => return Err(Objection::Call("Webhook SideEffects is nil".to_owned())),
            Some(SideEffects::None | SideEffects::NoneOnDryRun) => {}
            Some(SideEffects::Some | SideEffects::Unknown) => {
                return Err(Objection::Fatal(Box::new(status::no_dry_run(webhook))));
            }
        }
    }
    let Some(version) = webhook.version else {
        let why = "could not create admission objects: webhook does not accept known AdmissionReview \
                   versions (v1, v1beta1)";
        return Err(Objection::Call(why.to_owned()));
    };
    let (resource, kind) = matched.into_parts();
    Ok(Call {
        webhook: webhook.clone(),
        version,
        kind,
        resource,
        object: None,
    })
}

/// The API server converts; whoever stands behind it can only be sent the right version.
fn unconverted(fault: &MatchError) -> String {
    match fault {
        MatchError::OtherVersion { wanted, sent } => format!(
            "could not convert the object: the webhook is for {wanted} and the API server sent {sent}; \
             register this gateway for {wanted}, so that the API server converts, or the webhook for {sent}"
        ),
        other => other.to_string(),
    }
}

fn refusal(fault: &MatchError) -> Denial {
    match fault {
        MatchError::UnknownNamespace { name } => status::unknown_namespace(name, fault.to_string()),
        other => status::internal(other.to_string()),
    }
}
