//! Limits the memory of the objects of watched clusters, and keeps shares of it for each cluster
//! and namespace.
//!
//! ```text
//! limits.watchedBytes ─┬─ 15/32  RBAC, Namespaces    anyone with the permission can write RoleBindings
//!                      ├─ 1/4    policies            Denies, admission policies, webhooks, exceptions
//!                      ├─ 1/4    parameters          of admission policies: anyone's ConfigMaps
//!                      └─ 1/32   AccessRequests      of everyone who may request access
//! ```
//!
//! Half of each of these rooms is common to all clusters. The other half is reserved in equal parts
//! for tenants, who write the entries of clusters, and each part equally for the clusters of the
//! tenant. A cluster fills its reserved part first. So the objects of one cluster leave the other
//! clusters their parts, RBAC leaves the policies their room, and parameters cannot displace a
//! Deny. Within a cluster, one namespace can take at most an eighth of a room, and the last eighth
//! is reserved for objects without a namespace. For AccessRequests, which have no namespace, the
//! same limits apply to each requester.
//!
//! Sizes are those of decoded objects (see `weight`), and of what is made of them, that is compiled
//! expressions or faults; not those of their JSON.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One namespace may take the part of a room with this divisor, and an equal part is reserved for
/// objects without a namespace.
const NAMESPACE_SHARE: usize = 8;

/// The number of bytes that each object takes in each cluster that contains it, regardless of its
/// content.
pub(crate) const OBJECT_BYTES: usize = 900;

/// The share of a room that an object belongs to, by a hash of its name: that of a namespace, or of
/// a user who requests access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoomOwner(u32);

/// The purpose of an object. Each purpose has its own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoomPurpose {
    Rbac,
    Policies,
    Parameters,
    AccessRequests,
}

const ROOMS: usize = 4;

/// The rooms of all clusters.
#[derive(Debug)]
pub(crate) struct WatchedMemory([Arc<Room>; ROOMS]);

/// The rooms as one cluster can use them.
#[derive(Debug)]
pub(crate) struct ClusterMemory([Arc<ClusterRoom>; ROOMS]);

#[derive(Debug)]
struct Room(Mutex<RoomState>);

#[derive(Debug)]
struct RoomState {
    limit: usize,
    /// The bytes of all clusters. Contents that clusters share count once.
    used: usize,
    /// The bytes of each cluster, by its number, as if it shared nothing.
    clusters: HashMap<u64, ClusterUse>,
    /// The number of clusters of each tenant.
    tenants: HashMap<Tenant, usize>,
    next: u64,
    /// The reserved bytes that their clusters do not use.
    idle: usize,
}

/// The owner of a reserved part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Tenant {
    /// The owner of the folder that contains the clusters' entries.
    Folder(PathBuf),
    /// A single cluster.
    Cluster(u64),
}

#[derive(Debug)]
struct ClusterUse {
    tenant: Tenant,
    used: usize,
    /// By a hash of their names.
    namespaces: HashMap<u32, usize>,
}

/// A room, as one cluster can use it.
#[derive(Debug)]
pub(crate) struct ClusterRoom {
    room: Arc<Room>,
    number: u64,
}

/// The memory of an object in a cluster. It is released when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    room: Arc<ClusterRoom>,
    /// The bytes of the object and of its content.
    bytes: u32,
    /// The bytes of compiled expressions, or of faults.
    derived_bytes: u32,
    /// The number of its share; 0 for none.
    namespace: u32,
}

/// The memory of a content, regardless of how many clusters have it. It is released when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct ContentCharge {
    room: Arc<Room>,
    bytes: u32,
}

// === impl RoomOwner ===

impl RoomOwner {
    /// The share of objects that belong to no namespace or user: all of a room.
    pub(crate) const NONE: Self = Self(0);

