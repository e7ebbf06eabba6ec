//! The decision engine of Portcullis: reads manifests, compiles them into immutable sets, and
//! decides requests by them. Nothing here does IO or reads a clock.
//!
//! - [`field`], [`document`]: field paths and errors; YAML and JSON with line numbers
//! - [`manifest`]: policies as users write them, validated, linted and compiled
//! - [`authorization`]: may this user do that?
//! - [`admission`]: may this object be stored, and with which changes?
//! - [`model`]: types that authorization and admission share
//! - [`api`]: Kubernetes' wire types
//! - [`explain`]: explanations for people and programs

pub mod admission;
pub mod api;
pub mod authorization;
pub mod document;
pub mod explain;
pub mod field;
pub mod manifest;
pub mod model;

/// A check of the fields that a type is deserialised from, which the tests of this crate and of the
/// service share.
#[cfg(test)]
#[path = "../../../tests/harness/struct_fields.rs"]
mod struct_fields;
