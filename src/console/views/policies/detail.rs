//! `/policies/KIND/NAMESPACE/NAME`: an object that decides, as it is written, and what it decided.

use std::collections::BTreeMap;

use askama::Template;
use serde::Serialize;
use serde_json::Value;

use super::list::{ListedKind, PolicyList, RowCounts};
use super::others;
use super::recent::{ObjectUse, RecentUse};
use crate::console::context::{ViewContext, ViewRequest};
use crate::console::frame::PageFrame;
use crate::console::page::{Page, ViewError};
use crate::console::views::cluster::ClusterChoice;
use portcullis_policy::document;
use portcullis_policy::field::FieldPath;

/// The annotation in which `kubectl apply` keeps the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What stands for no namespace in the path.
const NO_NAMESPACE: &str = "-";

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage<'a> {
    frame: PageFrame,
    view: &'a PolicyView<'a>,
    clusters: &'a ClusterChoice,
}

/// One policy with the bindings that name it, or another object that decides.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyView<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    /// What it does, in words.
    about: String,
    /// Counted since the start, of a policy.
    counts: Option<RowCounts>,
    /// How many of the recent decisions it decided.
    recent: u64,
    /// How many of these were denials.
    recent_denials: u64,
    /// The number of the last of them, or of one that it would have decided in Shadow.
    last_sequence: Option<u64>,
    last_time: Option<String>,
    /// How many recent decisions each rule decided, those that decided none too where it is
    /// known how many rules there are.
    rules: Vec<RuleUse>,
    /// The object and those that belong to it as they are written, as far as files have them.
    texts: Vec<ObjectText>,
}

/// A rule or validation, and how many recent decisions it decided.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RuleUse {
    rule: usize,
    decided: u64,
}

/// An object as it is written.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ObjectText {
    object: String,
    /// File and line.
    place: String,
    /// In YAML, without comments.
    text: String,
}

/// What is known of an object that decides.
struct DecidingObject {
    about: String,
    counts: Option<RowCounts>,
    /// How many rules it has, where that is known.
    rules: usize,
}

/// Shows the object of `kind`, `namespace` and `name`.
pub(crate) fn view(
    context: &ViewContext<'_>,
    request: &ViewRequest,
    (kind, namespace, name): (&str, &str, &str),
) -> Result<Page, ViewError> {
    request.query.only(&["cluster"])?;
    let clusters = ClusterChoice::new(context, &request.query)?;
    let cluster = clusters.chosen.as_str();
    let namespace = if namespace == NO_NAMESPACE { "" } else { namespace };
    let recent = RecentUse::new(context, cluster);
    let found = match ListedKind::parse(kind) {
        Ok(kind) if namespace.is_empty() => listed(context, cluster, &recent, (kind, name)),
        Ok(_) => None,
        Err(_) => others::about(context.snapshot, cluster, (kind, namespace, name)).map(|(about, rules)| {
            DecidingObject {
                about,
                counts: None,
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
    let rules = match kind {
        ListedKind::AuthorizationPolicy => {
            let mut own = policies.for_cluster(cluster).authorization_policies();
            let policy = own.find(|policy| policy.name == name)?;
            policy.resource_rules.len() + policy.non_resource_rules.len()
        }
        ListedKind::ValidatingAdmissionPolicy => admission.for_cluster(cluster).validations(name),
        ListedKind::MutatingAdmissionPolicy | ListedKind::AdmissionException => 0,
    };
    Some(DecidingObject {
        about: row.about,
        counts: row.counts,
        rules,
    })
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
            rules: rules(object.rules, &used.rules),
            texts: texts(context, cluster, (kind, namespace, name)),
        }
    }
}

/// Each of the `known` rules, and others that decided something.
fn rules(known: usize, used: &BTreeMap<usize, u64>) -> Vec<RuleUse> {
    let others = used.keys().copied().filter(|rule| *rule >= known);
    let rule = |rule| RuleUse {
        rule,
        decided: used.get(&rule).copied().unwrap_or_default(),
    };
    (0..known).chain(others).map(rule).collect()
}

/// The object, and the bindings that name it or the role that it binds, as far as files have them.
fn texts(
    context: &ViewContext<'_>,
    cluster: &str,
    (kind, namespace, name): (&str, &str, &str),
) -> Vec<ObjectText> {
    let binding_kind = format!("{kind}Binding");
    let policies = context.snapshot.documents_of_policies();
    let wanted = policies.filter(|(object, document)| {
        let identity = object.identity();
        let names = || {
            let spec = document.root().get("spec");
            spec.and_then(|spec| spec.get("policyName")?.as_str()) == Some(name)
        };
        let is_it = identity.kind() == kind && identity.name() == name;
        is_it || (identity.kind() == binding_kind && names())
    });
    let policies = wanted.map(|(object, document)| (object, document.clone()));
    let bound = others::with_role(context.snapshot, cluster, (kind, namespace, name));
    let bound = bound
        .iter()
        .flat_map(|(kind, namespace, name)| context.snapshot.documents_of_rbac(kind, namespace, name));
    policies
        .chain(bound)
        .filter(|(object, _)| object.cluster().is_none_or(|of| of == cluster))
        .map(|(object, document)| {
            let place = document.place(FieldPath::root());
            ObjectText {
                object: object.identity().to_string(),
                place: format!("{}:{}", place.file.as_deref().unwrap_or_default(), place.line),
                text: document::to_yaml(&shown(document.root().to_json())),
            }
        })
        .collect()
}

/// An object without the copy of it that kubectl leaves in an annotation, and that may be an older
/// one.
fn shown(mut object: Value) -> Value {
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_decided_nothing_are_shown_where_they_are_known() {
        let used = [(1, 5), (3, 1)].into();
        let shown = |known| -> Vec<(usize, u64)> {
            rules(known, &used)
                .iter()
                .map(|rule| (rule.rule, rule.decided))
                .collect()
        };
        assert_eq!(shown(0), [(1, 5), (3, 1)]);
        assert_eq!(shown(3), [(0, 0), (1, 5), (2, 0), (3, 1)]);
    }
}
