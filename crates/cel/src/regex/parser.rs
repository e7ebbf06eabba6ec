//! Go's syntax of regular expressions, as `regexp.Compile` reads it.
//!
//! ```text
//! here        characters and operators: a stack of trees, groups, bars, repetitions
//! atom.rs     what begins with a backslash
//! class.rs    what stands in brackets, \d, \pL
//! factor.rs   alternatives that begin alike
//! ```
//!
//! Trees are built in the same order and shape as in Go, because Go's limits for size and
//! height depend on that shape.

use super::class::Ranges;
use super::tree::{Excess, Look, PatternNode, PatternTree, Repeat};
use super::{CompileFault, RegexErrorKind, atom, factor};

/// The most ranges of characters in a pattern: 1,600 times `\pL`. With more, the automaton would be
/// too large in any case.
const MAX_WEIGHT: usize = 1 << 20;

/// The steps between two calls of the meter.
const STEPS_BETWEEN_METER_CALLS: usize = 1 << 12;

/// Called with the number of steps of a piece of work. Returns whether to continue.
pub type Meter<'m> = &'m mut dyn FnMut(usize) -> bool;

/// The flags that `(?ims-U)` sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PatternFlags {
    /// `i`: ignores case.
    pub(crate) fold: bool,
    /// `m`: `^` and `$` match at each line.
    pub(crate) lines: bool,
    /// `s`: `.` matches a line feed too.
    pub(crate) dot_all: bool,
    /// `U`: repetitions match as little as possible, unless a `?` follows.
    pub(crate) lazy: bool,
}

pub(crate) struct PatternParser<'p, 'm> {
    pub(crate) pattern: &'p str,
    pub(crate) flags: PatternFlags,
    pub(crate) stack: Vec<StackEntry>,
    /// The position of the last `:]`, after which there is no named class.
    pub(crate) last_name: usize,
    weight: usize,
    steps: usize,
    meter: Meter<'m>,
}

/// An entry of the parser's stack.
pub(crate) enum StackEntry {
    Tree(PatternTree),
    /// `(`, and the flags to restore at its end.
    Group {
        flags: PatternFlags,
        captures: bool,
    },
    /// `|`
    Bar,
}

/// Parses `pattern`.
///
/// # Errors
///
/// Go's error, or [`CompileFault::Stopped`] by the meter.
pub(crate) fn parse(pattern: &str, meter: Meter<'_>) -> Result<PatternTree, CompileFault> {
    let mut parser = PatternParser {
        pattern,
        flags: PatternFlags::default(),
        stack: Vec::new(),
        last_name: pattern.rfind(":]").unwrap_or_default(),
        weight: 0,
        steps: 0,
        meter,
    };
    parser.run()
}

// === impl PatternParser ===

