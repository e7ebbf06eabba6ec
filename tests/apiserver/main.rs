//! Portcullis and a real kube-apiserver.
//!
//! `tests/apiserver/build` makes the programs, or `KUBEBUILDER_ASSETS` names
//! the folder that holds them. Where they are missing, each test says that it
//! was not run and passes; with `PORTCULLIS_REQUIRE_APISERVER=1` it fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod admission;
mod authorizers;
mod binaries;
mod builtin_roles;
mod callers;
mod cluster;
mod cluster_source;
mod control_plane;
mod decisions;
mod differential;
mod excluded;
mod failures;
mod hostile;
mod impersonation;
mod in_cluster;
mod installs;
mod lease;
mod legacy;
mod live;
mod never_deny;
mod not_run;
mod reload;
mod renewal;
mod routes;
mod scenario;
mod schema;
mod selectors;
mod services;
mod static_manifests;
mod watch_set_up;
mod webhooks;
