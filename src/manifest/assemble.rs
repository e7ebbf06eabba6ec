//! Sound objects, sorted into what each cluster is decided by.

use super::object::{Content, Object};
use super::{Manifests, Options, Scope};

/// Sorts `objects` by cluster and kind.
pub(super) fn assemble(objects: Vec<Object>, _options: &Options) -> Manifests {
    let mut manifests = Manifests::default();
    for object in objects {
        let scope = match &object.cluster {
            None => &mut manifests.shared,
            Some(cluster) => manifests.clusters.entry(cluster.to_string()).or_default(),
        };
        scope.add(object);
    }
    manifests
}

impl Scope {
    fn add(&mut self, object: Object) {
        match object.content {
            Content::Role(role) => self.objects.roles.push(role),
            Content::Binding(binding) => self.objects.bindings.push(binding),
            Content::Policy(policy) => self.objects.policies.push(*policy),
            Content::Namespace(labels) => {
                if let Some(name) = labels.get(super::namespace::NAME_LABEL).cloned() {
                    self.namespaces.insert(name, labels);
                }
            }
            Content::Admission => self.admission.push(object.document),
            Content::Parameter => self.parameters.push(object.document),
        }
    }
}
