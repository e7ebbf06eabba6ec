//! The admission set of one cluster: policies, webhooks, parameters, namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::candidates::{BoundPolicies, Webhooks};
use super::exceptions::{Exception, ExceptionObjects, Exceptions};
use super::initializers::{InitializerConfiguration, Initializers};
use super::matching::{
    Constraints, CustomResource, CustomResources, Equivalents, FixedNamespaces, LayeredNamespaces,
    MatchInput, MatchRule, MissingNamespace, Namespaces,
};
use super::parameters::{ParamKind, UnknownObjects};
use super::validating::Validation;
use super::variables::NamespaceObject;
use super::webhook::{Webhook, WebhookConfiguration};
use super::{
    Applicability, ExpressionEnvironment, FailurePolicy, MutatingPolicy, Operation, Parameters, Phase,
    PolicyBinding, Request, ValidatingPolicy,
};
use crate::model::{CauseKind, Time};
use portcullis_cel::Version;
use portcullis_cel::json::{Document, Node, ObjectWriter};

const DEFINITION: &str = "CustomResourceDefinition";

/// The admission objects of manifests, for every cluster or for one. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AdmissionObjects {
    /// ValidatingAdmissionPolicies.
    pub validating: Vec<Arc<ValidatingPolicy>>,
    /// ValidatingAdmissionPolicyBindings.
    pub validating_bindings: Vec<Arc<PolicyBinding>>,
    /// MutatingAdmissionPolicies.
    pub mutating: Vec<Arc<MutatingPolicy>>,
    /// MutatingAdmissionPolicyBindings.
    pub mutating_bindings: Vec<Arc<PolicyBinding>>,
    /// InitializerConfigurations.
    pub initializers: Vec<Arc<InitializerConfiguration>>,
    /// ValidatingWebhookConfigurations.
    pub validating_webhooks: Vec<Arc<WebhookConfiguration>>,
    /// MutatingWebhookConfigurations.
    pub mutating_webhooks: Vec<Arc<WebhookConfiguration>>,
    /// AdmissionExceptions.
    pub exceptions: ExceptionObjects,
    /// Namespaces.
    pub namespaces: Vec<Arc<Document<'static>>>,
    /// Objects of the kinds in `paramKind` of policies.
    pub parameters: Vec<Arc<Document<'static>>>,
    /// Resources from CustomResourceDefinitions that are not among the parameters.
    pub custom_resources: CustomResources,
    /// Objects that exist but are not known; `None`: none.
    pub unknown: Option<UnknownObjects>,
}

/// Settings from the configuration.
#[derive(Debug, Clone)]
pub struct AdmissionSettings {
    /// How to treat namespaces that are not known.
    pub missing_namespace: MissingNamespace,
    /// The failure policy for errors outside policies, such as an initializer without a policy.
    pub failure_policy: FailurePolicy,
    /// Whether `/validate` enforces Denies and Limits of AuthorizationPolicies, for clusters whose
    /// API server uses no authorization webhook.
    pub enforces_authorization: bool,
    /// Which resources are equivalent.
    pub equivalents: Arc<Equivalents>,
    /// The Kubernetes version for which expressions are compiled.
    pub cel_version: Version,
    /// The webhooks in shadow mode, by name or as `configuration/name`: they decide nothing, and
    /// their responses are only compared.
    pub shadow_webhooks: BTreeSet<String>,
}

/// The admission sets of all clusters.
#[derive(Debug, Clone)]
pub struct AdmissionPolicies {
    /// The set of clusters without manifests of their own.
    pub shared: Arc<AdmissionSet>,
    /// The sets of clusters with manifests of their own.
    pub clusters: BTreeMap<String, Arc<AdmissionSet>>,
}

