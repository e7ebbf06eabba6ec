//! Decides whether objects and kinds that are missing were deleted.
//!
//! If a watch reports that an object was deleted, this is believed. But if an object is missing in
//! a list, or a kind is not served, it may have been deleted, or the response may come from a load
//! balancer, from an API server with another etcd, or from one that was restored from a backup.
//! Then Denies would be lost, and revoked grants come back. So absence needs evidence, or an
//! administrator who confirms it (`portcullis serve --accept-absence`). Until then the known
//! objects stay in force.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::held::LatestVersion;
use super::listing::{ListEvidence, Listing};
use super::views::{Doubt, KindObjects, StaleSince, Store, StoredKinds, SyncProgress};
use crate::cluster::contents::ValidObject;
use crate::cluster::kind::{Name, WatchPurpose, WatchedKind};
use crate::cluster::weight::LeftOutObjects;
use crate::state::{WatchedRegistration, WatchedWebhookConfigurations};

/// If more objects than this, and more than half of their kind, are missing in a list, further
/// evidence is needed.
const MASS_REMOVAL_OBJECTS: usize = 100;

/// The evidence that a kind is no longer served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AbsenceEvidence {
    /// The API server lists its groups, and has neither the kind nor a definition of it.
    Proven,
    /// The API server lists its groups without the kind, and the gateway may not list definitions.
    Undefined,
    /// There is evidence that the kind exists.
    Contradicted(String),
}

// === impl Store ===

impl Store {
    /// From now on, until every kind is listed, missing objects count as deleted, because an
    /// administrator has confirmed this.
    pub(crate) fn accept_absence(&self) {
        self.lock().accepts_absence = true;
    }

    /// Handles the response that `kind` is not served, with this `evidence`. Its objects are
    /// removed, or there is a doubt. Returns whether objects in force changed.
    pub(crate) fn not_served(&self, kind: &WatchedKind, evidence: &AbsenceEvidence) -> Result<bool, Doubt> {
        let mut known = self.lock_for_change();
        let doubt = known.doubt_about_kind(kind, evidence);
        let objects = known.kinds.entry(kind.clone()).or_default();
        objects.doubt.clone_from(&doubt);
        let is_parameter = kind.purpose == WatchPurpose::Parameter;
        // Without the kind, a policy cannot find its parameter, so its parameterNotFoundAction does
        // not apply.
        let was_known = is_parameter && std::mem::take(&mut objects.known);
        if let Some(doubt) = doubt {
            known.version += 1;
            return Err(doubt);
        }
        let mut changed = was_known | objects.objects.retain(|_, _| false);
        objects.left_out = LeftOutObjects::default();
        (objects.newest, objects.outdated) = (None, None);
        if is_parameter {
            objects.progress = SyncProgress::Refused;
        } else {
            (objects.progress, objects.known) = (SyncProgress::Listed, true);
        }
        changed |= known.mark_live(&self.cluster);
        Ok(changed)
    }

    /// Whether it is known already that there are no objects of `kind`, so that none can be lost.
    pub(crate) fn is_absent(&self, kind: &WatchedKind) -> bool {
        let known = self.lock();
        let is_settled = known.kinds.get(kind).is_some_and(|objects| {
            objects.progress != SyncProgress::NotListed
                && objects.doubt.is_none()
                && objects.outdated.is_none()
        });
        is_settled && !kind.is_always_served() && known.count(kind, |_, _| true) == 0
    }

    /// The newest resource version of `kind` that was seen.
    pub(crate) fn newest(&self, kind: &WatchedKind) -> Option<u64> {
        self.lock().kinds.get(kind).and_then(|objects| objects.newest)
    }

    /// Whether a resource version from a watch of `kind` is not older than what is known. If so, it
    /// is kept as the newest. If earlier versions were numbers and this one is not, its age is
    /// unknown.
    pub(crate) fn is_newer(&self, kind: &WatchedKind, version: Option<u64>) -> bool {
        let mut known = self.lock();
        let objects = known.kinds.entry(kind.clone()).or_default();
        if version < objects.newest {
            return false;
        }
        objects.newest = version;
        true
    }

