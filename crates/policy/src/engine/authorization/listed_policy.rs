//! A policy in its place.

use std::sync::Arc;

use super::objects::AuthorizationPolicy;

/// A policy of a set, its place among all, and its name as metrics and logs share it.
#[derive(Debug)]
pub(super) struct ListedPolicy {
    pub(super) place: usize,
    pub(super) name: Arc<str>,
    pub(super) policy: Arc<AuthorizationPolicy>,
}
