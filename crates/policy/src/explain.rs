//! Answers for people and programs: what decides a request, who may do something, what becomes
//! of a manifest. The command line prints them and the console shows them, so both give the same
//! answer to the same question.
//!
//! ```text
//! question --> the engine's own functions --> a report --> JSON (`serde::Serialize`) | words (`Lines`)
//! ```
//!
//! Nothing here reads arguments or files, and nothing is called.

pub mod access;
pub mod admission;
pub mod authorization;
pub mod authorizers;
pub mod kinds;
pub mod lines;
pub mod logged;
pub mod manifests;
pub mod objects;
mod policies;
pub mod recorded;
pub mod replayed;
pub mod request;
mod table;
pub mod what_can;
pub mod who_can;
pub mod written_review;

pub use lines::Lines;
pub use policies::LoadedPolicies;
pub use table::TextTable;
