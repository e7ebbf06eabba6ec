//! Runs tests as Rust's own harness does, but counts as ignored each that could not run for want
//! of a program: that harness has to know before a test begins.

use std::cell::RefCell;
use std::env;

use libtest_mimic::{Arguments, Completion, Trial};

/// A test and its name, such as `reload::the_next_request_is_decided_by_new_policies`.
pub(crate) type Test = (&'static str, fn());

/// The tests at these paths.
macro_rules! tests {
    ($($test:path),+ $(,)?) => {
        &[$((stringify!($test), $test)),+]
    };
}
pub(crate) use tests;

thread_local! {
    /// What the test that runs on this thread lacks.
    static MISSING: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs those of `tests` that the arguments of this process name, and of `slow` those that are
/// asked for with `--ignored` or `--include-ignored`; then ends it.
pub(crate) fn run(tests: &[Test], slow: &[Test]) {
    let trial = |&(name, test): &Test| {
        Trial::ignorable_test(name, move || {
            MISSING.take();
            test();
            let missing = MISSING.take();
            Ok(missing.map_or(Completion::Completed, Completion::ignored_with))
        })
    };
    let slow = slow.iter().map(|test| trial(test).with_ignored_flag(true));
    let trials = tests.iter().map(trial).chain(slow).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The test that runs on this thread cannot, for want of what `missing` names: it is to return,
/// and counts as ignored.
///
/// # Panics
/// When the environment variable `required` is `1`.
pub(crate) fn ignore(missing: &str, required: Option<&str>) {
    let value = required.and_then(|variable| env::var(variable).ok());
    let is_required = value.is_some_and(|value| value == "1");
    assert!(!is_required, "no {missing}");
    MISSING.set(Some(format!("no {missing}")));
}
