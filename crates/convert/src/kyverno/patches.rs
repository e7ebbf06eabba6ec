//! What JSON patches put where.

use portcullis_cel::PatchPath;
use portcullis_policy::engine::admission::GroupVersionKind;
use portcullis_policy::engine::admission::apply::Schemas;

/// A key that no struct has.
const ANY_KEY: &str = "*";

/// Whether objects of a built-in `kind` have what `path` names; what is not known of it may be any
/// key.
pub(crate) fn may_have(kind: &GroupVersionKind<'_>, path: &PatchPath) -> bool {
    let mut steps = steps(path);
    if !path.is_whole {
        steps.pop();
        steps.push(ANY_KEY.to_owned());
    }
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    matches!(Schemas::builtin().is_atomic(kind, &steps), Ok(Some(_)))
}

/// Whether objects of every kind do: what is in their metadata.
pub(crate) fn may_all_have(path: &PatchPath) -> bool {
    let kind = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    path.text.starts_with("/metadata/") && may_have(&kind, path)
}

/// The names of fields and keys; places in lists are left out.
fn steps(path: &PatchPath) -> Vec<String> {
    let is_place =
        |step: &&str| *step == "-" || !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    let steps = path.text.split('/').skip(1).filter(|step| !is_place(step));
    steps
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect()
}
