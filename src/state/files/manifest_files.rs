//! The files of manifests as they were read. A file that was not modified is not read again, and
//! one with the same content is not parsed again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use std::{io, thread};

use openssl::sha::sha256;

use super::{
    FaultsByCluster, FileStamp, FileTimes, FoundManifest, ManifestMemory, ReadLimits, each_manifest, limits,
};
use crate::config::files::MANIFEST_BYTES;
use crate::config::{Config, FileScope, ManifestPath};
use portcullis_cel::Version;
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{MemoryBudget, Source, SourceObjects};

/// All files of manifests of a set, in order.
#[derive(Clone, Default)]
pub(crate) struct ManifestFiles(Vec<Arc<ManifestFile>>);

/// A file as it was read.
#[derive(Clone)]
pub(crate) struct ManifestFile {
    path: PathBuf,
    scope: FileScope,
    cluster: Option<String>,
    /// Tells whether the file was modified; `None` if it must be read again.
    stamp: Option<FileStamp>,
    digest: [u8; 32],
    length: usize,
    /// Only kept if the set is saved.
    text: Option<Arc<str>>,
    objects: Arc<SourceObjects>,
}

/// A file that was found.
enum FoundFile<'e> {
    /// The file was not modified.
    Same(&'e Arc<ManifestFile>),
    Read {
        path: PathBuf,
        scope: FileScope,
        source: Source,
        stamp: Option<FileStamp>,
        earlier: Option<&'e Arc<ManifestFile>>,
    },
}

/// The maximum of threads that parse files.
const MAX_THREADS: usize = 8;

/// The files of an earlier set.
struct EarlierFiles<'e> {
    known: HashMap<(&'e Path, Option<&'e str>), &'e Arc<ManifestFile>>,
    times: FileTimes,
    /// The version for which expressions are compiled.
    version: Version,
    /// The time of reading.
    now: SystemTime,
}

// === impl ManifestFiles ===

impl ManifestFiles {
    /// Reads the manifests of `config`, except files that are unchanged since `earlier`. Also
    /// returns the faults of those that cannot be read.
    pub(crate) fn read(
        config: &Config,
        earlier: Option<&Self>,
        times: FileTimes,
        now: SystemTime,
    ) -> (Self, FaultsByCluster) {
        let keeps_texts = config.reload.last_good.is_some();
        let earlier = EarlierFiles {
            times,
            ..EarlierFiles::new(earlier, config.admission.cel_version, now)
        };
        Self::read_paths(
            &config.manifests,
            ManifestMemory::of_process(),
            keeps_texts,
            earlier,
        )
    }

    fn read_paths(
        paths: &[ManifestPath],
        memory: ManifestMemory,
        keeps_texts: bool,
        earlier: EarlierFiles<'_>,
    ) -> (Self, FaultsByCluster) {
        let (files, faults) = each_manifest(paths, ReadLimits::default(), |found, left| {
            let file = earlier.check(found, keeps_texts, left)?;
            Ok((file.length(), file))
        });
        let finish = |(place, file): (usize, FoundFile<'_>), budget: &MemoryBudget| {
            (place, file.finish(keeps_texts, earlier.version, budget))
        };
        let files = files.into_iter().enumerate();
        let (everywhere, of_clusters): (Vec<_>, Vec<_>) =
            files.partition(|(_, file)| file.cluster().is_none());
        let budget = memory.for_all_clusters();
        let mut finished = in_parallel(everywhere, |file| finish(file, &budget));
        let budgets = memory.of_clusters(paths, budget.left());
        finished.extend(in_parallel(of_clusters, |file| {
            let cluster = file.1.cluster().unwrap_or_default().to_owned();
            finish(file, budgets.of(&cluster))
        }));
        finished.sort_unstable_by_key(|(place, _)| *place);
        (Self(finished.into_iter().map(|(_, file)| file).collect()), faults)
    }