impl<'p> PatternParser<'p, '_> {
    fn run(&mut self) -> Result<PatternTree, CompileFault> {
        let mut rest = self.pattern;
        // The rest of the pattern from the last repetition on, if nothing came after it.
        let mut repeated = None;
        while let Some(next) = rest.chars().next() {
            self.charge_steps(1)?;
            let (after, repetition) = self.step(next, rest, repeated)?;
            repeated = repetition;
            rest = after;
        }
        self.concat()?;
        if self.swap_bar() {
            self.stack.pop();
        }
        self.alternate()?;
        match (self.stack.pop(), self.stack.is_empty()) {
            (Some(StackEntry::Tree(tree)), true) => Ok(tree),
            _ => Err(RegexErrorKind::MissingParenthesis.of(self.pattern)),
        }
    }

    /// Parses the next item, which begins with `next`. Returns the rest of the pattern, and the
    /// position of the item if it was a repetition.
    fn step(
        &mut self,
        next: char,
        rest: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, Option<&'p str>), CompileFault> {
        let after = skip(rest, next.len_utf8());
        let after = match next {
            '(' if after.starts_with('?') => self.group(rest)?,
            '(' => {
                self.open(true)?;
                after
            }
            '|' => {
                self.bar()?;
                after
            }
            ')' => {
                self.close()?;
                after
            }
            '^' if self.flags.lines => self.look(Look::LineStart, after)?,
            '^' => self.look(Look::TextStart, after)?,
            '$' if self.flags.lines => self.look(Look::LineEnd, after)?,
            '$' => self.look(Look::TextEnd, after)?,
            '.' => {
                let any = if self.flags.dot_all {
                    PatternNode::Any
                } else {
                    PatternNode::AnyOfLine
                };
                self.push(PatternTree::new(any))?;
                after
            }
            '[' => self.class(rest)?,
            '*' => return self.repeat(Repeat::simple(0, None), rest, after, repeated),
            '+' => return self.repeat(Repeat::simple(1, None), rest, after, repeated),
            '?' => return self.repeat(Repeat::simple(0, Some(1)), rest, after, repeated),
            '{' => match atom::count(after) {
                Some((bounds, after)) => return self.counted(bounds, rest, after, repeated),
                None => {
                    self.literal('{')?;
                    after
                }
            },
            '\\' => self.escaped(rest)?,
            character => {
                self.literal(character)?;
                after
            }
        };
        Ok((after, None))
    }

    pub(crate) fn look(&mut self, look: Look, after: &'p str) -> Result<&'p str, CompileFault> {
        self.push(PatternTree::new(PatternNode::Look(look)))?;
        Ok(after)
    }

    pub(crate) fn open(&mut self, captures: bool) -> Result<(), CompileFault> {
        self.merge_literals(None);
        self.charge_steps(1)?;
        self.stack.push(StackEntry::Group {
            flags: self.flags,
            captures,
        });
        Ok(())
    }

    fn bar(&mut self) -> Result<(), CompileFault> {
        self.concat()?;
        if !self.swap_bar() {
            self.stack.push(StackEntry::Bar);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), CompileFault> {
        self.concat()?;
        if self.swap_bar() {
            self.stack.pop();
        }
        self.alternate()?;
        let inner = self.stack.pop();
        let (Some(StackEntry::Tree(inner)), Some(StackEntry::Group { flags, captures })) =
            (inner, self.stack.pop())
        else {
            return Err(RegexErrorKind::UnexpectedParenthesis.of(self.pattern));
        };
        self.flags = flags;
        if captures {
            self.push(PatternTree::new(PatternNode::Capture(Box::new(inner))))
        } else {
            self.push(inner)
        }
    }

    /// Joins the trees above the last group or bar into a sequence.
    fn concat(&mut self) -> Result<(), CompileFault> {
        self.merge_literals(None);
        let parts = self.pop_trees();
        let tree = if parts.is_empty() {
            PatternTree::new(PatternNode::Empty)
        } else {
            join(parts, PatternNode::Concat, |node| match node {
                PatternNode::Concat(parts) => Ok(parts),
                other => Err(other),
            })
        };
        self.push(tree)
    }

    /// Joins the trees above the last group into alternatives.
    fn alternate(&mut self) -> Result<(), CompileFault> {
        let mut parts = self.pop_trees();
        if let Some(last) = parts.last_mut() {
            factor::normalize(last);
        }
        let tree = if parts.is_empty() {
            PatternTree::new(PatternNode::NoMatch)
        } else {
            factor::alternatives(parts, self, 0)?
        };
        self.push(tree)
    }

    /// Pops the trees above the last group or bar.
    fn pop_trees(&mut self) -> Vec<PatternTree> {
        let mut trees = Vec::new();
        while let Some(StackEntry::Tree(tree)) =
            self.stack.pop_if(|entry| matches!(entry, StackEntry::Tree(_)))
        {
            trees.push(tree);
        }
        trees.reverse();
        trees
    }

    /// Moves a bar above the tree below it, so that alternatives are adjacent. Two classes become
    /// one. Returns whether there was a bar.
    fn swap_bar(&mut self) -> bool {
        match self.stack.as_mut_slice() {
            [
                ..,
                StackEntry::Tree(below),
                StackEntry::Bar,
                StackEntry::Tree(top),
            ] if below.is_class() && top.is_class() => {
                if top.rank().0 > below.rank().0 {
                    std::mem::swap(below, top);
                }
                factor::merge(below, top);
                self.stack.pop();
                true
            }
            [before @ .., bar @ StackEntry::Bar, top @ StackEntry::Tree(_)] => {
                if let Some(StackEntry::Tree(before)) = before.last_mut() {
                    factor::normalize(before);
                }
                std::mem::swap(bar, top);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn check(&self, tree: &PatternTree) -> Result<(), CompileFault> {
        tree.check().map_err(|excess| self.excess(excess))
    }

    pub(crate) fn excess(&self, excess: Excess) -> CompileFault {
        match excess {
            Excess::Height => RegexErrorKind::TooDeep.of(self.pattern),
            Excess::Size => RegexErrorKind::TooLarge.of(self.pattern),
        }
    }

    /// Charges the ranges of a tree.
    pub(crate) fn charge_ranges(&mut self, weight: usize) -> Result<(), CompileFault> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > MAX_WEIGHT {
            return Err(self.excess(Excess::Size));
        }
        self.charge_steps(weight)
    }

    /// Charges `steps` and calls the meter now and then.
    pub(crate) fn charge_steps(&mut self, steps: usize) -> Result<(), CompileFault> {
        self.steps += steps;
        if self.steps < STEPS_BETWEEN_METER_CALLS {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.steps);
        if (self.meter)(steps) {
            Ok(())
        } else {
            Err(CompileFault::Stopped)
        }
    }

    pub(crate) fn push_class(&mut self, ranges: Ranges) -> Result<(), CompileFault> {
        self.push(PatternTree::new(PatternNode::Class(ranges)))
    }
}

/// Joins `parts` into one tree, in which parts of the same kind are flattened by `open`.
pub(crate) fn join(
    mut parts: Vec<PatternTree>,
    kind: impl FnOnce(Vec<PatternTree>) -> PatternNode,
    open: impl Fn(PatternNode) -> Result<Vec<PatternTree>, PatternNode>,
) -> PatternTree {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    PatternTree::new(kind(opened(parts, open)))
}

/// The parts, of which those that `open` accepts are replaced by their own parts.
pub(crate) fn opened(
    parts: Vec<PatternTree>,
    open: impl Fn(PatternNode) -> Result<Vec<PatternTree>, PatternNode>,
) -> Vec<PatternTree> {
    let mut all = Vec::with_capacity(parts.len());
    for part in parts {
        match open(part.node) {
            Ok(inner) => all.extend(inner),
            Err(node) => all.push(PatternTree::new(node)),
        }
    }
    all
}

/// The beginning of `from` up to `rest`, which is its end.
pub(crate) fn until<'p>(from: &'p str, rest: &str) -> &'p str {
    from.get(..from.len().saturating_sub(rest.len())).unwrap_or(from)
}

/// `text` without its first `bytes` bytes.
pub(crate) fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}
