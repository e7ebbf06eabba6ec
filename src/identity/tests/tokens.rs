//! Tokens of issuers, honest and otherwise.

mod claims;
mod entries;
mod forms;
mod issuer;
mod keys;
mod memory;
mod signatures;
