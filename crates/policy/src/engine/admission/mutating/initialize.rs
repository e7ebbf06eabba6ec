//! Runs initializers after policies and webhooks.

use std::sync::Arc;

use super::dispatcher::{MutationState, Pass, PolicyRefusal};
use crate::engine::StatusReason;
use crate::engine::admission::changes::ChangedObject;
use crate::engine::admission::initializers::InstalledInitializer;
use crate::engine::admission::run::RunContext;
use crate::engine::admission::trace::TraceStep;
use crate::engine::admission::{AdmissionSet, Request, initializers};
use portcullis_cel::json::{Document, Node, patch};

impl AdmissionSet {
    /// Runs the policies of the initializers that the object has to pass, and
    /// takes away the list of those that are pending.
    pub(crate) fn initialize(&self, state: &mut MutationState, context: RunContext<'_>) {
        let request = context.request;
        let mut initializers = self.initializers.of(request).peekable();
        if is_exempt(request) || initializers.peek().is_none() {
            return;
        }
        let mut last = "";
        for installed in initializers {
            last = &installed.initializer.name;
            if context.run.deadline.has_passed() || state.failure.is_some() {
                return;
            }
            context.run.record(|| TraceStep::Initializer {
                configuration: &installed.configuration,
                name: &installed.initializer.name,
                is_there: installed.policy.is_some(),
            });
            self.initialize_by(installed, state, context);
        }
        state.complete(last, context);
    }

    fn initialize_by(
        &self,
        installed: &InstalledInitializer,
        state: &mut MutationState,
        context: RunContext<'_>,
    ) {
        let Some(policy) = &installed.policy else {
            let missing = installed.missing(self.failure_policy);
            state.refusals.extend(missing.map(|message| PolicyRefusal {
                policy: installed.initializer.name.clone(),
                message,
                reason: StatusReason::InternalError,
            }));
            return;
        };
        // On its own: the places of the other policies are not its own.
        let mut own = MutationState::new();
        own.object = state.object.take();
        std::mem::swap(&mut own.budget, &mut state.budget);
        let object = own.object.clone();
        let seen = object
            .as_ref()
            .map(|object| object.root())
            .or(context.request.object);
        let mut pass = Pass::new(context, &mut own);
        let mut invocations = Vec::new();
        self.invocations(0, policy, seen, &mut pass, &mut invocations);
        let namespace = self.namespace_of(context.request);
        for invocation in &invocations {
            pass.invoke(invocation, namespace.as_variable(), false);
        }
        (state.object, state.budget, state.failure) = (own.object, own.budget, own.failure);
        state.refusals.append(&mut own.refusals);
    }
}

impl MutationState {
    /// Takes the list of pending initializers away, after the `last` of them. Where that fails the request is
    /// refused: an object must not be stored as one that is still to be initialized.
    fn complete(&mut self, last: &str, context: RunContext<'_>) {
        let Some(object) = self.object_of(context.request) else {
            return;
        };
        let Some(completion) = initializers::completion(object) else {
            return;
        };
        match completed(object, completion, context) {
            Ok(object) => {
                self.record_change(context, &object);
                self.object = Some(object);
            }
            Err(why) => self.refusals.push(PolicyRefusal {
                policy: last.to_owned(),
                message: format!("initializers cannot be taken from the object: {why}"),
                reason: StatusReason::InternalError,
            }),
        }
    }
}

/// Reviews of access and policies are objects of no initializer.
fn is_exempt(request: &Request<'_>) -> bool {
    request.request_resource.is_virtual() || request.request_resource.is_policy()
}

/// The object after the JSON Patch `completion`.
fn completed(
    object: Node<'_>,
    completion: &'static str,
    context: RunContext<'_>,
) -> Result<Arc<ChangedObject>, String> {
    let written = Document::parse(completion).map_err(|error| error.to_string())?;
    let operations = patch::read(written.root()).map_err(|error| error.to_string())?;
    let tree = patch::apply(object, operations).map_err(|error| error.to_string())?;
    let changed = context.limits().object(tree.to_text());
    changed.map_err(|error| error.to_string())
}
