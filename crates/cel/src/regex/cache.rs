//! A cache of compiled patterns that come with requests.
//!
//! It has two generations: an entry that is used moves from the old one to the new one,
//! and when the new one is full, the old one is dropped. It contains only small patterns
//! and no search states, so that it needs little memory.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::error::Fault;
use super::parser::Meter;
use super::{Keep, MAX_BYTES_OF_REQUEST, Regex};

/// How many patterns a generation holds.
const PATTERNS: usize = 256;

/// How long a pattern may be to be held.
const LENGTH: usize = 1024;

/// How many states it may have to be held: at most 64 MB are, in all, the second automata
/// included.
const STATES: usize = 1024;

static CACHE: LazyLock<Mutex<Generations>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<Regex>>,
    old: HashMap<Box<str>, Arc<Regex>>,
}

/// The pattern, compiled now or before.
///
/// # Errors
///
/// As of [`Regex::new`].
pub(crate) fn compiled(pattern: &str, meter: Meter<'_>) -> Result<Arc<Regex>, Fault> {
    let cached = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = cached().find(pattern) {
        return Ok(found);
    }
    let made = Arc::new(Regex::with(pattern, Keep::Nothing, MAX_BYTES_OF_REQUEST, meter)?);
    if pattern.len() <= LENGTH && made.states() <= STATES {
        cached().put(pattern, Arc::clone(&made));
    }
    Ok(made)
}

// === impl Generations ===

impl Generations {
    fn find(&mut self, pattern: &str) -> Option<Arc<Regex>> {
        if let Some(found) = self.young.get(pattern) {
            return Some(Arc::clone(found));
        }
        let found = self.old.remove(pattern)?;
        self.put(pattern, Arc::clone(&found));
        Some(found)
    }

    fn put(&mut self, pattern: &str, made: Arc<Regex>) {
        if self.young.len() >= PATTERNS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(pattern.into(), made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_is_used_and_no_more_than_it_may() {
        let mut generations = Generations::default();
        let regex = Arc::new(Regex::new("a", &mut |_| true).unwrap());
        for number in 0..10 * PATTERNS {
            generations.put(&number.to_string(), Arc::clone(&regex));
            assert!(generations.find("0").is_some(), "lost at {number}");
            assert!(generations.young.len() + generations.old.len() <= 2 * PATTERNS);
        }
        assert!(generations.find("1").is_none());
    }
}