    /// Whether an object of `kind` is in force.
    pub(crate) fn has_any(&self, kind: &WatchedKind) -> bool {
        self.lock().count(kind, |_, _| true) > 0
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// The number of objects of `kind` in force for whose names and marks `is_meant` holds.
    fn count(&self, kind: &WatchedKind, is_meant: impl Fn(&Name, u32) -> bool) -> usize {
        if kind.purpose == WatchPurpose::Definition {
            return self.definitions.names().filter(|name| is_meant(name, 0)).count();
        }
        let held = self
            .kinds
            .get(kind)
            .into_iter()
            .flat_map(|kind| kind.objects.iter());
        let is_in_force =
            |good: &ValidObject| kind.purpose != WatchPurpose::Selected || self.is_selected(good);
        held.filter(|(name, held)| {
            held.in_force.as_ref().is_some_and(is_in_force) && is_meant(name, held.listed)
        })
        .count()
    }

    fn is_selected(&self, good: &ValidObject) -> bool {
        let last = self.last.as_ref();
        last.is_none_or(|last| last.selects(good))
    }

    /// Why objects that are missing in a list are not believed to be deleted, if so.
    pub(crate) fn doubt_about(
        &self,
        kind: &WatchedKind,
        listing: &Listing,
        evidence: &ListEvidence,
    ) -> Option<Doubt> {
        let known = self.count(kind, |_, _| true);
        let gone = self.count(kind, |name, mark| !listing.has(name, mark));
        if gone == 0 {
            return None;
        }
        if let Some(why) = &evidence.no_server {
            return Some(Doubt(format!(
                "the list is empty, but {known} objects are known, and {why}"
            )));
        }
        let objects = self.kinds.get(kind);
        if let Some(before) = objects.and_then(|objects| objects.doubt.as_ref()) {
            return Some(before.clone());
        }
        if let (None, Some(newest)) = (evidence.version, objects.and_then(|objects| objects.newest)) {
            return Some(Doubt(format!(
                "the list lacks {gone} of the {known} known objects, and its version is not a number, as \
                {newest} is"
            )));
        }
        let is_much = gone > MASS_REMOVAL_OBJECTS && gone * 2 > known;
        is_much.then(|| Doubt(format!("the list lacks {gone} of the {known} known objects")))
    }

    fn doubt_about_kind(&self, kind: &WatchedKind, evidence: &AbsenceEvidence) -> Option<Doubt> {
        let count = self.count(kind, |_, _| true);
        let known = format!("{count} of its objects are known");
        match evidence {
            AbsenceEvidence::Contradicted(_) if count == 0 && kind.purpose == WatchPurpose::Parameter => None,
            AbsenceEvidence::Contradicted(why) => {
                Some(Doubt(format!("it is not served, {known}, and {why}")))
            }
            _ if count == 0 && kind.is_always_served() => Some(Doubt(
                "it is not served, although every API server serves it".to_owned(),
            )),
            _ if count == 0 || self.accepts_absence => None,
            _ if kind.is_of_kubernetes() => Some(Doubt(format!("it is no longer served, and {known}"))),
            AbsenceEvidence::Undefined => Some(Doubt(format!(
                "it is no longer served, {known}, and CustomResourceDefinitions may not be listed"
            ))),
            AbsenceEvidence::Proven if count > MASS_REMOVAL_OBJECTS => {
                Some(Doubt(format!("it is no longer served, and {known}")))
            }
            AbsenceEvidence::Proven => None,
        }
    }
}

// === impl WatchedKind ===

impl WatchedKind {
    /// Whether every API server serves this kind, in all versions of Kubernetes.
    fn is_always_served(&self) -> bool {
        let is_watched = matches!(
            self.purpose,
            WatchPurpose::Base | WatchPurpose::Definition | WatchPurpose::Registration
        );
        is_watched && self.is_of_kubernetes()
    }

    /// Whether its group belongs to Kubernetes, instead of custom resources.
    fn is_of_kubernetes(&self) -> bool {
        !self.group.contains('.') || self.group.ends_with(".k8s.io")
    }
}

// Whether the objects in force are up to date.

/// Kinds that have been out of date for less time are not reported, since watches end and start
/// again.
const OUTDATED_AFTER: Duration = Duration::from_secs(60);

// === impl Store ===

impl Store {
    /// Notes that `kind` was listed, and is watched from there on.
    pub(crate) fn note_followed(&self, kind: &WatchedKind) {
        if let Some(objects) = self.lock().kinds.get_mut(kind) {
            objects.outdated = None;
        }
    }

