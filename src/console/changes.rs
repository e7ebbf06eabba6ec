//! What the last changes of files were: the difference between any two of the last sets in force.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::reload::{FileObjects, ObjectChange, ObjectChanges, Snapshot};

/// The most sets that can be compared.
const MAX_REVISIONS: usize = 20;

/// The last sets that were in force.
#[derive(Debug, Default)]
pub(crate) struct ChangeHistory(Mutex<KeptChanges>);

#[derive(Default)]
struct KeptChanges {
    /// The oldest first.
    revisions: VecDeque<RevisionInForce>,
    /// The objects of the newest.
    objects: Option<FileObjects>,
}

/// A set, and what it changed.
#[derive(Debug, Clone)]
pub(crate) struct RevisionInForce {
    pub(crate) revision: Arc<str>,
    /// When it came into force.
    pub(crate) since: SystemTime,
    /// Since the one before; of the first nothing is known.
    pub(crate) changes: Arc<ObjectChanges>,
}

// === impl ChangeHistory ===

impl ChangeHistory {
    /// `snapshot` is in force from `now` on. Where its files have the objects of before, the
    /// set counts as the same.
    pub(crate) fn follow(&self, snapshot: &Snapshot, now: SystemTime) {
        let mut kept = self.kept();
        let objects = snapshot.file_objects();
        let changes = kept.objects.as_ref().map(|before| objects.changes_since(before));
        kept.objects = Some(objects);
        if changes.as_ref().is_some_and(|changes| changes.objects.is_empty()) {
            return;
        }
        if kept.revisions.len() == MAX_REVISIONS {
            kept.revisions.pop_front();
        }
        kept.revisions.push_back(RevisionInForce {
            revision: Arc::clone(&snapshot.revision),
            since: now,
            changes: Arc::new(changes.unwrap_or_default()),
        });
    }

    /// The sets that are known, the oldest first.
    pub(crate) fn revisions(&self) -> Vec<RevisionInForce> {
        self.kept().revisions.iter().cloned().collect()
    }

    fn kept(&self) -> MutexGuard<'_, KeptChanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeptChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.revisions).finish()
    }
}

/// What `revisions`, one after the other, changed together.
pub(crate) fn together(revisions: &[RevisionInForce]) -> ObjectChanges {
    let mut all = ObjectChanges::default();
    for changes in revisions.iter().map(|revision| &revision.changes) {
        all.left_out += changes.left_out;
        for (object, change) in &changes.objects {
            let first = all.objects.entry(object.clone()).or_insert_with(|| ObjectChange {
                before: change.before.clone(),
                after: None,
            });
            first.after.clone_from(&change.after);
        }
    }
    all.objects
        .retain(|_, change| change.before != change.after || change.is_withheld());
    all
}
