//! The objects of one source, read by itself: from text to documents to objects.
//! The ClusterRoles that every API server makes by itself are such objects, too.

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

/// The most values of one document of a source: of one object, where each takes three bytes, as many
/// as an API server takes; as a list some 40,000 RoleBindings.
const MAX_VALUES: usize = 1 << 20;

/// What one source says, whatever others say. Sets that have the same source share it.
pub struct SourceObjects {
    cluster: Option<Arc<str>>,
    /// What its expressions are compiled for.
    version: Version,
    /// In the order written.
    objects: Vec<ManifestObject>,
    /// The places of those that are no bindings.
    others: Vec<usize>,
    /// A digest of the identity of each.
    identities: Box<[u64]>,
    faults: Faults,
    /// What the objects take in memory, at most.
    bytes: usize,
}

impl SourceObjects {
    /// Reads `source`, and compiles its expressions. Objects that are as `earlier`
    /// has them, the same file as it was before, are shared with it, and neither validated nor
    /// compiled again where that was read for the same version.
    ///
    /// Blocks for as long as expressions take to compile, but for a deadline.
    #[must_use]
    pub fn read<'c>(
        source: &Source,
        compilation: impl Into<Compilation<'c>>,
        earlier: Option<&Self>,
    ) -> Self {
        Self::read_within(source, compilation, earlier, None)
    }

    /// The same within `limits`. The first object that is beyond them is a fault, and nothing more
    /// is read.
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
                Some(valid) => Some(ManifestObject::new(document, valid)),
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

    /// The same, where an object with faults is read without the values that have them, and what is
    /// wrong with it then goes to `hidden`. It decides nothing.
    pub(crate) fn read_mended(source: &Source, version: Version, hidden: &mut Faults) -> Self {
        let cluster: Option<Arc<str>> = source.cluster.as_deref().map(Into::into);
        let mut objects = Vec::new();
        each_document(source, ParseLimits::NONE, &mut Faults::new(), |document, _| {
            objects.extend(read_mended(document, cluster.as_ref(), version, hidden));
            ControlFlow::Continue(())
        });
        Self::of(cluster, version, objects, Faults::new())
    }

    /// Nothing of the objects of `file`, which do not fit into `memory` any more.
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

    /// The same without the objects that are among `identities`.
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

    /// The policies that lock out, unconfirmed, besides those that `never_deny` protects, each with
    /// what `check` says about it. One of which `earlier` has the same spec is none of them.
    #[must_use]
    pub fn lock_outs(&self, never_deny: &NeverDeny, earlier: &[&Self]) -> Vec<(ObjectIdentity, Fault)> {
        let refused = |object: &ManifestObject| {
            let Content::Policy(policy) = &object.content else {
                return None;
            };
            let document = object.document.get();
            let (path, message) = lock_out(policy, &document, never_deny)?;
            let before = earlier.iter().find_map(|source| source.find(object.identity()));
            let is_same = |before: &ManifestObject| spec_hash(&before.document.get()) == spec_hash(&document);
            if before.is_some_and(is_same) {
                return None;
            }
            let kept = if before.is_some() {
                "its last good version stays in force"
            } else {
                "it is not in force"
            };
            let message = format!("held back by `reload.refuse`, {kept}: {message}");
            let fault = Fault::error(document.place(path), FaultKind::Forbidden, message);
            Some((object.identity().clone(), fault))
        };
        self.others().filter_map(refused).collect()
    }

    /// The same where each object among `held_back` is as one of `earlier` has it, or is not there.
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

    /// The objects as a text that is read to the same ones.
    #[must_use]
    pub fn to_text(&self) -> String {
        let yaml = |object: &ManifestObject| document::to_yaml(&object.document.get().root().to_json());
        let objects: Vec<String> = self.objects.iter().map(yaml).collect();
        objects.join("---\n")
    }

    /// What its expressions are compiled for.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The only cluster that its objects hold for; `None` for every cluster.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// How many bytes its objects take in memory at most, besides what is shared with other sources.
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

    /// Those that are no bindings, each with its place among all.
    pub(crate) fn others_in_place(&self) -> impl Iterator<Item = (usize, &ManifestObject)> {
        self.others
            .iter()
            .filter_map(|&place| Some((place, self.objects.get(place)?)))
    }

    /// Those that are no bindings.
    pub(crate) fn others(&self) -> impl Iterator<Item = &ManifestObject> {
        self.others_in_place().map(|(_, object)| object)
    }

    pub(crate) fn has_bindings(&self) -> bool {
        self.others.len() < self.objects.len()
    }

    /// A digest of the identity of each object.
    pub(crate) fn identities(&self) -> &[u64] {
        &self.identities
    }

    /// What is wrong with it.
    pub(crate) const fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// How often an object is read without the values that had faults.