    /// Notes that `kind` is not watched at `now`, or since before.
    pub(crate) fn note_not_followed(&self, kind: &WatchedKind, why: &str, now: Instant) {
        if let Some(objects) = self.lock().kinds.get_mut(kind) {
            let since = objects.outdated.as_ref().map_or(now, |outdated| outdated.since);
            let why = why.to_owned();
            objects.outdated = Some(StaleSince { since, why });
        }
    }
}

#[cfg(test)]
impl Store {
    /// The kinds that are reported as out of date at `now`.
    pub(crate) fn outdated_at(&self, now: Instant) -> Vec<String> {
        self.lock().outdated(now)
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// The kinds that have been out of date for a while at `now`, each with the reason.
    pub(crate) fn outdated(&self, now: Instant) -> Vec<String> {
        let kinds = self.kinds.iter();
        let outdated = kinds.filter_map(|(kind, objects)| {
            let StaleSince { since, why } = objects.outdated.as_ref()?;
            let age = now.saturating_duration_since(*since);
            let seconds = age.as_secs();
            (age >= OUTDATED_AFTER).then(|| format!("{kind}: for {seconds} s: {why}"))
        });
        outdated.collect()
    }
}

// The webhook configurations of an API server, if they are watched to know what `/validate` sees.
// Other objects stay in force while nothing newer is known. Here this might let requests pass that
// nothing reviews any more, so what is not certain now counts as unknown.

// === impl Store ===

impl Store {
    /// Whether the state of the webhook configurations at `now` differs from the one that was last
    /// returned.
    pub(crate) fn registrations_changed(&self, now: Instant) -> bool {
        let mut known = self.lock();
        let before = known.last.as_ref().map(|last| last.watched.registrations.clone());
        let has_changed = before.is_some_and(|before| before != known.registrations(now));
        known.version += u64::from(has_changed);
        has_changed
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// The state of the webhook configurations at `now`; `None` if they are not watched. If it is
    /// the same as the last one, it is shared.
    pub(crate) fn registrations(&self, now: Instant) -> Option<Arc<WatchedWebhookConfigurations>> {
        let mut all = Vec::new();
        let mut unproven = None;
        let mut is_watched = false;
        for kind in WatchedKind::registrations() {
            let Some(objects) = self.kinds.get(&kind) else {
                continue;
            };
            is_watched = true;
            unproven = unproven.or(objects.why_unproven(&kind, now));
            all.extend(objects.registrations());
        }
        let found = match unproven {
            _ if !is_watched => return None,
            Some(why) => WatchedWebhookConfigurations::Unproven(why.into()),
            None => WatchedWebhookConfigurations::Known(all),
        };
        let last = self
            .last
            .as_ref()
            .and_then(|last| last.watched.registrations.as_ref());
        let same = last.filter(|last| ***last == found).cloned();
        Some(same.unwrap_or_else(|| Arc::new(found)))
    }
}

// === impl KindObjects ===

impl KindObjects {
    /// Why the current webhook configurations of `kind` are unknown at `now`; `None` if they are
    /// known.
    fn why_unproven(&self, kind: &WatchedKind, now: Instant) -> Option<String> {
        let stale = self.outdated.as_ref();
        let stale = stale.filter(|stale| now.saturating_duration_since(stale.since) >= OUTDATED_AFTER);
        let kind = &kind.kind;
        match (self.progress, &self.doubt, stale) {
            (SyncProgress::NotListed, ..) => Some(format!(
                "{kind} have not been listed since the gateway began to watch the cluster"
            )),
            (SyncProgress::Refused, ..) => Some(format!(
                "the gateway may not list {kind}: apply config/cluster/admission.yaml"
            )),
            (_, Some(doubt), _) => Some(format!("{kind}: {doubt}")),
            (.., Some(stale)) => Some(format!(
                "{kind} has not been listed or watched for a minute: {}",
                stale.why
            )),
            (SyncProgress::Listed, None, None) => None,
        }
    }

    /// The configurations whose last version is valid.
    fn registrations(&self) -> impl Iterator<Item = WatchedRegistration> {
        let all = self.objects.by_name();
        all.filter_map(|(name, held)| {
            let good = held
                .in_force
                .as_ref()
                .filter(|_| matches!(held.newest, LatestVersion::Good))?;
            (!self.left_out.has(name)).then(|| WatchedRegistration {
                configuration: Arc::clone(&good.object),
                digest: good.content.digest,
                uid: held.noted().uid.as_str().into(),
                since: held.noted().since,
            })
        })
    }
}
