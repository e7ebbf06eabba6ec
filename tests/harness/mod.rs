//! What tests of the built gateway share: throwaway keys, programs that end
//! with the test, an HTTPS client, the gateway itself, and webhooks behind it.
//!
//! ```text
//!  folder ── pki ──> kubeconfig ─┐
//!    │                           ├─> gateway ── process (ends with the test)
//!    └──── ports ────────────────┘    ^   │
//!                       client (HTTPS)┘   └─> webhooks (in the test)
//! ```

#![allow(dead_code, reason = "each test program uses its own part of the harness")]

pub(crate) mod api_server;
pub(crate) mod api_servers;
pub(crate) mod authorizer;
pub(crate) mod client;
pub(crate) mod folder;
pub(crate) mod gateway;
pub(crate) mod jwt;
pub(crate) mod kubeconfig;
pub(crate) mod pki;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod relay;
pub(crate) mod reviews;
pub(crate) mod webhooks;

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what must come: far longer than it takes, so
/// that a busy machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Asks `condition` again and again until it holds; `false` when it did not
/// within [`PATIENCE`].
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}
