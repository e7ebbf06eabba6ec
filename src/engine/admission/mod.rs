//! Admission: what an API server may store, and with which changes.

pub mod matching;
mod request;

pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request};
