//! [`admission`], and what it and [`authorization`](crate::authorization) decide by. No IO,
//! clock, HTTP, YAML or wire types.

pub mod admission;
mod attributes;
mod decision;
pub mod groups;
mod label_selector;
pub mod selector;
mod status_reason;
pub mod text;
mod time;

pub use attributes::{
    Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User,
};
pub use decision::{Cause, CauseKind, Decision, PolicyResult};
pub use label_selector::{
    LabelExpression, LabelSelector, LabelSelectorFault, NAMESPACE_NAME_LABEL, Selected,
};
pub(crate) use label_selector::{is_label_key, is_label_value, label_key_faults, label_value_faults};
pub use status_reason::StatusReason;
pub use time::{Deadline, Time, Validity};