/// Everything that admission decisions of one cluster depend on.
#[derive(Debug)]
pub struct AdmissionSet {
    pub(crate) validating: Arc<BoundPolicies<ValidatingPolicy>>,
    pub(crate) mutating: Arc<BoundPolicies<MutatingPolicy>>,
    pub(crate) validating_webhooks: Arc<Webhooks>,
    pub(crate) mutating_webhooks: Arc<Webhooks>,
    /// The CEL environment of the match conditions of webhooks.
    pub(crate) webhook_environment: Arc<ExpressionEnvironment>,
    pub(crate) initializers: Arc<Initializers>,
    pub(crate) exceptions: Arc<Exceptions>,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) enforces_authorization: bool,
    pub(crate) parameters: Parameters,
    pub(crate) namespaces: Arc<dyn Namespaces>,
    pub(crate) missing_namespace: MissingNamespace,
    pub(crate) equivalents: Arc<Equivalents>,
}

// === impl AdmissionObjects ===

impl AdmissionObjects {
    /// Whether no policies, webhooks or exceptions are among them.
    fn has_no_policies(&self) -> bool {
        self.validating.is_empty()
            && self.validating_bindings.is_empty()
            && self.mutating.is_empty()
            && self.mutating_bindings.is_empty()
            && self.initializers.is_empty()
            && self.validating_webhooks.is_empty()
            && self.mutating_webhooks.is_empty()
            && self.exceptions.is_empty()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.has_no_policies() && self.namespaces.is_empty() && self.parameters.is_empty()
    }

    /// Returns `known` with the custom resources that these objects define.
    fn equivalents(&self, known: &Arc<Equivalents>) -> Arc<Equivalents> {
        let written = self.parameters.iter().map(|document| document.root());
        let written = written.filter(|object| object.get("kind").is_some_and(|kind| kind.is_str(DEFINITION)));
        let written = written.filter_map(CustomResource::of).map(Arc::new);
        let all: CustomResources = self.custom_resources.iter().cloned().chain(written).collect();
        if all == CustomResources::default() {
            return Arc::clone(known);
        }
        Arc::new(known.with(all))
    }
}

fn namespaces(known: Vec<Arc<Document<'static>>>, unknown: Option<&UnknownObjects>) -> FixedNamespaces {
    let namespaces = FixedNamespaces::new(known);
    match unknown {
        Some(unknown) => namespaces.with_left_out(unknown.namespaces.clone()),
        None => namespaces,
    }
}

// === impl AdmissionSettings ===

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            missing_namespace: MissingNamespace::default(),
            failure_policy: FailurePolicy::default(),
            enforces_authorization: false,
            equivalents: Arc::new(Equivalents::kubernetes()),
            cel_version: Version::default(),
            shadow_webhooks: BTreeSet::new(),
        }
    }
}

// === impl AdmissionPolicies ===

impl AdmissionPolicies {
    /// The set for requests of `cluster`.
    #[must_use]
    pub fn for_cluster(&self, cluster: &str) -> &Arc<AdmissionSet> {
        self.clusters.get(cluster).unwrap_or(&self.shared)
    }

    /// The set of clusters without manifests of their own.
    #[must_use]
    pub const fn shared(&self) -> &Arc<AdmissionSet> {
        &self.shared
    }

    /// The set for requests of `cluster`, mutably; `None` if it is shared with other owners.
    pub fn for_cluster_mut(&mut self, cluster: &str) -> Option<&mut AdmissionSet> {
        Arc::get_mut(self.clusters.get_mut(cluster).unwrap_or(&mut self.shared))
    }
}

// === impl AdmissionSet ===

impl AdmissionSet {
    /// Binds and indexes policies. Bindings of unknown policies and policies without a binding have
    /// no effect.
    #[must_use]
    pub fn new(objects: AdmissionObjects, settings: &AdmissionSettings) -> Self {
        let equivalents = objects.equivalents(&settings.equivalents);
        let webhooks = |configurations| {
            Arc::new(Webhooks::new(
                configurations,
                &settings.shadow_webhooks,
                &equivalents,
            ))
        };
        Self {
            validating_webhooks: webhooks(objects.validating_webhooks),
            mutating_webhooks: webhooks(objects.mutating_webhooks),
            webhook_environment: Arc::new(ExpressionEnvironment::new(settings.cel_version, false)),
            validating: Arc::new(BoundPolicies::new(
                objects.validating,
                objects.validating_bindings,
                &equivalents,
            )),
            initializers: Arc::new(Initializers::new(objects.initializers, &objects.mutating)),
            exceptions: Arc::new(Exceptions::new(objects.exceptions)),
            failure_policy: settings.failure_policy,
            enforces_authorization: settings.enforces_authorization,
            mutating: Arc::new(BoundPolicies::new(
                objects.mutating,
                objects.mutating_bindings,
                &equivalents,
            )),
            namespaces: Arc::new(namespaces(objects.namespaces, objects.unknown.as_ref())),
            parameters: Parameters::new(objects.parameters).with_unknown(objects.unknown),
            missing_namespace: settings.missing_namespace,
            equivalents,
        }
    }

