//! Servers that several tests share; each test has objects of its own.

use std::ops::Deref;
use std::sync::LazyLock;
use std::thread;

use crate::binaries;

/// Servers that write logs.
pub(crate) trait Logs {
    /// The ends of their logs.
    fn logs(&self) -> String;
}

/// A test's use of shared servers. Prints their logs when the test fails.
pub(crate) struct Lease<T: Logs + 'static>(&'static T);

impl<T: Logs> Lease<T> {
    /// Of these servers, which are started for the first; `None` without the programs.
    pub(crate) fn of(servers: &'static LazyLock<T>) -> Option<Self> {
        binaries::find()?;
        Some(Self(servers))
    }
}

impl<T: Logs> Deref for Lease<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Logs> Drop for Lease<T> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}
