//! What became of the objects in files from one set in force to another, as they are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::snapshot::{Base, Snapshot};
use portcullis_policy::document;
use portcullis_policy::engine::groups::RBAC;
use portcullis_policy::manifest::{ObjectSet, ValidatedObject};

/// The most objects of one change that are kept, and bytes of the text of each.
const MAX_OBJECTS: usize = 200;
const MAX_TEXT_BYTES: usize = 16 << 10;

/// What stands for an object whose text is not kept.
const WITHHELD: &str = "# not shown: parameters may hold secrets\n";
const TOO_LONG: &str = "# the rest is not shown\n";

/// The objects in files that are in force at one moment.
#[derive(Clone)]
pub struct FileObjects(Arc<Base>);

/// One object, and the only cluster that it holds for, if any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedObject {
    /// `Kind/name` or `Kind/namespace/name`.
    pub object: String,
    /// `None`: every cluster.
    pub cluster: Option<String>,
}

/// What an object said, and says; both as YAML, `None` where it was or is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectChange {
    /// What it said before.
    pub before: Option<String>,
    /// What it says.
    pub after: Option<String>,
}

/// The objects that a change concerns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectChanges {
    /// Each that says something else than before.
    pub objects: BTreeMap<ChangedObject, ObjectChange>,
    /// How many more there are.
    pub left_out: usize,
}

impl Snapshot {
    /// The objects in files, to compare with those of another snapshot.
    #[must_use]
    pub fn file_objects(&self) -> FileObjects {
        FileObjects(Arc::clone(&self.base))
    }
}

// === impl FileObjects ===

impl FileObjects {
    /// What became different from `earlier` to this: of very many objects the first by name.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> ObjectChanges {
        if Arc::ptr_eq(&self.0, &earlier.0) {
            return ObjectChanges::default();
        }
        let (now, before) = (&self.0.objects, &earlier.0.objects);
        let difference = now.since(before);
        let mut changes = ObjectChanges::default();
        let mut objects: BTreeMap<ChangedObject, ObjectChange> = BTreeMap::new();
        for (set, added, is_after) in [(before, difference.removed, false), (now, difference.added, true)] {
            let (first, left_out) = first_by_name(added);
            changes.left_out = changes.left_out.max(left_out);
            for (key, text) in texts(set, &first) {
                let change = objects.entry(key).or_insert(ObjectChange {
                    before: None,
                    after: None,
                });
                let side = if is_after {
                    &mut change.after
                } else {
                    &mut change.before
                };
                *side = Some(text);
            }
        }
        // One that stands in another file, or was written otherwise, says the same.
        objects.retain(|_, change| change.before != change.after || change.is_withheld());
        changes.objects = objects;
        changes
    }
}

fn first_by_name(mut objects: Vec<&Arc<ValidatedObject>>) -> (Vec<&Arc<ValidatedObject>>, usize) {
    objects.sort_by(|one, other| one.identity().cmp(other.identity()));
    let left_out = objects.len().saturating_sub(MAX_OBJECTS);
    objects.truncate(MAX_OBJECTS);
    (objects, left_out)
}

fn texts<'s>(
    set: &'s ObjectSet,
    wanted: &'s [&'s Arc<ValidatedObject>],
) -> impl Iterator<Item = (ChangedObject, String)> + 's {
    set.documents_among(wanted).map(|(object, document)| {
        let key = ChangedObject {
            object: object.identity().to_string(),
            cluster: object.cluster().map(str::to_owned),
        };
        let text = match is_shown(object) {
            true => cut(document::to_yaml(&document.root().to_json())),
            false => WITHHELD.to_owned(),
        };
        (key, text)
    })
}

/// Parameters, which may be Secrets, are not.
fn is_shown(object: &ValidatedObject) -> bool {
    let identity = object.identity();
    object.has_expressions() || identity.group() == RBAC || identity.kind() == "Namespace"
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        let end = text.get(..MAX_TEXT_BYTES).and_then(|start| start.rfind('\n'));
        text.truncate(end.map_or(0, |end| end + 1));
        text.push_str(TOO_LONG);
    }
    text
}

// === impl ObjectChange ===

impl ObjectChange {
    /// Whether it is only known that the object changed.
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        [&self.before, &self.after]
            .into_iter()
            .flatten()
            .any(|text| text == WITHHELD)
    }
}
