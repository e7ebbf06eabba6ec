//! AdmissionExceptions that excuse nothing.

use std::collections::BTreeSet;

use super::{Lint, validity};
use crate::engine::admission::exceptions::Exception;
use crate::engine::{Time, Validity};
use crate::field::{FaultKind, FieldPath};
use crate::manifest::object::{Content, ManifestObject};

/// What there is that an exception may refer to.
pub(crate) struct Around<'a> {
    /// Whether there is such a policy, or `configuration/webhook`.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
    /// Whether any Namespaces are known.
    pub(crate) has_namespaces: bool,
}

/// The same of manifests.
pub(crate) struct KnownTargets {
    pub(crate) policies: BTreeSet<String>,
    pub(crate) has_namespaces: bool,
}

impl KnownTargets {
    pub(crate) fn new(objects: &[&ManifestObject]) -> Self {
        let admission = objects.iter().filter_map(|object| match &object.content {
            Content::Admission(admission) => Some(admission.excusable()),
            _ => None,
        });
        let mut contents = objects.iter().map(|object| &object.content);
        Self {
            policies: admission.flatten().collect(),
            has_namespaces: contents.any(|content| matches!(content, Content::Namespace(_))),
        }
    }
}

pub(crate) fn lint(exception: &Exception, around: &Around<'_>, now: Option<Time>, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    let period = Validity {
        not_before: None,
        not_after: Some(exception.not_after),
    };
    validity::lint(&period, now, &spec, lint);
    let policies = exception.policies.iter().enumerate();
    for (index, policy) in policies.filter(|(_, policy)| !(around.has)(policy)) {
        let message = format!(
            "there is no ValidatingAdmissionPolicy or validating webhook `{policy}`, so the \
             exception does not apply to it"
        );
        let path = spec.field("policies").index(index);
        lint.warn(FaultKind::NotFound, &path, message);
    }
    if !exception.constraints.namespace_selector.is_empty() && !around.has_namespaces {
        let message =
            "no Namespaces are known, and nothing in an unknown namespace is excused: add their manifests";
        let path = spec.field("match").field("namespaceSelector");
        lint.warn(FaultKind::NotFound, &path, message);
    }
}
