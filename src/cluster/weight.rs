//! The maximum size of objects, and how much memory they take.
//!
//! The memory of an object depends on the number of its values more than on its length: each
//! subject of a binding is indexed, and each `{}` of a custom resource is a node. The figures are
//! upper bounds of what was measured, including the index of each object.
//!
//! Objects that are too large, or for which there is no room, are left out; the others of their
//! kind are not affected. A grant that is left out grants nothing, whatever it granted before. A
//! restriction stays in force as it was, if there was an earlier version. A policy fails if one of
//! its parameters is left out, and its failurePolicy decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use memchr::memchr2;

use super::kind::{Name, WatchPurpose, WatchedKind};
use super::memory::{RoomOwner, RoomPurpose};
use crate::telemetry::logging;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::model::groups::RBAC;

/// The maximum number of bytes and of values of an RBAC object as JSON: some 4,000 subjects or
/// 2,000 rules.
const MAX_RBAC: (usize, usize) = (512 << 10, 50_000);

/// The same for any other object: the size that an API server accepts in a request.
const MAX_OTHER: (usize, usize) = (3 << 20, 100_000);

/// The same for an AccessRequest: more than `/validate` allows.
const MAX_ACCESS_REQUEST: (usize, usize) = (80 << 10, 5_000);

/// The maximum number of bytes of an object as received, including fields that do not affect
/// decisions, as a multiple of these.
const MAX_RECEIVED_FACTOR: usize = 2;

/// The maximum number of bytes of a CustomResourceDefinition, of which little is kept.
const MAX_DEFINITION_BYTES: usize = 8 << 20;

/// Why an object is left out, regardless of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LeftOutReason {
    /// It is larger than objects of its kind may be.
    #[error("it has {bytes} bytes as JSON, more than the {max} allowed for its kind")]
    TooLarge { bytes: usize, max: usize },
    /// It has more values than objects of its kind may have.
    #[error("it has {values} values as JSON, more than the {max} allowed for its kind")]
    TooManyValues { values: usize, max: usize },
    /// There is no room for it.
    #[error("it takes {bytes} bytes of memory, and there is no room for it (`limits.watchedBytes`)")]
    NoRoom { bytes: usize, share: RoomOwner },
}

// === impl LeftOutReason ===

impl LeftOutReason {
    /// The fault of the object called `name`, and its consequences.
    pub(crate) fn faults(self, cluster: &str, kind: &WatchedKind, name: &(String, String)) -> Faults {
        let object = match name {
            (namespace, name) if namespace.is_empty() => format!("{}/{name}", kind.kind),
            (namespace, name) => format!("{}/{namespace}/{name}", kind.kind),
        };
        let place = Place {
            file: Some(format!("cluster {cluster}").into()),
            object,
            ..Place::default()
        };
        let means = match kind.room() {
            _ if kind.purpose == WatchPurpose::Definition => "nothing is known of its resource",
            RoomPurpose::Rbac | RoomPurpose::AccessRequests => "it grants nothing",
            RoomPurpose::Policies => "what it restricted before stays restricted, and nothing more",
            RoomPurpose::Parameters => "policies that take it as a parameter fail",
        };
        let mut faults = Faults::new();
        faults.push(Fault::error(
            place,
            FaultKind::TooLong,
            format!("left out, so that {means}: {self}"),
        ));
        faults
    }
}

// === impl WatchedKind ===

impl WatchedKind {
    /// The room in which its objects take memory.
    pub(crate) fn room(&self) -> RoomPurpose {
        match self.purpose {
            WatchPurpose::Parameter => RoomPurpose::Parameters,
            // Users who may request access must not displace anything else, however many requests
            // they write.
            WatchPurpose::AccessRequest => RoomPurpose::AccessRequests,
            WatchPurpose::Base if self.group == RBAC || self.is_namespace() => RoomPurpose::Rbac,
            // Parameters must displace neither a Deny nor the knowledge which resources are
            // namespaced.
            WatchPurpose::Definition => RoomPurpose::Rbac,
            _ => RoomPurpose::Policies,
        }
    }

