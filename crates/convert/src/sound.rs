//! Whether what was made loads: an API server would refuse what does not.

use super::conversion::Conversion;
use portcullis_policy::document::{self, Document};
use portcullis_policy::field::{FieldPath, PathSegment, Severity};
use portcullis_policy::manifest::{self, Options, Source};

/// The same, refused where the objects have a fault. `document` is what they come from, whose
/// fields have the same paths, or else the fault is told of the object as a whole.
pub(crate) fn checked(document: &Document, mut made: Conversion) -> Conversion {
    if made.objects.is_empty() {
        return made.whole();
    }
    let sources: Vec<Source> = made
        .objects
        .iter()
        .map(|object| Source {
            file: String::new(),
            text: document::to_yaml(object),
            cluster: None,
        })
        .collect();
    let (_, faults) = manifest::load(&sources, &Options::default());
    for fault in faults.iter().filter(|fault| fault.severity == Severity::Error) {
        let path = rebased(&fault.place.path, made.base.as_ref());
        made.refuse(document, &path, reason(&fault.message));
    }
    made.whole()
}

/// What an API server would say, in fewer words where a name is missing.
fn reason(message: &str) -> String {
    let undeclared = message
        .split_once("undeclared reference to '")
        .and_then(|(_, rest)| rest.split_once('\''));
    match undeclared {
        Some((name, _)) => format!("Kubernetes has no `{name}` for this expression"),
        None => format!("an API server would refuse it: {message}"),
    }
}

/// `spec.a` as `base.a`.
fn rebased(path: &FieldPath, base: Option<&FieldPath>) -> FieldPath {
    let Some(base) = base else {
        return path.clone();
    };
    let within = path.steps().iter().skip(1);
    within.fold(base.clone(), |path, step| match step {
        PathSegment::Field(name) => path.field(name),
        PathSegment::Key(key) => path.key(key),
        PathSegment::Index(index) => path.index(*index),
    })
}
