//! The changes of the objects in files and in watched clusters between two snapshots, as YAML.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::snapshot::{LoadedManifests, Snapshot};
use super::watched::WatchedObjects;
use portcullis_policy::document;
use portcullis_policy::manifest::{ObjectIdentity, ObjectSet, SetDifference, ValidatedObject};
use portcullis_policy::model::groups;

/// The maximum number of objects of a change that are kept, and of bytes of each as YAML.
const MAX_OBJECTS: usize = 200;
const MAX_TEXT_BYTES: usize = 16 << 10;

/// What replaces the content of an object that is not shown.
const HIDDEN_TEXT: &str = "# not shown: parameters may hold secrets\n";
const TOO_LONG: &str = "# the rest is not shown\n";

/// The objects in force at one moment, with their contents.
#[derive(Clone)]
pub struct WrittenObjects {
    files: Arc<LoadedManifests>,
    watched: Vec<Arc<WatchedObjects>>,
}

/// An object, and the only cluster that it is for, if any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedObjectKey {
    /// `Kind/name` or `Kind/namespace/name`.
    pub object: String,
    /// The only cluster that it is for; `None` if it is for all.
    pub cluster: Option<String>,
}

/// The content of an object before and after, as YAML; `None` if it did not or does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectChange {
    /// The content before.
    pub before: Option<String>,
    /// The content after.
    pub after: Option<String>,
}

/// The objects that changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectChanges {
    /// The changed objects.
    pub objects: BTreeMap<ChangedObjectKey, ObjectChange>,
    /// The number of further objects, by the only cluster that they are for.
    pub left_out: BTreeMap<Option<String>, usize>,
}

impl Snapshot {
    /// The objects, to be compared with those of another snapshot.
    #[must_use]
    pub fn written_objects(&self) -> WrittenObjects {
        WrittenObjects {
            files: Arc::clone(&self.manifests),
            watched: self.index_inputs.watched.clone(),
        }
    }
}

// === impl WrittenObjects ===

impl WrittenObjects {
    /// The changes from `earlier` to this. If there are too many, the first by name are kept, and
    /// equally many of each cluster.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> ObjectChanges {
        let (now, before) = (&self.files.objects, &earlier.files.objects);
        let mut difference = match Arc::ptr_eq(&self.files, &earlier.files) {
            true => SetDifference {
                added: Vec::new(),
                removed: Vec::new(),
            },
            false => now.since(before),
        };
        let watched = self.watched_since(earlier);
        for (now, before) in &watched {
            let (come, gone) = now.difference(before);
            difference.added.extend(come);
            difference.removed.extend(gone);
        }
        let left_out = keep_first_of_each_cluster(&mut difference);
        let mut objects: BTreeMap<ChangedObjectKey, ObjectChange> = BTreeMap::new();
        for (key, text) in texts(before, &difference.removed, now) {
            objects.entry(key).or_default().before = Some(text);
        }
        for (key, text) in texts(now, &difference.added, before) {
            objects.entry(key).or_default().after = Some(text);
        }
        for (now, before) in &watched {
            let mut gone = watched_values(before, &difference.removed);
            let mut come = watched_values(now, &difference.added);
            // An object that was decoded again may have the same content.
            come.retain(|key, said| {
                gone.get(key).is_none_or(|before| before.1 != said.1) || gone.remove(key).is_none()
            });
            for (key, (object, said)) in gone {
                objects.entry(key).or_default().before = Some(text(object, || said));
            }
            for (key, (object, said)) in come {
                objects.entry(key).or_default().after = Some(text(object, || said));
            }
        }
        // An object that was moved to another file, or formatted differently, has the same content.
        objects.retain(|_, change| change.before != change.after || change.is_not_shown());
        ObjectChanges { objects, left_out }
    }

    /// The watched clusters that differ from those in `earlier`, now and then. A cluster that was
    /// or is unknown is left out, because its appearance or disappearance is not a change.
    fn watched_since<'o>(&'o self, earlier: &'o Self) -> Vec<(&'o WatchedObjects, &'o WatchedObjects)> {
        let earlier: HashMap<&str, &'o Arc<WatchedObjects>> = earlier
            .watched
            .iter()
            .map(|watched| (watched.cluster.as_str(), watched))
            .collect();
        let changed = self.watched.iter().filter_map(|now| {
            let before = *earlier.get(now.cluster.as_str())?;
            let is_known = [now, before].iter().all(|side| side.unsynced.is_none());
            (is_known && !Arc::ptr_eq(now, before)).then_some((&**now, &**before))
        });
        changed.collect()
    }
}

/// The cluster and identity of an object.
type ObjectKey = (Option<String>, ObjectIdentity);

