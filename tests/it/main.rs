//! The gateway over its sockets: TLS, HTTP, callers, limits, drain, metrics, log.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../harness/collector.rs"]
mod collector;
#[path = "../harness/mod.rs"]
mod harness;
mod support;
mod times;

mod admission;
mod answers;
mod attacks;
mod authorizers;
mod bundles;
mod clusters;
mod connections;
mod console;
mod drain;
mod h2;
mod hostile;
mod invariants;
mod limits;
mod many_clusters;
mod path_tokens;
mod process;
mod recording;
mod refusals;
mod reload;
mod seeing;
mod tenants;
mod tls;
mod tracing;
mod usage;
mod webhook_tokens;
mod webhooks;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod wide;
