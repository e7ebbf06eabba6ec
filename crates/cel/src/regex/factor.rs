//! Alternatives: common prefixes are factored out, and adjacent single characters become
//! a set, as in Go.

use super::Fault;
use super::class::{LAST, Ranges};
use super::parser::{Flags, Parser, opened};
use super::tree::{Excess, Node, Tree};

/// How deep beginnings may be nested. Each level makes the tree two higher, so
/// that more than these are too high in any case.
const MAX_DEPTH: u32 = 500;

/// One tree of several alternatives.
pub(crate) fn alternatives(
    mut parts: Vec<Tree>,
    parser: &mut Parser<'_, '_>,
    depth: u32,
) -> Result<Tree, Fault> {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return Ok(only);
    }
    if depth > MAX_DEPTH {
        return Err(parser.excess(Excess::Height));
    }
    let parts = opened(parts, |node| match node {
        Node::Alternate(parts) => Ok(parts),
        other => Err(other),
    });
    let parts = by_text(parts, parser, depth)?;
    let parts = by_first(parts, parser, depth)?;
    let mut parts = without_repeated_empty(sets(parts));
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return Ok(only);
    }
    Ok(Tree::new(Node::Alternate(parts)))
}

/// Alternatives that begin with the same text share it.
fn by_text(parts: Vec<Tree>, parser: &mut Parser<'_, '_>, depth: u32) -> Result<Vec<Tree>, Fault> {
    let mut out = Vec::new();
    let mut run: Vec<Tree> = Vec::new();
    let mut shared = Vec::new();
    let mut folded = false;
    for part in parts {
        let (text, fold) = leading_text(&part);
        parser.work(text.len() + 1)?;
        let same = if fold == folded { common(&shared, text) } else { 0 };
        if same > 0 {
            shared.truncate(same);
            run.push(part);
            continue;
        }
        let next = text.to_vec();
        let (before, text) = (std::mem::take(&mut run), std::mem::replace(&mut shared, next));
        out.extend(share_text(before, text, folded, parser, depth)?);
        folded = fold;
        run.push(part);
    }
    out.extend(share_text(run, shared, folded, parser, depth)?);
    Ok(out)
}

fn share_text(
    mut run: Vec<Tree>,
    text: Vec<u32>,
    fold: bool,
    parser: &mut Parser<'_, '_>,
    depth: u32,
) -> Result<Option<Tree>, Fault> {
    if run.len() < 2 {
        return Ok(run.pop());
    }
    let length = text.len();
    let flags = Flags {
        fold,
        ..Flags::default()
    };
    let prefix = Tree::new(Node::Literal(text, flags));
    let mut rest = Vec::with_capacity(run.len());
    for part in run {
        let part = without_text(part, length);
        parser.check(&part)?;
        rest.push(part);
    }
    let suffix = alternatives(rest, parser, depth + 1)?;
    Ok(Some(Tree::new(Node::Concat(vec![prefix, suffix]))))
}

fn common(left: &[u32], right: &[u32]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}

/// The text that a tree begins with, and whether it folds.
fn leading_text(tree: &Tree) -> (&[u32], bool) {
    let first = match &tree.node {
        Node::Concat(parts) => parts.first().map(|part| &part.node),
        other => Some(other),
    };
    match first {
        Some(Node::Literal(text, flags)) => (text, flags.fold),
        _ => (&[], false),
    }
}

/// A tree without the first characters of the text that it begins with.
fn without_text(tree: Tree, length: usize) -> Tree {
    match tree.node {
        Node::Concat(parts) => {
            let mut parts = parts.into_iter();
            let first = parts.next().map(|first| without_text(first, length));
            let first = first.filter(|first| !matches!(first.node, Node::Empty));
            sequence(first.into_iter().chain(parts).collect())
        }
        Node::Literal(mut text, flags) => {
            text.drain(..length.min(text.len()));
            if text.is_empty() {
                Tree::new(Node::Empty)
            } else {
                Tree::new(Node::Literal(text, flags))
            }
        }
        _ => tree,
    }
}

fn sequence(mut parts: Vec<Tree>) -> Tree {
    match parts.len() {
        0 => Tree::new(Node::Empty),
        1 => parts.pop().unwrap_or_else(|| Tree::new(Node::Empty)),
        _ => Tree::new(Node::Concat(parts)),
    }
}

/// Alternatives that begin with the same set of characters share it.
fn by_first(parts: Vec<Tree>, parser: &mut Parser<'_, '_>, depth: u32) -> Result<Vec<Tree>, Fault> {
    let mut out = Vec::new();
    let mut run: Vec<Tree> = Vec::new();
    for part in parts {
        let first = run.first().and_then(leading_tree);
        let first = first.filter(|first| is_simple(first));
        let alike = first.is_some_and(|first| leading_tree(&part).is_some_and(|other| is_same(first, other)));
        parser.work(part.weight() + 1)?;
        if !alike {
            out.extend(share_first(std::mem::take(&mut run), parser, depth)?);
        }
        run.push(part);
    }
    out.extend(share_first(run, parser, depth)?);
    Ok(out)
}

