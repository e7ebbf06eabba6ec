//! Reads the objects of one source, independently of all others: from text to documents to objects.
//! The default ClusterRoles of an API server are read in the same way.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use portcullis_cel::Version;

use super::lint::lockout::{lock_out, spec_hash};
use super::object;
use super::report::Compilation;
use super::source::{Source, each_document};
use super::validated::{Content, ManifestObject, ObjectIdentity, ValidatedObject, digest};
use crate::authorization::rbac::bootstrap_policy;
use crate::authorization::{NeverDeny, Role};
use crate::document;
use crate::document::{Document, DocumentSize, ParseLimits};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// The most values of one document of a source. If it is one object, and each value takes three bytes, that is as
/// many as an API server accepts; if it is a list, some 40,000 RoleBindings.
const MAX_VALUES: usize = 1 << 20;

/// The objects of one source, which do not depend on other sources. Policy sets that have the same source share
/// them.
pub struct SourceObjects {
    cluster: Option<Arc<str>>,
    /// The version of CEL that its expressions are compiled for.
    version: Version,
    /// In the order written.
    objects: Vec<ManifestObject>,
    /// The indexes of the objects that are not bindings.
    others: Vec<usize>,
    /// A digest of the identity of each.
    identities: Box<[u64]>,
    faults: Faults,
    /// An upper bound for the memory of the objects, in bytes.
    bytes: usize,
}

