//! Finds the shortest string in which some patterns match and others do not.
//!
//! The automata of all patterns read the same bytes in parallel, and each combination of their
//! states is visited once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{LazyLock, Mutex, PoisonError};

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::{Anchored, Input, MatchKind};

use super::{StoppedError, on_deep_stack, parser, tree};

/// The most steps of all automata together.
const MAX_STEPS: usize = 1 << 20;

/// The most patterns of a search, and the most bytes that they have together.
const MAX_PATTERNS: usize = 16;
const MAX_PATTERN_BYTES: usize = 4 << 10;

/// The most bytes of the automaton of a pattern.
const MAX_BYTES: usize = 1 << 20;

/// The most results that are kept, and the most bytes of the patterns and the string of a kept one.
const MAX_KEPT_ANSWERS: usize = 4_096;
const MAX_KEPT_BYTES: usize = 1 << 10;

/// Matches every string, and nothing that is not UTF-8.
const ANY_TEXT: &str = r"\A(?s:.*)\z";

/// The bytes that are tried first: those of which names consist.
const PREFERRED: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789-./:_ABCDEFGHIJKLMNOPQRSTUVWXYZ";

type PatternList = Vec<(Box<str>, bool)>;
type KnownTexts = HashMap<PatternList, Result<Option<String>, StoppedError>>;

static CACHE: LazyLock<Mutex<KnownTexts>> = LazyLock::new(Mutex::default);

/// The state of a pattern's automaton.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AutomatonState {
    Open(LazyStateID),
    /// The pattern matches, whatever follows.
    Matched,
    /// The pattern cannot match any more.
    Dead,
}

/// The automaton of a pattern, and whether the pattern is to match.
struct PatternConstraint {
    dfa: DFA,
    cache: Cache,
    matches: bool,
}

/// The shortest string in which each of `patterns` matches if its flag is `true`, and does not
/// match otherwise; `None` if there is none.
///
/// # Errors
///
/// A pattern is invalid, or the search exceeds a limit.
pub fn shortest_common_text(patterns: &[(&str, bool)]) -> Result<Option<String>, StoppedError> {
    let bytes: usize = patterns.iter().map(|(pattern, _)| pattern.len()).sum();
    if patterns.len() > MAX_PATTERNS || bytes > MAX_PATTERN_BYTES {
        return Err(StoppedError);
    }
    let mut questions: PatternList = patterns
        .iter()
        .map(|(text, matches)| ((*text).into(), *matches))
        .collect();
    questions.sort_unstable();
    questions.dedup();
    let kept = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept().get(&questions) {
        return known.clone();
    }
    let found = search(&questions);
    let answer = found
        .as_ref()
        .map_or(0, |text| text.as_ref().map_or(0, String::len));
    if bytes + answer > MAX_KEPT_BYTES {
        return found;
    }
    let mut kept = kept();
    if kept.len() >= MAX_KEPT_ANSWERS {
        kept.clear();
    }
    kept.insert(questions, found.clone());
    found
}

fn search(questions: &PatternList) -> Result<Option<String>, StoppedError> {
    let any = std::iter::once((ANY_TEXT, true));
    let asked = questions.iter().map(|(text, matches)| (&**text, *matches));
    let mut automata: Vec<PatternConstraint> = any
        .chain(asked)
        .map(|(pattern, matches)| PatternConstraint::new(pattern, matches))
        .collect::<Result<_, _>>()?;
    let alphabet = alphabet(&automata);
    let start: Option<Vec<AutomatonState>> = automata.iter_mut().map(PatternConstraint::start).collect();
    let start = start.ok_or(StoppedError)?;
    let mut seen = HashSet::from([start.clone()]);
    // For each visited combination of states, the index of the one before it and the byte between
    // them.
    let mut visited: Vec<(usize, u8)> = vec![(0, 0)];
    let mut open = VecDeque::from([(0, start)]);
    let mut steps: usize = 0;
    while let Some((at, states)) = open.pop_front() {
        let mut is_one = true;
        for (question, progress) in automata.iter_mut().zip(&states) {
            is_one &= question.ends(*progress)? == question.matches;
        }
        if is_one {
            return Ok(Some(text(&visited, at)));
        }
        'bytes: for byte in &alphabet {
            steps += states.len();
            if steps > MAX_STEPS {
                return Err(StoppedError);
            }
            let mut next = Vec::with_capacity(states.len());
            for (question, progress) in automata.iter_mut().zip(&states) {
                let progress = question.step(*progress, *byte)?;
                let is_lost = match progress {
                    AutomatonState::Open(_) => false,
                    AutomatonState::Matched => !question.matches,
                    AutomatonState::Dead => question.matches,
                };
                if is_lost {
                    continue 'bytes;
                }
                next.push(progress);
            }
            if seen.insert(next.clone()) {
                visited.push((at, *byte));
                open.push_back((visited.len() - 1, next));
            }
        }
    }
    Ok(None)
}

