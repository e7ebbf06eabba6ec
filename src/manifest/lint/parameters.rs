//! Warnings about objects that no policy uses.

use std::collections::HashSet;

use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::manifest::object::{Content, ManifestObject};

/// Warns of each parameter of a kind for which no admission policy asks by `paramKind`.
pub(super) fn lint(objects: &[ManifestObject], faults: &mut Faults) {
    let read: HashSet<_> = objects.iter().filter_map(param_kind).collect();
    for object in objects
        .iter()
        .filter(|object| matches!(object.content, Content::Parameter))
    {
        let (Some(api_version), Some(kind)) =
            (object.document.text("apiVersion"), object.document.text("kind"))
        else {
            continue;
        };
        if !read.contains(&(api_version, kind)) {
            let place = object.document.place(FieldPath::root().field("kind"));
            let message = format!(
                "no policy here uses `{kind}` of `{api_version}` as a parameter: move it out of the manifests"
            );
            faults.push(Fault::warning(place, FaultKind::Suspicious, message));
        }
    }
}

fn param_kind(object: &ManifestObject) -> Option<(&str, &str)> {
    let spec =
        matches!(object.content, Content::Admission(_)).then(|| object.document.root().get("spec"))??;
    let kind = spec.get("paramKind")?;
    Some((kind.get("apiVersion")?.as_str()?, kind.get("kind")?.as_str()?))
}