const MAX_MENDINGS: usize = 4;

/// The object without its faulty values, and with text where a value is missing, if it is one then. What
/// is wrong with the rest of it goes to `hidden`.
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
            // What is required may be so because what would have done instead was left out.
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
            // What lacks a value that was left out is left out next.
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

/// Objects by what they say.
struct KnownObjects<'e>(HashMap<u64, Vec<&'e ManifestObject>>);

impl<'e> KnownObjects<'e> {
    fn new(earlier: &'e SourceObjects) -> Self {
        let mut known: HashMap<u64, Vec<&ManifestObject>> = HashMap::new();
        for object in &earlier.objects {
            known.entry(object.valid.digest()).or_default().push(object);
        }
        Self(known)
    }

    /// The object that says the same as `document`.
    fn find(&self, document: &Document) -> Option<Arc<ValidatedObject>> {
        let same = self.0.get(&digest(document))?;
        let same = same
            .iter()
            .find(|object| object.document.get().root().says_the_same(document.root()));
        same.map(|object| Arc::clone(&object.valid))
    }
}

// How much memory the objects of sources may take.

/// What each object takes, whatever it says.
const OBJECT_BYTES: usize = 1_000;

/// What some sources may take together, which are read on any number of threads.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes: usize,
    left: AtomicUsize,
}

/// What bounds the reading of a source.
#[derive(Debug, Clone, Copy)]
pub struct SourceLimits<'l> {
    /// What its objects may take, as long as they hold.
    pub memory: &'l MemoryBudget,
    /// Has the one long document that is read at a time, of those that need much memory for that.
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

/// The ClusterRoles that an API server of the newest version makes by itself, as they are written:
/// those that are aggregated have no rules yet.
#[must_use]
pub fn default_roles() -> &'static [Arc<Role>] {
    &ROLES
}

// === impl MemoryBudget ===

impl MemoryBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            left: AtomicUsize::new(bytes),
        }
    }

    /// What is not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes so many bytes. Where there are fewer, nothing is left: whether all of some objects fit
    /// does not depend on their order.
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| Some(left.saturating_sub(bytes));
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok_and(|left| left >= bytes)
    }

    /// The fault of what does not fit, at `place`.
    pub(crate) fn fault(&self, place: Place, cluster: Option<&str>) -> Fault {
        let whose = cluster.map_or_else(String::new, |cluster| format!(" of the cluster `{cluster}`"));
        let message = format!(
            "with this, the manifests{whose} take more memory than the {} bytes that they may: remove what \
             is not needed, or let the process have more memory",
            self.bytes
        );
        Fault::error(place, FaultKind::TooLong, message)
    }
}

/// How many bytes of memory an object takes at most, besides what its expressions are compiled to.
/// The figures are upper bounds of what was measured, with what is indexed of each object.
pub(crate) fn kept_bytes(content: &Content, size: DocumentSize) -> usize {
    let (of_byte, of_value) = match content {
        // Rules of large roles are indexed by their words.
        Content::Role(_) if size.values > 64 => (4, 400),
        Content::Role(_) | Content::Binding(_) => (3, 60),
        Content::AccessRequest(_) | Content::Namespace(_) | Content::Parameter => (3, 60),
        // Kept as they are written, too.
        Content::Policy(_) | Content::Invariant(_) | Content::Exception(_) | Content::Admission(_) => {
            (6, 300)
        }
    };
    OBJECT_BYTES + of_byte * size.text_bytes + of_value * size.values
}
