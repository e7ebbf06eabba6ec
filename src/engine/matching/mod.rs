//! What the texts of rules mean, one file for each kind of text.
//!
//! RBAC's own matching is in [`rbac`](super::rbac); this is what
//! AuthorizationPolicies add to it, and what both share.

mod label_selector;

pub use label_selector::{LabelExpression, LabelSelector, LabelSelectorFault};
