//! A gateway that watches the API server whose requests it decides.
//!
//! ```text
//!  kubectl ──▶ kube-apiserver ──── reviews ────▶ gateway
//!                    ▲                              │
//!                    └── relay ◀── lists, watches ──┘
//!                       (can be cut)
//! ```

pub(crate) mod admission;
pub(crate) mod connections;
pub(crate) mod definition;
pub(crate) mod exceptions;
pub(crate) mod labels;
pub(crate) mod objects;
pub(crate) mod older_definition;
pub(crate) mod saved;
pub(crate) mod scopes;
pub(crate) mod servers;
pub(crate) mod status;
pub(crate) mod told_at_once;
pub(crate) mod two_clusters;
pub(crate) mod webhooks;
