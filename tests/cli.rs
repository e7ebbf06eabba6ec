//! The program as people run it: arguments, output, exit codes, files left behind.
//!
//! Each test runs the real binary in a folder of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

#[path = "harness/mod.rs"]
mod harness;

#[path = "cli/access_requests.rs"]
mod access_requests;
#[path = "cli/admit.rs"]
mod admit;
#[path = "cli/authorize.rs"]
mod authorize;
#[path = "cli/authorizers.rs"]
mod authorizers;
#[path = "cli/bad_files.rs"]
mod bad_files;
#[path = "cli/bundle.rs"]
mod bundle;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/convert.rs"]
mod convert;
#[path = "cli/diff.rs"]
mod diff;
#[path = "cli/escalations.rs"]
mod escalations;
#[path = "cli/expressions.rs"]
mod expressions;
#[path = "cli/hostile_text.rs"]
mod hostile_text;
#[path = "cli/init.rs"]
mod init;
#[path = "cli/input.rs"]
mod input;
#[path = "cli/invariants.rs"]
mod invariants;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/live_cluster.rs"]
mod live_cluster;
#[path = "cli/manifests.rs"]
mod manifests;
#[path = "cli/object_conditions.rs"]
mod object_conditions;
#[path = "cli/pack.rs"]
mod pack;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/renew.rs"]
mod renew;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/run.rs"]
mod run;
#[path = "cli/sarif.rs"]
mod sarif;
#[path = "cli/scan.rs"]
mod scan;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/suggest.rs"]
mod suggest;
#[path = "cli/test.rs"]
mod test;
#[path = "cli/test_runner.rs"]
mod test_runner;
#[path = "cli/tour.rs"]
mod tour;
#[path = "cli/webhooks.rs"]
mod webhooks;
#[path = "cli/who_can.rs"]
mod who_can;
