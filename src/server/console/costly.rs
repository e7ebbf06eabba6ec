//! Views that may take long: one at a time is made.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::console::{ViewError, VisibleClusters};

/// How long one waits for others that take long.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// How many views of those who see the same clusters are made, or waited for, at once: others wait
/// for so many at most.
const MAX_PER_VIEWER: usize = 8;

/// Who makes, or waits to make, a view that may take long.
#[derive(Debug)]
pub(crate) struct CostlyViews {
    turn: Semaphore,
    counts: Rc<RefCell<HashMap<VisibleClusters, usize>>>,
}

/// The turn of one view, until it is dropped.
pub(crate) struct CostlyTurn<'c> {
    _turn: SemaphorePermit<'c>,
    _place: CostlyPlace,
}

/// The place of one view among those of who sees the same.
struct CostlyPlace {
    visible: VisibleClusters,
    counts: Rc<RefCell<HashMap<VisibleClusters, usize>>>,
}

// === impl CostlyViews ===

impl CostlyViews {
    pub(crate) fn new() -> Self {
        Self {
            turn: Semaphore::new(1),
            counts: Rc::default(),
        }
    }

    /// Waits for the turn of a view for who sees `visible`.
    ///
    /// # Errors
    ///
    /// Too many are made for them, or others take too long.
    pub(crate) async fn enter(&self, visible: &VisibleClusters) -> Result<CostlyTurn<'_>, ViewError> {
        let place = self.place(visible).ok_or(ViewError::Busy)?;
        let turn = timeout(MAX_WAIT, self.turn.acquire()).await;
        Ok(CostlyTurn {
            _turn: turn.ok().and_then(Result::ok).ok_or(ViewError::Busy)?,
            _place: place,
        })
    }

    fn place(&self, visible: &VisibleClusters) -> Option<CostlyPlace> {
        let mut counts = self.counts.borrow_mut();
        let count = counts.entry(visible.clone()).or_default();
        if *count >= MAX_PER_VIEWER {
            return None;
        }
        *count += 1;
        Some(CostlyPlace {
            visible: visible.clone(),
            counts: Rc::clone(&self.counts),
        })
    }
}

// === impl CostlyPlace ===

impl Drop for CostlyPlace {
    fn drop(&mut self) {
        let mut counts = self.counts.borrow_mut();
        if let Some(count) = counts.get_mut(&self.visible) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.visible);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_views_of_one_cluster_leave_others_their_turn() {
        let views = CostlyViews::new();
        let one = VisibleClusters::One("east".into());
        let places: Vec<_> = (0..MAX_PER_VIEWER).map(|_| views.place(&one).unwrap()).collect();
        assert!(views.place(&one).is_none());
        assert!(views.place(&VisibleClusters::All).is_some());
        assert!(views.place(&VisibleClusters::One("west".into())).is_some());
        drop(places);
        assert!(views.place(&one).is_some());
        assert!(views.counts.borrow().is_empty());
    }
}
