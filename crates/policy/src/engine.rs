//! [`admission`], and what it and [`authorization`](crate::authorization) decide by. No IO,
//! clock, HTTP, YAML or wire types.

pub mod admission;
mod attributes;
mod decision;
mod label_selector;
pub mod selector;
pub mod text;
mod time;

pub use attributes::{
    Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User,
};
pub use decision::{Cause, CauseKind, Decision, PolicyResult, StatusReason};
pub use label_selector::{
    LabelExpression, LabelSelector, LabelSelectorFault, NAMESPACE_NAME_LABEL, SelectorMatch,
};
pub(crate) use label_selector::{is_label_key, is_label_value, label_key_faults, label_value_faults};
pub use time::{Deadline, Time, Validity};

/// The API groups whose objects decide, by name.
pub mod groups {
    /// Roles and their bindings.
    pub const RBAC: &str = "rbac.authorization.k8s.io";

    /// Admission's policies, bindings and webhook configurations.
    pub const ADMISSION: &str = "admissionregistration.k8s.io";

    /// Portcullis' own.
    pub const PORTCULLIS: &str = "portcullis.dev";
}
