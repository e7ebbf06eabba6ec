//! The CEL environment of conditions.

use portcullis_cel::{Environment, PerVersion, Version};

/// The one variable.
pub(super) const REQUEST: &str = "request";

pub(super) fn environment(version: Version) -> &'static Environment {
    static ENVIRONMENTS: PerVersion<Environment> = PerVersion::new();
    ENVIRONMENTS.of(version, Environment::authorization)
}