impl SourceObjects {
    /// Reads `source`, and compiles its expressions. `earlier` is the same source as it was read before: objects
    /// that have not changed are shared with it, and neither validated nor compiled again if it was read for the
    /// same version.
    ///
    /// Blocks while expressions are compiled, which the deadline of `compilation` bounds.
    #[must_use]
    pub fn read<'c>(
        source: &Source,
        compilation: impl Into<Compilation<'c>>,
        earlier: Option<&Self>,
    ) -> Self {
        Self::read_within(source, compilation, earlier, None)
    }

    /// Like [`read`](Self::read), within `limits`. The first object that exceeds them is an error,
    /// and reading stops.
    #[must_use]
    pub fn read_within<'c>(
        source: &Source,
        compilation: impl Into<Compilation<'c>>,
        earlier: Option<&Self>,
        limits: Option<SourceLimits<'_>>,
    ) -> Self {
        let compilation = compilation.into();
        let version = compilation.version;
        let cluster: Option<Arc<str>> = source.cluster.as_deref().map(Into::into);
        let known = earlier
            .filter(|earlier| earlier.cluster == cluster && earlier.version == version)
            .map(KnownObjects::new);
        let mut faults = Faults::new();
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let parse_limits = ParseLimits {
            max_values: MAX_VALUES,
            long_documents: limits.map(|limits| limits.long_documents),
        };
        let is_read = each_document(source, parse_limits, &mut faults, |document, faults| {
            let size = document.root().size();
            let object = match known.as_ref().and_then(|known| known.find(&document)) {
                Some(valid) => Some(ManifestObject::new(&document, valid)),
                None => object::read(document, cluster.clone(), compilation, faults),
            };
            let Some(object) = object else {
                return ControlFlow::Continue(());
            };
            let taken = kept_bytes(&object.content, size) + object.compiled_bytes();
            bytes += taken;
            if let Some(limits) = limits
                && !limits.memory.take(taken)
            {
                let place = object.document.place(FieldPath::root());
                faults.push(limits.memory.fault(place, cluster.as_deref()));
                objects = Vec::new();
                return ControlFlow::Break(());
            }
            objects.push(object);
            ControlFlow::Continue(())
        });
        if !is_read {
            objects = Vec::new();
        }
        Self {
            bytes,
            ..Self::of(cluster, version, objects, faults)
        }
    }

    /// Like [`read`](Self::read), but an object with errors is read without the invalid values, and
    /// its other errors and warnings go to `hidden`. The result must not decide requests.
    pub(crate) fn read_mended(source: &Source, version: Version, hidden: &mut Faults) -> Self {
        let cluster: Option<Arc<str>> = source.cluster.as_deref().map(Into::into);
        let mut objects = Vec::new();
        each_document(source, ParseLimits::NONE, &mut Faults::new(), |document, _| {
            objects.extend(read_mended(document, cluster.as_ref(), version, hidden));
            ControlFlow::Continue(())
        });
        Self::of(cluster, version, objects, Faults::new())
    }

    /// The source without objects, and with the error that those of `file` exceed `memory`.
    #[must_use]
    pub fn beyond(&self, memory: &MemoryBudget, file: &Path) -> Self {
        let mut faults = Faults::new();
        faults.push(memory.fault(Place::of_file(file), self.cluster()));
        Self::of(self.cluster.clone(), self.version, Vec::new(), faults)
    }

    fn of(cluster: Option<Arc<str>>, version: Version, objects: Vec<ManifestObject>, faults: Faults) -> Self {
        let is_other =
            |(_, object): &(usize, &ManifestObject)| !matches!(object.content, Content::Binding(_));
        Self {
            others: objects
                .iter()
                .enumerate()
                .filter(is_other)
                .map(|(place, _)| place)
                .collect(),
            identities: objects.iter().map(|object| object.identity().digest()).collect(),
            cluster,
            version,
            objects,
            faults,
            bytes: 0,
        }
    }

    /// The same source without the objects among `identities`.
    pub(crate) fn without(&self, identities: &HashSet<&ObjectIdentity>) -> Self {
        let kept = self
            .objects
            .iter()
            .filter(|object| !identities.contains(object.identity()));
        let kept = kept.cloned().collect();
        Self {
            bytes: self.bytes,
            ..Self::of(self.cluster.clone(), self.version, kept, self.faults.clone())
        }
    }

    /// The policies that are unconfirmed lock-outs, each with an error for the report. Users in
    /// `never_deny` cannot be locked out. A policy with the same spec in `earlier` is not one of
    /// them.
    #[must_use]
    pub fn lock_outs(&self, never_deny: &NeverDeny, earlier: &[&Self]) -> Vec<(ObjectIdentity, Fault)> {
        let refused = |object: &ManifestObject| {
            let Content::Policy(policy) = &object.content else {
                return None;
            };
            let unpacked = OnceCell::new();
            let document = || unpacked.get_or_init(|| object.document.unpack());
            let (path, message) = lock_out(policy, document, never_deny)?;
            let before = earlier.iter().find_map(|source| source.find(object.identity()));
            let is_same =
                |before: &ManifestObject| spec_hash(&before.document.unpack()) == spec_hash(document());
            if before.is_some_and(is_same) {
                return None;
            }
            let kept = if before.is_some() {
                "its last good version stays in force"
            } else {
                "it is not in force"
            };
            let message = format!("held back by `reload.refuse`, {kept}: {message}");
            let fault = Fault::error(document().place(path), FaultKind::Forbidden, message);
            Some((object.identity().clone(), fault))
        };
        self.others().filter_map(refused).collect()
    }

    /// The same source, in which each object in `held_back` is replaced by that in `earlier`, or
    /// left out if it is not there.
    #[must_use]
    pub fn holding_back(&self, held_back: &HashSet<&ObjectIdentity>, earlier: &[&Self]) -> Self {
        let last_good = |object: &ManifestObject| {
            if !held_back.contains(object.identity()) {
                return Some(object.clone());
            }
            earlier
                .iter()
                .find_map(|source| source.find(object.identity()))
                .cloned()
        };
        let objects = self.objects.iter().filter_map(last_good).collect();
        Self {
            bytes: self.bytes,
            ..Self::of(self.cluster.clone(), self.version, objects, self.faults.clone())
        }
    }

    fn find(&self, identity: &ObjectIdentity) -> Option<&ManifestObject> {
        let digest = identity.digest();
        let mut objects = self.identities.iter().zip(&self.objects);
        objects
            .find(|(own, object)| **own == digest && object.identity() == identity)
            .map(|(_, object)| object)
    }

    /// The objects as YAML, from which the same objects can be read again.
    #[must_use]
    pub fn to_text(&self) -> String {
        let yaml = |object: &ManifestObject| document::to_yaml(&object.document.unpack().root().to_json());
        let objects: Vec<String> = self.objects.iter().map(yaml).collect();
        objects.join("---\n")
    }

    /// The version of CEL that its expressions are compiled for.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The only cluster that its objects apply to; `None` for every cluster.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// An upper bound for the memory of its objects, in bytes, without what is shared with other sources.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The objects, in the order written.
    pub fn valid(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        self.objects.iter().map(|object| &object.valid)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &ManifestObject> {
        self.objects.iter()
    }

    /// The objects that are not bindings, each with its index among all.
    pub(crate) fn others_in_place(&self) -> impl Iterator<Item = (usize, &ManifestObject)> {
        self.others
            .iter()
            .filter_map(|&place| Some((place, self.objects.get(place)?)))
    }

    /// The objects that are not bindings.
    pub(crate) fn others(&self) -> impl Iterator<Item = &ManifestObject> {
        self.others_in_place().map(|(_, object)| object)
    }

    /// A digest of the identity of each object.
    pub(crate) fn identities(&self) -> &[u64] {
        &self.identities
    }

    /// The errors and warnings of the source.
    pub(crate) const fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// The most attempts to read an object without its invalid values.
const MAX_MENDINGS: usize = 4;

/// Reads the object without its invalid values, and with a placeholder where a value is missing, if
/// it is valid then. The other errors and warnings go to `hidden`.
fn read_mended(
    mut document: Document,
    cluster: Option<&Arc<str>>,
    version: Version,
    hidden: &mut Faults,
) -> Option<ManifestObject> {
    let mut mended: Vec<FieldPath> = Vec::new();
    for _ in 0..=MAX_MENDINGS {
        let mut found = Faults::new();
        let object = object::read(document.clone(), cluster.cloned(), version.into(), &mut found);
        if !mended.is_empty() {
            // A value may only be required because its alternative was left out.
            let is_about = |fault: &Fault| match fault.place.path.parent() {
                Some(parent) if fault.kind == FaultKind::Required => parent,
                _ => fault.place.path.clone(),
            };
            let is_new = |fault: &&Fault| {
                let about = is_about(fault);
                !mended
                    .iter()
                    .any(|path| path.is_related(&fault.place.path) || path.is_below(&about))
            };
            hidden.extend(found.iter().filter(is_new).cloned());
        }
        if object.is_some() {
            return object;
        }
        let mut is_changed = false;
        for fault in found {
            let path = fault.place.path;
            // If a required value is missing because it was left out, its parent is left out next.
            let is_filled_in = fault.kind == FaultKind::Required
                && !mended.iter().any(|one| one.is_related(&path))
                && document.fill_in(&path);
            is_changed |= is_filled_in || document.leave_out(&path);
            mended.push(path);
        }
        if !is_changed {
            return None;
        }
    }
    None
}

/// Objects by the digest of their contents.
struct KnownObjects<'e>(HashMap<u64, Vec<&'e ManifestObject>>);

