//! The index: finds the rules that could apply to a request, however many are loaded.
//!
//! ```text
//! user, groups, namespace ──▶ bindings: RBAC's first rule that allows
//! user, groups ──┐
//! verb, group, … ┴─▶ query ─▶ policies: rules that may apply, each then compared in full
//! ```

mod bindings;
mod namespaces;
mod policies;
mod query;
mod rule_fields;

pub(crate) use bindings::{BindingIndex, BoundRole, Grant};
pub(crate) use namespaces::NamespaceIndex;
pub(crate) use policies::{IndexedPolicy, IndexedRule, PolicyGroup, PolicyIndex, PolicyRule, UserRules};
pub(crate) use query::{PolicyQuery, TermIds};
