//! Runs initializers after policies and webhooks.

use super::dispatcher::{Pass, is_exempt};
use super::state::{MutationState, PolicyRefusal};
use crate::engine::StatusReason;
use crate::engine::admission::AdmissionSet;
use crate::engine::admission::initializers::{self, Installed};
use crate::engine::admission::run::RunContext;
use crate::engine::admission::trace::TraceStep;
use crate::json::{Document, patch};

impl AdmissionSet {
    /// Runs the policies of the initializers that the object has to pass, and
    /// takes away the list of those that are pending.
    pub(in crate::engine::admission) fn initialize(
        &self,
        state: &mut MutationState,
        context: RunContext<'_>,
    ) {
        let request = context.request;
        let mut initializers = self.initializers.of(request).peekable();
        if is_exempt(request) || initializers.peek().is_none() {
            return;
        }
        for installed in initializers {
            if context.run.deadline.has_passed() {
                return;
            }
            context.run.record(|| TraceStep::Initializer {
                configuration: &installed.configuration,
                name: &installed.initializer.name,
                is_there: installed.policy.is_some(),
            });
            self.initialize_by(installed, state, context);
        }
        state.complete(context);
    }

    fn initialize_by(&self, installed: &Installed, state: &mut MutationState, context: RunContext<'_>) {
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
        let object = own.object.clone();
        let seen = object.as_ref().map(Document::root).or(context.request.object);
        let mut pass = Pass::new(context, &mut own);
        let mut invocations = Vec::new();
        self.invocations(0, policy, seen, &mut pass, &mut invocations);
        let namespace = self.namespace_of(context.request);
        for invocation in &invocations {
            pass.invoke(invocation, namespace.as_variable(), false);
        }
        state.object = own.object;
        state.refusals.append(&mut own.refusals);
    }
}

impl MutationState {
    fn complete(&mut self, context: RunContext<'_>) {
        let completed = self.object_of(context.request).and_then(|object| {
            let written = Document::parse(initializers::completion(object)?).ok()?;
            let tree = patch::apply(object, &patch::read(written.root()).ok()?).ok()?;
            Document::parse(tree.to_text()).ok()
        });
        if let Some(object) = completed {
            self.record_change(context, &object);
            self.object = Some(object);
        }
    }
}