    /// The share of `name`, or [`NONE`](Self::NONE) if it is empty.
    pub(crate) fn of(name: &str) -> Self {
        if name.is_empty() {
            return Self::NONE;
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(u32::try_from(hasher.finish() >> 32).unwrap_or_default().max(1))
    }
}

// === impl WatchedMemory ===

impl Default for WatchedMemory {
    fn default() -> Self {
        Self([(); ROOMS].map(|()| Arc::new(Room::new())))
    }
}

impl WatchedMemory {
    /// Sets the limit of all objects. Objects that are already held stay.
    pub(crate) fn limit(&self, bytes: usize) {
        let of_requests = bytes / 32;
        let parts = [bytes / 2 - of_requests, bytes / 4, bytes / 4, of_requests];
        for (room, part) in self.0.iter().zip(parts) {
            let mut state = room.state();
            state.limit = part;
            state.recompute_idle();
        }
    }

    /// The rooms of another cluster.
    #[cfg(test)]
    pub(crate) fn cluster(&self) -> ClusterMemory {
        self.cluster_of(None)
    }

    /// The rooms of another cluster. Clusters whose entries are in the same `folder` share one
    /// reserved part, so that adding entries takes nothing from others.
    pub(crate) fn cluster_of(&self, folder: Option<&Path>) -> ClusterMemory {
        ClusterMemory(
            self.0
                .each_ref()
                .map(|room| Arc::new(ClusterRoom::new(room, folder))),
        )
    }
}

// === impl ClusterMemory ===

impl ClusterMemory {
    pub(crate) const fn room(&self, purpose: RoomPurpose) -> &Arc<ClusterRoom> {
        let [rbac, policies, parameters, access_requests] = &self.0;
        match purpose {
            RoomPurpose::Rbac => rbac,
            RoomPurpose::Policies => policies,
            RoomPurpose::Parameters => parameters,
            RoomPurpose::AccessRequests => access_requests,
        }
    }
}

// === impl Room ===

impl Room {
    fn new() -> Self {
        Self(Mutex::new(RoomState {
            limit: usize::MAX,
            used: 0,
            clusters: HashMap::new(),
            tenants: HashMap::new(),
            next: 0,
            idle: 0,
        }))
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RoomState ===

impl RoomState {
    /// The number of bytes reserved for a cluster.
    fn reserve(&self, cluster: &ClusterUse) -> usize {
        let clusters = self.tenants.get(&cluster.tenant).copied();
        self.limit / 2 / self.tenants.len().max(1) / clusters.unwrap_or_default().max(1)
    }

    fn add(&mut self, folder: Option<&Path>) -> u64 {
        let number = self.next;
        self.next += 1;
        let tenant = folder.map_or(Tenant::Cluster(number), |folder| {
            Tenant::Folder(folder.to_owned())
        });
        *self.tenants.entry(tenant.clone()).or_default() += 1;
        let new = ClusterUse {
            tenant,
            used: 0,
            namespaces: HashMap::new(),
        };
        self.clusters.insert(number, new);
        self.recompute_idle();
        number
    }

    fn remove(&mut self, number: u64) {
        let Some(gone) = self.clusters.remove(&number) else {
            return;
        };
        if let Entry::Occupied(mut clusters) = self.tenants.entry(gone.tenant) {
            *clusters.get_mut() -= 1;
            if *clusters.get() == 0 {
                clusters.remove();
            }
        }
        self.recompute_idle();
    }

    /// Must be called after the clusters or the limit have changed.
    fn recompute_idle(&mut self) {
        let idle = self
            .clusters
            .values()
            .map(|cluster| self.reserve(cluster).saturating_sub(cluster.used));
        self.idle = idle.sum();
    }

    /// Whether these bytes fit: `bytes` in the cluster as if it shared nothing, and `own` in the
    /// total.
    fn fits(&self, number: u64, namespace: u32, [bytes, own]: [usize; 2]) -> bool {
        if bytes == 0 {
            return true;
        }
        let Some(cluster) = self.clusters.get(&number) else {
            return false;
        };
        let own_reserve = self.reserve(cluster);
        let (reserve, limit) = match namespace {
            0 => (own_reserve, self.limit),
            _ => (without_share(own_reserve), without_share(self.limit)),
        };
        let idle_of_others = self.idle - own_reserve.saturating_sub(cluster.used);
        let all = self.used.saturating_add(idle_of_others).saturating_add(own);
        let of_namespace = cluster.namespaces.get(&namespace).copied().unwrap_or_default();
        let is_namespace_within = of_namespace.saturating_add(bytes) <= self.limit / NAMESPACE_SHARE;
        let is_within = cluster.used.saturating_add(bytes) <= reserve || all <= limit;
        is_within && (namespace == 0 || is_namespace_within)
    }

    fn take(&mut self, number: u64, namespace: u32, [bytes, made]: [usize; 2]) {
        let reserve = self.clusters.get(&number).map(|cluster| self.reserve(cluster));
        if let (Some(reserve), Some(cluster)) = (reserve, self.clusters.get_mut(&number)) {
            self.idle -= reserve.saturating_sub(cluster.used);
            cluster.used += bytes + made;
            self.idle += reserve.saturating_sub(cluster.used);
            if namespace != 0 {
                *cluster.namespaces.entry(namespace).or_default() += bytes + made;
            }
            self.used += OBJECT_BYTES + made;
        }
    }

    fn give_back(&mut self, number: u64, namespace: u32, [bytes, made]: [usize; 2]) {
        let reserve = self.clusters.get(&number).map(|cluster| self.reserve(cluster));
        if let (Some(reserve), Some(cluster)) = (reserve, self.clusters.get_mut(&number)) {
            self.idle -= reserve.saturating_sub(cluster.used);
            cluster.used -= bytes + made;
            self.idle += reserve.saturating_sub(cluster.used);
            if let Some(left) = cluster.namespaces.get_mut(&namespace) {
                *left -= bytes + made;
                if *left == 0 {
                    cluster.namespaces.remove(&namespace);
                }
            }
            self.used -= OBJECT_BYTES + made;
        }
    }
}

const fn without_share(bytes: usize) -> usize {
    bytes - bytes / NAMESPACE_SHARE
}

// === impl ClusterRoom ===

impl ClusterRoom {
    fn new(room: &Arc<Room>, folder: Option<&Path>) -> Self {
        Self {
            number: room.state().add(folder),
            room: Arc::clone(room),
        }
    }

    /// Charges an object to `share`, if it fits. Its content takes `content` bytes, which are
    /// already counted if `is_shared` with another cluster. It replaces an object that takes
    /// `before` bytes. `None` if there is no room.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        RoomOwner(namespace): RoomOwner,
        content: usize,
        is_shared: bool,
        before: usize,
    ) -> Option<Charge> {
        let bytes = bounded(OBJECT_BYTES + content);
        let own = OBJECT_BYTES + if is_shared { 0 } else { content };
        let more = [bytes as usize, own].map(|bytes| bytes.saturating_sub(before));
        let mut state = self.room.state();
        if !state.fits(self.number, namespace, more) {
            return None;
        }
        state.take(self.number, namespace, [bytes as usize, 0]);
        Some(Charge {
            room: Arc::clone(self),
            bytes,
            derived_bytes: 0,
            namespace,
        })
    }

    /// Charges bytes that belong to no single object, even if there is no room.
    pub(crate) fn charge_unconditionally(self: &Arc<Self>, bytes: usize) -> Charge {
        let charge = Charge {
            room: Arc::clone(self),
            bytes: bounded(OBJECT_BYTES),
            derived_bytes: bounded(bytes.saturating_sub(OBJECT_BYTES)),
            namespace: 0,
        };
        charge.take_of(&mut self.room.state());
        charge
    }

    /// Whether an object of `share` with this many bytes of content would fit.
    pub(crate) fn has_room(&self, RoomOwner(namespace): RoomOwner, content: usize) -> bool {
        let bytes = OBJECT_BYTES + content;
        let state = self.room.state();
        state.fits(self.number, namespace, [bytes, bytes])
    }

    /// Charges a content.
    pub(crate) fn take_content(&self, bytes: usize) -> ContentCharge {
        let bytes = bounded(bytes);
        self.room.state().used += bytes as usize;
        ContentCharge {
            room: Arc::clone(&self.room),
            bytes,
        }
    }
}

impl Drop for ClusterRoom {
    fn drop(&mut self) {
        self.room.state().remove(self.number);
    }
}

// === impl Charge ===

impl Charge {
    /// The bytes of the object, as if no other cluster shared its content.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes as usize + self.derived_bytes as usize
    }

