//! Selectors of admission that ask for labels of Namespaces of which nothing tells.

use super::Lint;
use crate::engine::LabelSelector;
use crate::engine::admission::matching::MissingNamespace;
use crate::field::{Faults, FieldPath};
use crate::manifest::Options;
use crate::manifest::admission::AdmissionObject;
use crate::manifest::namespace_sources::NamespaceSources;
use crate::manifest::object::{Content, ManifestObject};

/// Warns at the first such selector of all: with it stand or fall the others.
pub(crate) fn lint(objects: &[&ManifestObject], options: &Options, faults: &mut Faults) {
    let sources = NamespaceSources::new(objects, options);
    let mut asking = objects.iter().flat_map(|object| {
        let cluster = object.cluster.as_deref();
        let unknown = sources.missing(cluster, options).is_some();
        let selectors = if unknown { selectors(object) } else { Vec::new() };
        let asking = selectors
            .into_iter()
            .filter(|(_, selector)| !selector.asks_for_the_name_alone());
        asking.map(move |(path, _)| (object, path))
    });
    let Some((object, path)) = asking.next() else {
        return;
    };
    let more = match asking.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let effect = match options.missing_namespace {
        MissingNamespace::Fail => "every request that comes to this is refused",
        MissingNamespace::NameOnly => "no namespace has them (`admission.missingNamespace: NameOnly`)",
    };
    let message = format!(
        "this{more} asks for labels of Namespaces, of which nothing tells, so {effect}: add manifests of them, or the \
         cluster to `clusters`"
    );
    let mut lint = Lint {
        document: &object.document,
        faults,
    };
    lint.suspicious(&path, message);
}

/// The selectors of namespaces in an object, each with its path.
fn selectors(object: &ManifestObject) -> Vec<(FieldPath, &LabelSelector)> {
    const SELECTOR: &str = "namespaceSelector";
    let Content::Admission(admission) = &object.content else {
        return Vec::new();
    };
    let spec = FieldPath::root().field("spec");
    match admission {
        AdmissionObject::ValidatingPolicy(policy) => {
            let selector = &policy.applicability.constraints.namespace_selector;
            vec![(spec.field("matchConstraints").field(SELECTOR), selector)]
        }
        AdmissionObject::MutatingPolicy(policy) => {
            let selector = &policy.applicability.constraints.namespace_selector;
            vec![(spec.field("matchConstraints").field(SELECTOR), selector)]
        }
        AdmissionObject::ValidatingBinding(binding) | AdmissionObject::MutatingBinding(binding) => {
            let constraints = binding.constraints.iter();
            let path = spec.field("matchResources").field(SELECTOR);
            constraints
                .map(|constraints| (path.clone(), &constraints.namespace_selector))
                .collect()
        }
        AdmissionObject::ValidatingWebhooks(configuration)
        | AdmissionObject::MutatingWebhooks(configuration) => {
            let webhooks = configuration.webhooks.iter().enumerate();
            let at = |index| FieldPath::root().field("webhooks").index(index).field(SELECTOR);
            webhooks
                .map(|(index, webhook)| (at(index), &webhook.constraints.namespace_selector))
                .collect()
        }
        AdmissionObject::Initializers(_) => Vec::new(),
    }
}
