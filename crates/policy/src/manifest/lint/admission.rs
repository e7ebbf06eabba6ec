//! Warnings about admission policies, bindings, parameters and exceptions that are not bound, can
//! only fail, or never apply.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::report::Lint;
use super::known::nearest;
use super::policy;
use crate::admission::apply::Schemas;
use crate::admission::exceptions::Exception;
use crate::admission::mutating::Mutation;
use crate::admission::webhook::{WebhookConfiguration, WebhookTarget};
use crate::admission::{
    Applicability, GroupVersionKind, MutatingPolicy, ParamKind, PolicyBinding, STATIC_SUFFIX,
};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::manifest::admission::AdmissionObject;
use crate::manifest::validated::{Content, ManifestObject};
use crate::model::{Time, Validity};

/// The maximum number of bindings for which a policy with a similar name is searched, because each
/// search compares all names.
const MAX_NAME_SEARCHES: usize = 100;

/// The policies that exist, and those that bindings name, each with its clusters.
#[derive(Default)]
struct BoundNames<'o> {
    policies: ClustersByObject<'o>,
    bound: ClustersByObject<'o>,
    /// The number of searches for a similar name.
    looks: Cell<usize>,
}

/// The clusters of objects, by sort and name of a policy; `None` stands for every cluster.
type ClustersByObject<'o> = HashMap<(Sort, &'o str), Vec<Option<&'o str>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sort {
    Validating,
    Mutating,
}

pub(crate) fn lint(objects: &[&ManifestObject], faults: &mut Faults) {
    let names = BoundNames::new(objects);
    for object in objects {
        let Content::Admission(admission) = &object.content else {
            continue;
        };
        let cluster = object.cluster.as_deref();
        let mut lint = Lint::new(&object.document, faults);
        if let Some((sort, name)) = policy(admission) {
            names.lint_policy(sort, name, cluster, &mut lint);
        } else if let Some((sort, policy)) = binding(admission) {
            names.lint_binding(sort, policy, cluster, &mut lint);
        }
    }
}

fn policy(admission: &AdmissionObject) -> Option<(Sort, &str)> {
    match admission {
        AdmissionObject::ValidatingPolicy(policy) => Some((Sort::Validating, &policy.applicability.name)),
        AdmissionObject::MutatingPolicy(policy) => Some((Sort::Mutating, &policy.applicability.name)),
        _ => None,
    }
}

/// The sort and name of the policy that a binding binds.
fn binding(admission: &AdmissionObject) -> Option<(Sort, &str)> {
    match admission {
        AdmissionObject::ValidatingBinding(binding) => Some((Sort::Validating, &binding.policy)),
        AdmissionObject::MutatingBinding(binding) => Some((Sort::Mutating, &binding.policy)),
        _ => None,
    }
}

// === impl BoundNames ===

