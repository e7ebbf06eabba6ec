//! How many connections to API servers there may be. One that speaks HTTP/2 takes one, since all its
//! watches share it; of any other each watch takes one, and who writes an entry of `clusters` decides
//! which it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::descriptors::Descriptors;

/// The most connections of one cluster: one for each kind that can be watched, and a few.
const MAX_OF_CLUSTER: usize = 128;

/// The connections to all API servers that are watched.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The connections to one API server. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct ClusterConnections {
    open: Arc<AtomicUsize>,
    all: &'static AtomicUsize,
    max_of_all: usize,
}

/// A connection that counts as long as this lives.
#[derive(Debug)]
pub(crate) struct ConnectionPlace(ClusterConnections);

/// There are as many connections as may be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TooManyConnections {
    /// Of the cluster.
    #[error("{MAX_OF_CLUSTER} connections to it are open already, as many as there may be of one cluster")]
    OfCluster,
    /// Of all clusters.
    #[error(
        "{0} connections to API servers are open already: this one speaks HTTP/1.1, so that each watch takes one; let \
         it speak HTTP/2, or raise the limit of open files"
    )]
    OfAll(usize),
}

// === impl ClusterConnections ===

impl ClusterConnections {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            open: Arc::default(),
            all: &OPEN,
            max_of_all: Descriptors::of_process().watches,
        }
    }

    /// A place for one more. The first of a cluster may take any; each further one leaves half of
    /// them to clusters that have none.
    pub(crate) fn open(&self) -> Result<ConnectionPlace, TooManyConnections> {
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        let max = if before == 0 {
            self.max_of_all
        } else {
            self.max_of_all / 2
        };
        let all = self.all.fetch_add(1, Ordering::AcqRel);
        // Given back at once where there is no room.
        let place = ConnectionPlace(self.clone());
        if before >= MAX_OF_CLUSTER {
            return Err(TooManyConnections::OfCluster);
        }
        if all >= max {
            return Err(TooManyConnections::OfAll(all));
        }
        Ok(place)
    }
}

// === impl ConnectionPlace ===

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.all.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters(max_of_all: usize) -> impl Fn() -> ClusterConnections {
        let all = &*Box::leak(Box::new(AtomicUsize::new(0)));
        move || ClusterConnections {
            open: Arc::default(),
            all,
            max_of_all,
        }
    }

    #[test]
    fn clusters_with_many_connections_leave_half_to_those_that_have_none() {
        let new = clusters(8);
        let many = new();
        let open: Vec<_> = std::iter::from_fn(|| many.open().ok()).collect();
        assert_eq!(open.len(), 4);
        let others: Vec<_> = (0..4).map(|_| new().open().unwrap()).collect();
        assert!(matches!(new().open(), Err(TooManyConnections::OfAll(8))));
        drop(open);
        assert!(many.open().is_ok(), "what was refused counts no more");
        drop(others);
    }

    #[test]
    fn a_cluster_has_so_many() {
        let new = clusters(10_000);
        let many = new();
        let open: Vec<_> = std::iter::from_fn(|| many.open().ok()).collect();
        assert_eq!(open.len(), MAX_OF_CLUSTER);
        assert!(matches!(many.open(), Err(TooManyConnections::OfCluster)));
        assert!(new().open().is_ok());
    }
}
