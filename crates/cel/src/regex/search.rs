//! Searches strings with a lazy DFA, piece by piece.
//!
//! The search reads the string byte by byte, and calls the meter for each piece, so that a search
//! with a large pattern and a long string can be stopped. A byte costs one step of the DFA or, if a
//! state has to be built first, as many steps as the NFA has states; the size of the pieces
//! accounts for that.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::NFA;
use regex_automata::util::pool::Pool;
use regex_automata::{Anchored, Input, MatchKind};

use super::parser::Meter;
use super::{CompileFault, Keep, MAX_BYTES_OF_REQUEST, Regex};

/// The most steps between two calls of the meter.
const STRIDE: usize = 1 << 18;

/// The most bytes for the states that a search builds, unless the pattern needs more for a few
/// states.
const MAX_CACHE_BYTES: usize = 256 << 10;

/// The search was given up: the meter returned `false`, or a limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoppedError;

/// The most bytes of states that are kept for later searches, for all patterns together.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// The bytes of states that are kept.
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Searches in one direction.
pub(crate) struct Automaton {
    dfa: DFA,
    states: usize,
    bytes: usize,
    /// The kept states, if they are kept: a cache for each thread.
    caches: Option<Pool<KeptStates, CreateCache>>,
}

type CreateCache =
    Box<dyn Fn() -> KeptStates + Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>;

/// The states that searches built, and the bytes counted for them.
#[derive(Default)]
struct KeptStates {
    cache: Option<Cache>,
    bytes: usize,
}

/// The result of a step of the DFA.
enum DfaStep {
    Matched,
    Dead,
    Other,
}

// === impl Automaton ===

impl Automaton {
    pub(crate) fn new(nfa: NFA, backward: bool, keep: Keep) -> Option<Self> {
        let (states, bytes) = (nfa.states().len(), nfa.memory_usage());
        let kind = if backward {
            MatchKind::All
        } else {
            MatchKind::LeftmostFirst
        };
        let config = DFA::config()
            .match_kind(kind)
            .cache_capacity(MAX_CACHE_BYTES)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).ok()?;
        let pool = || Pool::new(Box::new(KeptStates::default) as CreateCache);
        let caches = (keep == Keep::States).then(pool);
        Some(Self {
            dfa,
            states,
            bytes,
            caches,
        })
    }

    pub(crate) const fn states(&self) -> usize {
        self.states
    }

    /// The bytes of memory, without the kept states.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `search` with a cache for states.
    fn with_cache<T>(&self, search: impl FnOnce(&mut Cache) -> T) -> T {
        let Some(pool) = &self.caches else {
            return search(&mut self.dfa.create_cache());
        };
        let mut kept = pool.get();
        let found = search(kept.cache.get_or_insert_with(|| self.dfa.create_cache()));
        kept.update_count();
        found
    }

    /// The end of the first match at or after `start`; if `earliest`, the position at which it is
    /// known that there is a match.
    pub(crate) fn end(
        &self,
        text: &str,
        start: usize,
        earliest: bool,
        meter: Meter<'_>,
    ) -> Result<Option<usize>, StoppedError> {
        self.with_cache(|cache| self.end_with(cache, text, start, earliest, meter))
    }

    fn end_with(
        &self,
        cache: &mut Cache,
        text: &str,
        start: usize,
        earliest: bool,
        meter: Meter<'_>,
    ) -> Result<Option<usize>, StoppedError> {
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let Ok(mut state) = self.dfa.start_state_forward(cache, &input) else {
            return Err(StoppedError);
        };
        let mut found = None;
        let mut position = start;
        let rest = text.as_bytes().get(start..).unwrap_or_default();
        for piece in rest.chunks(self.piece()) {
            self.charge(piece.len(), meter)?;
            for byte in piece {
                state = self.next(cache, state, *byte)?;
                match step(state) {
                    DfaStep::Other => {}
                    DfaStep::Matched if earliest => return Ok(Some(position)),
                    // A match is reported one byte after its end.
                    DfaStep::Matched => found = Some(position),
                    DfaStep::Dead => return Ok(found),
                }
                position += 1;
            }
        }
        self.charge(1, meter)?;
        state = self.dfa.next_eoi_state(cache, state).map_err(|_| StoppedError)?;
        Ok(if state.is_match() { Some(position) } else { found })
    }

    /// The start of the longest match that ends at `end` and does not begin before `start`.
    pub(crate) fn start(
        &self,
        text: &str,
        start: usize,
        end: usize,
        meter: Meter<'_>,
    ) -> Result<Option<usize>, StoppedError> {
        self.with_cache(|cache| self.start_with(cache, text, start, end, meter))
    }

    fn start_with(
        &self,
        cache: &mut Cache,
        text: &str,
        start: usize,
        end: usize,
        meter: Meter<'_>,
    ) -> Result<Option<usize>, StoppedError> {
        let input = Input::new(text).range(start..end).anchored(Anchored::Yes);
        let Ok(mut state) = self.dfa.start_state_reverse(cache, &input) else {
            return Err(StoppedError);
        };
        let bytes = text.as_bytes();
        let mut found = None;
        let mut position = end;
        for piece in bytes.get(start..end).unwrap_or_default().rchunks(self.piece()) {
            self.charge(piece.len(), meter)?;
            for byte in piece.iter().rev() {
                state = self.next(cache, state, *byte)?;
                match step(state) {
                    DfaStep::Other => {}
                    DfaStep::Matched => found = Some(position),
                    DfaStep::Dead => return Ok(found),
                }
                position -= 1;
            }
        }
        self.charge(1, meter)?;
        state = match start.checked_sub(1).and_then(|before| bytes.get(before)) {
            Some(byte) => self.next(cache, state, *byte)?,
            None => self.dfa.next_eoi_state(cache, state).map_err(|_| StoppedError)?,
        };
        Ok(if state.is_match() { Some(position) } else { found })
    }

    /// The bytes that are read between two calls of the meter.
    fn piece(&self) -> usize {
        (STRIDE / self.states.max(1)).max(1)
    }

    fn charge(&self, bytes: usize, meter: Meter<'_>) -> Result<(), StoppedError> {
        if meter(bytes.saturating_mul(self.states)) {
            Ok(())
        } else {
            Err(StoppedError)
        }
    }

    /// The next state. The DFA does not give up when its cache is full, but clears it.
    fn next(&self, cache: &mut Cache, state: LazyStateID, byte: u8) -> Result<LazyStateID, StoppedError> {
        self.dfa.next_state(cache, state, byte).map_err(|_| StoppedError)
    }
}

