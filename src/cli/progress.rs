//! How far long work is, on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use portcullis_policy::explain::lines::one_line;

/// How often it is said.
const EVERY: Duration = Duration::from_millis(200);

/// One line on standard error that is written over; none where that is no terminal.
pub(crate) struct ProgressLine {
    is_terminal: bool,
    shown: Option<Instant>,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            shown: None,
        }
    }

    /// Says how far the work is, unless that was said just before.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        // That it cannot be said is no failure.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", one_line(&text()));
    }

    /// Takes the line away, before something else is written.
    pub(crate) fn clear(&mut self) {
        if self.is_terminal && self.shown.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
