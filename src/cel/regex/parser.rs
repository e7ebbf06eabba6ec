//! Go's syntax of regular expressions, as `regexp.Compile` reads it.
//!
//! ```text
//! parser.rs   characters and operators: a stack of trees, groups and bars
//! group.rs    what begins with (?
//! class.rs    what stands in brackets, \d, \pL
//! escape.rs   characters behind a backslash
//! factor.rs   alternatives that begin alike
//! ```
//!
//! Trees are put together in the order and shape that Go's are, because what Go
//! refuses for its size or height is a property of that shape.

use super::error::{Code, Fault};
use super::factor;
use super::ranges::Ranges;
use super::tree::{Excess, Look, Node, Repeat, Tree};
use super::unicode;

/// How many ranges of characters a pattern may hold: 1,600 times `\pL`. The
/// automaton of more would be refused anyway.
const MAX_WEIGHT: usize = 1 << 20;

/// How much work is done between two questions to the caller.
const STRIDE: usize = 1 << 12;

/// Whether to go on after so many more steps.
pub type Meter<'m> = &'m mut dyn FnMut(usize) -> bool;

/// What `(?ims-U)` sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// `i`: characters of either case.
    pub(super) fold: bool,
    /// `m`: `^` and `$` at each line.
    pub(super) lines: bool,
    /// `s`: `.` is a line feed too.
    pub(super) dot_all: bool,
    /// `U`: repetitions take as little as they can, unless a `?` follows.
    pub(super) lazy: bool,
}

pub(super) struct Parser<'p, 'm> {
    pub(super) pattern: &'p str,
    pub(super) flags: Flags,
    pub(super) stack: Vec<Entry>,
    /// Where the last `:]` begins: no class is named behind it.
    pub(super) last_name: usize,
    weight: usize,
    steps: usize,
    meter: Meter<'m>,
}

/// What the parser has put aside.
pub(super) enum Entry {
    Tree(Tree),
    /// `(`, and the flags to return to.
    Group {
        flags: Flags,
        captures: bool,
    },
    /// `|`
    Bar,
}

/// The tree of `pattern`.
///
/// # Errors
///
/// What Go refuses it for, or the meter's word to stop.
pub(super) fn parse(pattern: &str, meter: Meter<'_>) -> Result<Tree, Fault> {
    let mut parser = Parser {
        pattern,
        flags: Flags::default(),
        stack: Vec::new(),
        last_name: pattern.rfind(":]").unwrap_or_default(),
        weight: 0,
        steps: 0,
        meter,
    };
    parser.run()
}

// === impl Parser ===

