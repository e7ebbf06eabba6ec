//! Matching of AuthorizationPolicies, one file for each kind of field.
//!
//! RBAC's own matching is in [`rbac`](super::rbac); this is what AuthorizationPolicies
//! add to it. An Allow applies if the request is *within* a rule, a Deny if the request
//! *touches* a rule, and every function here names the one that it implements:
//!
//! | requested           | within (Allow)       | touches (Deny)                          |
//! |---------------------|----------------------|-----------------------------------------|
//! | verb or group `*`   | a rule's `*` only    | any                                     |
//! | resource `*`        | a rule's `*` only    | any; with a subresource, any that has it |
//! | no namespace        | `""` only            | also any, for a list, watch, deletecollection or `*`, unless known to be cluster-scoped |
//! | namespaceSelector, no namespace | nothing   | as above                                |
//! | namespaceSelector, unknown labels | what the name proves | what the name does not rule out |
//! | no name             | nothing              | also any, for a list, watch, deletecollection or `*` |
//! | selectors           | at least `selectors` | not at least `unlessSelectors`          |

mod cluster_scoped;
mod policy_rule;
mod resource;

pub use cluster_scoped::{ClusterScoped, NamespacePattern, is_known_cluster_scoped};
pub use policy_rule::{
    asks_for_collection, compare_path_rule, compare_resource_rule, namespace_of, subject_matches,
};
pub use resource::{Narrowness, RequestedResource, ResourcePattern, Wildcard};
