//! RBAC, exactly as in Kubernetes: rules, subjects, role references, aggregation, and
//! paths.
//!
//! These functions are the reference; [`PolicySet`](super::PolicySet) gives the same
//! answers from an index. Where kube-apiserver's order depends on its caches, objects are
//! ordered by name here: ClusterRoleBindings, then the RoleBindings of the request's
//! namespace (`pkg/registry/rbac/validation/rule.go`).

mod aggregation;
mod path;
mod resolver;
mod rule;
mod rule_table;

pub use aggregation::{aggregate, aggregated_rules};
pub use path::{AlwaysAllowPaths, InvalidPath, PathPattern, WildcardSet};
pub use resolver::{RoleNotFoundError, RoleResolver, applying_subject, rules_for, subject_applies};
pub use rule::{Rule, compare_rule, rule_allows};
pub use rule_table::RuleList;
pub(crate) use rule_table::RuleTable;
