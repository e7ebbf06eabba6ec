//! `/policies/KIND/NAMESPACE/NAME`: one policy, as it is written, and what it decided.

use askama::Template;
use serde::Serialize;

use super::list::{ListedKind, ObjectPlaces, PolicyList, PolicyRow};
use crate::console::context::{ViewContext, ViewRequest};
use crate::console::frame::PageFrame;
use crate::console::page::{Page, ViewError};
use crate::console::views::cluster::ClusterChoice;
use crate::document;

/// What stands for no namespace in the path.
const NO_NAMESPACE: &str = "-";

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage<'a> {
    frame: PageFrame,
    view: &'a PolicyView,
    clusters: &'a ClusterChoice,
}

/// One policy, with the bindings that name it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyView {
    #[serde(flatten)]
    row: PolicyRow,
    /// The policy and its bindings as they are written; none that are in the cluster alone.
    texts: Vec<ObjectText>,
}

/// An object as it is written.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ObjectText {
    object: String,
    place: String,
    /// In YAML, without comments.
    text: String,
}

/// Shows the policy of `kind`, `namespace` and `name`.
pub(in crate::console::views) fn view(
    context: &ViewContext<'_>,
    request: &ViewRequest,
    (kind, namespace, name): (&str, &str, &str),
) -> Result<Page, ViewError> {
    request.query.only(&["cluster"])?;
    let clusters = ClusterChoice::new(context.snapshot, &request.query)?;
    let cluster = clusters.chosen.as_str();
    let none = || {
        let message = format!("there is no {kind} `{name}` in force for the cluster `{cluster}`");
        ViewError::NotFound(message)
    };
    let listed = ListedKind::parse(kind).map_err(|_| none())?;
    if namespace != NO_NAMESPACE {
        return Err(none());
    }
    let list = PolicyList::new(context, cluster).0;
    let row = list
        .into_iter()
        .find(|row| row.kind == listed && row.name == name)
        .ok_or_else(none)?;
    let view = PolicyView {
        texts: texts(context, cluster, (kind, name)),
        row,
    };
    let page = PolicyPage {
        frame: context.frame(format!("{kind} {name}"), request),
        view: &view,
        clusters: &clusters,
    };
    Page::of(request.representation, &view, &page)
}

/// The policy and the bindings that name it, as far as files have them.
fn texts(context: &ViewContext<'_>, cluster: &str, (kind, name): (&str, &str)) -> Vec<ObjectText> {
    let binding_kind = format!("{kind}Binding");
    let documents = context.snapshot.documents_of_policies();
    let wanted = documents.filter(|(object, document)| {
        let identity = object.identity();
        let names = || {
            let spec = document.root().get("spec");
            spec.and_then(|spec| spec.get("policyName")?.as_str()) == Some(name)
        };
        let is_it = identity.kind() == kind && identity.name() == name;
        let is_binding = identity.kind() == binding_kind && names();
        object.cluster().is_none_or(|of| of == cluster) && (is_it || is_binding)
    });
    let places = ObjectPlaces::new(context.snapshot, cluster);
    wanted
        .map(|(object, document)| ObjectText {
            object: object.identity().to_string(),
            place: places
                .of(object.identity().kind(), object.identity().name())
                .to_owned(),
            text: document::to_yaml(&document.root().to_json()),
        })
        .collect()
}
