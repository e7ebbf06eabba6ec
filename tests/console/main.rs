//! The console in a browser: headless Chromium, a real kube-apiserver and real requests.
//!
//! Needs Debian's `chromium` and `chromium-driver`, the API server of `tests/apiserver/build`,
//! and axe-core (`tests/console/fetch-axe`); `just console` has them all. Where one is missing,
//! a test says that it was not run and passes; with `PORTCULLIS_REQUIRE_CHROMIUM=1` and
//! `PORTCULLIS_REQUIRE_APISERVER=1` it fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../harness/mod.rs"]
mod harness;

#[path = "../apiserver/binaries.rs"]
#[allow(dead_code, reason = "the tests of the API server use the rest")]
mod binaries;
#[allow(dead_code, reason = "what a browser does, of which each view needs some")]
mod chromium;
#[path = "../apiserver/cluster.rs"]
#[allow(dead_code, reason = "the tests of the API server use the rest")]
mod cluster;
mod every_page;
mod keyboard;
#[path = "../apiserver/lease.rs"]
mod lease;
mod pages;
#[allow(dead_code, reason = "names that are shown by views to come")]
mod policies;
mod servers;
mod webdriver;
