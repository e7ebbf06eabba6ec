//! `/policies/KIND/NAMESPACE/NAME`: the manifest and the use of an object that decides: a policy, a
//! role binding, or a webhook configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use serde::Serialize;
use serde_json::Value;

use super::{ListedKind, ObjectUse, PolicyList, RecentUse, RowCounts};
use crate::console::page::{Page, PageFrame, ViewError};
use crate::console::views::clusters::ClusterChoice;
use crate::console::{ViewContext, ViewRequest};
use crate::state::{Snapshot, read_manifest};
use crate::usage::{ObjectUsage, UsedObjectKey};
use portcullis_policy::admission::webhook::Webhook;
use portcullis_policy::admission::{AdmissionSet, Phase};
use portcullis_policy::authorization::{Binding, PolicySet, Role, RoleKind};
use portcullis_policy::document::{self, Document};
use portcullis_policy::explain::sentences;
use portcullis_policy::field::FieldPath;
use portcullis_policy::manifest::ValidatedObject;
use portcullis_policy::model::{CauseKind, groups};

/// The annotation in which `kubectl apply` keeps the applied object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The maximum number of users in the list of users for whom an object decided.
const MAX_USERS: usize = 50;

/// The path segment for objects without namespace.
const NO_NAMESPACE: &str = "-";

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage<'a> {
    frame: PageFrame,
    view: &'a PolicyView<'a>,
    clusters: &'a ClusterChoice,
}

/// A policy with its bindings, or another object that decides.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyView<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    /// A description of its effect.
    about: String,
    /// Counts since the start, for a policy.
    counts: Option<RowCounts>,
    /// The number of recent decisions that it caused.
    recent: u64,
    /// How many of these were denials.
    recent_denials: u64,
    /// The number of the last recent decision that it caused, or would have in Shadow.
    last_sequence: Option<u64>,
    last_time: Option<String>,
    /// A description of the subjects or objects to which it applies; empty if it has none.
    subjects: String,
    /// The number of recent decisions by rule. If the number of rules is known, unused rules are
    /// included.
    rules: Vec<RuleUse>,
    /// The use according to the files of usage, if usage is configured.
    usage: Option<UsageView>,
    /// The manifests of the object, and of those that belong to it.
    texts: Vec<ObjectText>,
}

/// The use of an object according to the files of usage.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageView {
    /// The first hour in the files; empty if there is none.
    since: String,
    /// The error if the files cannot be read; otherwise empty.
    error: String,
    decided: u64,
    /// The users for whom it decided most often.
    users: Vec<UserUse>,
    /// The number of further users.
    more_users: usize,
}

/// How often an object decided for a user.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct UserUse {
    /// The user; empty for users that are counted together.
    user: String,
    decided: u64,
    first: String,
    last: String,
}

/// A rule or validation, and the number of recent decisions that it caused.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RuleUse {
    rule: usize,
    /// A description of the rule; empty if it is unknown.
    sentence: String,
    decided: u64,
}

/// The manifest of an object.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ObjectText {
    object: String,
    /// The file and line, or the cluster.
    place: String,
    /// The part of the file with its comments, if it still matches the object in force; otherwise
    /// YAML.
    text: String,
}

/// An object that decides.
struct DecidingObject {
    about: String,
    counts: Option<RowCounts>,
    /// A description of the subjects or objects to which it applies, if it has any.
    subjects: String,
    /// Descriptions of its rules, if they are known.
    rules: Vec<String>,
}

/// The page for the object with this kind, namespace and name.
pub(crate) fn view(
    context: &ViewContext<'_>,
    request: &ViewRequest,
    (kind, namespace, name): (&str, &str, &str),
) -> Result<Page, ViewError> {
    request.query.reject_unknown(&["cluster"])?;
    let clusters = ClusterChoice::new(context, &request.query)?;
    let cluster = clusters.chosen.as_str();
    let namespace = if namespace == NO_NAMESPACE { "" } else { namespace };
    let recent = RecentUse::new(context, cluster);
    let found = match ListedKind::parse(kind) {
        Ok(kind) if namespace.is_empty() => listed(context, cluster, &recent, (kind, name)),
        Ok(_) => None,
        Err(_) => describe(context.snapshot, cluster, (kind, namespace, name)).map(|(about, rules)| {
            DecidingObject {
                about,
                counts: None,
                subjects: String::new(),
                rules,
            }
        }),
    };
    let object = found.ok_or_else(|| {
        let message = format!("there is no {kind} `{name}` in force for the cluster `{cluster}`");
        ViewError::NotFound(message)
    })?;
    let used = recent.of(kind, namespace, name);
    let view = PolicyView::new((kind, namespace, name), object, used, context, cluster);
    let page = PolicyPage {
        frame: context.frame(format!("{kind} {name}"), request),
        view: &view,
        clusters: &clusters,
    };
    Page::of(request.representation, &view, &page)
}

