//! Regular expressions with Go's syntax (RE2), as in Kubernetes.
//!
//! ```text
//! pattern -> parser -> Tree -> hir -> regex-automata's lazy DFA -> matches
//! ```
//!
//! The syntax is parsed exactly as in Go, with Go's errors, because Rust's `regex` gives another
//! meaning to `\w`, `\b`, `[[:alpha:]]`, `&&` and much more. regex-automata does the search, in
//! time linear in the length of the string for every pattern. Compiling and searching call the
//! caller's [`Meter`] for each bounded piece of work, which decides whether to continue.

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

pub use common::shortest_common_text;
pub use parser::Meter;
pub use search::StoppedError;

/// The most bytes of a pattern's automaton: enough for 1,000 times `\pL`, or for 100,000
/// characters.
const MAX_BYTES: usize = 32 << 20;

/// The same limit for a pattern from a request: compiling it is not interrupted, and takes some
/// milliseconds at most with this limit.
const MAX_BYTES_OF_REQUEST: usize = 4 << 20;

/// The height up to which a tree needs no larger stack.
const SHALLOW: usize = 64;

/// The stack for the highest tree allowed, with 1,000 levels.
const STACK: usize = 32 << 20;

/// The steps charged for each state of an automaton when it is compiled.
const STEPS_PER_STATE: usize = 50;

/// The most bytes of the automaton for finding where matches of a request's pattern begin. A
/// pattern that fits forwards should fit backwards, where classes share less.
const MAX_BACKWARD_BYTES_OF_REQUEST: usize = 4 * MAX_BYTES_OF_REQUEST;

/// The most bytes of such an automaton that is kept with a request's pattern.
const MAX_KEPT_BACKWARD_BYTES: usize = 64 << 10;

/// What is kept for later searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// The states that searches built. For patterns of administrators.
    States,
    Nothing,
}

/// What a constant pattern is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RegexUse {
    /// Whether there is a match.
    Match,
    /// Where a match is, which needs a second automaton.
    Find,
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Regex {
    pattern: Box<str>,
    forward: Automaton,
    /// Finds where matches begin; made when it is first needed.
    backward: OnceLock<Arc<Automaton>>,
    keep: Keep,
}

// === impl Regex ===

impl Regex {
    /// Compiles `pattern`.
    ///
    /// # Errors
    ///
    /// Go's error; that the pattern is too large, for which the limit is a little lower than in Go;
    /// or [`CompileFault::Stopped`] by the meter.
    pub fn new(pattern: &str, meter: Meter<'_>) -> Result<Self, CompileFault> {
        Self::compile(pattern, Keep::States, MAX_BYTES, meter)
    }

