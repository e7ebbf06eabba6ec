//! Labels of objects, for selectors.

use std::borrow::Cow;

use crate::engine::LabelSelector;
use portcullis_cel::json::{Kind, Node};

/// Whether `selector` selects the object that is to be or the one that is
/// (`apiserver/pkg/admission/plugin/webhook/predicates/object/matcher.go`).
///
/// The empty selector selects everything, objects that cannot bear labels too;
/// any other selects none of those.
#[must_use]
pub fn selects_object(
    selector: &LabelSelector,
    object: Option<Node<'_>>,
    old_object: Option<Node<'_>>,
) -> bool {
    selector.is_empty()
        || [object, old_object]
            .into_iter()
            .flatten()
            .any(|object| can_bear_labels(object) && selector.matches(|key| label(object, key)))
}

/// Whether the object is one that can have labels.
pub(crate) fn can_bear_labels(object: Node<'_>) -> bool {
    object
        .get("metadata")
        .is_some_and(|metadata| metadata.kind() == Kind::Object)
}

/// The value of the label `key`.
pub(crate) fn label<'o>(object: Node<'o>, key: &str) -> Option<Cow<'o, str>> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}