fn listed(
    context: &ViewContext<'_>,
    cluster: &str,
    recent: &RecentUse,
    (kind, name): (ListedKind, &str),
) -> Option<DecidingObject> {
    let mut rows = PolicyList::new(context, cluster, recent).0.into_iter();
    let row = rows.find(|row| row.kind == kind && row.name == name)?;
    let (policies, admission) = (&context.snapshot.policies, &context.snapshot.admission);
    let (subjects, rules) = match kind {
        ListedKind::AuthorizationPolicy => {
            let mut own = policies.for_cluster(cluster).authorization_policies();
            let policy = own.find(|policy| policy.name == name)?;
            (sentences::subjects(policy), sentences::policy_rules(policy))
        }
        ListedKind::ValidatingAdmissionPolicy => {
            let set = admission.for_cluster(cluster);
            let validations = set.validations(name).iter().map(sentences::validation);
            (
                applies_to(set, CauseKind::ValidatingAdmissionPolicy, name),
                validations.collect(),
            )
        }
        ListedKind::MutatingAdmissionPolicy => {
            let set = admission.for_cluster(cluster);
            (
                applies_to(set, CauseKind::MutatingAdmissionPolicy, name),
                Vec::new(),
            )
        }
        ListedKind::AdmissionException => {
            let mut all = admission.for_cluster(cluster).exceptions().iter();
            let exception = all.find(|exception| exception.name == name);
            let about = exception.map(|exception| sentences::constraints(&exception.constraints));
            (about.unwrap_or_default(), Vec::new())
        }
        ListedKind::AccessRequest => (String::new(), Vec::new()),
    };
    Some(DecidingObject {
        about: row.about,
        counts: row.counts,
        subjects,
        rules,
    })
}

/// A description of the objects to which a bound admission policy applies.
fn applies_to(set: &AdmissionSet, kind: CauseKind, name: &str) -> String {
    let constraints = set.constraints(kind, name, None);
    constraints.map(sentences::constraints).unwrap_or_default()
}

// === impl PolicyView ===