    /// Compiles a constant pattern, with everything that its use needs.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new). If the result exceeds `most` bytes, the error is
    /// [`CompileFault::Stopped`].
    pub(crate) fn constant(
        pattern: &str,
        purpose: RegexUse,
        most: usize,
        meter: Meter<'_>,
    ) -> Result<Self, CompileFault> {
        let is_less = most < MAX_BYTES;
        let regex = Self::compile(pattern, Keep::States, most.min(MAX_BYTES), &mut *meter);
        let regex = regex.map_err(|fault| match fault {
            CompileFault::Invalid(error) if is_less && error.code == RegexErrorKind::TooLarge => {
                CompileFault::Stopped
            }
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

    fn compile(pattern: &str, keep: Keep, most: usize, meter: Meter<'_>) -> Result<Self, CompileFault> {
        let (forward, states) = on_deep_stack(pattern, || {
            let hir = tree::of(&parser::parse(pattern, &mut *meter)?);
            let forward = automaton(&tree::anywhere(hir), false, keep, most);
            let forward = forward.ok_or_else(|| RegexErrorKind::TooLarge.of(pattern))?;
            let states = forward.states();
            Ok((forward, states))
        })?;
        if !meter(states.saturating_mul(STEPS_PER_STATE)) {
            return Err(CompileFault::Stopped);
        }
        Ok(Self {
            pattern: pattern.into(),
            forward,
            backward: OnceLock::new(),
            keep,
        })
    }

    /// The automaton that finds where matches begin, with at most `most` bytes.
    fn backward(&self, most: usize, meter: Meter<'_>) -> Result<Arc<Automaton>, StoppedError> {
        if let Some(made) = self.backward.get() {
            return Ok(Arc::clone(made));
        }
        let made = on_deep_stack(&self.pattern, || {
            // The pattern is valid, because it was parsed before.
            let tree = parser::parse(&self.pattern, &mut *meter).ok()?;
            automaton(&tree::of(&tree), true, self.keep, most)
        });
        let made = Arc::new(made.ok_or(StoppedError)?);
        if !meter(made.states().saturating_mul(STEPS_PER_STATE)) {
            return Err(StoppedError);
        }
        if self.keep == Keep::States || made.bytes() <= MAX_KEPT_BACKWARD_BYTES {
            // If another thread was faster, both automata are equal.
            let _ = self.backward.set(Arc::clone(&made));
        }
        Ok(made)
    }

    /// The most bytes of the second automaton.
    const fn max_backward_bytes(&self) -> usize {
        match self.keep {
            Keep::States => MAX_BYTES,
            Keep::Nothing => MAX_BACKWARD_BYTES_OF_REQUEST,
        }
    }

    /// The number of states, to which the cost of compiling and the highest cost of searching a
    /// byte are proportional.
    pub(crate) const fn states(&self) -> usize {
        self.forward.states()
    }

    /// The bytes of memory, without what is kept for later searches.
    pub(crate) fn bytes(&self) -> usize {
        let backward = self.backward.get().map_or(0, |automaton| automaton.bytes());
        size_of::<Self>() + self.pattern.len() + self.forward.bytes() + backward
    }

    /// Whether there is a match in `text`.
    ///
    /// # Errors
    ///
    /// The meter stopped the search.
    pub fn is_match(&self, text: &str, meter: Meter<'_>) -> Result<bool, StoppedError> {
        Ok(self.forward.end(text, 0, true, meter)?.is_some())
    }

    /// The start and end of the first match at or after `start`. Of several that begin at the same
    /// position, it is the one that the pattern prefers.
    ///
    /// # Errors
    ///
    /// The meter stopped the search.
    pub fn find_at(
        &self,
        text: &str,
        start: usize,
        meter: Meter<'_>,
    ) -> Result<Option<(usize, usize)>, StoppedError> {
        self.find_with(&mut None, text, start, meter)
    }

    /// Like [`find_at`](Self::find_at). The second automaton is stored in `made` when it is first
    /// needed.
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

    /// Up to `limit` matches, one after the other. An empty match directly after another match does
    /// not count.
    ///
    /// # Errors
    ///
    /// The meter stopped the search.
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

/// Runs `run`, which recurses over the tree of `pattern`, on a stack that is large enough: the
/// height of a tree depends on the nesting of groups and alternatives.
fn on_deep_stack<T>(pattern: &str, run: impl FnOnce() -> T) -> T {
    let nests = |byte: &u8| matches!(byte, b'(' | b'|');
    if pattern.bytes().filter(|byte| nests(byte)).count() <= SHALLOW {
        run()
    } else {
        stacker::grow(STACK, run)
    }
}

/// The automaton of a pattern; `None` if it would exceed `most` bytes.
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

/// Why a pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{part}`")]
pub struct RegexError {
    /// The kind of error.
    pub code: RegexErrorKind,
    /// The faulty part of the pattern.
    pub part: String,
}

/// The kind of error in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegexErrorKind {
    /// An invalid range, or an unknown class of characters.
    #[error("invalid character class range")]
    CharRange,
    /// An unknown escape.
    #[error("invalid escape sequence")]
    Escape,
    /// A named group with an empty or invalid name.
    #[error("invalid named capture")]
    NamedCapture,
    /// An unknown flag or kind of group.
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    /// A repetition of a repetition without a group between them.
    #[error("invalid nested repetition operator")]
    NestedRepetition,
    /// A count above 1,000, or a range of counts whose end is below its start.
    #[error("invalid repeat count")]
    RepeatCount,
    /// A class without its closing bracket.
    #[error("missing closing ]")]
    MissingBracket,
    /// A group without its closing parenthesis.
    #[error("missing closing )")]
    MissingParenthesis,
    /// A repetition operator with nothing before it.
    #[error("missing argument to repetition operator")]
    MissingArgument,
    /// A backslash at the end.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// A closing parenthesis without a group.
    #[error("unexpected )")]
    UnexpectedParenthesis,
    /// Nesting of more than 1,000 levels.
    #[error("expression nests too deeply")]
    TooDeep,
    /// An automaton beyond the limit.
    #[error("expression too large")]
    TooLarge,
}

/// Why compilation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileFault {
    /// The pattern is invalid.
    Invalid(RegexError),
    /// The meter stopped compilation.
    Stopped,
}

// === impl RegexErrorKind ===

impl RegexErrorKind {
    /// The error that this is wrong with `part`.
    pub(crate) fn of(self, part: &str) -> CompileFault {
        CompileFault::Invalid(RegexError {
            code: self,
            part: part.into(),
        })
    }
}

#[cfg(test)]
mod tests;
