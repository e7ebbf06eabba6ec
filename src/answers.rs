//! Answers for people and programs: what decides a request, who may do something, what becomes
//! of a manifest. The command line prints them and the console shows them, so both give the same
//! answer to the same question.
//!
//! ```text
//! question --> the engine's own functions --> a report --> JSON (`serde::Serialize`) | words (`Display`)
//! ```
//!
//! Nothing here reads arguments or files, and nothing is called.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod authorization;
pub(crate) mod authorizers;
pub(crate) mod kinds;
pub(crate) mod logged;
pub(crate) mod manifests;
pub(crate) mod objects;
mod policies;
pub(crate) mod recorded;
pub(crate) mod replayed;
pub(crate) mod request;
mod table;
pub(crate) mod what_can;
pub(crate) mod who_can;
pub(crate) mod written_review;

pub(crate) use policies::LoadedPolicies;
pub(crate) use table::TextTable;
