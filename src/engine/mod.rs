//! The decision: [`authorization`] and [`admission`], and what both use. No IO,
//! clock, HTTP, YAML or wire types.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod admission;
mod attributes;
pub mod authorization;
mod decision;
mod evaluation;
mod label_selector;
pub mod selector;
mod text;
mod time;

pub use attributes::{Attributes, Operator, Requirement, ResourceAttributes, Selectors, Target, User};
pub use decision::{Cause, CauseKind, Decision};
pub use evaluation::Evaluation;
pub use label_selector::{
    LabelExpression, LabelSelector, LabelSelectorFault, NAMESPACE_NAME_LABEL, Selected,
};
pub(crate) use label_selector::{is_label_key, is_label_value};
pub use time::{Time, Validity};