    /// Returns the set of a cluster that has its `own` objects besides those of this set; `objects`
    /// are all of them. Shares with this set what the cluster's own objects do not change.
    #[must_use]
    pub fn for_cluster_with(
        &self,
        own: &AdmissionObjects,
        objects: AdmissionObjects,
        settings: &AdmissionSettings,
    ) -> Self {
        if !own.has_no_policies() {
            return Self::new(objects, settings);
        }
        let equivalents = objects.equivalents(&settings.equivalents);
        Self {
            validating: Arc::clone(&self.validating),
            mutating: Arc::clone(&self.mutating),
            validating_webhooks: Arc::clone(&self.validating_webhooks),
            mutating_webhooks: Arc::clone(&self.mutating_webhooks),
            webhook_environment: Arc::clone(&self.webhook_environment),
            initializers: Arc::clone(&self.initializers),
            exceptions: Arc::clone(&self.exceptions),
            failure_policy: self.failure_policy,
            enforces_authorization: self.enforces_authorization,
            namespaces: Arc::new(namespaces(objects.namespaces, objects.unknown.as_ref())),
            parameters: Parameters::new(objects.parameters).with_unknown(objects.unknown),
            missing_namespace: self.missing_namespace,
            equivalents,
        }
    }

    /// Adds Namespaces and parameters, replacing those of the same name.
    pub fn add(&mut self, namespaces: Vec<Arc<Document<'static>>>, parameters: Vec<Arc<Document<'static>>>) {
        let under = Arc::clone(&self.namespaces);
        self.namespaces = Arc::new(LayeredNamespaces {
            overrides: FixedNamespaces::new(namespaces),
            base: under,
        });
        self.parameters.extend(parameters);
    }

    /// Sets how to treat namespaces that are not known.
    pub const fn set_missing_namespace(&mut self, missing: MissingNamespace) {
        self.missing_namespace = missing;
    }

    /// Whether a ValidatingAdmissionPolicy or MutatingAdmissionPolicy has a binding.
    #[must_use]
    pub fn has_bound_policies(&self) -> bool {
        self.validating
            .names()
            .chain(self.mutating.names())
            .next()
            .is_some()
    }

    /// The constraints of the bound policy `policy`, or of its `binding` if one is given.
    #[must_use]
    pub fn constraints(&self, kind: CauseKind, policy: &str, binding: Option<&str>) -> Option<&Constraints> {
        let listed = match kind {
            CauseKind::MutatingAdmissionPolicy => self.mutating.listed(),
            _ => self.validating.listed(),
        };
        let (own, bindings) = listed.into_iter().find(|(own, _)| own.name == policy)?;
        match binding {
            None => Some(&own.constraints),
            Some(name) => bindings.iter().find(|one| one.name == name)?.constraints.as_ref(),
        }
    }

    /// Removes all webhooks, including those in shadow mode, and returns their names as
    /// `configuration/webhook`.
    pub fn take_webhooks(&mut self) -> BTreeSet<String> {
        let none = || Arc::new(Webhooks::new(Vec::new(), &BTreeSet::new(), &self.equivalents));
        let taken = [
            std::mem::replace(&mut self.mutating_webhooks, none()),
            std::mem::replace(&mut self.validating_webhooks, none()),
        ];
        let ids = |webhooks: &Arc<Webhooks>| webhooks.iter().map(|webhook| webhook.id()).collect::<Vec<_>>();
        taken.iter().flat_map(ids).collect()
    }