    /// The bytes of its content.
    pub(crate) const fn content_bytes(&self) -> usize {
        self.bytes as usize - OBJECT_BYTES
    }

    /// Also charges `made` bytes for what is made of the object, whose content no other cluster
    /// has. The object replaces one that takes `before` bytes. Returns `false` if there is no room.
    pub(crate) fn try_take_made(&mut self, made: usize, before: usize) -> bool {
        let more = (self.bytes as usize + made).saturating_sub(before);
        let mut state = self.room.room.state();
        self.give_back_to(&mut state);
        // Checks the room for the whole object, including its content.
        let content = self.content_bytes();
        state.used -= content;
        let fits = state.fits(self.room.number, self.namespace, [more, more]);
        state.used += content;
        self.derived_bytes = if fits { bounded(made) } else { 0 };
        self.take_of(&mut state);
        fits
    }

    /// Also charges `made` bytes, even if there is no room.
    pub(crate) fn charge_derived(&mut self, made: usize) {
        let mut state = self.room.room.state();
        self.give_back_to(&mut state);
        self.derived_bytes = bounded(made);
        self.take_of(&mut state);
    }

    fn taken(&self) -> [usize; 2] {
        [self.bytes as usize, self.derived_bytes as usize]
    }

    fn take_of(&self, state: &mut RoomState) {
        state.take(self.room.number, self.namespace, self.taken());
    }

