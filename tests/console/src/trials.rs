//! What `tests/apiserver` says of a test that cannot run. Here Rust's own harness runs the tests, so
//! that such a test says so and passes.

use std::{env, thread};

/// The test cannot run, for want of what `missing` names, and is to return.
///
/// # Panics
/// When the environment variable `required` is `1`.
pub(crate) fn ignore(missing: &str, required: Option<&str>) {
    let value = required.and_then(|variable| env::var(variable).ok());
    let thread = thread::current();
    let message = format!("NOT RUN: {}: no {missing}", thread.name().unwrap_or("a test"));
    assert!(value.is_none_or(|value| value != "1"), "{message}");
    eprintln!("{message}");
}
