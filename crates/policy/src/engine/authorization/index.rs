//! The index: finds the rules that could apply to a request, however many are
//! loaded.
//!
//! ```text
//! user, groups ──> subjects ──> ids ─┬─> grants      RBAC: first rule that allows
//!                                    └─> candidates  policies: rules that may apply
//! verb, group, ... ──> symbols ──> query ─┘
//! ```
//!
//! Strings in rules become numbers when the index is built, so that each string of a
//! request is hashed once, however many rules there are. Hashes have a random seed: no
//! user can choose names that collide.

mod candidate_field;
mod candidates;
mod cells;
mod fields;
mod grants;
mod ids;
mod namespaces;
mod query;
mod rule_set;
mod subjects;
mod symbols;
mod text_numbers;
mod texts;

use std::collections::HashMap;

pub(super) use candidates::{Candidate, Candidates, RuleBlocks, RuleQuery};
pub(super) use grants::{Grant, Grants};
pub(super) use ids::Ids;
pub(super) use namespaces::{NamespaceIndex, NamespaceSelectors};
pub(super) use query::Query;
pub(super) use subjects::Subjects;
pub(super) use symbols::Symbols;

type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
