//! A gateway that watches the API server whose requests it decides.
//!
//! ```text
//!  kubectl ──▶ kube-apiserver ──── reviews ────▶ gateway
//!                    ▲                              │
//!                    └── relay ◀── lists, watches ──┘
//!                       (can be cut)
//! ```

mod admission;
mod connections;
mod definition;
mod exceptions;
mod labels;
mod objects;
mod older_definition;
mod saved;
mod scopes;
mod servers;
mod status;
mod told_at_once;
mod two_clusters;
mod webhooks;
