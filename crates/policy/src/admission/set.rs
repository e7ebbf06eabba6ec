//! The admission set of one cluster: policies, webhooks, parameters, namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::candidates::{BoundPolicies, Webhooks};
use super::exceptions::{Exception, ExceptionObjects, Exceptions};
use super::initializers::{InitializerConfiguration, Initializers};
use super::matching::{
    Constraints, CustomResource, CustomResources, Equivalents, FixedNamespaces, LayeredNamespaces, MatchRule,
    MatchSubject, MissingNamespace, Namespaces,
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

/// What manifests say about admission, for every cluster or for one. Cheap to clone.
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
    /// Objects of the kinds that policies take as parameters.
    pub parameters: Vec<Arc<Document<'static>>>,
    /// What CustomResourceDefinitions besides the parameters say.
    pub custom_resources: CustomResources,
    /// What there is besides and is not known; `None`: nothing.
    pub unknown: Option<UnknownObjects>,
}

/// What holds besides the manifests.
#[derive(Debug, Clone)]
pub struct AdmissionSettings {
    /// What holds for namespaces that are not known.
    pub missing_namespace: MissingNamespace,
    /// What an error outside any policy does, such as an initializer without policy.
    pub failure_policy: FailurePolicy,
    /// Whether `/validate` refuses what Denies and Limits refuse: for clusters whose API server asks no
    /// authorization webhook.
    pub enforces_authorization: bool,
    /// Which resources are the same.
    pub equivalents: Arc<Equivalents>,
    /// What expressions are compiled for that are read with a set in force.
    pub cel_version: Version,
    /// The webhooks that decide nothing, by their own name or as
    /// `configuration/name`: what they would have said is only compared.
    pub shadow_webhooks: BTreeSet<String>,
}

/// The policies of every cluster.
#[derive(Debug, Clone)]
pub struct AdmissionPolicies {
    /// For clusters without manifests of their own.
    pub shared: Arc<AdmissionSet>,
    /// For clusters with some.
    pub clusters: BTreeMap<String, Arc<AdmissionSet>>,
}

/// All that admission decides by for one cluster.
#[derive(Debug)]
pub struct AdmissionSet {
    pub(crate) validating: Arc<BoundPolicies<ValidatingPolicy>>,
    pub(crate) mutating: Arc<BoundPolicies<MutatingPolicy>>,
    pub(crate) validating_webhooks: Arc<Webhooks>,
    pub(crate) mutating_webhooks: Arc<Webhooks>,
    /// What the match conditions of webhooks may name.
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
    /// Whether none of them decides anything.
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

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.has_no_policies() && self.namespaces.is_empty() && self.parameters.is_empty()
    }

    /// `known`, and the custom resources that are defined here.
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
    /// The policies for requests of `cluster`.
    #[must_use]
    pub fn for_cluster(&self, cluster: &str) -> &Arc<AdmissionSet> {
        self.clusters.get(cluster).unwrap_or(&self.shared)
    }

    /// The policies that hold for every cluster, which no cluster wrote.
    #[must_use]
    pub const fn shared(&self) -> &Arc<AdmissionSet> {
        &self.shared
    }

    /// The same to change; none where others have it too.
    pub fn for_cluster_mut(&mut self, cluster: &str) -> Option<&mut AdmissionSet> {
        Arc::get_mut(self.clusters.get_mut(cluster).unwrap_or(&mut self.shared))
    }
}

// === impl AdmissionSet ===

impl AdmissionSet {
    /// Binds and indexes policies. Bindings of policies that are not there do
    /// nothing, nor do policies without binding.
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

