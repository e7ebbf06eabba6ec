//! Converts a parsed pattern to regex-syntax's `Hir`, from which automata are built.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, Look as HirLook, Repetition};

use super::parser::Flags;
use super::ranges::{LAST, Ranges};
use super::tree::{Look, Node, Repeat, Tree};
use super::unicode;

/// The same pattern. Groups capture nothing: only whole matches are asked for.
pub(crate) fn of(tree: &Tree) -> Hir {
    match &tree.node {
        Node::NoMatch => Hir::fail(),
        Node::Empty => Hir::empty(),
        Node::Literal(text, flags) => literal(text, *flags),
        Node::Class(ranges) => class(ranges),
        Node::AnyOfLine => class(&Ranges::new([(0, 0x9), (0xB, LAST)])),
        Node::Any => any(),
        Node::Look(look) => Hir::look(look_of(*look)),
        Node::Capture(inner) => of(inner),
        Node::Repeat(repeat, inner) => repetition(*repeat, of(inner)),
        Node::Concat(parts) => Hir::concat(parts.iter().map(of).collect()),
        Node::Alternate(parts) => Hir::alternation(parts.iter().map(of).collect()),
    }
}

/// The pattern behind as few characters as possible: found anywhere, and only
/// between whole characters.
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

fn literal(text: &[u32], flags: Flags) -> Hir {
    let character = |code: &u32| {
        let orbit = if flags.fold { unicode::orbit(*code) } else { &[] };
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