/// Keeps the first objects by name of each cluster on each side, with their counterparts on the
/// other side. Returns how many of each cluster are left out.
fn keep_first_of_each_cluster(difference: &mut SetDifference<'_>) -> BTreeMap<Option<String>, usize> {
    let key = |object: &Arc<ValidatedObject>| -> ObjectKey {
        (object.cluster().map(str::to_owned), object.identity().clone())
    };
    let keys = |objects: &[&Arc<ValidatedObject>]| -> BTreeSet<ObjectKey> {
        objects.iter().map(|object| key(object)).collect()
    };
    let (removed, added) = (keys(&difference.removed), keys(&difference.added));
    let mut kept = first_of_each_cluster(&removed);
    kept.extend(first_of_each_cluster(&added));
    let mut left_out = BTreeMap::new();
    for (cluster, _) in removed.union(&added).filter(|key| !kept.contains(key)) {
        *left_out.entry(cluster.clone()).or_default() += 1;
    }
    for side in [&mut difference.removed, &mut difference.added] {
        side.retain(|object| kept.contains(&key(object)));
    }
    left_out
}

/// At most [`MAX_OBJECTS`] keys: the first of each cluster, then the second of each, and so on.
fn first_of_each_cluster(keys: &BTreeSet<ObjectKey>) -> BTreeSet<ObjectKey> {
    let mut places: BTreeMap<&Option<String>, usize> = BTreeMap::new();
    let mut by_place: Vec<(usize, &ObjectKey)> = keys
        .iter()
        .map(|key| {
            let place = places.entry(&key.0).or_default();
            *place += 1;
            (*place, key)
        })
        .collect();
    by_place.sort_by_key(|(place, _)| *place);
    let first = by_place.into_iter().take(MAX_OBJECTS);
    first.map(|(_, key)| key.clone()).collect()
}

fn texts(
    set: &ObjectSet,
    wanted: &[&Arc<ValidatedObject>],
    other: &ObjectSet,
) -> impl Iterator<Item = (ChangedObjectKey, String)> {
    set.documents_among(wanted, other).map(|(object, document)| {
        let key = ChangedObjectKey::from(&**object);
        (key, text(object, || document.root().to_json()))
    })
}

/// The contents of the `wanted` objects that are watched here.
fn watched_values<'o>(
    watched: &'o WatchedObjects,
    wanted: &[&Arc<ValidatedObject>],
) -> BTreeMap<ChangedObjectKey, (&'o ValidatedObject, Value)> {
    let wanted: HashSet<_> = wanted.iter().map(|object| Arc::as_ptr(object)).collect();
    let written = watched
        .parts
        .iter()
        .flat_map(|part| part.objects.iter().zip(&part.texts));
    written
        .filter(|(object, _)| wanted.contains(&Arc::as_ptr(object)))
        .map(|(object, written)| (ChangedObjectKey::from(&**object), (&**object, written.to_json())))
        .collect()
}

fn text(object: &ValidatedObject, written: impl FnOnce() -> Value) -> String {
    match is_shown(object) {
        true => cut(document::to_yaml(&written())),
        false => HIDDEN_TEXT.to_owned(),
    }
}

/// Whether the content may be shown. That of parameters, which may be Secrets, may not.
fn is_shown(object: &ValidatedObject) -> bool {
    let identity = object.identity();
    let is_policy = [groups::RBAC, groups::ADMISSION, groups::PORTCULLIS].contains(&identity.group());
    object.has_expressions() || is_policy || identity.kind() == "Namespace"
}

// === impl ChangedObjectKey ===

impl From<&ValidatedObject> for ChangedObjectKey {
    fn from(object: &ValidatedObject) -> Self {
        Self {
            object: object.identity().to_string(),
            cluster: object.cluster().map(str::to_owned),
        }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        let end = text.get(..MAX_TEXT_BYTES).and_then(|start| start.rfind('\n'));
        text.truncate(end.map_or(0, |end| end + 1));
        text.push_str(TOO_LONG);
    }
    text
}

// === impl ObjectChanges ===

impl ObjectChanges {
    /// The clusters whose objects changed, with the bytes that these take here; `None` stands for
    /// all clusters.
    pub(crate) fn bytes_by_cluster(&self) -> BTreeMap<Option<String>, usize> {
        let left_out = self.left_out.keys().map(|cluster| (cluster.clone(), 0));
        let mut bytes: BTreeMap<_, _> = left_out.collect();
        for (object, change) in &self.objects {
            let texts = [
                Some(&object.object),
                change.before.as_ref(),
                change.after.as_ref(),
            ];
            let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
            *bytes.entry(object.cluster.clone()).or_default() += texts + size_of::<ObjectChange>();
        }
        bytes
    }

    /// Removes the objects of `cluster`. Returns their number, including those that were left out
    /// before.
    pub(crate) fn leave_out(&mut self, cluster: &Option<String>) -> usize {
        let before = self.objects.len();
        self.objects.retain(|object, _| object.cluster != *cluster);
        let left_out = self.left_out.remove(cluster).unwrap_or_default();
        left_out + (before - self.objects.len())
    }
}

// === impl ObjectChange ===

impl ObjectChange {
    /// Whether only the fact that the object changed is known.
    #[must_use]
    pub fn is_not_shown(&self) -> bool {
        [&self.before, &self.after]
            .into_iter()
            .flatten()
            .any(|text| text == HIDDEN_TEXT)
    }
}