impl<'a> PolicyView<'a> {
    fn new(
        (kind, namespace, name): (&'a str, &'a str, &'a str),
        object: DecidingObject,
        used: ObjectUse,
        context: &ViewContext<'_>,
        cluster: &str,
    ) -> Self {
        let (last_sequence, last_time) = used.last.unzip();
        Self {
            kind,
            namespace,
            name,
            about: object.about,
            counts: object.counts,
            recent: used.decided,
            recent_denials: used.denied,
            last_sequence,
            last_time,
            subjects: object.subjects,
            rules: rules(object.rules, &used.rules),
            usage: UsageView::new(context, cluster, (kind, namespace, name)),
            texts: texts(context, cluster, (kind, namespace, name)),
        }
    }
}

// === impl UsageView ===

impl UsageView {
    /// Reads the usage of an object; `None` if usage is not configured.
    fn new(
        context: &ViewContext<'_>,
        cluster: &str,
        (kind, namespace, name): ShownObject<'_>,
    ) -> Option<Self> {
        let folder = &context.snapshot.config.usage.as_ref()?.folder;
        let key = UsedObjectKey {
            cluster,
            kind,
            namespace,
            name,
        };
        let is_over = || Instant::now() >= context.deadline;
        let usage = match ObjectUsage::read(folder, key, &is_over) {
            Ok(usage) => usage,
            Err(error) => {
                return Some(Self {
                    error: error.to_string(),
                    ..Self::default()
                });
            }
        };
        let users = usage.by_user.into_iter().map(|(user, weight)| UserUse {
            user,
            decided: weight.count,
            first: weight.first,
            last: weight.last,
        });
        let mut users: Vec<UserUse> = users.collect();
        users.sort_by_key(|user| std::cmp::Reverse(user.decided));
        let more_users = users.len().saturating_sub(MAX_USERS);
        users.truncate(MAX_USERS);
        Some(Self {
            since: usage.since.unwrap_or_default(),
            error: String::new(),
            decided: usage.total.map_or(0, |total| total.count),
            users,
            more_users,
        })
    }
}

/// The `known` rules, and others that caused decisions.
fn rules(known: Vec<String>, used: &BTreeMap<usize, u64>) -> Vec<RuleUse> {
    let others = used.keys().copied().filter(|rule| *rule >= known.len());
    let others: Vec<usize> = others.collect();
    let known = known.into_iter().enumerate();
    let rule = |(rule, sentence)| RuleUse {
        rule,
        sentence,
        decided: used.get(&rule).copied().unwrap_or_default(),
    };
    let unknown = others.into_iter().map(|rule| (rule, String::new()));
    known.chain(unknown).map(rule).collect()
}

/// The manifests of the object, and of the bindings of a policy or the role of a binding. Watched
/// objects are only included if they are in no file.
fn texts(
    context: &ViewContext<'_>,
    cluster: &str,
    (kind, namespace, name): (&str, &str, &str),
) -> Vec<ObjectText> {
    let binding_kind = format!("{kind}Binding");
    let policies = context.snapshot.documents_of_policies();
    let names_it = |spec: Option<&str>| spec == Some(name);
    let is_wanted = |object: &ValidatedObject, policy_name: &dyn Fn() -> bool| {
        let identity = object.identity();
        let is_it = identity.kind() == kind && identity.name() == name;
        is_it || (identity.kind() == binding_kind && policy_name())
    };
    let policies = policies.filter(|(object, document)| {
        let spec = || document.root().get("spec");
        is_wanted(object, &|| {
            names_it(spec().and_then(|spec| spec.get("policyName")?.as_str()))
        })
    });
    let bound = binding_and_role(context.snapshot, cluster, (kind, namespace, name));
    let of_files = bound
        .iter()
        .flat_map(|(kind, namespace, name)| context.snapshot.documents_of_rbac(kind, namespace, name));
    let mut texts: Vec<ObjectText> = policies
        .chain(of_files)
        .filter(|(object, _)| object.cluster().is_none_or(|of| of == cluster))
        .map(|(object, document)| {
            let place = document.place(FieldPath::root());
            ObjectText {
                object: object.identity().to_string(),
                place: format!("{}:{}", place.file.as_deref().unwrap_or_default(), place.line),
                text: as_written(&document)
                    .unwrap_or_else(|| document::to_yaml(&without_last_applied(document.root().to_json()))),
            }
        })
        .collect();
    let watched = context.snapshot.watched_texts(cluster).filter(|(object, text)| {
        let identity = object.identity();
        let its_name = (identity.kind(), identity.namespace(), identity.name());
        match identity.group() == groups::RBAC {
            true => bound
                .iter()
                .any(|(kind, namespace, name)| its_name == (kind, namespace, name)),
            false => is_wanted(object, &|| {
                names_it(text.to_json().pointer("/spec/policyName").and_then(Value::as_str))
            }),
        }
    });
    for (object, text) in watched {
        let object = object.identity().to_string();
        if texts.iter().all(|known| known.object != object) {
            texts.push(ObjectText {
                object,
                place: format!("cluster {cluster}"),
                text: document::to_yaml(&without_last_applied(text.to_json())),
            });
        }
    }
    texts
}

/// The part of the file with the object, including comments, if it still matches the object in
/// force.
fn as_written(document: &Document) -> Option<String> {
    let object = document.root().to_json();
    if object
        .pointer("/metadata/annotations")
        .is_some_and(|all| all.get(LAST_APPLIED).is_some())
    {
        return None;
    }
    let place = document.place(FieldPath::root());
    let text = read_manifest(Path::new(place.file.as_deref()?)).ok()?;
    let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let is_separator = |line: &&str| line.starts_with("---");
    let lines: Vec<&str> = text.lines().collect();
    let start = lines
        .get(..line)?
        .iter()
        .rposition(is_separator)
        .map_or(0, |at| at + 1);
    let rest = lines.get(line..)?;
    let length = rest.iter().position(is_separator).unwrap_or(rest.len());
    let written = lines.get(start..line + length)?.join("\n");
    let read = document::parse(None, &written).ok()?;
    let [same] = read.as_slice() else { return None };
    (same.root().to_json() == object).then(|| format!("{}\n", written.trim_matches('\n')))
}

/// Removes the copy of the object that kubectl keeps in an annotation, which may be out of date.
fn without_last_applied(mut object: Value) -> Value {
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    object
}

/// The maximum number of subjects in a description.
const MAX_SUBJECTS: usize = 20;

/// A kind, namespace and name.
type ShownObject<'k> = (&'k str, &'k str, &'k str);

