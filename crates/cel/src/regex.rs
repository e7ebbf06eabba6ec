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

mod atom;
mod class;
mod common;
mod factor;
mod parser;
mod search;
mod tree;

use std::sync::{Arc, OnceLock};

use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_syntax::hir::Hir;
use search::Automaton;

pub(crate) use search::compiled;

pub use common::common_text;
pub use parser::Meter;
pub use search::StoppedError;

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

/// How large the automaton of a request's pattern may be that finds where matches begin: what fits
/// forwards is to fit backwards, where classes share less.
const MAX_BACKWARD_BYTES_OF_REQUEST: usize = 4 * MAX_BYTES_OF_REQUEST;

/// How large such an automaton is at most that is kept with a request's pattern.
const MAX_KEPT_BACKWARD_BYTES: usize = 64 << 10;

/// What is kept of searches for those to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// The states that they met: the pattern is an administrator's.
    States,
    Nothing,
}

/// What is asked of a constant pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RegexUse {
    /// Whether something matches.
    Match,
    /// Where it matches, too: that takes a second automaton.
    Find,
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Regex {
    pattern: Box<str>,
    forward: Automaton,
    /// Finds where matches begin, made once somebody asks.
    backward: OnceLock<Arc<Automaton>>,
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
    pub fn new(pattern: &str, meter: Meter<'_>) -> Result<Self, CompileFault> {
        Self::with(pattern, Keep::States, MAX_BYTES, meter)
    }

    /// Compiles a pattern that is known beforehand, with all that its use takes.
    ///
    /// # Errors
    ///
    /// As of [`new`](Self::new); that it takes more than `most` bytes is the word to stop, too.
    pub(crate) fn constant(
        pattern: &str,
        purpose: RegexUse,
        most: usize,
        meter: Meter<'_>,
    ) -> Result<Self, CompileFault> {
        let is_less = most < MAX_BYTES;
        let regex = Self::with(pattern, Keep::States, most.min(MAX_BYTES), &mut *meter);
        let regex = regex.map_err(|fault| match fault {
            CompileFault::Refused(error) if is_less && error.code == Code::TooLarge => CompileFault::Stopped,
            fault => fault,
        })?;
        if purpose == RegexUse::Find {
            let left = most.saturating_sub(regex.bytes());
            regex
                .backward(left, meter)
                .map_err(|StoppedError| CompileFault::Stopped)?;
        }
        Ok(regex)
    }

    fn with(pattern: &str, keep: Keep, most: usize, meter: Meter<'_>) -> Result<Self, CompileFault> {
        let (forward, states) = on_deep_stack(pattern, || {
            let hir = tree::of(&parser::parse(pattern, &mut *meter)?);
            let forward = automaton(&tree::anywhere(hir), false, keep, most);
            let forward = forward.ok_or_else(|| Code::TooLarge.of(pattern))?;
            let states = forward.states();
            Ok((forward, states))
        })?;
        if !meter(states.saturating_mul(COMPILE)) {
            return Err(CompileFault::Stopped);
        }
        Ok(Self {
            pattern: pattern.into(),
            forward,
            backward: OnceLock::new(),
            keep,
        })
    }

    /// The automaton that finds where matches begin, of at most so many bytes.
    fn backward(&self, most: usize, meter: Meter<'_>) -> Result<Arc<Automaton>, StoppedError> {
        if let Some(made) = self.backward.get() {
            return Ok(Arc::clone(made));
        }
        let made = on_deep_stack(&self.pattern, || {
            // It was parsed before.
            let tree = parser::parse(&self.pattern, &mut *meter).ok()?;
            automaton(&tree::of(&tree), true, self.keep, most)
        });
        let made = Arc::new(made.ok_or(StoppedError)?);
        if !meter(made.states().saturating_mul(COMPILE)) {
            return Err(StoppedError);
        }
        if self.keep == Keep::States || made.bytes() <= MAX_KEPT_BACKWARD_BYTES {
            // Another thread may have been first: both are the same.
            let _ = self.backward.set(Arc::clone(&made));
        }
        Ok(made)
    }

    /// How large the second automaton may be.
    const fn max_backward_bytes(&self) -> usize {
        match self.keep {
            Keep::States => MAX_BYTES,
            Keep::Nothing => MAX_BACKWARD_BYTES_OF_REQUEST,
        }
    }

    /// How many states the automaton has: what compiling it costs, and at most
    /// what each byte of a text does.
    pub(crate) const fn states(&self) -> usize {
        self.forward.states()
    }

    /// How much memory it takes, but for what searches keep.
    pub(crate) fn bytes(&self) -> usize {
        let backward = self.backward.get().map_or(0, |automaton| automaton.bytes());
        size_of::<Self>() + self.pattern.len() + self.forward.bytes() + backward
    }

    /// Whether something in `text` matches.
    ///
    /// # Errors
    ///
    /// The meter's word to stop.
    pub fn is_match(&self, text: &str, meter: Meter<'_>) -> Result<bool, StoppedError> {
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
    ) -> Result<Option<(usize, usize)>, StoppedError> {
        self.find_with(&mut None, text, start, meter)
    }

    /// The same; the second automaton is `made` once it is needed.
    fn find_with(
        &self,
        made: &mut Option<Arc<Automaton>>,
        text: &str,
        start: usize,
        meter: Meter<'_>,
    ) -> Result<Option<(usize, usize)>, StoppedError> {
        let Some(end) = self.forward.end(text, start, false, meter)? else {
            return Ok(None);
        };
        let backward = match made {
            Some(made) => made,
            None => made.insert(self.backward(self.max_backward_bytes(), meter)?),
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
    ) -> Result<Vec<(usize, usize)>, StoppedError> {
        let mut all = Vec::new();
        let mut backward = None;
        let mut position = 0;
        let mut last = None;
        while all.len() < limit && position <= text.len() {
            let Some((start, end)) = self.find_with(&mut backward, text, position, meter)? else {
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

/// Runs what goes down the tree of `pattern` where there is stack enough: a tree is as high as
/// groups and alternatives are nested.
fn on_deep_stack<T>(pattern: &str, run: impl FnOnce() -> T) -> T {
    let nests = |byte: &u8| matches!(byte, b'(' | b'|');
    if pattern.bytes().filter(|byte| nests(byte)).count() <= SHALLOW {
        run()
    } else {
        stacker::grow(STACK, run)
    }
}

/// The automaton of a pattern, unless it becomes larger than `most` bytes.
fn automaton(pattern: &Hir, backward: bool, keep: Keep, most: usize) -> Option<Automaton> {
    let config = thompson::Config::new()
        .utf8(false)
        .reverse(backward)
        .nfa_size_limit(Some(most))
        .which_captures(WhichCaptures::None);
    let nfa = thompson::Compiler::new()
        .configure(config)
        .build_from_hir(pattern);
    Automaton::new(nfa.ok()?, backward, keep)
}

// Errors in patterns, with Go's messages.

/// Why a pattern does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{part}`")]
pub struct RegexError {
    /// What is wrong.
    pub code: Code,
    /// The part of the pattern that is.
    pub part: String,
}

/// What can be wrong with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Code {
    /// No such range or class of characters.
    #[error("invalid character class range")]
    CharRange,
    /// No such escape.
    #[error("invalid escape sequence")]
    Escape,
    /// A group without a name, or of a bad one.
    #[error("invalid named capture")]
    NamedCapture,
    /// No such flag or group.
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    /// A repetition of a repetition, without a group.
    #[error("invalid nested repetition operator")]
    NestedRepetition,
    /// More than 1,000, or turned round.
    #[error("invalid repeat count")]
    RepeatCount,
    /// A class without an end.
    #[error("missing closing ]")]
    MissingBracket,
    /// A group without an end.
    #[error("missing closing )")]
    MissingParenthesis,
    /// A repetition of nothing.
    #[error("missing argument to repetition operator")]
    MissingArgument,
    /// A backslash at the end.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// The end of no group.
    #[error("unexpected )")]
    UnexpectedParenthesis,
    /// Nested more than 1,000 deep.
    #[error("expression nests too deeply")]
    TooDeep,
    /// More than an automaton may have.
    #[error("expression too large")]
    TooLarge,
}

/// Why compiling ended without a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileFault {
    /// The pattern is wrong.
    Refused(RegexError),
    /// The caller had enough of it.
    Stopped,
}

// === impl Code ===

impl Code {
    /// This is wrong with `part`.
    pub(crate) fn of(self, part: &str) -> CompileFault {
        CompileFault::Refused(RegexError {
            code: self,
            part: part.into(),
        })
    }
}

#[cfg(test)]
mod tests;
