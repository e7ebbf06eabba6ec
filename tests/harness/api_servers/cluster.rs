//! What one API server stores.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use super::{Asked, Behaviour, KINDS, StoredKind};

/// What is stored at first is of this version: another etcd may be older.
const FIRST_VERSION: u64 = 100;

/// `plural`, namespace and name.
type Key = (&'static str, String, String);

/// The objects of one cluster, and what became of them.
pub(super) struct StoredCluster {
    state: Mutex<ClusterState>,
    /// The version, for watches to wait for.
    news: watch::Sender<u64>,
}

struct ClusterState {
    version: u64,
    objects: BTreeMap<Key, Arc<str>>,
    /// What else is answered, by path.
    documents: BTreeMap<&'static str, String>,
    /// Each with the version that it made, and the plural of its kind.
    events: Vec<(u64, &'static str, Arc<str>)>,
    behaviour: Behaviour,
    /// How often that changed.
    behaved: usize,
    asked: Vec<Asked>,
}

/// A part of a list.
pub(super) struct Page {
    pub(super) version: u64,
    pub(super) items: Vec<Arc<str>>,
    /// Where the next one begins.
    pub(super) next: Option<String>,
}

// === impl StoredCluster ===

impl StoredCluster {
    pub(super) fn new(objects: Vec<Arc<str>>) -> Self {
        let objects = objects.into_iter().map(|text| (key_of(&text), text)).collect();
        Self {
            state: Mutex::new(ClusterState {
                version: FIRST_VERSION,
                objects,
                documents: BTreeMap::new(),
                events: Vec::new(),
                behaviour: Behaviour::Serves,
                behaved: 0,
                asked: Vec::new(),
            }),
            news: watch::Sender::new(FIRST_VERSION),
        }
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, text: Arc<str>) {
        let key = key_of(&text);
        let mut state = self.state();
        let sort = if state.objects.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        let text = state.note(sort, key.0, &text);
        state.objects.insert(key, text);
        self.news.send_replace(state.version);
    }

    pub(super) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let kind = KINDS.iter().find(|kind| kind.plural == plural).unwrap();
        let key = (kind.plural, namespace.to_owned(), name.to_owned());
        let mut state = self.state();
        if let Some(text) = state.objects.remove(&key) {
            state.note("DELETED", key.0, &text);
            self.news.send_replace(state.version);
        }
    }

    pub(super) fn publish(&self, path: &'static str, text: String) {
        self.state().documents.insert(path, text);
    }

    pub(super) fn document(&self, path: &str) -> Option<String> {
        self.state().documents.get(path).cloned()
    }

    pub(super) fn behave(&self, behaviour: Behaviour) {
        let mut state = self.state();
        state.behaviour = behaviour;
        state.behaved += 1;
        self.news.send_replace(state.version);
    }

    /// How to answer this request, and how often that changed before.
    pub(super) fn ask(&self, asked: Asked) -> (Behaviour, usize) {
        let mut state = self.state();
        state.asked.push(asked);
        (state.behaviour, state.behaved)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// Whether it still behaves as it did then.
    pub(super) fn behaves_as_at(&self, behaved: usize) -> bool {
        self.state().behaved == behaved
    }

    pub(super) fn version(&self) -> u64 {
        self.state().version
    }

    /// At most `limit` objects after `from`, which a page before this one named.
    pub(super) fn page(&self, kind: &StoredKind, limit: usize, from: Option<&str>) -> Page {
        let state = self.state();
        let (version, start) = match from.and_then(parse_continue) {
            Some((version, namespace, name)) => (version, Bound::Excluded((kind.plural, namespace, name))),
            None => (
                state.version,
                Bound::Included((kind.plural, String::new(), String::new())),
            ),
        };
        let mut rest = state
            .objects
            .range((start, Bound::Unbounded))
            .take_while(|((plural, ..), _)| *plural == kind.plural);
        let some: Vec<_> = rest.by_ref().take(limit).collect();
        let last = some.last().map(|((_, namespace, name), _)| (namespace, name));
        let next = rest.next().and(last);
        Page {
            version,
            next: next.map(|(namespace, name)| format!("{version} {namespace} {name}")),
            items: some.into_iter().map(|(_, text)| Arc::clone(text)).collect(),
        }
    }

    /// The events of `kind` after `version`, and the version after them.
    pub(super) fn events_since(&self, kind: &StoredKind, version: u64) -> (Vec<Arc<str>>, u64) {
        let state = self.state();
        let start = state.events.partition_point(|(at, ..)| *at <= version);
        let later = state.events[start..].iter();
        let events = later.filter(|(_, plural, _)| *plural == kind.plural);
        (events.map(|(.., line)| Arc::clone(line)).collect(), state.version)
    }

    /// Tells of each change.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

// === impl ClusterState ===

impl ClusterState {
    /// The object as it is stored: with its version.
    fn note(&mut self, sort: &str, plural: &'static str, text: &str) -> Arc<str> {
        self.version += 1;
        let mut object: Value = serde_json::from_str(text).unwrap();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let line = event(sort, &object);
        self.events.push((self.version, plural, line.into()));
        object.to_string().into()
    }
}

/// One line of a watch. Its type comes first, as API servers write it.
pub(super) fn event(sort: &str, object: &Value) -> String {
    format!("{{\"type\":\"{sort}\",\"object\":{object}}}\n")
}

fn key_of(text: &str) -> Key {
    let object: Value = serde_json::from_str(text).unwrap();
    let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = KINDS
        .iter()
        .find(|kind| object["apiVersion"] == kind.group_version && object["kind"] == kind.kind);
    let kind = kind.unwrap_or_else(|| panic!("no such kind is stored: {text}"));
    let metadata = &object["metadata"];
    (
        kind.plural,
        field(&metadata["namespace"]),
        field(&metadata["name"]),
    )
}

/// The version, namespace and name of `continue`.
fn parse_continue(token: &str) -> Option<(u64, String, String)> {
    let mut parts = token.split(' ');
    let version = parts.next()?.parse().ok()?;
    Some((version, parts.next()?.to_owned(), parts.next()?.to_owned()))
}
