//! Regular expressions with Go's syntax (RE2), as in Kubernetes.
//!
//! ```text
//! pattern -> parser -> Tree -> hir -> regex-automata's lazy DFA -> matches
//! ```
//!
//! The syntax is parsed exactly as in Go, with Go's errors, because Rust's `regex` gives
//! another meaning to `\w`, `\b`, `[[:alpha:]]`, `&&` and much more. regex-automata does
//! the search, in time linear in the text for every pattern. Compiling and searching ask
//! the caller's [`Meter`] before each bounded piece of work whether to continue.

mod cache;
mod class;
mod error;
mod escape;
mod factor;
mod group;
mod hir;
mod literal;
mod parser;
mod ranges;
mod repetition;
mod search;
#[cfg(test)]
mod tests;
mod tree;
mod unicode;

pub(crate) use cache::compiled;
pub use error::{Code, Error, Fault};
pub use parser::Meter;
pub use search::Stopped;

use std::sync::OnceLock;

use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::hir::Hir;

use search::Automaton;

/// How many bytes the automaton of a pattern may have: 1,000 times `\pL`, or
/// 100,000 characters, fit.
const MAX_BYTES: usize = 32 << 20;

/// The same of a pattern that comes with a request: it is made in one go, for
/// which this is some milliseconds.
const MAX_BYTES_OF_REQUEST: usize = 4 << 20;

/// How high a tree the usual stack is enough for.
const SHALLOW: usize = 64;

/// A stack for the highest tree that there may be, of 1,000 levels.
const STACK: usize = 32 << 20;

/// How many steps of a search a state takes to make.
const COMPILE: usize = 50;

/// What is kept of searches for those to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// The states that they met: the pattern is an administrator's.
    States,
    Nothing,
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Regex {
    pattern: Hir,
    forward: Automaton,
    /// Finds where matches begin, made once somebody asks.
    backward: OnceLock<Option<Automaton>>,
    keep: Keep,
}

// === impl Regex ===

impl Regex {
    /// Compiles `pattern`.
    ///
    /// # Errors
    ///
    /// What Go refuses it for; that it is too large, a little earlier than Go
    /// does; or the meter's word to stop.
    pub fn new(pattern: &str, meter: Meter<'_>) -> Result<Self, Fault> {
        Self::with(pattern, Keep::States, meter)
    }

    fn with(pattern: &str, keep: Keep, meter: Meter<'_>) -> Result<Self, Fault> {
        // A tree is as high as groups and alternatives are nested.
        let nests = |byte: &u8| matches!(byte, b'(' | b'|');
        if pattern.bytes().filter(|byte| nests(byte)).count() <= SHALLOW {
            return Self::on_this_stack(pattern, keep, meter);
        }
        stacker::grow(STACK, || Self::on_this_stack(pattern, keep, meter))
    }

    fn on_this_stack(pattern: &str, keep: Keep, meter: Meter<'_>) -> Result<Self, Fault> {
        let tree = parser::parse(pattern, meter)?;
        let hir = hir::of(&tree);
        let forward = automaton(&hir::anywhere(hir.clone()), false, keep);
        let forward = forward.ok_or_else(|| Code::TooLarge.of(pattern))?;
        if !meter(forward.states().saturating_mul(COMPILE)) {
            return Err(Fault::Stopped);
        }
        Ok(Self {
            pattern: hir,
            forward,
            backward: OnceLock::new(),
            keep,
        })
    }

    /// How many states the automaton has: what compiling it costs, and at most
    /// what each byte of a text does.
    pub(crate) const fn states(&self) -> usize {
        self.forward.states()
    }

    /// Whether something in `text` matches.
    ///
    /// # Errors
    ///
    /// The meter's word to stop.
    pub fn is_match(&self, text: &str, meter: Meter<'_>) -> Result<bool, Stopped> {
        Ok(self.forward.end(text, 0, true, meter)?.is_some())
    }

    /// Where the first match from `start` on begins and ends. Of several that
    /// begin there, the one that the pattern prefers.
    ///
    /// # Errors
    ///
    /// The meter's word to stop.
    pub fn find_at(
        &self,
        text: &str,
        start: usize,
        meter: Meter<'_>,
    ) -> Result<Option<(usize, usize)>, Stopped> {
        let Some(end) = self.forward.end(text, start, false, meter)? else {
            return Ok(None);
        };
        let backward = self
            .backward
            .get_or_init(|| automaton(&self.pattern, true, self.keep));
        let Some(backward) = backward else {
            return Err(Stopped);
        };
        let begin = backward.start(text, start, end, meter)?;
        Ok(begin.map(|begin| (begin, end)))
    }

    /// Up to `limit` matches, one after another. An empty match right behind
    /// another is none.
    ///
    /// # Errors
    ///
    /// The meter's word to stop.
    pub fn find_all(
        &self,
        text: &str,
        limit: usize,
        meter: Meter<'_>,
    ) -> Result<Vec<(usize, usize)>, Stopped> {
        let mut all = Vec::new();
        let mut position = 0;
        let mut last = None;
        while all.len() < limit && position <= text.len() {
            let Some((start, end)) = self.find_at(text, position, meter)? else {
                break;
            };
            let accepted = !(end == position && last == Some(start));
            position = if end == position {
                let next = text.get(end..).and_then(|rest| rest.chars().next());
                end + next.map_or(1, char::len_utf8)
            } else {
                end
            };
            last = Some(end);
            if accepted {
                all.push((start, end));
            }
        }
        Ok(all)
    }
}

/// The automaton of a pattern, unless it becomes too large.
fn automaton(pattern: &Hir, backward: bool, keep: Keep) -> Option<Automaton> {
    let most = match keep {
        Keep::States => MAX_BYTES,
        Keep::Nothing => MAX_BYTES_OF_REQUEST,
    };
    // What fits forwards is to fit backwards, where classes share less.
    let bytes = if backward { 8 * most } else { most };
    let config = thompson::Config::new()
        .utf8(false)
        .reverse(backward)
        .nfa_size_limit(Some(bytes))
        .which_captures(WhichCaptures::None);
    let nfa = thompson::Compiler::new()
        .configure(config)
        .build_from_hir(pattern);
    Automaton::new(nfa.ok()?, backward, keep)
}
