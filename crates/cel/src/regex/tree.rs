//! The tree of a parsed pattern.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, Look as HirLook, Repetition};

use super::class;
use super::class::{LAST, Ranges};
use super::parser::PatternFlags;

/// The greatest height of a tree, as in Go.
const MAX_HEIGHT: u32 = 1000;

/// The most instructions of a pattern in Go.
const MAX_SIZE: u64 = (128 << 20) / 40;

/// A node with its height and size.
#[derive(Debug, Clone)]
pub(crate) struct PatternTree {
    pub(crate) node: PatternNode,
    height: u32,
    /// The number of instructions as Go counts them.
    size: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum PatternNode {
    NoMatch,
    Empty,
    /// Codes of characters; with [`PatternFlags::fold`], each is the smallest of its orbit.
    Literal(Vec<u32>, PatternFlags),
    Class(Ranges),
    /// Any character except a line feed.
    AnyOfLine,
    Any,
    Look(Look),
    Capture(Box<PatternTree>),
    Repeat(Repeat, Box<PatternTree>),
    Concat(Vec<PatternTree>),
    Alternate(Vec<PatternTree>),
}

/// A condition on the position between two characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    TextStart,
    TextEnd,
    LineStart,
    LineEnd,
    WordBoundary,
    NoWordBoundary,
}

/// The bounds and the kind of a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) min: u32,
    pub(crate) max: Option<u32>,
    pub(crate) lazy: bool,
    /// Whether it is written in braces. The limit of nested counts applies only to these.
    pub(crate) counted: bool,
}

/// Which of Go's limits a tree exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    Height,
    Size,
}

// === impl PatternTree ===

impl PatternTree {
    pub(crate) fn new(node: PatternNode) -> Self {
        let mut tree = Self {
            node,
            height: 1,
            size: 1,
        };
        tree.measure();
        tree
    }

    /// Updates height and size after a change.
    pub(crate) fn measure(&mut self) {
        let (height, size) = match &self.node {
            PatternNode::Literal(text, _) => (1, text.len() as u64),
            PatternNode::Capture(inner) => (inner.height + 1, inner.size + 2),
            PatternNode::Repeat(repeat, inner) => (inner.height + 1, repeat.size(inner.size)),
            PatternNode::Concat(parts) => (height(parts), size(parts)),
            PatternNode::Alternate(parts) => {
                let branches = (parts.len() as u64).saturating_sub(1);
                (height(parts), size(parts) + branches)
            }
            _ => (1, 1),
        };
        self.height = height;
        self.size = size.max(1);
    }

    /// Checks Go's limits.
    pub(crate) const fn check(&self) -> Result<(), Excess> {
        if self.size > MAX_SIZE {
            Err(Excess::Size)
        } else if self.height > MAX_HEIGHT {
            Err(Excess::Height)
        } else {
            Ok(())
        }
    }

    /// Whether the tree matches exactly one character.
    pub(crate) const fn is_class(&self) -> bool {
        match &self.node {
            PatternNode::Literal(text, _) => text.len() == 1,
            PatternNode::Class(_) | PatternNode::AnyOfLine | PatternNode::Any => true,
            _ => false,
        }
    }

    /// How complex a class is. Go merges classes into the one of the highest rank.
    pub(crate) const fn rank(&self) -> (u8, usize) {
        match &self.node {
            PatternNode::Literal(text, _) => (0, text.len()),
            PatternNode::Class(ranges) => (1, 2 * ranges.len()),
            PatternNode::AnyOfLine => (2, 0),
            _ => (3, 0),
        }
    }

    /// Whether the product of the counts of nested repetitions is at most `most`.
    pub(crate) fn repeats_within(&self, mut most: u32) -> bool {
        match &self.node {
            PatternNode::Repeat(repeat, inner) => {
                if repeat.counted {
                    if repeat.max == Some(0) {
                        return true;
                    }
                    let count = repeat.max.unwrap_or(repeat.min);
                    if count > most {
                        return false;
                    }
                    most = most.checked_div(count).unwrap_or(most);
                }
                inner.repeats_within(most)
            }
            PatternNode::Capture(inner) => inner.repeats_within(most),
            PatternNode::Concat(parts) | PatternNode::Alternate(parts) => {
                parts.iter().all(|part| part.repeats_within(most))
            }
            _ => true,
        }
    }