impl<'p> Parser<'p, '_> {
    fn run(&mut self) -> Result<Tree, Fault> {
        let mut rest = self.pattern;
        // The last repetition, if nothing has come since.
        let mut repeated = None;
        while let Some(next) = rest.chars().next() {
            self.work(1)?;
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
            (Some(Entry::Tree(tree)), true) => Ok(tree),
            _ => Err(Code::MissingParenthesis.of(self.pattern)),
        }
    }

    /// Reads what begins with `next`: gives what is left, and the repetition if
    /// it was one.
    fn step(
        &mut self,
        next: char,
        rest: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, Option<&'p str>), Fault> {
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
                    Node::Any
                } else {
                    Node::AnyOfLine
                };
                self.push(Tree::new(any))?;
                after
            }
            '[' => self.class(rest)?,
            '*' => return self.repeat(Repeat::simple(0, None), rest, after, repeated),
            '+' => return self.repeat(Repeat::simple(1, None), rest, after, repeated),
            '?' => return self.repeat(Repeat::simple(0, Some(1)), rest, after, repeated),
            '{' => match count(after) {
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

    fn counted(
        &mut self,
        bounds: (Option<u32>, Option<Option<u32>>),
        rest: &'p str,
        after: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, Option<&'p str>), Fault> {
        let refused = || Code::RepeatCount.of(until(rest, after));
        let (Some(min), Some(max)) = bounds else {
            return Err(refused());
        };
        if min > 1000 || max.is_some_and(|max| max > 1000 || max < min) {
            return Err(refused());
        }
        let repeat = Repeat {
            min,
            max,
            lazy: false,
            counted: true,
        };
        self.repeat(repeat, rest, after, repeated)
    }

    /// Repeats what is on top of the stack.
    fn repeat(
        &mut self,
        repeat: Repeat,
        rest: &'p str,
        mut after: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, Option<&'p str>), Fault> {
        let other = after.strip_prefix('?');
        after = other.unwrap_or(after);
        if let Some(repeated) = repeated {
            return Err(Code::NestedRepetition.of(until(repeated, after)));
        }
        let Some(Entry::Tree(inner)) = self.stack.pop_if(|entry| matches!(entry, Entry::Tree(_))) else {
            return Err(Code::MissingArgument.of(until(rest, after)));
        };
        let repeat = Repeat {
            lazy: self.flags.lazy != other.is_some(),
            ..repeat
        };
        let tree = Tree::new(Node::Repeat(repeat, Box::new(inner)));
        self.check(&tree)?;
        let several = repeat.min >= 2 || repeat.max.is_some_and(|max| max >= 2);
        if several && !tree.repeats_within(1000) {
            return Err(Code::RepeatCount.of(until(rest, after)));
        }
        self.stack.push(Entry::Tree(tree));
        Ok((after, Some(rest)))
    }

    pub(super) fn literal(&mut self, character: char) -> Result<(), Fault> {
        self.literal_code(u32::from(character))
    }

    /// A character by its number, which may be that of a surrogate.
    pub(super) fn literal_code(&mut self, code: u32) -> Result<(), Fault> {
        let smallest = || unicode::orbit(code).iter().copied().min();
        let code = if self.flags.fold { smallest() } else { None }.unwrap_or(code);
        self.push(Tree::new(Node::Literal(vec![code], self.flags)))
    }

    pub(super) fn look(&mut self, look: Look, after: &'p str) -> Result<&'p str, Fault> {
        self.push(Tree::new(Node::Look(look)))?;
        Ok(after)
    }

    pub(super) fn open(&mut self, captures: bool) -> Result<(), Fault> {
        self.merge_literals(None);
        self.work(1)?;
        self.stack.push(Entry::Group {
            flags: self.flags,
            captures,
        });
        Ok(())
    }

    fn bar(&mut self) -> Result<(), Fault> {
        self.concat()?;
        if !self.swap_bar() {
            self.stack.push(Entry::Bar);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.concat()?;
        if self.swap_bar() {
            self.stack.pop();
        }
        self.alternate()?;
        let inner = self.stack.pop();
        let (Some(Entry::Tree(inner)), Some(Entry::Group { flags, captures })) = (inner, self.stack.pop())
        else {
            return Err(Code::UnexpectedParenthesis.of(self.pattern));
        };
        self.flags = flags;
        if captures {
            self.push(Tree::new(Node::Capture(Box::new(inner))))
        } else {
            self.push(inner)
        }
    }

    /// Puts a tree on the stack. A class of one character, or of the two cases
    /// of one, becomes a literal.
    pub(super) fn push(&mut self, mut tree: Tree) -> Result<(), Fault> {
        self.weigh(tree.weight())?;
        if let Some(literal) = self.as_literal(&tree) {
            if self.merge_literals(Some(literal)) {
                return Ok(());
            }
            tree = Tree::new(Node::Literal(vec![literal.0], literal.1));
        } else {
            self.merge_literals(None);
        }
        self.check(&tree)?;
        self.stack.push(Entry::Tree(tree));
        Ok(())
    }

    fn as_literal(&self, tree: &Tree) -> Option<(u32, Flags)> {
        let Node::Class(ranges) = &tree.node else {
            return None;
        };
        let with = |fold| Flags { fold, ..self.flags };
        let pair = |first, second| {
            let orbit = unicode::orbit(first);
            orbit.len() == 2 && orbit.contains(&second)
        };
        match ranges.as_slice() {
            [(low, high)] if low == high => Some((*low, with(false))),
            [(low, high)] if low + 1 == *high && pair(*low, *high) => Some((*low, with(true))),
            [(one, same), (other, also)] if one == same && other == also && pair(*one, *other) => {
                Some((*one, with(true)))
            }
            _ => None,
        }
    }

    /// Joins the two literals on top of the stack, if they are such. What is
    /// `next` then takes the place of the second, which the result tells.
    fn merge_literals(&mut self, next: Option<(u32, Flags)>) -> bool {
        let [.., Entry::Tree(below), Entry::Tree(top)] = self.stack.as_mut_slice() else {
            return false;
        };
        let (Node::Literal(text, flags), Node::Literal(more, other)) = (&mut below.node, &mut top.node)
        else {
            return false;
        };
        if flags.fold != other.fold {
            return false;
        }
        text.append(more);
        below.measure();
        match next {
            Some((character, flags)) => {
                *top = Tree::new(Node::Literal(vec![character], flags));
                true
            }
            None => {
                self.stack.pop();
                false
            }
        }
    }

    /// Makes one tree of those above the last group or bar: one after another.
    fn concat(&mut self) -> Result<(), Fault> {
        self.merge_literals(None);
        let parts = self.above();
        let tree = if parts.is_empty() {
            Tree::new(Node::Empty)
        } else {
            join(parts, Node::Concat, |node| match node {
                Node::Concat(parts) => Ok(parts),
                other => Err(other),
            })
        };
        self.push(tree)
    }

    /// The same of alternatives.
    fn alternate(&mut self) -> Result<(), Fault> {
        let mut parts = self.above();
        if let Some(last) = parts.last_mut() {
            factor::clean(last);
        }
        let tree = if parts.is_empty() {
            Tree::new(Node::NoMatch)
        } else {
            factor::alternatives(parts, self, 0)?
        };
        self.push(tree)
    }

    /// Takes the trees above the last group or bar.
    fn above(&mut self) -> Vec<Tree> {
        let mut trees = Vec::new();
        while let Some(Entry::Tree(tree)) = self.stack.pop_if(|entry| matches!(entry, Entry::Tree(_))) {
            trees.push(tree);
        }
        trees.reverse();
        trees
    }

    /// Moves a bar above the tree that it stands below, so that alternatives
    /// stand side by side; two sets of characters become one.
    fn swap_bar(&mut self) -> bool {
        match self.stack.as_mut_slice() {
            [.., Entry::Tree(below), Entry::Bar, Entry::Tree(top)] if below.is_class() && top.is_class() => {
                if top.rank().0 > below.rank().0 {
                    std::mem::swap(below, top);
                }
                factor::merge(below, top);
                self.stack.pop();
                true
            }
            [before @ .., bar @ Entry::Bar, top @ Entry::Tree(_)] => {
                if let Some(Entry::Tree(before)) = before.last_mut() {
                    factor::clean(before);
                }
                std::mem::swap(bar, top);
                true
            }
            _ => false,
        }
    }

    pub(super) fn check(&self, tree: &Tree) -> Result<(), Fault> {
        tree.check().map_err(|excess| self.excess(excess))
    }

    pub(super) fn excess(&self, excess: Excess) -> Fault {
        match excess {
            Excess::Height => Code::TooDeep.of(self.pattern),
            Excess::Size => Code::TooLarge.of(self.pattern),
        }
    }

    /// Counts what a tree holds.
    fn weigh(&mut self, weight: usize) -> Result<(), Fault> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > MAX_WEIGHT {
            return Err(self.excess(Excess::Size));
        }
        self.work(weight)
    }

    /// Counts work, and asks now and then whether to go on.
    pub(super) fn work(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps += steps;
        if self.steps < STRIDE {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.steps);
        if (self.meter)(steps) {
            Ok(())
        } else {
            Err(Fault::Stopped)
        }
    }

    pub(super) fn push_class(&mut self, ranges: Ranges) -> Result<(), Fault> {
        self.push(Tree::new(Node::Class(ranges)))
    }
}

/// One tree of `parts`, into which parts of the same kind are opened.
pub(super) fn join(
    mut parts: Vec<Tree>,
    kind: impl FnOnce(Vec<Tree>) -> Node,
    open: impl Fn(Node) -> Result<Vec<Tree>, Node>,
) -> Tree {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    Tree::new(kind(opened(parts, open)))
}

/// The parts, those that `open` opens replaced by what is in them.
pub(super) fn opened(parts: Vec<Tree>, open: impl Fn(Node) -> Result<Vec<Tree>, Node>) -> Vec<Tree> {
    let mut all = Vec::with_capacity(parts.len());
    for part in parts {
        match open(part.node) {
            Ok(inner) => all.extend(inner),
            Err(node) => all.push(Tree::new(node)),
        }
    }
    all
}

/// What `from` has before `rest`, which is its end.
pub(super) fn until<'p>(from: &'p str, rest: &str) -> &'p str {
    from.get(..from.len().saturating_sub(rest.len())).unwrap_or(from)
}

/// `text` without its first `bytes`.
pub(super) fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}

/// The bounds of a count (`2}`, `2,}`, `2,3}`), and what follows; none if it is
/// no count, but text. A bound that is not there is too large a number.
#[expect(
    clippy::type_complexity,
    reason = "two bounds, the second of which may be open"
)]
fn count(text: &str) -> Option<((Option<u32>, Option<Option<u32>>), &str)> {
    let (min, rest) = integer(text)?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some(((min, min.map(Some)), rest));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some(((min, Some(None)), rest));
    }
    let (max, rest) = integer(rest)?;
    Some(((min, max.map(Some)), rest.strip_prefix('}')?))
}

/// A number without leading zeros; none inside if it is too large.
fn integer(text: &str) -> Option<(Option<u32>, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    if number.is_empty() || number.len() > 1 && number.starts_with('0') {
        return None;
    }
    Some((number.parse().ok(), rest))
}
