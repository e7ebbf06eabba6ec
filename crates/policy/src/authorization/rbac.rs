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
mod rule_list;
mod rule_table;
mod subject;
mod wildcard_set;

pub use aggregation::{aggregate, aggregated_rules};
pub use path::{AlwaysAllowPaths, InvalidPath, PathPattern};
pub use resolver::{RoleNotFoundError, RoleResolver, rules_for};
pub use rule::{Rule, compare_rule, rule_allows};
pub use rule_list::RuleList;
pub(crate) use rule_table::RuleTable;
pub use subject::{applying_subject, subject_applies};
pub use wildcard_set::WildcardSet;