impl<'o> BoundNames<'o> {
    fn new(objects: &[&'o ManifestObject]) -> Self {
        let mut names = Self::default();
        for object in objects {
            let Content::Admission(admission) = &object.content else {
                continue;
            };
            let cluster = object.cluster.as_deref();
            if let Some(policy) = policy(admission) {
                names.policies.entry(policy).or_default().push(cluster);
            }
            if let Some(policy) = binding(admission) {
                names.bound.entry(policy).or_default().push(cluster);
            }
            // Initializers run the policies that they name, without bindings.
            if let AdmissionObject::Initializers(configuration) = admission {
                for initializer in &configuration.initializers {
                    let policy = (Sort::Mutating, initializer.name.as_str());
                    names.bound.entry(policy).or_default().push(cluster);
                }
            }
        }
        names
    }

    fn lint_policy(&self, sort: Sort, name: &str, cluster: Option<&str>, lint: &mut Lint<'_>) {
        if meets(self.bound.get(&(sort, name)), cluster) {
            return;
        }
        let kind = sort.policy();
        let message = format!("there is no {kind}Binding for this policy, so it never applies: add one");
        lint.warn(
            FaultKind::NotFound,
            &FieldPath::root().field("metadata").field("name"),
            message,
        );
    }

    fn lint_binding(&self, sort: Sort, policy: &str, cluster: Option<&str>, lint: &mut Lint<'_>) {
        if meets(self.policies.get(&(sort, policy)), cluster) {
            return;
        }
        let others = self.policies.keys().filter(|(other, _)| *other == sort);
        let looks = self.looks.replace(self.looks.get().saturating_add(1));
        let others = others.filter(|_| looks < MAX_NAME_SEARCHES);
        let meant = match nearest(policy, others.map(|(_, name)| *name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "add it".to_owned(),
        };
        let message = format!(
            "there is no manifest of the {} `{policy}`, so this binding has no effect: {meant}",
            sort.policy()
        );
        let path = FieldPath::root().field("spec").field("policyName");
        lint.warn(FaultKind::NotFound, &path, message);
    }
}

/// Whether an object for one of `clusters` and an object for `cluster` apply to a common cluster.
fn meets(clusters: Option<&Vec<Option<&str>>>, cluster: Option<&str>) -> bool {
    clusters
        .into_iter()
        .flatten()
        .any(|of| of.is_none() || cluster.is_none() || *of == cluster)
}

// === impl Sort ===

impl Sort {
    const fn policy(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingAdmissionPolicy",
            Self::Mutating => "MutatingAdmissionPolicy",
        }
    }
}

// Warnings about parameters that no policy uses.

/// Warns about each parameter whose kind is the `paramKind` of no admission policy.
pub(crate) fn lint_parameters(objects: &[&ManifestObject], faults: &mut Faults) {
    let read: HashSet<_> = objects.iter().filter_map(|object| object.param_kind()).collect();
    for object in objects
        .iter()
        .filter(|object| matches!(object.content, Content::Parameter))
    {
        let document = object.document.unpack();
        let (Some(api_version), Some(kind)) = (document.text("apiVersion"), document.text("kind")) else {
            continue;
        };
        // A CustomResourceDefinition is used even if no policy reads it: it lists the versions of a
        // custom resource.
        let is_definition = kind == "CustomResourceDefinition";
        let is_read = read.contains(&ParamKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        });
        if !is_definition && !is_read {
            let place = document.place(FieldPath::root().field("kind"));
            let message = format!(
                "no policy here uses `{kind}` of `{api_version}` as a parameter: move it out of the manifests"
            );
            faults.push(Fault::warning(place, FaultKind::Suspicious, message));
        }
    }
}

// Warnings about MutatingAdmissionPolicies that can only fail.

/// Subresources whose objects have another kind than the resource, with group, version and kind.
const SUBRESOURCES: [(&str, &str, &str, &str); 9] = [
    ("scale", "autoscaling", "v1", "Scale"),
    ("eviction", "policy", "v1", "Eviction"),
    ("binding", "", "v1", "Binding"),
    ("token", "authentication.k8s.io", "v1", "TokenRequest"),
    ("exec", "", "v1", "PodExecOptions"),
    ("attach", "", "v1", "PodAttachOptions"),
    ("portforward", "", "v1", "PodPortForwardOptions"),
    ("log", "", "v1", "PodLogOptions"),
    ("proxy", "", "v1", "PodProxyOptions"),
];

/// Warns about each subresource in the rules whose kind does not support `ApplyConfiguration`.
pub(crate) fn lint_mutation(policy: &MutatingPolicy, lint: &mut Lint<'_>) {
    let applies = |mutation: &Mutation| matches!(mutation, Mutation::ApplyConfiguration(_));
    if !policy.mutations.iter().any(applies) {
        return;
    }
    let path = FieldPath::root().field("spec").field("matchConstraints");
    let path = path.field("resourceRules");
    for (index, rule) in policy.applicability.constraints.rules.iter().enumerate() {
        for (place, resource) in rule.resources.iter().enumerate() {
            if let Some(kind) = kind_without_schema(resource) {
                let message = format!(
                    "`{resource}` is of kind `{kind}`, which does not support `ApplyConfiguration`, so the \
                    mutation fails: write a `JSONPatch`, or remove the resource"
                );
                lint.suspicious(&path.index(index).field("resources").index(place), message);
            }
        }
    }
}