fn share_first(mut run: Vec<Tree>, parser: &mut Parser<'_, '_>, depth: u32) -> Result<Option<Tree>, Fault> {
    if run.len() < 2 {
        return Ok(run.pop());
    }
    let Some(prefix) = run.first().and_then(leading_tree).cloned() else {
        return Ok(None);
    };
    let mut rest = Vec::with_capacity(run.len());
    for part in run {
        let part = without_first(part);
        parser.check(&part)?;
        rest.push(part);
    }
    let suffix = alternatives(rest, parser, depth + 1)?;
    Ok(Some(Tree::new(Node::Concat(vec![prefix, suffix]))))
}

fn leading_tree(tree: &Tree) -> Option<&Tree> {
    let first = match &tree.node {
        Node::Concat(parts) => parts.first()?,
        _ => tree,
    };
    (!matches!(first.node, Node::Empty)).then_some(first)
}

/// Whether it is a set of characters, or so many of one: what may be shared
/// without changing which alternative is preferred.
fn is_simple(tree: &Tree) -> bool {
    match &tree.node {
        Node::Repeat(repeat, inner) => repeat.counted && repeat.max == Some(repeat.min) && inner.is_class(),
        _ => tree.is_class(),
    }
}

/// Whether two trees, one of which [`is_simple`], are the same.
fn is_same(left: &Tree, right: &Tree) -> bool {
    match (&left.node, &right.node) {
        (Node::Literal(left, flags), Node::Literal(right, other)) => {
            left == right && flags.fold == other.fold
        }
        (Node::Class(left), Node::Class(right)) => left == right,
        (Node::AnyOfLine, Node::AnyOfLine) | (Node::Any, Node::Any) => true,
        (Node::Repeat(left, one), Node::Repeat(right, other)) => left == right && is_same(one, other),
        _ => false,
    }
}

fn without_first(tree: Tree) -> Tree {
    match tree.node {
        Node::Concat(parts) => sequence(parts.into_iter().skip(1).collect()),
        _ => Tree::new(Node::Empty),
    }
}

/// Sets of characters side by side become one.
fn sets(parts: Vec<Tree>) -> Vec<Tree> {
    let mut out = Vec::with_capacity(parts.len());
    let mut run = Vec::new();
    for part in parts {
        if part.is_class() {
            run.push(part);
            continue;
        }
        out.extend(united(std::mem::take(&mut run)));
        out.push(part);
    }
    out.extend(united(run));
    out
}

fn united(mut run: Vec<Tree>) -> Option<Tree> {
    if run.len() < 2 {
        return run.pop();
    }
    let mut most = 0;
    let mut rank = (0, 0);
    for (position, part) in run.iter().enumerate() {
        if part.rank() > rank {
            (most, rank) = (position, part.rank());
        }
    }
    let mut all = run.swap_remove(most);
    for part in &run {
        merge(&mut all, part);
    }
    clean(&mut all);
    Some(all)
}

/// Adds the characters of `other`, which ranks no higher.
pub(crate) fn merge(into: &mut Tree, other: &Tree) {
    match (&mut into.node, &other.node) {
        (Node::AnyOfLine, _) if has_line_feed(&other.node) => into.node = Node::Any,
        (Node::Class(ranges), Node::Class(more)) => ranges.add_all(more.as_slice()),
        (Node::Class(ranges), Node::Literal(text, flags)) => add_literal(ranges, text, *flags),
        (Node::Literal(text, flags), Node::Literal(more, others)) => {
            if text == more && flags == others {
                return;
            }
            let mut ranges = Ranges::default();
            add_literal(&mut ranges, text, *flags);
            add_literal(&mut ranges, more, *others);
            into.node = Node::Class(ranges);
        }
        _ => {}
    }
    into.measure();
}

fn has_line_feed(node: &Node) -> bool {
    let line_feed = u32::from('\n');
    match node {
        Node::Literal(text, _) => text.contains(&line_feed),
        Node::Class(ranges) => ranges.contains(line_feed),
        Node::Any => true,
        _ => false,
    }
}

fn add_literal(ranges: &mut Ranges, text: &[u32], flags: Flags) {
    for character in text {
        if flags.fold {
            ranges.add_folded(*character, *character);
        } else {
            ranges.add(*character, *character);
        }
    }
}

/// Puts the ranges of a set in order, once no more are added to it.
pub(crate) fn clean(tree: &mut Tree) {
    let Node::Class(ranges) = &mut tree.node else {
        return;
    };
    let ranges = std::mem::take(ranges).tidy();
    let line_feed = u32::from('\n');
    tree.node = match ranges.as_slice() {
        [(0, LAST)] => Node::Any,
        [(0, low), (high, LAST)] if low + 1 == line_feed && high - 1 == line_feed => Node::AnyOfLine,
        _ => Node::Class(ranges),
    };
}

/// Of alternatives side by side that are empty, one.
fn without_repeated_empty(parts: Vec<Tree>) -> Vec<Tree> {
    let mut out: Vec<Tree> = Vec::with_capacity(parts.len());
    for part in parts {
        let empty = |tree: &Tree| matches!(tree.node, Node::Empty);
        if !(empty(&part) && out.last().is_some_and(empty)) {
            out.push(part);
        }
    }
    out
}
