//! Which kind an object is after a patch.

use crate::engine::admission::GroupVersionKind;
use crate::engine::admission::matching::is_own_group;
use portcullis_cel::json::{Kind, Node};

/// Checks that `after`, of `kind` before a patch, can be read as an object.
///
/// One of Kubernetes' own kinds stays of that kind and version, and need not say it. A custom
/// resource says some kind: whether it is the right one, the API server finds when it stores it.
///
/// # Errors
///
/// With what an API server ends such a request: no failure policy is asked.
pub fn check_type_meta(kind: &GroupVersionKind<'_>, after: Node<'_>) -> Result<(), String> {
    if after.kind() != Kind::Object {
        return Err("the object after the patch is no object".to_owned());
    }
    let version = match kind.group.as_ref() {
        "" => kind.version.to_string(),
        group => format!("{group}/{}", kind.version),
    };
    let is_own = is_own_group(&kind.group);
    for (field, own) in [("apiVersion", version.as_str()), ("kind", kind.kind.as_ref())] {
        let written = after.get(field).filter(|value| !value.is_null());
        if written.is_some_and(|value| value.kind() != Kind::String) {
            return Err(format!("couldn't get version/kind: {field} is no string"));
        }
        match written.and_then(Node::as_str).unwrap_or_default().as_ref() {
            text if text == own => {}
            "" if is_own || field == "apiVersion" => {}
            "" => return Err("Object 'Kind' is missing".to_owned()),
            other if is_own => {
                return Err(format!(
                    "the patch makes {field} {other:?} of {own:?}: unknown conversion"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}
