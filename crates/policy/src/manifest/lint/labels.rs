//! Selectors of namespaces: labels that users may change themselves, and labels where no Namespaces
//! are known. Also verbs, groups and resources that do not exist, in rules of every kind.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::super::report::Lint;
use super::impersonation::{self, GROUP};
use super::known::{CONSTRAINED, odd_group, odd_method, odd_resource, odd_verb};
use crate::admission::matching::{Constraints, MissingNamespace};
use crate::authorization::matching::{RequestedResource, ResourcePattern};
use crate::authorization::rbac::{RoleResolver, WildcardSet};
use crate::authorization::{
    AuthorizationPolicy, Binding, Effect, PolicySet, ResourceRule, Role, Rule, Subject,
};
use crate::field::{Faults, FieldPath};
use crate::manifest::admission::AdmissionObject;
use crate::manifest::namespace::{NamespaceSources, rules_with_label_selectors, selector_path};
use crate::manifest::source::Options;
use crate::manifest::validated::{Content, ManifestObject};
use crate::model::{LabelSelector, ResourceAttributes, Target};

/// The most subjects that a warning names.
const NAMED: usize = 5;
/// The verbs by which labels are changed. The labels of a Namespace can also be changed by writes
/// of its status and finalizers.
const VERBS: [&str; 3] = ["create", "patch", "update"];
const SUBRESOURCES: [&str; 3] = ["", "status", "finalize"];
/// The same resources, as RBAC names them.
const RESOURCES: [&str; 5] = [
    "namespaces",
    "namespaces/status",
    "namespaces/finalize",
    "*/status",
    "*/finalize",
];

/// The subjects that may change the labels of Namespaces, each with the only cluster where it may.
pub(crate) struct NamespaceLabelEditors<'o>(Vec<(Option<&'o str>, String)>);

impl<'o> NamespaceLabelEditors<'o> {
    /// Collects the subjects of policies among `objects`, and those `bound` to roles.
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