    /// The set of one cluster, of what this set was made of and of its `own` objects; `objects`
    /// are both. What its own objects do not touch exists once.
    #[must_use]
    pub fn beside(
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

    /// Adds Namespaces and parameters, each in place of one of the same name.
    pub fn add(&mut self, namespaces: Vec<Arc<Document<'static>>>, parameters: Vec<Arc<Document<'static>>>) {
        let under = Arc::clone(&self.namespaces);
        self.namespaces = Arc::new(LayeredNamespaces {
            over: FixedNamespaces::new(namespaces),
            under,
        });
        self.parameters.extend(parameters);
    }

    /// From now on this holds for namespaces that are not known.
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

    /// When the bound policy called `policy` applies, by itself or, where that is named, by its
    /// `binding`.
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

    /// Takes the webhooks out, those in shadow too, and names them as `configuration/webhook`.
    pub fn take_webhooks(&mut self) -> BTreeSet<String> {
        let none = || Arc::new(Webhooks::new(Vec::new(), &BTreeSet::new(), &self.equivalents));
        let taken = [
            std::mem::replace(&mut self.mutating_webhooks, none()),
            std::mem::replace(&mut self.validating_webhooks, none()),
        ];
        let ids = |webhooks: &Arc<Webhooks>| webhooks.iter().map(|webhook| webhook.id()).collect::<Vec<_>>();
        taken.iter().flat_map(ids).collect()
    }

    /// Whether a bound ValidatingAdmissionPolicy may be about the creation of objects of
    /// `resource`, in whatever group.
    #[must_use]
    pub fn may_judge_creation(&self, resource: &str) -> bool {
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

    /// Whether a rule of a bound policy names `resource` of `group`, other than by `*`.
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

    /// The bound ValidatingAdmissionPolicies that judge nothing that is made, by name: their
    /// rules are about changes, deletions and connections alone.
    pub fn never_at_creation(&self) -> impl Iterator<Item = &str> {
        let policies = self.validating.applicabilities();
        let never = policies.filter(|policy| {
            let rules = &policy.constraints.rules;
            let creates = |rule: &MatchRule| rule.operations.contains(Operation::Create);
            !rules.is_empty() && !rules.iter().any(creates)
        });
        never.map(|policy| policy.name.as_str())
    }

    /// Equal for sets that share all their policies, webhooks and exceptions, as long as one of
    /// them is there.
    #[must_use]
    pub fn policies_address(&self) -> usize {
        Arc::as_ptr(&self.validating).addr()
    }

    /// What expressions are compiled for that are to join this set.
    #[must_use]
    pub fn cel_version(&self) -> Version {
        self.webhook_environment.version()
    }

    /// Whether there is a policy, bound or not, or a webhook configuration of
    /// this name for `phase`.
    #[must_use]
    pub fn has(&self, phase: Phase, name: &str) -> bool {
        match phase {
            Phase::Mutate => self.mutating.has(name) || self.mutating_webhooks.has(name),
            Phase::Validate => self.validating.has(name) || self.validating_webhooks.has(name),
        }
    }

    /// The bound policies of `phase` with their bindings, in the order in which they are asked.
    #[must_use]
    pub fn policies(&self, phase: Phase) -> Vec<(&Applicability, &[Arc<PolicyBinding>])> {
        match phase {
            Phase::Mutate => self.mutating.listed(),
            Phase::Validate => self.validating.listed(),
        }
    }

    /// The `spec.validations` of the bound ValidatingAdmissionPolicy of this name; none if there
    /// is none of this name.
    #[must_use]
    pub fn validations(&self, policy: &str) -> &[Validation] {
        self.validating
            .find(policy)
            .map_or(&[], |policy| policy.validations.as_slice())
    }

    /// The names of the policies of `phase` that have no binding, and so do nothing.
    pub fn unbound_policies(&self, phase: Phase) -> impl Iterator<Item = &str> {
        let unbound = match phase {
            Phase::Mutate => self.mutating.unbound(),
            Phase::Validate => self.validating.unbound(),
        };
        unbound.iter().map(String::as_str)
    }

    /// The AdmissionExceptions, those that have ended too.
    #[must_use]
    pub fn exceptions(&self) -> &[Arc<Exception>] {
        self.exceptions.all()
    }

    /// The webhooks of `phase`, in the order in which they are asked.
    pub fn webhooks(&self, phase: Phase) -> impl Iterator<Item = &Arc<Webhook>> {
        match phase {
            Phase::Mutate => self.mutating_webhooks.iter(),
            Phase::Validate => self.validating_webhooks.iter(),
        }
    }

    /// The webhooks of both phases that decide nothing.
    pub fn shadow_webhooks(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        let all = [&self.mutating_webhooks, &self.validating_webhooks];
        all.into_iter().flat_map(|webhooks| webhooks.shadows())
    }

    /// Whether there is a ValidatingAdmissionPolicy, bound or not, of this name, or
    /// a validating webhook `configuration/webhook`.
    #[must_use]
    pub fn has_validating(&self, name: &str) -> bool {
        self.validating.has(name)
            || self
                .validating_webhooks
                .iter()
                .any(|webhook| webhook.id() == name)
    }

    /// The name and end of each AdmissionException, past ends too.
    pub fn exception_ends(&self) -> impl Iterator<Item = (&str, Time)> {
        let all = self.exceptions().iter();
        all.map(|exception| (exception.name.as_str(), exception.not_after))
    }

    /// What it is made of, in words; for tests that compare sets.
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

    /// The kinds of the parameters that bound policies take, with repetitions.
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
    ) -> MatchSubject<'s> {
        MatchSubject {
            request,
            object,
            namespaces: &*self.namespaces,
            missing: self.missing_namespace,
            equivalents: &self.equivalents,
        }
    }
}

// The namespace of the object, for expressions.

/// The Namespace that a request is about.
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
    /// A Namespace is not in itself, although its request names it. One that is
    /// not known matters only to expressions that look at it.
    pub(crate) fn namespace_of(&self, request: &Request<'_>) -> RequestNamespace {
        let kind = &request.request_kind;
        let is_namespace = kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace";
        if request.namespace.is_empty() || is_namespace {
            return RequestNamespace::None;
        }
        let name = &request.namespace;
        let missing = self.namespaces.missing(name, self.missing_namespace);
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
