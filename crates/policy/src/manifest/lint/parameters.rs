//! Warnings about objects that no policy uses.

use std::collections::HashSet;

use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::manifest::object::{Content, ManifestObject};

/// Warns of each parameter of a kind for which no admission policy asks by `paramKind`.
pub(crate) fn lint(objects: &[&ManifestObject], faults: &mut Faults) {
    let read: HashSet<_> = objects.iter().filter_map(|object| param_kind(object)).collect();
    for object in objects
        .iter()
        .filter(|object| matches!(object.content, Content::Parameter))
    {
        let document = object.document.get();
        let (Some(api_version), Some(kind)) = (document.text("apiVersion"), document.text("kind")) else {
            continue;
        };
        // Which versions a custom resource has matters without any policy that reads it.
        let is_definition = kind == "CustomResourceDefinition";
        if !is_definition && !read.contains(&(api_version.to_owned(), kind.to_owned())) {
            let place = object.document.place(FieldPath::root().field("kind"));
            let message = format!(
                "no policy here uses `{kind}` of `{api_version}` as a parameter: move it out of the manifests"
            );
            faults.push(Fault::warning(place, FaultKind::Suspicious, message));
        }
    }
}

fn param_kind(object: &ManifestObject) -> Option<(String, String)> {
    let document = matches!(object.content, Content::Admission(_)).then(|| object.document.get())?;
    let kind = document.root().get("spec")?.get("paramKind")?;
    let text = |field| kind.get(field)?.as_str().map(str::to_owned);
    Some((text("apiVersion")?, text("kind")?))
}
