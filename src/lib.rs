//! Portcullis answers the authorization and admission webhooks of a Kubernetes
//! API server.
//!
//! Two rings, kept apart by the `server` feature (ARCHITECTURE.md):
//!
//! - inner, without IO, clock or HTTP: [`field`], [`json`], [`document`], [`cel`],
//!   [`engine`] (the decision), [`manifest`] (policies as users write them) and
//!   [`api`] (Kubernetes' wire types);
//! - outer: `config`, `certificates`, `authentication`, `telemetry`, `tls`, `upstream`, `authorizers`, `recording`, `reload`, `cluster`, `answers`, `console`, `server`, `cli`.

pub mod api;
pub mod cel;
pub mod document;
pub mod engine;
pub mod field;
pub mod json;
pub mod manifest;

#[cfg(feature = "server")]
mod answers;
#[cfg(feature = "server")]
pub mod authentication;
#[cfg(feature = "server")]
pub mod authorizers;
#[cfg(feature = "server")]
pub mod certificates;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod console;
#[cfg(feature = "server")]
pub mod recording;
#[cfg(feature = "server")]
pub mod reload;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod telemetry;
#[cfg(feature = "server")]
pub mod tls;
#[cfg(feature = "server")]
pub mod upstream;

/// Throwaway certificates, the same for tests in here and in `tests/`.
#[cfg(test)]
#[cfg(feature = "server")]
#[path = "../tests/harness/pki.rs"]
mod pki;

/// The validator of `config/schemas`, the same for tests in here and in `tests/`.
#[cfg(test)]
#[cfg(feature = "server")]
#[path = "../tests/harness/json_schema.rs"]
mod json_schema;
