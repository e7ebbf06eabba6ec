//! Selectors of namespaces: labels that tenants may change themselves, and labels that no
//! known Namespace has.

use super::Lint;
use crate::authorization::matching::{RequestedResource, ResourcePattern};
use crate::authorization::rbac::{RoleResolver, WildcardSet};
use crate::authorization::{AuthorizationPolicy, Binding, Effect, PolicySet, ResourceRule, Rule, Subject};
use crate::engine::LabelSelector;
use crate::engine::admission::matching::MissingNamespace;
use crate::field::{Faults, FieldPath};
use crate::manifest::Options;
use crate::manifest::admission::AdmissionObject;
use crate::manifest::namespace::{NamespaceSources, asking, at};
use crate::manifest::object::{Content, ManifestObject};

/// The most who are named.
const NAMED: usize = 5;
/// What changes labels. The labels of a Namespace go with a write of its status
/// and of its finalizers too.
const VERBS: [&str; 3] = ["create", "patch", "update"];
const SUBRESOURCES: [&str; 3] = ["", "status", "finalize"];
/// The same as RBAC names them.
const RESOURCES: [&str; 5] = [
    "namespaces",
    "namespaces/status",
    "namespaces/finalize",
    "*/status",
    "*/finalize",
];

/// Whoever may change the labels of Namespaces, with the cluster where they may.
pub(crate) struct Labellers<'o>(Vec<(Option<&'o str>, String)>);

impl<'o> Labellers<'o> {
    /// Those of the policies among `objects`, and who is `bound` to roles.
    pub(crate) fn new(
        objects: &[&'o ManifestObject],
        bound: impl Iterator<Item = (Option<&'o str>, &'o str)>,
    ) -> Self {
        let mut labellers: Vec<_> = bound.map(|(cluster, who)| (cluster, who.to_owned())).collect();
        for object in objects {
            if let Content::Policy(policy) = &object.content
                && allows(policy)
            {
                let cluster = object.cluster.as_deref();
                labellers.extend(names(&policy.subjects).map(|who| (cluster, who)));
            }
        }
        labellers.sort();
        labellers.dedup();
        Self(labellers)
    }

    /// Those of what is in force.
    pub(crate) fn of_set(set: &PolicySet) -> Self {
        let roles = RoleResolver::new(set.roles());
        let labels = |binding: &&Binding| {
            let role = roles.resolve(&binding.role, &binding.namespace);
            role.is_ok_and(|role| are_changed_by(&role.rules))
        };
        let bindings = set.bindings().filter(labels);
        let bound = bindings.flat_map(|binding| &binding.subjects);
        let policies = set.authorization_policies();
        let allowed = policies
            .filter(|policy| allows(policy))
            .flat_map(|policy| &policy.subjects);
        let named = bound
            .chain(allowed)
            .filter(|subject| subject.name != "system:masters");
        let mut labellers: Vec<_> = named.map(|subject| (None, name(subject))).collect();
        labellers.sort();
        labellers.dedup();
        Self(labellers)
    }

    /// Those of `cluster`, of whom few are named; `None` where there is nobody.
    fn named(&self, cluster: Option<&str>) -> Option<String> {
        let range = |of: Option<&str>| {
            let start = self.0.partition_point(|(other, _)| *other < of);
            let end = self.0.partition_point(|(other, _)| *other <= of);
            self.0.get(start..end).unwrap_or_default()
        };
        // What holds for every cluster may be about any of them.
        let (everywhere, here) = match cluster {
            None => (self.0.as_slice(), [].as_slice()),
            here => (range(None), range(here)),
        };
        let both = everywhere.iter().chain(here);
        let named: Vec<&str> = both.take(NAMED).map(|(_, who)| who.as_str()).collect();
        let more = match (everywhere.len() + here.len()).saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
    }
}

pub(crate) fn lint(
    policy: &AuthorizationPolicy,
    cluster: Option<&str>,
    labellers: &Labellers<'_>,
    lint: &mut Lint<'_>,
) {
    let mut asking = asking(policy).peekable();
    // Most policies ask for no labels, and there may be many who change them.
    if asking.peek().is_none() {
        return;
    }
    let Some(who) = labellers.named(cluster) else {
        return;
    };
    for index in asking {
        let message = format!(
            "whoever may change the labels of Namespaces decides where this applies: {who}; guard the labels \
             with a ValidatingAdmissionPolicy"
        );
        lint.suspicious(&at(index), message);
    }
}

/// Whether one of RBAC's `rules` lets labels of Namespaces be changed.
pub(crate) fn are_changed_by(rules: &[Rule]) -> bool {
    let names = |rule: &Rule| RESOURCES.iter().any(|name| rule.resources.includes(name));
    rules
        .iter()
        .any(|rule| changes(&rule.verbs, &rule.api_groups) && names(rule))
}

fn allows(policy: &AuthorizationPolicy) -> bool {
    let includes = |pattern: &ResourcePattern| {
        SUBRESOURCES.iter().any(|subresource| {
            pattern.includes(&RequestedResource {
                resource: "namespaces",
                subresource: (*subresource).into(),
            })
        })
    };
    let rule =
        |rule: &ResourceRule| changes(&rule.verbs, &rule.api_groups) && rule.resources.iter().any(includes);
    policy.effect == Effect::Allow && policy.resource_rules.iter().any(rule)
}

fn changes(verbs: &WildcardSet, groups: &WildcardSet) -> bool {
    VERBS.iter().any(|verb| verbs.includes(verb)) && groups.includes("")
}

/// The subjects as they are named; of the group that may do everything nobody asks.
pub(crate) fn names(subjects: &[Subject]) -> impl Iterator<Item = String> {
    let named = subjects.iter().filter(|subject| subject.name != "system:masters");
    named.map(name)
}

fn name(subject: &Subject) -> String {
    match subject.namespace.as_str() {
        "" => format!("{} `{}`", subject.kind.as_str(), subject.name),
        namespace => format!("{} `{namespace}/{}`", subject.kind.as_str(), subject.name),
    }
}

// Selectors in admission objects for labels of Namespaces where no Namespaces are known.

/// Warns at the first such selector of all: with it stand or fall the others.
pub(crate) fn lint_unknown_namespaces(objects: &[&ManifestObject], options: &Options, faults: &mut Faults) {
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
