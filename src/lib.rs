//! Portcullis answers the authorization and admission webhooks of a Kubernetes API server. This
//! crate is the service around [`portcullis_policy`], which makes the decisions.

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

/// Test certificates, shared with the tests in `tests/`.
#[cfg(test)]
#[path = "../tests/harness/pki.rs"]
mod pki;

/// Lists the fields that a type deserializes, shared with the tests of the policy crate.
#[cfg(test)]
#[path = "../tests/harness/struct_fields.rs"]
mod struct_fields;

/// The validator of `config/schemas`, shared with the tests in `tests/`.
#[cfg(test)]
#[path = "../tests/harness/json_schema.rs"]
mod json_schema;