    /// Whether a bound ValidatingAdmissionPolicy may apply to the creation of objects of
    /// `resource`, in any group.
    #[must_use]
    pub fn may_validate_creation(&self, resource: &str) -> bool {
        let names = |rule: &MatchRule| {
            let mut resources = rule.resources.iter();
            resources.any(|name| [resource, "*", "*/*"].contains(&name.as_str()))
        };
        let mut policies = self.validating.applicabilities();
        policies.any(|policy| {
            let rules = &policy.constraints.rules;
            let is_about = |rule: &MatchRule| rule.operations.contains(Operation::Create) && names(rule);
            rules.is_empty() || rules.iter().any(is_about)
        })
    }

    /// Whether a rule of a bound policy names `resource` of `group` without a wildcard for the
    /// resource.
    #[must_use]
    pub fn names_resource(&self, group: &str, resource: &str) -> bool {
        let names = |rule: &MatchRule| {
            let mut groups = rule.api_groups.iter();
            let mut resources = rule.resources.iter();
            groups.any(|own| own == group || own == "*")
                && resources.any(|name| name.split('/').next() == Some(resource))
        };
        let mut policies = self
            .validating
            .applicabilities()
            .chain(self.mutating.applicabilities());
        policies.any(|policy| policy.constraints.rules.iter().any(names))
    }

    /// The names of the bound ValidatingAdmissionPolicies without a rule for CREATE.
    pub fn without_create_rules(&self) -> impl Iterator<Item = &str> {
        let policies = self.validating.applicabilities();
        let never = policies.filter(|policy| {
            let rules = &policy.constraints.rules;
            let creates = |rule: &MatchRule| rule.operations.contains(Operation::Create);
            !rules.is_empty() && !rules.iter().any(creates)
        });
        never.map(|policy| policy.name.as_str())
    }

    /// An address that is equal for sets that share all their policies, webhooks and exceptions.
    /// Only valid while one of the sets exists.
    #[must_use]
    pub fn policies_address(&self) -> usize {
        Arc::as_ptr(&self.validating).addr()
    }

    /// The Kubernetes version for which expressions of this set are compiled.
    #[must_use]
    pub fn cel_version(&self) -> Version {
        self.webhook_environment.version()
    }

    /// Whether a policy, bound or not, or a webhook configuration of this name exists for `phase`.
    #[must_use]
    pub fn has_policy_or_configuration(&self, phase: Phase, name: &str) -> bool {
        match phase {
            Phase::Mutate => self.mutating.has(name) || self.mutating_webhooks.has(name),
            Phase::Validate => self.validating.has(name) || self.validating_webhooks.has(name),
        }
    }

    /// The bound policies of `phase` with their bindings, in the order of evaluation.
    #[must_use]
    pub fn policies(&self, phase: Phase) -> Vec<(&Applicability, &[Arc<PolicyBinding>])> {
        match phase {
            Phase::Mutate => self.mutating.listed(),
            Phase::Validate => self.validating.listed(),
        }
    }

    /// The `spec.validations` of the bound ValidatingAdmissionPolicy of this name; empty if there
    /// is no such policy.
    #[must_use]
    pub fn validations(&self, policy: &str) -> &[Validation] {
        self.validating
            .find(policy)
            .map_or(&[], |policy| policy.validations.as_slice())
    }

    /// The names of the policies of `phase` without a binding, which have no effect.
    pub fn unbound_policies(&self, phase: Phase) -> impl Iterator<Item = &str> {
        let unbound = match phase {
            Phase::Mutate => self.mutating.unbound(),
            Phase::Validate => self.validating.unbound(),
        };
        unbound.iter().map(String::as_str)
    }

    /// The AdmissionExceptions, including expired ones.
    #[must_use]
    pub fn exceptions(&self) -> &[Arc<Exception>] {
        self.exceptions.all()
    }

    /// The webhooks of `phase`, in the order of the calls.
    pub fn webhooks(&self, phase: Phase) -> impl Iterator<Item = &Arc<Webhook>> {
        match phase {
            Phase::Mutate => self.mutating_webhooks.iter(),
            Phase::Validate => self.validating_webhooks.iter(),
        }
    }

    /// The webhooks of both phases in shadow mode.
    pub fn shadow_webhooks(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        let all = [&self.mutating_webhooks, &self.validating_webhooks];
        all.into_iter().flat_map(|webhooks| webhooks.shadows())
    }

