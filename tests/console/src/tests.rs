//! The console in a browser: headless Chromium, a real kube-apiserver and real requests.
//!
//! Needs Debian's `chromium` and `chromium-driver`, the API server of `tests/apiserver/build`,
//! axe-core (`tests/console/fetch-axe`), and the built program in `PORTCULLIS_PROGRAM`; `just
//! console` has them all. Without the browser or the API server a test says that it was not run
//! and passes; with `PORTCULLIS_REQUIRE_CHROMIUM=1` and `PORTCULLIS_REQUIRE_APISERVER=1` it fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../../harness/mod.rs"]
mod harness;

#[path = "../../apiserver/binaries.rs"]
#[allow(dead_code, reason = "the tests of the API server use the rest")]
mod binaries;
mod chromium;
#[path = "../../apiserver/cluster.rs"]
#[allow(dead_code, reason = "the tests of the API server use the rest")]
mod cluster;
mod commands;
mod every_page;
mod foreign;
mod hostile;
mod keyboard;
#[path = "../../apiserver/lease.rs"]
mod lease;
mod live;
mod many_pages;
mod pages;
mod policies;
mod screenshots;
mod servers;
mod trials;
mod webdriver;
mod without_scripts;
