//! The objects of one source, read by itself.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::object::{self, Content, ManifestObject};
use super::validated::{ObjectIdentity, ValidatedObject, digest};
use super::{Compilation, Source, stream};
use crate::document::Document;
use crate::field::Faults;
use portcullis_cel::Version;

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
        let compilation = compilation.into();
        let version = compilation.version;
        let cluster: Option<Arc<str>> = source.cluster.as_deref().map(Into::into);
        let known = earlier
            .filter(|earlier| earlier.cluster == cluster && earlier.version == version)
            .map(KnownObjects::new);
        let mut faults = Faults::new();
        let mut objects = Vec::new();
        for document in stream::documents(source, &mut faults) {
            match known.as_ref().and_then(|known| known.find(&document)) {
                Some(valid) => objects.push(ManifestObject::new(document, valid)),
                None => objects.extend(object::read(document, cluster.clone(), compilation, &mut faults)),
            }
        }
        Self::of(cluster, version, objects, faults)
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
        }
    }

    /// The same without the objects that are among `identities`.
    pub(crate) fn without(&self, identities: &HashSet<&ObjectIdentity>) -> Self {
        let kept = self
            .objects
            .iter()
            .filter(|object| !identities.contains(object.identity()));
        Self::of(
            self.cluster.clone(),
            self.version,
            kept.cloned().collect(),
            self.faults.clone(),
        )
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
