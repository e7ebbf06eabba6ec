//! Proof: statements about all requests, and not about one.
//!
//! What a rule allows or denies is a [`Region`]: a box whose sides are sets of verbs, resources,
//! namespaces, users, groups, and so on. Regions are taken from regions, so that what is left is
//! exactly what, say, a changed binding grants and nothing else did. Conditions that compare texts
//! with constants are worked out; any other expression of CEL stays an unknown of the region, equal
//! expressions being one.
//!
//! Of a requested resource, the subresource stands apart (`pods/log` is no resource), as in the
//! requests of an API server.

mod condition;
mod difference;
mod grants;
mod idle;
mod invariant;
mod limit;
mod pieces;
mod predicates;
mod region;
mod rules;
mod sets;
mod witness;
mod words;

pub use condition::{AskedNamespaceLabels, Outcomes, Side};
pub use difference::{Answer, DecisionChange, changed_reasons, difference};
pub use idle::{IdlePart, idle_parts};
pub use invariant::{Breach, InvariantProof, InvariantStatus, MAX_BREACHES, UnknownRoles};
pub use limit::{ProofLimitError, WorkLimit};
pub use region::Region;
pub(crate) use sets::groups_of_account;
pub use sets::{GroupSet, Patterns, SelectorSet, TextSet};
pub use witness::Witness;
pub use words::{RegionSummary, request_in_words};

#[cfg(test)]
mod tests;
