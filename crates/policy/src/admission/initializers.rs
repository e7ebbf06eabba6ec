//! Initializers of Kubernetes 1.7 to 1.13, which change an object when it is created.
//!
//! In those versions a controller watched for objects that listed it as pending. Here each
//! initializer is the MutatingAdmissionPolicy of the same name, which is applied immediately:
//!
//! ```text
//! InitializerConfiguration, by name ─▶ initializers, in order ─▶ the policy of that name
//! ```
//!
//! Follows `pkg/admission/plugin/initialization/initialization.go` of the API server 1.10.

use std::collections::HashMap;
use std::sync::Arc;

use super::candidates::BoundPolicy;
use super::{FailurePolicy, GroupVersionResource, MutatingPolicy, Operation, PolicyBinding, Request};
use portcullis_cel::json::Node;

/// The annotation of a mirror pod, which a kubelet runs already from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// `InitializerConfiguration` (`api/admissionregistration/v1alpha1/types.go` of Kubernetes 1.7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitializerConfiguration {
    /// `metadata.name`. Configurations are applied in the order of their names.
    pub name: String,
    /// The initializers, in the order in which they are applied.
    pub initializers: Vec<Initializer>,
}

/// One of `initializers`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Initializer {
    /// `name`, which is also the name of its policy.
    pub name: String,
    /// `rules`: every rule must match.
    pub rules: Vec<InitializerRule>,
}

/// A rule of an initializer. `*` is a wildcard only as the first item of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitializerRule {
    /// API groups.
    pub api_groups: Vec<String>,
    /// API versions.
    pub api_versions: Vec<String>,
    /// Resources, without subresources.
    pub resources: Vec<String>,
}

/// The initializers of a cluster with their policies, in order.
#[derive(Debug, Default)]
pub(crate) struct Initializers(Vec<InstalledInitializer>);

/// An initializer with its policy.
#[derive(Debug)]
pub(crate) struct InstalledInitializer {
    pub(crate) configuration: String,
    pub(crate) initializer: Initializer,
    /// `None` if no policy of its name exists.
    pub(crate) policy: Option<BoundPolicy<MutatingPolicy>>,
}

// === impl Initializers ===

impl Initializers {
    pub(crate) fn new(
        mut configurations: Vec<Arc<InitializerConfiguration>>,
        policies: &[Arc<MutatingPolicy>],
    ) -> Self {
        configurations.sort_by(|one, other| one.name.cmp(&other.name));
        let policies: HashMap<&str, _> = policies
            .iter()
            .map(|policy| (policy.applicability.name.as_str(), policy))
            .collect();
        let installed = configurations.iter().flat_map(|configuration| {
            configuration
                .initializers
                .iter()
                .map(|initializer| InstalledInitializer {
                    configuration: configuration.name.clone(),
                    initializer: initializer.clone(),
                    policy: policies
                        .get(initializer.name.as_str())
                        .map(|policy| bound(configuration, policy)),
                })
        });
        Self(installed.collect())
    }

    /// The initializers for the object that `request` creates, in order; empty for other
    /// operations.
    pub(crate) fn of<'i>(
        &'i self,
        request: &'i Request<'_>,
    ) -> impl Iterator<Item = &'i InstalledInitializer> {
        let creates = request.operation == Operation::Create && request.subresource.is_empty();
        let initializes = creates && !request.object.is_some_and(is_mirror);
        self.0
            .iter()
            .filter(move |one| initializes && one.initializer.is_for(&request.resource))
    }
}

/// Binds the policy as if the configuration were a binding without constraints.
fn bound(
    configuration: &InitializerConfiguration,
    policy: &Arc<MutatingPolicy>,
) -> BoundPolicy<MutatingPolicy> {
    BoundPolicy {
        policy: Arc::clone(policy),
        bindings: vec![Arc::new(PolicyBinding {
            name: configuration.name.clone(),
            is_static: false,
            policy: policy.applicability.name.clone(),
            param_ref: None,
            constraints: None,
            actions: Vec::new(),
        })],
    }
}

fn is_mirror(object: Node<'_>) -> bool {
    let annotations = object.get("metadata").and_then(|one| one.get("annotations"));
    annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

// === impl InstalledInitializer ===

impl InstalledInitializer {
    /// The error message for a missing policy; `None` if the failure policy is Ignore.
    pub(crate) fn missing(&self, failure_policy: FailurePolicy) -> Option<String> {
        (failure_policy == FailurePolicy::Fail).then(|| {
            format!(
                "initializer '{}' of the InitializerConfiguration '{}' denied request: \
                 there is no MutatingAdmissionPolicy of that name",
                self.initializer.name, self.configuration
            )
        })
    }
}

// === impl Initializer ===

impl Initializer {
    fn is_for(&self, resource: &GroupVersionResource<'_>) -> bool {
        self.rules.iter().all(|rule| {
            includes(&rule.api_groups, &resource.group)
                && includes(&rule.api_versions, &resource.version)
                && includes(&rule.resources, &resource.resource)
        })
    }
}

fn includes(items: &[String], wanted: &str) -> bool {
    items.first().is_some_and(|first| first == "*") || items.iter().any(|item| item == wanted)
}

/// The JSON Patch that removes the pending initializers of `object`; `None` if there are none.
pub(crate) fn completion(object: Node<'_>) -> Option<&'static str> {
    let initializers = object.get("metadata")?.get("initializers")?;
    initializers.get("pending")?;
    if initializers.len() == 1 {
        return Some(r#"[{"op":"remove","path":"/metadata/initializers"}]"#);
    }
    Some(r#"[{"op":"remove","path":"/metadata/initializers/pending"}]"#)
}