    /// Collects the subjects in the policies in force.
    pub(crate) fn of_set(set: &PolicySet) -> Self {
        let roles = RoleResolver::new(set.roles());
        let labels = |binding: &&Binding| {
            let role = roles.resolve(&binding.role, &binding.namespace);
            role.is_ok_and(|role| can_change_namespace_labels(&role.rules))
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

    /// A list of the subjects in `cluster`, truncated; `None` if there are none.
    fn named(&self, cluster: Option<&str>) -> Option<String> {
        let range = |of: Option<&str>| {
            let start = self.0.partition_point(|(other, _)| *other < of);
            let end = self.0.partition_point(|(other, _)| *other <= of);
            self.0.get(start..end).unwrap_or_default()
        };
        // A policy for every cluster is affected by the subjects of any cluster.
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
    labellers: &NamespaceLabelEditors<'_>,
    lint: &mut Lint<'_>,
) {
    let mut asking = rules_with_label_selectors(policy).peekable();
    // Most policies need no labels, and there may be many subjects.
    if asking.peek().is_none() {
        return;
    }
    let Some(who) = labellers.named(cluster) else {
        return;
    };
    for index in asking {
        let message = format!(
            "users who may change the labels of Namespaces decide where this applies: {who}; guard the labels \
             with a ValidatingAdmissionPolicy"
        );
        lint.suspicious(&selector_path(index), message);
    }
}

/// Whether one of the RBAC `rules` allows changing labels of Namespaces.
pub(crate) fn can_change_namespace_labels(rules: &[Rule]) -> bool {
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

/// The names of the subjects, without `system:masters`, which may do everything anyway.
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

// Selectors of admission objects that need labels of Namespaces, although no Namespaces are known.

/// Warns once, at the first such selector, because all have the same remedy.
pub(crate) fn lint_unknown_namespaces(objects: &[&ManifestObject], options: &Options, faults: &mut Faults) {
    let sources = NamespaceSources::new(objects, options);
    let mut asking = objects.iter().flat_map(|object| {
        let cluster = object.cluster.as_deref();
        let unknown = sources.missing(cluster, options).is_some();
        let selectors = if unknown { selectors(object) } else { Vec::new() };
        let asking = selectors
            .into_iter()
            .filter(|(_, selector)| !selector.requires_only_the_name());
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
        MissingNamespace::Fail => "every request that reaches it is refused",
        MissingNamespace::NameOnly => "no namespace has them (`admission.missingNamespace: NameOnly`)",
    };
    let message = format!(
        "this{more} selects by labels of Namespaces, but no Namespaces are known, so {effect}: add their \
        manifests, or add the cluster to `clusters`"
    );
    let mut lint = Lint::new(&object.document, faults);
    lint.suspicious(&path, message);
}

/// The namespace selectors of an object, with their paths.
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

// Verbs, groups and resources that do not exist, in rules of every kind.

/// Lints the rules of a Role or ClusterRole.
pub(crate) fn lint_role(role: &Role, lint: &mut Lint<'_>) {
    // Aggregation replaces the rules of the role.
    if role.aggregation.is_some() {
        return;
    }
    for (index, rule) in role.rules.iter().enumerate() {
        let path = FieldPath::root().field("rules").index(index);
        if rule.non_resource_urls.is_empty() {
            each(rule.verbs.as_slice(), &path.field("verbs"), odd_verb, lint);
        } else if rule.resources.is_empty() {
            each(rule.verbs.as_slice(), &path.field("verbs"), odd_method, lint);
        }
        let (groups, of_rule) = (rule.api_groups.as_slice(), rule.resources.as_slice());
        group_of_impersonation(&rule.verbs, &rule.api_groups, &path, lint);
        resources(groups, of_rule, &path, lint);
    }
}

/// Lints the rules of an AuthorizationPolicy.
pub(crate) fn lint_policy(policy: &AuthorizationPolicy, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        let path = spec.field("resourceRules").index(index);
        each(rule.verbs.as_slice(), &path.field("verbs"), odd_verb, lint);
        group_of_impersonation(&rule.verbs, &rule.api_groups, &path, lint);
        resources(rule.api_groups.as_slice(), &rule.resources, &path, lint);
    }
    for (index, rule) in policy.non_resource_rules.iter().enumerate() {
        let path = spec.field("nonResourceRules").index(index);
        each(rule.verbs.as_slice(), &path.field("verbs"), odd_method, lint);
    }
}

/// Lints the rules of `constraints`, at `path`.
pub(crate) fn lint_constraints(constraints: &Constraints, path: &FieldPath, lint: &mut Lint<'_>) {
    let lists = [
        ("resourceRules", &constraints.rules),
        ("excludeResourceRules", &constraints.exclude_rules),
    ];
    for (field, rules) in lists {
        for (index, rule) in rules.iter().enumerate() {
            let path = path.field(field).index(index);
            resources(&rule.api_groups, &rule.resources, &path, lint);
        }
    }
}

/// Warns of a verb of constrained impersonation that is never checked in the groups of the rule.
fn group_of_impersonation(verbs: &WildcardSet, groups: &WildcardSet, path: &FieldPath, lint: &mut Lint<'_>) {
    let verb = verbs.named().find(|verb| verb.starts_with(CONSTRAINED));
    if let Some(verb) = verb.filter(|_| !groups.is_empty() && !groups.includes(GROUP)) {
        let message = format!(
            "kube-apiserver only uses the verb `{verb}` in the group `{GROUP}`: add this \
            group"
        );
        lint.suspicious(&path.field("apiGroups"), message);
    }
}

fn resources(groups: &[String], resources: &[impl Display], path: &FieldPath, lint: &mut Lint<'_>) {
    each(groups, &path.field("apiGroups"), odd_group, lint);
    // A rule may repeat a few groups thousands of times.
    let distinct: Vec<String> = groups
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .cloned()
        .collect();
    let odd = |resource: &str| match resource {
        "*/*" => None,
        resource => odd_resource(&distinct, resource),
    };
    each(resources, &path.field("resources"), odd, lint);
}

/// Adds the warning that `odd` returns for each word, if any.
fn each(words: &[impl Display], path: &FieldPath, odd: impl Fn(&str) -> Option<String>, lint: &mut Lint<'_>) {
    for (index, word) in words.iter().enumerate() {
        if lint.is_full() {
            return;
        }
        if let Some(message) = odd(&word.to_string()) {
            lint.suspicious(&path.index(index), message);
        }
    }
}

// Requests on the command line with names that do not exist: a misspelled resource would otherwise
// look like a denial.

/// Returns the warnings about verb, group and resource of a request, with the messages that `check`
/// uses for rules. A verb or group in a rule of `policies` is assumed to exist, because custom
/// resources are not known otherwise.
#[must_use]
pub fn odd_request(target: &Target<'_>, policies: &PolicySet) -> Vec<String> {
    match target {
        Target::NonResource { verb, .. } => odd_method(verb).into_iter().collect(),
        Target::Resource(resource) => odd_resource_request(resource, policies),
    }
}

fn odd_resource_request(asked: &ResourceAttributes<'_>, policies: &PolicySet) -> Vec<String> {
    let named = |word: &str, within: for<'n> fn(&RuleWords<'n>) -> &'n [String]| {
        rule_words(policies).any(|rule| within(&rule).iter().any(|one| one == word))
    };
    let resource = match asked.subresource.as_ref() {
        "" => asked.resource.to_string(),
        subresource => format!("{}/{subresource}", asked.resource),
    };
    let verb = odd_verb(&asked.verb).filter(|_| !named(&asked.verb, |rule| rule.verbs));
    let group = odd_group(&asked.group).filter(|_| !named(&asked.group, |rule| rule.groups));
    let groups = [asked.group.to_string()];
    // Resources are not looked up in rules: a rule for several groups may name resources that only
    // one of them has.
    let others = impersonation::constrained_mode_hint(&asked.verb, &asked.group, &resource);
    [verb, group, odd_resource(&groups, &resource), others]
        .into_iter()
        .flatten()
        .collect()
}

/// The verbs and groups of one rule.
struct RuleWords<'p> {
    verbs: &'p [String],
    groups: &'p [String],
}

fn rule_words(policies: &PolicySet) -> impl Iterator<Item = RuleWords<'_>> {
    let roles = policies.roles().iter().flat_map(|role| &role.rules);
    let roles = roles.map(|rule| RuleWords {
        verbs: rule.verbs.as_slice(),
        groups: rule.api_groups.as_slice(),
    });
    let own = policies.authorization_policies();
    let own = own.flat_map(|policy| &policy.resource_rules);
    roles.chain(own.map(|rule| RuleWords {
        verbs: rule.verbs.as_slice(),
        groups: rule.api_groups.as_slice(),
    }))
}
