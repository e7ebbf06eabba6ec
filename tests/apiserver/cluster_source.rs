//! A gateway that watches the API server whose requests it decides.
//!
//! ```text
//!  kubectl ──▶ kube-apiserver ──── reviews ────▶ gateway
//!                    ▲                              │
//!                    └── relay ◀── lists, watches ──┘
//!                       (can be cut)
//! ```

mod admission;
mod definition;
mod objects;
mod saved;
mod servers;
mod two_clusters;
mod webhooks;