    /// These files after those at `paths`, which must be among them, were modified. Nothing else is
    /// read. `None` if a file is not among them, or cannot be read.
    pub(crate) fn with_modified(
        &self,
        paths: &BTreeSet<PathBuf>,
        config: &Config,
        now: SystemTime,
    ) -> Option<Self> {
        let (keeps_texts, version) = (config.reload.last_good.is_some(), config.admission.cel_version);
        let memory = ManifestMemory::of_process();
        let mut after = self.0.clone();
        let mut found = 0;
        // A path may be read for several clusters.
        for file in after.iter_mut().filter(|file| paths.contains(&file.path)) {
            let looked = EarlierFiles {
                times: FileTimes::Ignored,
                ..EarlierFiles::of([&*file], version, now)
            };
            let manifest = FoundManifest {
                path: &file.path,
                cluster: file.cluster.as_deref(),
                scope: &file.scope,
                of_bundle: None,
            };
            let read = looked.check(manifest, keeps_texts, MANIFEST_BYTES).ok()?;
            // With a budget of its own: whether all files fit is checked below.
            let (everywhere, of_clusters) = (
                memory.for_all_clusters(),
                memory.of_clusters(&config.manifests, memory.bytes),
            );
            let budget = file
                .cluster
                .as_deref()
                .map_or(&everywhere, |cluster| of_clusters.of(cluster));
            let read = read.finish(keeps_texts, version, budget);
            *file = read;
            found += 1;
        }
        let bytes: usize = after.iter().map(|file| file.length).sum();
        let after = Self(after);
        let fits = bytes <= ReadLimits::default().bytes && after.fit(memory, &config.manifests);
        (found >= paths.len() && fits).then_some(after)
    }