/// Descriptions of the object and of its rules; `None` if it is not in force for `cluster`.
pub(crate) fn describe(
    snapshot: &Snapshot,
    cluster: &str,
    (kind, namespace, name): ShownObject<'_>,
) -> Option<(String, Vec<String>)> {
    let phase = match kind {
        "RoleBinding" | "ClusterRoleBinding" => {
            let set = snapshot.policies.for_cluster(cluster);
            let binding = binding(set, (kind, namespace, name))?;
            let rules = role(set, binding).map(|role| role.rules.iter().map(sentences::role_rule).collect());
            return Some((of_binding(binding), rules.unwrap_or_default()));
        }
        "MutatingWebhookConfiguration" => Phase::Mutate,
        "ValidatingWebhookConfiguration" | "ExternalAdmissionHookConfiguration" => Phase::Validate,
        _ => return None,
    };
    let webhooks = snapshot.admission.for_cluster(cluster).webhooks(phase);
    let own: Vec<_> = webhooks
        .filter(|webhook| namespace.is_empty() && webhook.configuration == name)
        .collect();
    let names: Vec<&str> = own.iter().map(|webhook| webhook.name.as_str()).collect();
    let rule = |webhook: &&Arc<Webhook>| {
        format!(
            "{}: {}",
            webhook.name,
            sentences::constraints(&webhook.constraints)
        )
    };
    (!own.is_empty()).then(|| {
        (
            format!("configures the webhooks {}", names.join(", ")),
            own.iter().map(rule).collect(),
        )
    })
}

/// The identities of a binding and its role.
fn binding_and_role(
    snapshot: &Snapshot,
    cluster: &str,
    (kind, namespace, name): ShownObject<'_>,
) -> Vec<(String, String, String)> {
    let set = snapshot.policies.for_cluster(cluster);
    let Some(binding) = binding(set, (kind, namespace, name)) else {
        return Vec::new();
    };
    let (role_kind, role_name) = (binding.role.kind, binding.role.name.as_str());
    let role_namespace = role_namespace(binding);
    vec![
        (kind.to_owned(), namespace.to_owned(), name.to_owned()),
        (
            role_kind.to_string(),
            role_namespace.to_owned(),
            role_name.to_owned(),
        ),
    ]
}

fn binding<'s>(set: &'s PolicySet, (kind, namespace, name): ShownObject<'_>) -> Option<&'s Binding> {
    let is_kind = match kind {
        "RoleBinding" => !namespace.is_empty(),
        "ClusterRoleBinding" => namespace.is_empty(),
        _ => false,
    };
    let mut bindings = set.bindings().filter(|_| is_kind);
    bindings.find(|binding| binding.namespace == namespace && binding.name == name)
}

fn role<'s>(set: &'s PolicySet, binding: &Binding) -> Option<&'s Role> {
    let namespace = role_namespace(binding);
    let mut roles = set.roles().iter();
    let found = roles.find(|role| role.namespace == namespace && role.name == binding.role.name);
    found.map(|role| &**role)
}

fn role_namespace(binding: &Binding) -> &str {
    match binding.role.kind {
        RoleKind::ClusterRole => "",
        RoleKind::Role => &binding.namespace,
    }
}

fn of_binding(binding: &Binding) -> String {
    let subject = |subject: &portcullis_policy::authorization::Subject| {
        let namespace = if subject.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", subject.namespace)
        };
        format!("{} {namespace}{}", subject.kind, subject.name)
    };
    let subjects: Vec<String> = binding.subjects.iter().take(MAX_SUBJECTS).map(subject).collect();
    let more = match binding.subjects.len().saturating_sub(MAX_SUBJECTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "gives {} {} to {}{more}",
        binding.role.kind,
        binding.role.name,
        subjects.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_decided_nothing_are_shown_where_they_are_known() {
        let used = [(1, 5), (3, 1)].into();
        let shown = |known: usize| -> Vec<(usize, u64)> {
            rules(vec![String::new(); known], &used)
                .iter()
                .map(|rule| (rule.rule, rule.decided))
                .collect()
        };
        assert_eq!(shown(0), [(1, 5), (3, 1)]);
        assert_eq!(shown(3), [(0, 0), (1, 5), (2, 0), (3, 1)]);
    }
}
