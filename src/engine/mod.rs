//! The decision. No IO, clock, HTTP, YAML or wire types.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod attributes;
mod decision;

pub use attributes::{Attributes, Operator, Requirement, ResourceAttributes, Selectors, Target, User};
pub use decision::{Cause, CauseKind, Decision};
