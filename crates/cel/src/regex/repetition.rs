//! What repeats the tree before it: `*`, `+`, `?`, `{2,3}`.

use super::error::{Code, Fault};
use super::parser::{Entry, Parser, until};
use super::tree::{Node, Repeat, Tree};

impl<'p> Parser<'p, '_> {
    pub(crate) fn counted(
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
    pub(crate) fn repeat(
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
}

/// The bounds of a count (`2}`, `2,}`, `2,3}`), and what follows; none if it is
/// no count, but text. A bound that is not there is too large a number.
#[expect(
    clippy::type_complexity,
    reason = "two bounds, the second of which may be open"
)]
pub(crate) fn count(text: &str) -> Option<((Option<u32>, Option<Option<u32>>), &str)> {
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