    /// Whether the objects of all files fit into `memory`.
    fn fit(&self, memory: ManifestMemory, paths: &[ManifestPath]) -> bool {
        let (everywhere, of_clusters): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|file| file.cluster.is_none());
        let budget = memory.for_all_clusters();
        if !everywhere.iter().all(|file| budget.take(file.objects.bytes())) {
            return false;
        }
        let budgets = memory.of_clusters(paths, budget.left());
        of_clusters.iter().all(|file| {
            let cluster = file.cluster.as_deref().unwrap_or_default();
            budgets.of(cluster).take(file.objects.bytes())
        })
    }

    /// Files with the texts `sources`, regardless of those on disk. Expressions are compiled for
    /// `version`.
    pub(crate) fn of_sources(sources: Vec<Source>, version: Version) -> Self {
        let file = |source: Source| {
            let place = (PathBuf::from(&source.file), FileScope::Anywhere);
            let digest = sha256(source.text.as_bytes());
            let objects = SourceObjects::read(&source, version, None);
            ManifestFile::new(place, source, (digest, objects.into()), true)
        };
        Self(in_parallel(sources, |source| Arc::new(file(source))))
    }

    /// These files, but those of `clusters` from `earlier`.
    pub(crate) fn with_earlier(&self, clusters: &BTreeSet<String>, earlier: &Self) -> Self {
        let is_theirs = |file: &&Arc<ManifestFile>| {
            let cluster = file.cluster.as_ref();
            cluster.is_some_and(|cluster| clusters.contains(cluster))
        };
        let own = self.0.iter().filter(|file| !is_theirs(file));
        let earlier = earlier.0.iter().filter(is_theirs);
        Self(own.chain(earlier).cloned().collect())
    }

    /// Replaces each object that would lock out users whom `never_deny` does not protect by its
    /// version in `earlier`, or removes it if there is none. Also returns the faults of these
    /// objects. `None` if there are no such objects.
    pub(crate) fn holding_back_lock_outs(
        &self,
        earlier: Option<&Self>,
        never_deny: &NeverDeny,
    ) -> Option<(Self, FaultsByCluster)> {
        let mut faults = FaultsByCluster::default();
        let hold_back = |file: &Arc<ManifestFile>| {
            let earlier: Vec<&SourceObjects> = earlier
                .iter()
                .flat_map(|earlier| &earlier.0)
                .filter(|earlier| earlier.cluster == file.cluster)
                .map(|earlier| &*earlier.objects)
                .collect();
            let lock_outs = file.objects.lock_outs(never_deny, &earlier);
            if lock_outs.is_empty() {
                return Arc::clone(file);
            }
            let held_back = lock_outs.iter().map(|(identity, _)| identity).collect();
            let objects = file.objects.holding_back(&held_back, &earlier);
            let found = faults.of(file.cluster.as_deref());
            found.extend(lock_outs.iter().map(|(_, fault)| fault.clone()));
            Arc::new(file.with_objects(objects))
        };
        let files = Self(self.0.iter().map(hold_back).collect());
        (!faults.is_empty()).then_some((files, faults))
    }

    /// The clusters whose files have another content than in `earlier`.
    pub(crate) fn changed_clusters(&self, earlier: &Self) -> BTreeSet<String> {
        let said = |files: &'_ Self| -> BTreeMap<String, Vec<[u8; 32]>> {
            let mut said: BTreeMap<String, Vec<[u8; 32]>> = BTreeMap::new();
            for file in &files.0 {
                if let Some(cluster) = &file.cluster {
                    said.entry(cluster.clone()).or_default().push(file.digest);
                }
            }
            said
        };
        let (ours, mut theirs) = (said(self), said(earlier));
        let mut unlike: BTreeSet<String> = ours
            .into_iter()
            .filter(|(cluster, digests)| theirs.remove(cluster).as_ref() != Some(digests))
            .map(|(cluster, _)| cluster)
            .collect();
        unlike.extend(theirs.into_keys());
        unlike
    }

    /// The faults in `found`, each for all clusters of the file that it is in.
    pub(crate) fn by_cluster(&self, found: Faults) -> FaultsByCluster {
        let mut clusters: HashMap<String, Vec<Option<&str>>> = HashMap::new();
        for file in &self.0 {
            let of_file = clusters.entry(file.path.display().to_string()).or_default();
            of_file.push(file.cluster.as_deref());
        }
        let mut by_cluster = FaultsByCluster::default();
        for fault in found {
            let file = fault.place.file.as_deref();
            match file.and_then(|file| clusters.get(file)) {
                Some(all) => all
                    .iter()
                    .for_each(|cluster| by_cluster.of(*cluster).push(fault.clone())),
                None => by_cluster.of(None).push(fault),
            }
        }
        by_cluster
    }

    /// The objects of each file, in order.
    pub(crate) fn objects(&self) -> Vec<Arc<SourceObjects>> {
        self.0.iter().map(|file| Arc::clone(&file.objects)).collect()
    }

    /// The cluster and the digest of each file, in order.
    pub(crate) fn digests(&self) -> impl Iterator<Item = (&str, &[u8; 32])> {
        self.0
            .iter()
            .map(|file| (file.cluster.as_deref().unwrap_or_default(), &file.digest))
    }

    /// The texts of the files, if they are kept.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Source> {
        self.0.iter().filter_map(|file| {
            Some(Source {
                file: file.path.display().to_string(),
                text: file.text.as_deref()?.to_owned(),
                cluster: file.cluster.clone(),
            })
        })
    }
}

// === impl EarlierClusterFiles ===

impl<'e> EarlierFiles<'e> {
    /// The files that were compiled for the same version.
    fn new(files: Option<&'e ManifestFiles>, version: Version, now: SystemTime) -> Self {
        Self::of(files.into_iter().flat_map(|files| &files.0), version, now)
    }

    fn of(files: impl IntoIterator<Item = &'e Arc<ManifestFile>>, version: Version, now: SystemTime) -> Self {
        let files = files.into_iter().filter(|file| file.objects.version() == version);
        let entry = |file: &'e Arc<ManifestFile>| ((file.path.as_path(), file.cluster.as_deref()), file);
        Self {
            known: files.map(entry).collect(),
            times: FileTimes::Trusted,
            version,
            now,
        }
    }

