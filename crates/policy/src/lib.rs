//! What Portcullis decides by: manifests are read and compiled into immutable sets, and
//! requests are decided by them. Nothing here does IO or reads a clock.
//!
//! - [`field`], [`document`]: field paths and errors; YAML and JSON with line numbers
//! - [`manifest`]: policies as users write them, validated, linted and compiled
//! - [`authorization`]: may this user do that?
//! - [`admission`]: may this object be stored, and with which changes?
//! - [`model`]: what both decide by
//! - [`api`]: Kubernetes' wire types
//! - [`explain`]: answers for people and programs

pub mod admission;
pub mod api;
pub mod authorization;
pub mod document;
pub mod explain;
pub mod field;
pub mod manifest;
pub mod model;

/// The fields that a type is read from, the same for tests in here and of the service.
#[cfg(test)]
#[path = "../../../tests/harness/struct_fields.rs"]
mod struct_fields;
