//! What initializers make of an object, after policies and webhooks.

use super::{Context, Mutated, Refusal, Walk, is_exempt};
use crate::engine::admission::initializers::{self, Installed};
use crate::engine::admission::outcome::Reason;
use crate::engine::admission::set::AdmissionSet;
use crate::engine::admission::trace::Step;
use crate::json::{Document, patch};

impl AdmissionSet {
    /// Runs the policies of the initializers that the object has to pass, and
    /// takes away the list of those that are pending.
    pub(in crate::engine::admission) fn initialize(&self, so_far: &mut Mutated, context: Context<'_>) {
        let request = context.request;
        let mut initializers = self.initializers.of(request).peekable();
        if is_exempt(request) || initializers.peek().is_none() {
            return;
        }
        for installed in initializers {
            if context.run.clock.is_over() {
                return;
            }
            context.run.tell(|| Step::Initializer {
                configuration: &installed.configuration,
                name: &installed.initializer.name,
                is_there: installed.policy.is_some(),
            });
            self.initialize_by(installed, so_far, context);
        }
        so_far.complete(context);
    }

    fn initialize_by(&self, installed: &Installed, so_far: &mut Mutated, context: Context<'_>) {
        let Some(policy) = &installed.policy else {
            let missing = installed.missing(self.failure_policy);
            so_far.faults.extend(missing.map(|message| Refusal {
                policy: installed.initializer.name.clone(),
                message,
                reason: Reason::InternalError,
            }));
            return;
        };
        // On its own: the places of the other policies are not its own.
        let mut own = Mutated::new();
        own.object = so_far.object.take();
        let object = own.object.clone();
        let seen = object.as_ref().map(Document::root).or(context.request.object);
        let mut walk = Walk::new(context, &mut own);
        let mut invocations = Vec::new();
        self.invocations(0, policy, seen, &mut walk, &mut invocations);
        let namespace = self.namespace_of(context.request);
        for invocation in &invocations {
            walk.invoke(invocation, namespace.as_variable(), false);
        }
        so_far.object = own.object;
        so_far.faults.append(&mut own.faults);
    }
}

impl Mutated {
    fn complete(&mut self, context: Context<'_>) {
        let completed = self.object_of(context.request).and_then(|object| {
            let written = Document::parse(initializers::completion(object)?).ok()?;
            let tree = patch::apply(object, &patch::read(written.root()).ok()?).ok()?;
            Document::parse(tree.to_text()).ok()
        });
        if let Some(object) = completed {
            self.tell_change(context, &object);
            self.object = Some(object);
        }
    }
}
