//! Tokens of issuers, honest and otherwise.

mod claims;
mod entries;
mod forms;
pub(crate) mod issuer;
mod keys;
mod memory;
mod signatures;
mod webhooks;
