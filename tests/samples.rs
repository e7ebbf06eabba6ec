//! Every example that the project ships, and what `init` writes, is loaded by
//! the code that loads what users write.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

#[path = "samples/admission.rs"]
mod admission;
#[path = "samples/alerts.rs"]
mod alerts;
#[path = "samples/authorization_configuration.rs"]
mod authorization_configuration;
#[path = "samples/compose.rs"]
mod compose;
#[path = "samples/configuration.rs"]
mod configuration;
#[path = "samples/dashboard.rs"]
mod dashboard;
#[path = "samples/flags.rs"]
mod flags;
#[path = "harness/json_schema.rs"]
mod json_schema;
#[path = "samples/kubeconfigs.rs"]
mod kubeconfigs;
#[path = "samples/policies.rs"]
mod policies;
#[path = "samples/project.rs"]
mod project;
#[path = "samples/recipes.rs"]
mod recipes;
#[path = "samples/reference.rs"]
mod reference;
#[path = "samples/release.rs"]
mod release;
#[path = "samples/schemas.rs"]
mod schemas;
#[path = "samples/tutorial.rs"]
mod tutorial;