    /// Whether its objects are Namespaces.
    pub(crate) fn is_namespace(&self) -> bool {
        self.purpose == WatchPurpose::Base && self.group.is_empty()
    }

    fn is_role(&self) -> bool {
        self.group == RBAC && matches!(self.kind.as_str(), "Role" | "ClusterRole")
    }

    /// The namespace whose share of a room an object takes; empty for none. A Namespace counts to
    /// its own share.
    pub(crate) fn namespace_of<'n>(&self, (namespace, name): &'n (String, String)) -> &'n str {
        if self.is_namespace() { name } else { namespace }
    }

    /// The maximum number of bytes and of values of its objects as JSON.
    fn max_size(&self) -> (usize, usize) {
        match self.purpose {
            WatchPurpose::AccessRequest => MAX_ACCESS_REQUEST,
            _ if self.group == RBAC => MAX_RBAC,
            _ => MAX_OTHER,
        }
    }

    /// The maximum number of bytes that are read of an object.
    pub(crate) fn max_written_bytes(&self) -> usize {
        match self.purpose {
            WatchPurpose::Definition => MAX_DEFINITION_BYTES,
            _ => MAX_RECEIVED_FACTOR * self.max_size().0,
        }
    }

    /// Checks the length of an object.
    ///
    /// # Errors
    ///
    /// The object has more `bytes` than objects of this kind may have.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<(), LeftOutReason> {
        let (max, _) = self.max_size();
        let too_large = LeftOutReason::TooLarge { bytes, max };
        (bytes <= max).then_some(()).ok_or(too_large)
    }

    /// Checks the number of values of an object.
    ///
    /// # Errors
    ///
    /// The object has more than `times` as many `values` as objects of this kind may have.
    pub(crate) fn check_values(&self, values: usize, times: usize) -> Result<(), LeftOutReason> {
        let max = self.max_size().1 * times;
        let too_many = LeftOutReason::TooManyValues { values, max };
        (values <= max).then_some(()).ok_or(too_many)
    }
}

/// An upper bound of the bytes of memory of an object's content, which has this many bytes and
/// values as JSON.
pub(crate) fn content_bytes(kind: &WatchedKind, bytes: usize, values: usize) -> usize {
    let (of_byte, of_value) = match kind.room() {
        // Rules of large roles are indexed by their words.
        RoomPurpose::Rbac if kind.is_role() && values > 64 => (4, 400),
        RoomPurpose::Rbac => (4, 100),
        RoomPurpose::Policies => (40, 200),
        RoomPurpose::Parameters | RoomPurpose::AccessRequests => (3, 60),
    };
    of_byte * bytes + of_value * values
}

/// The number of values in a JSON text, including keys.
pub(crate) fn count_values(text: &[u8]) -> usize {
    let (mut count, mut rest) = (1, text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(after),
            b',' | b':' | b'{' | b'[' => count += 1,
            _ => {}
        }
    }
    count
}

/// The text after a string, whose opening quote has been read.
fn after_string(mut text: &[u8]) -> &[u8] {
    while let Some(end) = memchr2(b'"', b'\\', text) {
        let (skipped, is_end) = match text.get(end) {
            Some(b'"') => (end + 1, true),
            _ => (end + 2, false),
        };
        text = text.get(skipped..).unwrap_or_default();
        if is_end {
            return text;
        }
    }
    &[]
}

/// The maximum number of objects whose names are kept.
const MAX_NAMED: usize = 1_000;

/// The maximum number of objects of a list that are named in the log.
const MAX_LOGGED: usize = 10;

/// The objects of one kind that are left out.
#[derive(Debug, Default)]
pub(crate) struct LeftOutObjects {
    named: BTreeMap<Name, LeftOutReason>,
    /// The number of further objects.
    unnamed: usize,
}

// === impl LeftOutObjects ===

