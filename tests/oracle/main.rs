//! What the gateway makes of generated input, and what Kubernetes' own code
//! makes of it.
//!
//! `tests/oracle/build` makes the program that answers for Kubernetes. Where it
//! is missing, each test says that it was not run and passes; with
//! `PORTCULLIS_REQUIRE_ORACLE=1` it fails.
//!
//! What is generated depends on a seed alone: `PORTCULLIS_ORACLE_SEED`, 1 unless
//! set. `PORTCULLIS_ORACLE_CASES` says how many cases each test generates.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod answers;
mod cel;
mod differences;
mod failures;
mod grammar;
#[path = "../harness/inner.rs"]
mod inner;
mod objects;
mod outcome;
mod pod_security;
mod program;
mod random;
mod regex;
#[path = "../harness/reviews.rs"]
mod reviews;
mod tables;
#[path = "../cel/variables.rs"]
mod variables;
mod written;
mod yaml;
