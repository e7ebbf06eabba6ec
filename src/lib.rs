//! Portcullis answers the authorization and admission webhooks of a Kubernetes
//! API server: the service around the decision of [`portcullis_policy`].

pub mod bundle;
pub mod cli;
pub mod cluster;
mod columns;
pub mod config;
pub mod console;
pub mod identity;
pub mod recording;
pub mod server;
pub mod state;
pub mod telemetry;
pub mod usage;
pub mod webhooks;

/// Throwaway certificates, the same for tests in here and in `tests/`.
#[cfg(test)]
#[path = "../tests/harness/pki.rs"]
mod pki;

/// The fields that a type is read from, the same for tests in here and of the policy crate.
#[cfg(test)]
#[path = "../tests/harness/struct_fields.rs"]
mod struct_fields;

/// The validator of `config/schemas`, the same for tests in here and in `tests/`.
#[cfg(test)]
#[path = "../tests/harness/json_schema.rs"]
mod json_schema;