    fn check(&self, found: FoundManifest<'_>, keeps_texts: bool, left: usize) -> io::Result<FoundFile<'e>> {
        let FoundManifest {
            path, cluster, scope, ..
        } = found;
        // The stamp is taken before the file is read, so that a modification while it is read
        // changes it.
        let is_file = found.of_bundle.is_none();
        let stamp = is_file.then(|| FileStamp::of(path, self.now)).flatten();
        let earlier = self.known.get(&(path, cluster)).copied();
        let is_complete =
            |file: &&Arc<ManifestFile>| file.length <= left && (file.text.is_some() || !keeps_texts);
        if let Some(file) = earlier.filter(is_complete)
            && self.times == FileTimes::Trusted
            && stamp.is_some()
            && file.stamp == stamp
        {
            return Ok(FoundFile::Same(file));
        }
        let source = Source {
            file: path.display().to_string(),
            text: found.text(left)?,
            cluster: cluster.map(str::to_owned),
        };
        Ok(FoundFile::Read {
            path: path.to_owned(),
            scope: scope.clone(),
            source,
            stamp,
            earlier,
        })
    }
}

// === impl FoundFile ===

impl FoundFile<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Same(file) => file.length,
            Self::Read { source, .. } => source.text.len(),
        }
    }

    fn cluster(&self) -> Option<&str> {
        match self {
            Self::Same(file) => file.cluster.as_deref(),
            Self::Read { source, .. } => source.cluster.as_deref(),
        }
    }

    /// Parses the file, unless its content is unchanged, and charges its objects to `memory`.
    fn finish(self, keeps_text: bool, version: Version, memory: &MemoryBudget) -> Arc<ManifestFile> {
        match self {
            Self::Same(file) => {
                let objects = file.objects_within(memory);
                if Arc::ptr_eq(&objects, &file.objects) {
                    return Arc::clone(file);
                }
                let file = ManifestFile::clone(file);
                Arc::new(ManifestFile { objects, ..file })
            }
            Self::Read {
                path,
                scope,
                source,
                stamp,
                earlier,
            } => {
                let digest = sha256(source.text.as_bytes());
                let objects = match earlier {
                    Some(earlier) if earlier.digest == digest => earlier.objects_within(memory),
                    _ => {
                        let earlier = earlier.map(|earlier| &*earlier.objects);
                        let limits = Some(limits(memory));
                        SourceObjects::read_within(&source, version, earlier, limits).into()
                    }
                };
                let file = ManifestFile::new((path, scope), source, (digest, objects), keeps_text);
                Arc::new(ManifestFile { stamp, ..file })
            }
        }
    }
}

/// Calls `finish` for each of `all` on as many threads as there are processors. Returns the results
/// in order.
fn in_parallel<T: Send, R: Send>(all: Vec<T>, finish: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_THREADS);
    let next = Mutex::new(all.into_iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            // Files are taken one by one, since they differ in length.
            let taken = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, one)) = taken else { return done };
            done.push((place, finish(one)));
        }
    };
    let mut done = thread::scope(|scope| {
        // If a thread is refused, the others do its work.
        let helpers: Vec<_> = (1..threads)
            .filter_map(|_| {
                thread::Builder::new()
                    .name("load".to_owned())
                    .spawn_scoped(scope, work)
                    .ok()
            })
            .collect();
        let mut done = work();
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, one)| one).collect()
}

// === impl ManifestFile ===

impl ManifestFile {
    fn new(
        (path, scope): (PathBuf, FileScope),
        source: Source,
        (digest, objects): ([u8; 32], Arc<SourceObjects>),
        keeps_text: bool,
    ) -> Self {
        Self {
            path,
            scope,
            cluster: source.cluster,
            stamp: None,
            digest,
            length: source.text.len(),
            text: keeps_text.then(|| source.text.into()),
            objects,
        }
    }

    /// The file with these `objects` instead of its own.
    fn with_objects(&self, objects: SourceObjects) -> Self {
        let text = objects.to_text();
        Self {
            stamp: None,
            digest: sha256(text.as_bytes()),
            length: text.len(),
            text: self.text.as_ref().map(|_| text.into()),
            objects: objects.into(),
            ..self.clone()
        }
    }

    /// Its objects, which are charged to `memory`; a fault in place of them if there is no room.
    fn objects_within(&self, memory: &MemoryBudget) -> Arc<SourceObjects> {
        if memory.take(self.objects.bytes()) {
            return Arc::clone(&self.objects);
        }
        self.objects.beyond(memory, &self.path).into()
    }
}

#[cfg(test)]
mod tests;
