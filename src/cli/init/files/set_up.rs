//! What a set-up is to be.

use crate::cli::init::host::{Host, Namespace};

/// The port of the gateway.
pub(crate) const PORT: u16 = 8443;

/// What a set-up is to be.
#[derive(Debug, Default)]
pub(crate) struct SetUp<'a> {
    /// As whom the gateway is reached; none: from its own machine alone.
    pub(crate) hosts: &'a [Host],
    /// The namespace in which the gateway runs, where it runs in the cluster.
    pub(crate) in_cluster: Option<&'a Namespace>,
    /// Further namespaces whose service accounts are never asked about.
    pub(crate) exempt: &'a [Namespace],
    /// Whether there are example policies.
    pub(crate) examples: bool,
    /// Whether the registrations are static manifests.
    pub(crate) is_static: bool,
    /// Whether there is a console, for this machine alone.
    pub(crate) console: bool,
}

// === impl SetUp ===

impl SetUp<'_> {
    /// One to try things with, on this machine alone.
    pub(crate) fn development() -> Self {
        Self {
            examples: true,
            console: true,
            ..Self::default()
        }
    }
}
