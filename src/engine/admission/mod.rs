//! Admission: what an API server may store, and with which changes.

pub mod matching;
mod outcome;
mod request;

pub use outcome::{Denial, Outcome, Reason, Warnings};
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request};
