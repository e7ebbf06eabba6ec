//! What initializers make of an object, after the mutating policies.

use super::{Refusal, Walk};
use crate::engine::admission::initializers::{self, Installed};
use crate::engine::admission::outcome::Reason;
use crate::engine::admission::set::AdmissionSet;
use crate::json::{Document, patch};

impl AdmissionSet {
    /// Runs the policies of the initializers that the object has to pass, and
    /// takes away the list of those that are pending.
    pub(super) fn initialize(&self, walk: &mut Walk<'_>) {
        let request = walk.request;
        let mut initializers = self.initializers.of(request).peekable();
        if initializers.peek().is_none() {
            return;
        }
        for installed in initializers {
            if walk.run.clock.is_over() {
                return;
            }
            self.initialize_by(installed, walk);
        }
        walk.complete();
    }

    fn initialize_by(&self, installed: &Installed, walk: &mut Walk<'_>) {
        let Some(policy) = &installed.policy else {
            walk.faults
                .extend(installed.missing(self.failure_policy).map(|message| Refusal {
                    policy: installed.initializer.name.clone(),
                    message,
                    reason: Reason::InternalError,
                }));
            return;
        };
        // Its own walk: the places of the other policies are not its own.
        let mut own = Walk::new(walk.request, walk.access, walk.run);
        own.object = walk.object.take();
        let object = own.object.clone();
        let seen = object.as_ref().map(Document::root).or(walk.request.object);
        let mut invocations = Vec::new();
        self.invocations(0, policy, seen, &mut own, &mut invocations);
        let namespace = self.namespace_of(walk.request);
        for invocation in &invocations {
            own.invoke(invocation, namespace.as_variable(), false);
        }
        walk.object = own.object;
        walk.faults.append(&mut own.faults);
    }
}

impl Walk<'_> {
    fn complete(&mut self) {
        let object = self.object.as_ref().map(Document::root).or(self.request.object);
        let completed = object.and_then(|object| {
            let written = Document::parse(initializers::completion(object)?).ok()?;
            let tree = patch::apply(object, &patch::read(written.root()).ok()?).ok()?;
            Document::parse(tree.to_text()).ok()
        });
        if completed.is_some() {
            self.object = completed;
        }
    }
}
