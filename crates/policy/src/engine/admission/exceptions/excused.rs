//! A denial that an exception excused.

use std::sync::Arc;

use super::Exception;

/// Denials of one policy or webhook that an exception excused.
#[derive(Debug, Clone)]
pub struct Excused {
    /// The exception.
    pub exception: Arc<Exception>,
    /// The policy, or `configuration/webhook`.
    pub policy: String,
}