    /// Whether a ValidatingAdmissionPolicy of this name, bound or not, or a validating webhook
    /// `configuration/webhook` exists.
    #[must_use]
    pub fn has_validating(&self, name: &str) -> bool {
        self.validating.has(name)
            || self
                .validating_webhooks
                .iter()
                .any(|webhook| webhook.id() == name)
    }

    /// The name and `notAfter` of each AdmissionException, including expired ones.
    pub fn exception_ends(&self) -> impl Iterator<Item = (&str, Time)> {
        let all = self.exceptions().iter();
        all.map(|exception| (exception.name.as_str(), exception.not_after))
    }

    /// The contents of the set as strings, for tests that compare sets.
    #[doc(hidden)]
    pub fn contents(&self, namespaces: &[&str]) -> Vec<String> {
        let mut told: Vec<String> = self.validating.names().map(str::to_owned).collect();
        told.extend(self.mutating.names().map(str::to_owned));
        let phases = [Phase::Mutate, Phase::Validate];
        let webhooks = phases.into_iter().flat_map(|phase| self.webhooks(phase));
        told.extend(webhooks.map(|webhook| webhook.id()));
        told.extend(
            self.exception_ends()
                .map(|(name, end)| format!("{name} until {end}")),
        );
        let known = namespaces
            .iter()
            .filter_map(|name| self.namespaces.namespace(name));
        told.extend(known.map(|document| document.text().to_owned()));
        told.extend(self.parameters.contents());
        let custom = self.equivalents.custom().iter();
        told.extend(custom.map(|resource| format!("{resource:?}")));
        told
    }

    /// The `paramKind` of each bound policy that has one, with repetitions.
    pub fn param_kinds(&self) -> impl Iterator<Item = &ParamKind> {
        let validating = self.validating.applicabilities();
        let mutating = self.mutating.applicabilities();
        validating
            .chain(mutating)
            .filter_map(|applicability| applicability.param_kind.as_ref())
    }

    pub(crate) fn subject<'s>(
        &'s self,
        request: &'s Request<'s>,
        object: Option<Node<'s>>,
    ) -> MatchInput<'s> {
        MatchInput {
            request,
            object,
            namespaces: &*self.namespaces,
            missing: self.missing_namespace,
            equivalents: &self.equivalents,
        }
    }
}

// The namespace of the object, for expressions.

/// The Namespace of the object of a request.
pub(crate) enum RequestNamespace {
    None,
    Known(Arc<Document<'static>>),
    Unknown,
}

impl RequestNamespace {
    pub(crate) fn as_variable(&self) -> NamespaceObject<'_> {
        match self {
            Self::None => NamespaceObject::Null,
            Self::Known(document) => NamespaceObject::Known(document.root()),
            Self::Unknown => NamespaceObject::Unknown,
        }
    }
}

impl AdmissionSet {
    /// Returns the namespace of the request; none for a Namespace itself, although its request
    /// names one. An unknown namespace is an error only for expressions that use it.
    pub(crate) fn namespace_of(&self, request: &Request<'_>) -> RequestNamespace {
        let kind = &request.request_kind;
        let is_namespace = kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace";
        if request.namespace.is_empty() || is_namespace {
            return RequestNamespace::None;
        }
        let name = &request.namespace;
        let missing = self.namespaces.missing_policy(name, self.missing_namespace);
        match (self.namespaces.namespace(name), missing) {
            (Some(document), _) => RequestNamespace::Known(document),
            (None, MissingNamespace::NameOnly) => name_only(name),
            (None, MissingNamespace::Fail) => RequestNamespace::Unknown,
        }
    }
}

fn name_only(name: &str) -> RequestNamespace {
    let mut text = String::new();
    ObjectWriter::write(&mut text, |namespace| {
        namespace.object("metadata", |metadata| {
            metadata.text("name", name);
            metadata.object("labels", |labels| {
                labels.text("kubernetes.io/metadata.name", name)
            });
        });
    });
    Document::parse(text).map_or(RequestNamespace::Unknown, |document| {
        RequestNamespace::Known(Arc::new(document))
    })
}
