//! The CEL environment of conditions.

use std::sync::LazyLock;

use crate::cel::{Environment, Version};

/// The one variable.
pub(super) const REQUEST: &str = "request";

pub(super) fn environment() -> &'static Environment {
    static ENVIRONMENT: LazyLock<Environment> =
        LazyLock::new(|| Environment::authorization(Version::DEFAULT));
    &ENVIRONMENT
}