    fn give_back_to(&self, state: &mut RoomState) {
        state.give_back(self.room.number, self.namespace, self.taken());
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back_to(&mut self.room.room.state());
    }
}

impl Drop for ContentCharge {
    fn drop(&mut self) {
        self.room.state().used -= self.bytes as usize;
    }
}

/// No object has more bytes than this can represent.
fn bounded(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    /// A memory whose room for parameters has this many KiB.
    fn memory(kib: usize) -> WatchedMemory {
        let memory = WatchedMemory::default();
        memory.limit(4 * kib * KIB);
        memory
    }

    /// Adds objects of 10 KiB until there is no room. Returns how many fit.
    fn fill(room: &Arc<ClusterRoom>, namespace: &str, held: &mut Vec<(Charge, ContentCharge)>) -> usize {
        let content = 10 * KIB - OBJECT_BYTES;
        let mut count = 0;
        while let Some(charge) = room.try_take(RoomOwner::of(namespace), content, false, 0) {
            held.push((charge, room.take_content(content)));
            count += 1;
        }
        count
    }

    #[test]
    fn a_single_cluster_has_all_and_each_purpose_its_own() {
        let memory = memory(1_000);
        let cluster = memory.cluster();
        let mut held = Vec::new();
        assert_eq!(fill(cluster.room(RoomPurpose::Parameters), "", &mut held), 100);
        assert_eq!(fill(cluster.room(RoomPurpose::Policies), "", &mut held), 100);
        assert_eq!(fill(cluster.room(RoomPurpose::AccessRequests), "", &mut held), 12);
        assert_eq!(fill(cluster.room(RoomPurpose::Rbac), "", &mut held), 187);
        held.clear();
        assert_eq!(fill(cluster.room(RoomPurpose::Parameters), "", &mut held), 100);
    }

    #[test]
    fn a_cluster_leaves_the_others_their_part() {
        let memory = memory(1_000);
        let clusters = [(); 5].map(|()| memory.cluster());
        let room = |index: usize| clusters[index].room(RoomPurpose::Parameters);
        let (mut of_first, mut of_others) = (Vec::new(), Vec::new());
        // Its own tenth, and the common half.
        assert_eq!(fill(room(0), "", &mut of_first), 60);
        for other in 1..5 {
            assert_eq!(fill(room(other), "", &mut of_others), 10);
        }
        of_first.clear();
        assert_eq!(fill(room(1), "", &mut of_others), 50);
        assert_eq!(fill(room(0), "", &mut of_first), 10);
    }

    #[test]
    fn who_adds_clusters_takes_no_part_of_others() {
        let memory = memory(1_000);
        let other = memory.cluster();
        let folder = Some(Path::new("/clusters.d/theirs"));
        let theirs: Vec<_> = (0..8).map(|_| memory.cluster_of(folder)).collect();
        let mut held = Vec::new();
        let full: Vec<_> = theirs
            .iter()
            .map(|cluster| fill(cluster.room(RoomPurpose::Parameters), "", &mut held))
            .collect();
        // A quarter in eight parts; the first cluster also has the common half.
        assert_eq!(full, [53, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!(fill(other.room(RoomPurpose::Parameters), "", &mut held), 25);
        drop((held, theirs));
        assert_eq!(
            fill(other.room(RoomPurpose::Parameters), "", &mut Vec::new()),
            100
        );
    }

    #[test]
    fn a_namespace_leaves_the_others_and_what_has_none_their_part() {
        let memory = memory(0);
        let cluster = memory.cluster();
        let room = cluster.room(RoomPurpose::Policies);
        memory.limit(3_200 * KIB);
        let mut held = Vec::new();
        let names: Vec<String> = (0..9).map(|number| format!("team-{number}")).collect();
        let of_each: Vec<usize> = names.iter().map(|name| fill(room, name, &mut held)).collect();
        assert_eq!(of_each, [10, 10, 10, 10, 10, 10, 10, 0, 0]);
        assert_eq!(fill(room, "", &mut held), 10);
    }

    #[test]
    fn what_clusters_have_in_common_counts_once() {
        let memory = memory(1_000);
        let clusters: Vec<_> = (0..500).map(|_| memory.cluster()).collect();
        let content = 100 * KIB;
        let first = clusters[0].room(RoomPurpose::Parameters);
        let _content = first.take_content(content);
        let charges: Vec<_> = clusters
            .iter()
            .map(|cluster| {
                let room = cluster.room(RoomPurpose::Parameters);
                assert!(room.try_take(RoomOwner::NONE, 950 * KIB, false, 0).is_none());
                room.try_take(RoomOwner::NONE, content, true, 0).unwrap()
            })
            .collect();
        assert_eq!(charges.len(), 500);
    }

    #[test]
    fn what_is_of_no_object_takes_room_too() {
        let memory = memory(1_000);
        let cluster = memory.cluster();
        let room = cluster.room(RoomPurpose::Parameters);
        let kinds: Vec<_> = (0..100).map(|_| room.charge_unconditionally(3 * KIB)).collect();
        let mut held = Vec::new();
        assert_eq!(fill(room, "", &mut held), 70);
        drop(kinds);
        assert_eq!(fill(room, "", &mut held), 30);
    }

    #[test]
    fn a_cluster_that_goes_leaves_its_part_to_the_others() {
        let memory = memory(1_000);
        let (one, other) = (memory.cluster(), memory.cluster());
        let mut held = Vec::new();
        assert_eq!(fill(one.room(RoomPurpose::Parameters), "", &mut held), 75);
        drop(other);
        assert_eq!(fill(one.room(RoomPurpose::Parameters), "", &mut held), 25);
    }
}