// === impl KeptStates ===

impl KeptStates {
    /// Updates the count of kept bytes after a search. If they exceed the limit, the states are
    /// dropped.
    fn update_count(&mut self) {
        let bytes = self.cache.as_ref().map_or(0, Cache::memory_usage);
        if bytes == self.bytes {
            return;
        }
        let counted = |kept: usize| {
            let sum = kept.saturating_sub(self.bytes).saturating_add(bytes);
            (sum <= MAX_KEPT_BYTES).then_some(sum)
        };
        if KEPT_BYTES
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted)
            .is_ok()
        {
            self.bytes = bytes;
        } else {
            drop(std::mem::take(self));
        }
    }
}

impl Drop for KeptStates {
    fn drop(&mut self) {
        KEPT_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

const fn step(state: LazyStateID) -> DfaStep {
    if !state.is_tagged() {
        DfaStep::Other
    } else if state.is_match() {
        DfaStep::Matched
    } else if state.is_dead() {
        DfaStep::Dead
    } else {
        DfaStep::Other
    }
}

impl fmt::Debug for Automaton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Automaton")
            .field("states", &self.states)
            .finish_non_exhaustive()
    }
}

// A cache of compiled patterns from requests.
//
// It has two generations: an entry that is used moves from the old to the young one, and when the
// young one is full, the old one is dropped. It contains only small patterns and no search states,
// so that it needs little memory.

/// The most patterns of a generation.
const MAX_PATTERNS: usize = 256;

/// The longest pattern that is cached, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;

/// The most states of a pattern that is cached. All cached patterns take at most 64 MB, including
/// the second automata.
const MAX_STATES: usize = 1024;

static CACHE: LazyLock<Mutex<Generations>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<Regex>>,
    old: HashMap<Box<str>, Arc<Regex>>,
}

/// Compiles the pattern, or returns it from the cache.
///
/// # Errors
///
/// Those of [`Regex::new`].
pub(crate) fn compiled(pattern: &str, meter: Meter<'_>) -> Result<Arc<Regex>, CompileFault> {
    let cached = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = cached().find(pattern) {
        return Ok(found);
    }
    let made = Arc::new(Regex::compile(
        pattern,
        Keep::Nothing,
        MAX_BYTES_OF_REQUEST,
        meter,
    )?);
    if pattern.len() <= MAX_PATTERN_BYTES && made.states() <= MAX_STATES {
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
        if self.young.len() >= MAX_PATTERNS {
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
        for number in 0..10 * MAX_PATTERNS {
            generations.put(&number.to_string(), Arc::clone(&regex));
            assert!(generations.find("0").is_some(), "lost at {number}");
            assert!(generations.young.len() + generations.old.len() <= 2 * MAX_PATTERNS);
        }
        assert!(generations.find("1").is_none());
    }
}
