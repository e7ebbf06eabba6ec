//! Alternatives: common prefixes are factored out, and adjacent single characters become a class,
//! as in Go.

use super::CompileFault;
use super::class::{LAST, Ranges};
use super::parser::{PatternFlags, PatternParser, opened};
use super::tree::{Excess, PatternNode, PatternTree};

/// How deep prefixes may be nested. Each level adds two levels to the tree, so that more would
/// exceed its height in any case.
const MAX_DEPTH: u32 = 500;

/// Joins alternatives into one tree.
pub(crate) fn alternatives(
    mut parts: Vec<PatternTree>,
    parser: &mut PatternParser<'_, '_>,
    depth: u32,
) -> Result<PatternTree, CompileFault> {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return Ok(only);
    }
    if depth > MAX_DEPTH {
        return Err(parser.excess(Excess::Height));
    }
    let parts = opened(parts, |node| match node {
        PatternNode::Alternate(parts) => Ok(parts),
        other => Err(other),
    });
    let parts = by_text(parts, parser, depth)?;
    let parts = by_first(parts, parser, depth)?;
    let mut parts = without_repeated_empty(join_classes(parts));
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return Ok(only);
    }
    Ok(PatternTree::new(PatternNode::Alternate(parts)))
}

/// Factors out the common literal prefixes of adjacent alternatives.
fn by_text(
    parts: Vec<PatternTree>,
    parser: &mut PatternParser<'_, '_>,
    depth: u32,
) -> Result<Vec<PatternTree>, CompileFault> {
    let mut out = Vec::new();
    let mut run: Vec<PatternTree> = Vec::new();
    let mut shared = Vec::new();
    let mut folded = false;
    for part in parts {
        let (text, fold) = leading_text(&part);
        parser.charge_steps(text.len() + 1)?;
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
    mut run: Vec<PatternTree>,
    text: Vec<u32>,
    fold: bool,
    parser: &mut PatternParser<'_, '_>,
    depth: u32,
) -> Result<Option<PatternTree>, CompileFault> {
    if run.len() < 2 {
        return Ok(run.pop());
    }
    let length = text.len();
    let flags = PatternFlags {
        fold,
        ..PatternFlags::default()
    };
    let prefix = PatternTree::new(PatternNode::Literal(text, flags));
    let mut rest = Vec::with_capacity(run.len());
    for part in run {
        let part = without_text(part, length);
        parser.check(&part)?;
        rest.push(part);
    }
    let suffix = alternatives(rest, parser, depth + 1)?;
    Ok(Some(PatternTree::new(PatternNode::Concat(vec![prefix, suffix]))))
}

fn common(left: &[u32], right: &[u32]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}

/// The literal that a tree begins with, and whether it is case-insensitive.
fn leading_text(tree: &PatternTree) -> (&[u32], bool) {
    let first = match &tree.node {
        PatternNode::Concat(parts) => parts.first().map(|part| &part.node),
        other => Some(other),
    };
    match first {
        Some(PatternNode::Literal(text, flags)) => (text, flags.fold),
        _ => (&[], false),
    }
}

/// The tree without the first characters of the literal that it begins with.
fn without_text(tree: PatternTree, length: usize) -> PatternTree {
    match tree.node {
        PatternNode::Concat(parts) => {
            let mut parts = parts.into_iter();
            let first = parts.next().map(|first| without_text(first, length));
            let first = first.filter(|first| !matches!(first.node, PatternNode::Empty));
            sequence(first.into_iter().chain(parts).collect())
        }
        PatternNode::Literal(mut text, flags) => {
            text.drain(..length.min(text.len()));
            if text.is_empty() {
                PatternTree::new(PatternNode::Empty)
            } else {
                PatternTree::new(PatternNode::Literal(text, flags))
            }
        }
        _ => tree,
    }
}

fn sequence(mut parts: Vec<PatternTree>) -> PatternTree {
    match parts.len() {
        0 => PatternTree::new(PatternNode::Empty),
        1 => parts
            .pop()
            .unwrap_or_else(|| PatternTree::new(PatternNode::Empty)),
        _ => PatternTree::new(PatternNode::Concat(parts)),
    }
}

/// Factors out the class that adjacent alternatives begin with.
fn by_first(
    parts: Vec<PatternTree>,
    parser: &mut PatternParser<'_, '_>,
    depth: u32,
) -> Result<Vec<PatternTree>, CompileFault> {
    let mut out = Vec::new();
    let mut run: Vec<PatternTree> = Vec::new();
    for part in parts {
        let first = run.first().and_then(leading_tree);
        let first = first.filter(|first| is_simple(first));
        let alike = first.is_some_and(|first| leading_tree(&part).is_some_and(|other| is_same(first, other)));
        parser.charge_steps(part.weight() + 1)?;
        if !alike {
            out.extend(share_first(std::mem::take(&mut run), parser, depth)?);
        }
        run.push(part);
    }
    out.extend(share_first(run, parser, depth)?);
    Ok(out)
}

fn share_first(
    mut run: Vec<PatternTree>,
    parser: &mut PatternParser<'_, '_>,
    depth: u32,
) -> Result<Option<PatternTree>, CompileFault> {
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
    Ok(Some(PatternTree::new(PatternNode::Concat(vec![prefix, suffix]))))
}

fn leading_tree(tree: &PatternTree) -> Option<&PatternTree> {
    let first = match &tree.node {
        PatternNode::Concat(parts) => parts.first()?,
        _ => tree,
    };
    (!matches!(first.node, PatternNode::Empty)).then_some(first)
}

/// Whether the tree is a class, or a fixed number of one: such a prefix can be factored out without
/// changing which alternative is preferred.
fn is_simple(tree: &PatternTree) -> bool {
    match &tree.node {
        PatternNode::Repeat(repeat, inner) => {
            repeat.counted && repeat.max == Some(repeat.min) && inner.is_class()
        }
        _ => tree.is_class(),
    }
}

/// Whether two trees are equal, if one of them [`is_simple`].
fn is_same(left: &PatternTree, right: &PatternTree) -> bool {
    match (&left.node, &right.node) {
        (PatternNode::Literal(left, flags), PatternNode::Literal(right, other)) => {
            left == right && flags.fold == other.fold
        }
        (PatternNode::Class(left), PatternNode::Class(right)) => left == right,
        (PatternNode::AnyOfLine, PatternNode::AnyOfLine) | (PatternNode::Any, PatternNode::Any) => true,
        (PatternNode::Repeat(left, one), PatternNode::Repeat(right, other)) => {
            left == right && is_same(one, other)
        }
        _ => false,
    }
}

fn without_first(tree: PatternTree) -> PatternTree {
    match tree.node {
        PatternNode::Concat(parts) => sequence(parts.into_iter().skip(1).collect()),
        _ => PatternTree::new(PatternNode::Empty),
    }
}

/// Joins adjacent classes into one.
fn join_classes(parts: Vec<PatternTree>) -> Vec<PatternTree> {
    let mut out = Vec::with_capacity(parts.len());
    let mut run = Vec::new();
    for part in parts {
        if part.is_class() {
            run.push(part);
            continue;
        }
        out.extend(union(std::mem::take(&mut run)));
        out.push(part);
    }
    out.extend(union(run));
    out
}

fn union(mut run: Vec<PatternTree>) -> Option<PatternTree> {
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
    normalize(&mut all);
    Some(all)
}

/// Adds the characters of `other`, whose rank is not higher.
pub(crate) fn merge(into: &mut PatternTree, other: &PatternTree) {
    match (&mut into.node, &other.node) {
        (PatternNode::AnyOfLine, _) if has_line_feed(&other.node) => into.node = PatternNode::Any,
        (PatternNode::Class(ranges), PatternNode::Class(more)) => ranges.add_all(more.as_slice()),
        (PatternNode::Class(ranges), PatternNode::Literal(text, flags)) => add_literal(ranges, text, *flags),
        (PatternNode::Literal(text, flags), PatternNode::Literal(more, others)) => {
            if text == more && flags == others {
                return;
            }
            let mut ranges = Ranges::default();
            add_literal(&mut ranges, text, *flags);
            add_literal(&mut ranges, more, *others);
            into.node = PatternNode::Class(ranges);
        }
        _ => {}
    }
    into.measure();
}

fn has_line_feed(node: &PatternNode) -> bool {
    let line_feed = u32::from('\n');
    match node {
        PatternNode::Literal(text, _) => text.contains(&line_feed),
        PatternNode::Class(ranges) => ranges.contains(line_feed),
        PatternNode::Any => true,
        _ => false,
    }
}

fn add_literal(ranges: &mut Ranges, text: &[u32], flags: PatternFlags) {
    for character in text {
        if flags.fold {
            ranges.add_folded(*character, *character);
        } else {
            ranges.add(*character, *character);
        }
    }
}

/// Sorts the ranges of a class, once it is complete.
pub(crate) fn normalize(tree: &mut PatternTree) {
    let PatternNode::Class(ranges) = &mut tree.node else {
        return;
    };
    let ranges = std::mem::take(ranges).tidy();
    let line_feed = u32::from('\n');
    tree.node = match ranges.as_slice() {
        [(0, LAST)] => PatternNode::Any,
        [(0, low), (high, LAST)] if low + 1 == line_feed && high - 1 == line_feed => PatternNode::AnyOfLine,
        _ => PatternNode::Class(ranges),
    };
}

/// Leaves one of several adjacent empty alternatives.
fn without_repeated_empty(parts: Vec<PatternTree>) -> Vec<PatternTree> {
    let mut out: Vec<PatternTree> = Vec::with_capacity(parts.len());
    for part in parts {
        let empty = |tree: &PatternTree| matches!(tree.node, PatternNode::Empty);
        if !(empty(&part) && out.last().is_some_and(empty)) {
            out.push(part);
        }
    }
    out
}
