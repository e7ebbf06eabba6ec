//! Characters, and how those that stand side by side become one literal.

use super::error::Fault;
use super::parser::{Entry, Flags, Parser};
use super::tree::{Node, Tree};
use super::unicode;

impl Parser<'_, '_> {
    pub(crate) fn literal(&mut self, character: char) -> Result<(), Fault> {
        self.literal_code(u32::from(character))
    }

    /// A character by its number, which may be that of a surrogate.
    pub(crate) fn literal_code(&mut self, code: u32) -> Result<(), Fault> {
        let smallest = || unicode::orbit(code).iter().copied().min();
        let code = if self.flags.fold { smallest() } else { None }.unwrap_or(code);
        self.push(Tree::new(Node::Literal(vec![code], self.flags)))
    }

    /// Puts a tree on the stack. A class of one character, or of the two cases
    /// of one, becomes a literal.
    pub(crate) fn push(&mut self, mut tree: Tree) -> Result<(), Fault> {
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
    /// `next` then replaces the second; the result says whether it does.
    pub(crate) fn merge_literals(&mut self, next: Option<(u32, Flags)>) -> bool {
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
}