impl<'e> KnownObjects<'e> {
    fn new(earlier: &'e SourceObjects) -> Self {
        let mut known: HashMap<u64, Vec<&ManifestObject>> = HashMap::new();
        for object in &earlier.objects {
            known.entry(object.valid.digest()).or_default().push(object);
        }
        Self(known)
    }

    /// The object with the same contents as `document`.
    fn find(&self, document: &Document) -> Option<Arc<ValidatedObject>> {
        let same = self.0.get(&digest(document))?;
        let same = same.iter().find(|object| {
            object
                .document
                .unpack()
                .root()
                .equals_ignoring_lines(document.root())
        });
        same.map(|object| Arc::clone(&object.valid))
    }
}

// The memory budget for the objects of sources.

/// The memory of an object, in bytes, without its contents.
const OBJECT_BYTES: usize = 1_000;

/// A memory budget shared by several sources, which may be read on any number of threads.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes: usize,
    left: AtomicUsize,
}

/// Limits for reading a source.
#[derive(Debug, Clone, Copy)]
pub struct SourceLimits<'l> {
    /// The budget for the memory of its objects, as long as they are in use.
    pub memory: &'l MemoryBudget,
    /// Locked while a long document is read, which needs much memory, so that only one is read at a time.
    pub long_documents: &'l Mutex<()>,
}

static ROLES: LazyLock<Vec<Arc<Role>>> = LazyLock::new(|| {
    let source = Source {
        file: "Kubernetes' default".to_owned(),
        text: bootstrap_policy(Version::NEWEST).to_owned(),
        cluster: None,
    };
    let objects = SourceObjects::read(&source, Version::NEWEST, None);
    let roles = objects.objects().filter_map(|object| match &object.content {
        Content::Role(role) => Some(Arc::clone(role)),
        _ => None,
    });
    roles.collect()
});

/// The default ClusterRoles of an API server of the newest version, as they are written: aggregated
/// ones have no rules yet.
#[must_use]
pub fn default_roles() -> &'static [Arc<Role>] {
    &ROLES
}

// === impl MemoryBudget ===

impl MemoryBudget {
    /// Creates a budget of `bytes`.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            left: AtomicUsize::new(bytes),
        }
    }

    /// The remaining bytes.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, and returns whether the budget sufficed. If not, nothing is left, so that the
    /// result for all objects does not depend on their order.
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| Some(left.saturating_sub(bytes));
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok_and(|left| left >= bytes)
    }

    /// The error at `place` for an object that exceeds the budget.
    pub(crate) fn fault(&self, place: Place, cluster: Option<&str>) -> Fault {
        let whose = cluster.map_or_else(String::new, |cluster| format!(" of the cluster `{cluster}`"));
        let message = format!(
            "with this, the manifests{whose} take more memory than the limit of {} bytes: remove objects, or \
            give the process more memory",
            self.bytes
        );
        Fault::error(place, FaultKind::TooLong, message)
    }
}

/// An upper bound for the memory of an object, in bytes, without its compiled expressions. The figures are upper
/// bounds of measurements, and include its share of the indexes.
pub(crate) fn kept_bytes(content: &Content, size: DocumentSize) -> usize {
    let (of_byte, of_value) = match content {
        // Rules of large roles are indexed by their words.
        Content::Role(_) if size.values > 64 => (4, 400),
        Content::Role(_) | Content::Binding(_) => (3, 60),
        Content::AccessRequest(_) | Content::Namespace(_) | Content::Parameter => (3, 60),
        // Their documents are kept, too.
        Content::Policy(_) | Content::Invariant(_) | Content::Exception(_) | Content::Admission(_) => {
            (6, 300)
        }
    };
    OBJECT_BYTES + of_byte * size.text_bytes + of_value * size.values
}
