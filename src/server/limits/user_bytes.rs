//! How many bytes the reviews of each user hold.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes by a hash of cluster and user name, whose length then does not matter.
#[derive(Debug, Default)]
pub(crate) struct UserBytes {
    bytes: Mutex<HashMap<u64, usize>>,
    /// Has its own keys in each process, so that nobody can choose a name that shares a
    /// count with another's.
    hasher: RandomState,
}

impl UserBytes {
    pub(crate) fn key(&self, cluster: &str, user: &str) -> u64 {
        self.hasher.hash_one((cluster, user))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
