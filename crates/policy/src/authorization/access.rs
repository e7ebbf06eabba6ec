//! Who may do something, and what a user may do: answered from the policy set, without a
//! request that names everything.
//!
//! ```text
//! OpenRequest ──▶ grants: rules of bindings and Allow policies that may allow it
//!                    │  each: the requests that it allows (examples stand for all of them)
//!                    ▼
//!                 denies: which of these each Deny policy touches, and whom it hits
//! ```
//!
//! Nothing is decided by a second reading of the rules: whether a rule allows or denies is
//! asked of the code that decides requests, about examples. An example stands for all
//! requests that no rule tells from it, so that a few are enough: a name that a rule has, a
//! name that none has, no name; and so for namespaces.

mod denies;
mod grants;
mod limits;
mod open_request;
mod query;
mod requests;
mod subject_scope;
mod who_can;

pub use open_request::{OpenRequest, OpenResource, OpenTarget, Within};
pub use who_can::{AllowedShare, Grantee, Permission, Via};