    /// The number of ranges in this node.
    pub(crate) const fn weight(&self) -> usize {
        match &self.node {
            PatternNode::Class(ranges) => ranges.len(),
            _ => 0,
        }
    }
}

fn height(parts: &[PatternTree]) -> u32 {
    1 + parts.iter().map(|part| part.height).max().unwrap_or_default()
}

fn size(parts: &[PatternTree]) -> u64 {
    parts
        .iter()
        .fold(0, |sum: u64, part| sum.saturating_add(part.size))
}

// === impl Repeat ===

impl Repeat {
    /// `x*`, `x+`, `x?`: a repetition without a count.
    pub(crate) const fn simple(min: u32, max: Option<u32>) -> Self {
        Self {
            min,
            max,
            lazy: false,
            counted: false,
        }
    }

    fn size(self, inner: u64) -> u64 {
        let (min, inner) = (u64::from(self.min), inner);
        match self.max {
            None if min == 0 => inner + 2,
            None => min.saturating_mul(inner).saturating_add(1),
            Some(_) if !self.counted => inner + 1,
            Some(max) => {
                let max = u64::from(max);
                max.saturating_mul(inner).saturating_add(max.saturating_sub(min))
            }
        }
    }
}

// Converts a parsed pattern to regex-syntax's `Hir`, from which automata are built.

/// Converts a tree. Groups do not capture: only whole matches are needed.
pub(crate) fn of(tree: &PatternTree) -> Hir {
    match &tree.node {
        PatternNode::NoMatch => Hir::fail(),
        PatternNode::Empty => Hir::empty(),
        PatternNode::Literal(text, flags) => literal(text, *flags),
        PatternNode::Class(ranges) => class(ranges),
        PatternNode::AnyOfLine => class(&Ranges::new([(0, 0x9), (0xB, LAST)])),
        PatternNode::Any => any(),
        PatternNode::Look(look) => Hir::look(look_of(*look)),
        PatternNode::Capture(inner) => of(inner),
        PatternNode::Repeat(repeat, inner) => repetition(*repeat, of(inner)),
        PatternNode::Concat(parts) => Hir::concat(parts.iter().map(of).collect()),
        PatternNode::Alternate(parts) => Hir::alternation(parts.iter().map(of).collect()),
    }
}

/// The pattern after as few characters as possible. So it matches anywhere, but only between whole
/// characters.
pub(crate) fn anywhere(pattern: Hir) -> Hir {
    let before = Repeat {
        lazy: true,
        ..Repeat::simple(0, None)
    };
    Hir::concat(vec![repetition(before, any()), pattern])
}

fn any() -> Hir {
    class(&Ranges::new([(0, LAST)]))
}

fn class(ranges: &Ranges) -> Hir {
    let ranges = ranges
        .characters()
        .map(|(low, high)| ClassUnicodeRange::new(low, high));
    Hir::class(Class::Unicode(ClassUnicode::new(ranges)))
}

fn literal(text: &[u32], flags: PatternFlags) -> Hir {
    let character = |code: &u32| {
        let orbit = if flags.fold { class::orbit(*code) } else { &[] };
        if orbit.is_empty() {
            class(&Ranges::new([(*code, *code)]))
        } else {
            class(&Ranges::new(orbit.iter().map(|code| (*code, *code))))
        }
    };
    Hir::concat(text.iter().map(character).collect())
}

fn repetition(repeat: Repeat, inner: Hir) -> Hir {
    Hir::repetition(Repetition {
        min: repeat.min,
        max: repeat.max,
        greedy: !repeat.lazy,
        sub: Box::new(inner),
    })
}

const fn look_of(look: Look) -> HirLook {
    match look {
        Look::TextStart => HirLook::Start,
        Look::TextEnd => HirLook::End,
        Look::LineStart => HirLook::StartLF,
        Look::LineEnd => HirLook::EndLF,
        Look::WordBoundary => HirLook::WordAscii,
        Look::NoWordBoundary => HirLook::WordAsciiNegate,
    }
}