fn kind_without_schema(resource: &str) -> Option<&'static str> {
    let (_, subresource) = resource.split_once('/')?;
    let (_, group, version, kind) = SUBRESOURCES.into_iter().find(|(name, ..)| *name == subresource)?;
    let of = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
    };
    Schemas::builtin().know(&of).is_err().then_some(kind)
}

// Restrictions of static policies, bindings and webhooks
// (`apiserver/pkg/admission/plugin/{webhook,policy}/manifest/loader/loader.go`). An API server
// loads static objects before it serves requests, so they must not refer to objects that it stores.

/// The consequence of violating a restriction, for messages.
const NOT_LOADED: &str = "kube-apiserver loads no file of its `staticManifestsDir` that has one";

/// Warns if `admission` is static and violates a restriction, or is a binding that binds a static
/// policy and is not static itself.
pub(crate) fn lint_static(admission: &AdmissionObject, lint: &mut Lint<'_>) {
    match admission {
        AdmissionObject::ValidatingPolicy(policy) => policy_alone(&policy.applicability, lint),
        AdmissionObject::MutatingPolicy(policy) => policy_alone(&policy.applicability, lint),
        AdmissionObject::ValidatingBinding(binding) | AdmissionObject::MutatingBinding(binding) => {
            binding_alone(binding, lint);
        }
        AdmissionObject::ValidatingWebhooks(configuration)
        | AdmissionObject::MutatingWebhooks(configuration) => services(configuration, lint),
        AdmissionObject::Initializers(_) => {}
    }
}

fn policy_alone(policy: &Applicability, lint: &mut Lint<'_>) {
    if policy.is_static && policy.param_kind.is_some() {
        let message = format!(
            "a static policy, whose name ends in `{STATIC_SUFFIX}`, takes no parameters: {NOT_LOADED}. Write the \
             values into its expressions, or give it another name"
        );
        lint.suspicious(&FieldPath::root().field("spec").field("paramKind"), message);
    }
}

fn binding_alone(binding: &PolicyBinding, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    let binds_static = binding.policy.ends_with(STATIC_SUFFIX);
    if binding.is_static && !binds_static {
        let message = format!(
            "a static binding, whose name ends in `{STATIC_SUFFIX}`, may only bind static policies: \
            {NOT_LOADED} for another policy. Rename the policy in the same way, or give the binding another \
            name"
        );
        lint.suspicious(&spec.field("policyName"), message);
    }
    if binding.is_static && binding.param_ref.is_some() {
        let message = format!("a static binding has no parameters: {NOT_LOADED}");
        lint.suspicious(&spec.field("paramRef"), message);
    }
    if binds_static && !binding.is_static {
        let message = format!(
            "`{}` is static, but this binding is not, so the policy is not evaluated for policies and \
            bindings: give the binding a name that ends in `{STATIC_SUFFIX}`",
            binding.policy
        );
        lint.suspicious(&spec.field("policyName"), message);
    }
}

fn services(configuration: &WebhookConfiguration, lint: &mut Lint<'_>) {
    if !configuration.is_static {
        return;
    }
    for (index, webhook) in configuration.webhooks.iter().enumerate() {
        if matches!(webhook.client.target, WebhookTarget::Service { .. }) {
            let path = FieldPath::root().field("webhooks").index(index);
            let message = format!(
                "a webhook of a static configuration, whose name ends in `{STATIC_SUFFIX}`, is called by `url`: \
                 {NOT_LOADED} with a `service`"
            );
            lint.suspicious(&path.field("clientConfig").field("service"), message);
        }
    }
}

// Warnings about AdmissionExceptions that excuse nothing.

/// The objects that an exception can refer to.
pub(crate) struct Around<'a> {
    /// Whether a policy, or a webhook written as `configuration/webhook`, exists.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
    /// Whether any Namespaces are known.
    pub(crate) has_namespaces: bool,
}

/// The objects in manifests that an exception can refer to.
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

pub(crate) fn lint_exception(
    exception: &Exception,
    around: &Around<'_>,
    now: Option<Time>,
    lint: &mut Lint<'_>,
) {
    let spec = FieldPath::root().field("spec");
    let period = Validity {
        not_before: None,
        not_after: Some(exception.not_after),
    };
    policy::lint_validity(&period, now, &spec, lint);
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