/// One byte of each class of bytes that no automaton distinguishes.
fn alphabet(automata: &[PatternConstraint]) -> Vec<u8> {
    let mut sorts = HashSet::new();
    let sort = |byte: u8| -> Vec<u8> {
        let classes = automata.iter().map(|question| question.dfa.byte_classes());
        classes.map(|classes| classes.get(byte)).collect()
    };
    let bytes = PREFERRED.iter().copied().chain(0..=u8::MAX);
    bytes.filter(|byte| sorts.insert(sort(*byte))).collect()
}

/// The bytes on the path to `at`. They are valid UTF-8, because [`ANY_TEXT`] matches them.
fn text(visited: &[(usize, u8)], mut at: usize) -> String {
    let mut bytes = Vec::new();
    while at > 0 {
        let Some((before, byte)) = visited.get(at) else {
            break;
        };
        bytes.push(*byte);
        at = *before;
    }
    bytes.reverse();
    String::from_utf8_lossy(&bytes).into_owned()
}

// === impl PatternConstraint ===

impl PatternConstraint {
    fn new(pattern: &str, matches: bool) -> Result<Self, StoppedError> {
        let nfa = on_deep_stack(pattern, || {
            let parsed = parser::parse(pattern, &mut |_| true).map_err(|_| StoppedError)?;
            let config = thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(MAX_BYTES))
                .which_captures(WhichCaptures::None);
            thompson::Compiler::new()
                .configure(config)
                .build_from_hir(&tree::anywhere(tree::of(&parsed)))
                .map_err(|_| StoppedError)
        })?;
        // The cache is never cleared, so that the ids of states remain valid. When it is full, the
        // search ends.
        let config = DFA::config()
            .match_kind(MatchKind::LeftmostFirst)
            .cache_capacity(MAX_BYTES)
            .minimum_cache_clear_count(Some(0))
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa);
        let dfa = dfa.map_err(|_| StoppedError)?;
        let cache = dfa.create_cache();
        Ok(Self { dfa, cache, matches })
    }

    fn start(&mut self) -> Option<AutomatonState> {
        let input = Input::new("").anchored(Anchored::Yes);
        let state = self.dfa.start_state_forward(&mut self.cache, &input).ok()?;
        Some(state_of(state))
    }

    fn step(&mut self, progress: AutomatonState, byte: u8) -> Result<AutomatonState, StoppedError> {
        match progress {
            AutomatonState::Open(state) => {
                let next = self.dfa.next_state(&mut self.cache, state, byte);
                next.map(self::state_of).map_err(|_| StoppedError)
            }
            decided => Ok(decided),
        }
    }

    /// Whether the pattern matches if the string ends here.
    fn ends(&mut self, progress: AutomatonState) -> Result<bool, StoppedError> {
        match progress {
            AutomatonState::Open(state) => {
                let end = self.dfa.next_eoi_state(&mut self.cache, state);
                end.map(|end| end.is_match()).map_err(|_| StoppedError)
            }
            AutomatonState::Matched => Ok(true),
            AutomatonState::Dead => Ok(false),
        }
    }
}

const fn state_of(state: LazyStateID) -> AutomatonState {
    if state.is_match() {
        AutomatonState::Matched
    } else if state.is_dead() {
        AutomatonState::Dead
    } else {
        AutomatonState::Open(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_text_is_found_or_that_there_is_none() {
        for (patterns, expected) in [
            (&[][..], Some("")),
            (&[("a", true)], Some("a")),
            (&[(r"\Aprod-", true), (r"-web\z", true)], Some("prod-web")),
            (&[(r"\Aa", true), (r"\Ab", true)], None),
            (&[("a", true), ("a", false)], None),
            (&[(r"\A(?s:.{3,4})\z", true), ("a", false)], Some("bbb")),
            (
                &[(r"\A\z", false), (r"\A[a-c]*\z", true), (r"\A(?:a|b)", false)],
                Some("c"),
            ),
            (&[(r"\A(?s:.*)\z", false)], None),
            // There are more characters than bytes.
            (&[(r"\A[^\x00-\x7f]\z", true)], Some("\u{80}")),
            (&[(r"(?i)\APROD\z", true), ("[A-Z]", false)], Some("prod")),
        ] {
            assert_eq!(
                shortest_common_text(patterns).unwrap().as_deref(),
                expected,
                "{patterns:?}"
            );
        }
    }

    #[test]
    fn what_takes_too_long_is_no_answer() {
        let many = r"\A(?s:.*)a(?s:.{14})\z";
        let other = r"\A(?s:.*)b(?s:.{15})\z";
        assert!(shortest_common_text(&[(many, false), (other, false), (r"\A[ab]{40}c\z", true)]).is_err());
        assert!(shortest_common_text(&[("(", true)]).is_err());
    }
}