impl LeftOutObjects {
    pub(crate) fn note(&mut self, name: Name, reason: LeftOutReason) {
        if self.named.len() < MAX_NAMED || self.named.contains_key(&name) {
            self.named.insert(name, reason);
        } else {
            self.unnamed += 1;
        }
    }

    /// Notes that the object is no longer left out, or was deleted. Returns whether it was left
    /// out.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        self.named.remove(name).is_some()
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.named.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.named.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.named.len() + self.unnamed
    }

    /// The names of all that are left out; `None` if there are more than are kept.
    pub(crate) fn all(&self) -> Option<BTreeSet<Name>> {
        (self.unnamed == 0).then(|| self.named.keys().cloned().collect())
    }

    /// The objects for which there was no room: the share of each, and the bytes of its content.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (RoomOwner, usize)> {
        self.named.values().filter_map(|reason| match *reason {
            LeftOutReason::NoRoom { bytes, share } => Some((share, bytes)),
            _ => None,
        })
    }

    /// The faults of the objects whose names are kept.
    pub(crate) fn faults(&self, cluster: &Arc<str>, kind: &WatchedKind) -> impl Iterator<Item = Faults> {
        let named = self.named.iter();
        named.map(move |(name, reason)| reason.faults(cluster, kind, name))
    }
}

/// Logs that an object is left out.
pub(crate) fn log_left_out(cluster: &Arc<str>, kind: &WatchedKind, name: &Name, reason: LeftOutReason) {
    if logging::allows_line(cluster) {
        let fault = reason.faults(cluster, kind, name);
        tracing::error!(cluster = &**cluster, "{fault}");
    }
}

/// Logs the objects that are left out now and were not `before`.
pub(crate) fn log_new_left_out(
    cluster: &Arc<str>,
    kind: &WatchedKind,
    now: &LeftOutObjects,
    before: &LeftOutObjects,
) {
    let new = now.named.iter().filter(|(name, _)| !before.has(name));
    let mut count = 0;
    for (name, reason) in new.inspect(|_| count += 1).take(MAX_LOGGED) {
        log_left_out(cluster, kind, name, *reason);
    }
    if count == MAX_LOGGED {
        let objects = now.len();
        tracing::error!(cluster = &**cluster, %kind, objects, "more objects are left out than are named here");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_without_a_tree() {
        for (text, expected) in [
            ("{}", 2),
            (r#"{"a,b":"{[\",:"}"#, 3),
            (r#"[0,"\\",{"a":[]}]"#, 7),
            (r#""open"#, 1),
        ] {
            assert_eq!(count_values(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn an_object_is_bounded_in_bytes_and_values_as_it_is_written_and_as_it_is_read() {
        let binding = WatchedKind::of_object("rbac.authorization.k8s.io/v1", "RoleBinding");
        let map = WatchedKind::of_object("v1", "ConfigMap");
        for (kind, bytes, values) in [(binding, 512 << 10, 50_000), (map, 3 << 20, 100_000)] {
            assert_eq!(kind.max_written_bytes(), 2 * bytes, "{kind}");
            assert!(
                kind.check_bytes(bytes).is_ok() && kind.check_bytes(bytes + 1).is_err(),
                "{kind}"
            );
            assert!(
                kind.check_values(values, 1).is_ok() && kind.check_values(values + 1, 1).is_err(),
                "{kind}"
            );
        }
    }

    #[test]
    fn an_object_takes_memory_for_its_values_too() {
        for kind in ["RoleBinding", "ConfigMap", "AuthorizationPolicy"] {
            let group = match kind {
                "RoleBinding" => "rbac.authorization.k8s.io/v1",
                "ConfigMap" => "v1",
                _ => "portcullis.dev/v1alpha1",
            };
            let kind = WatchedKind::of_object(group, kind);
            assert!(
                content_bytes(&kind, 20_000, 10_000) > 10_000 * 60 + 2 * 20_000,
                "{kind}"
            );
        }
    }
}
