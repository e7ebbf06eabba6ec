//! Lists and mappings, step by step: each step reads the next token of the innermost open
//! collection.

use super::super::{MAX_DEPTH, Unreadable};
use super::cursor::Mark;
use super::parser::{Kind, Parser};
use super::scanner::Token;

type Result<T> = std::result::Result<T, Unreadable>;

/// A collection that is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) value: usize,
    shape: Shape,
    at: At,
    mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    BlockSequence,
    /// One whose items stand in the column of its key.
    IndentlessSequence,
    BlockMapping,
    FlowSequence,
    FlowMapping,
    /// The one entry of a mapping that stands in a flow sequence: `[a: b]`.
    FlowPair,
}

/// What comes next in a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    First,
    Next,
    Value,
    /// The value of a key after which there is no `:`.
    NoValue,
    End,
}

// === impl Parser ===

impl Parser<'_> {
    /// Reads on until the outermost collection is closed.
    pub(crate) fn collections(&mut self) -> Result<usize> {
        let mut outermost = 0;
        while let Some(open) = self.open.last().copied() {
            outermost = open.value;
            let child = match open.shape {
                Shape::BlockSequence => self.block_sequence(open)?,
                Shape::IndentlessSequence => self.indentless_sequence(open)?,
                Shape::BlockMapping => self.block_mapping(open)?,
                Shape::FlowSequence => self.flow_sequence(open)?,
                Shape::FlowMapping => self.flow_mapping(open)?,
                Shape::FlowPair => self.flow_pair(open)?,
            };
            if let Some(child) = child {
                self.tree.add(open.value, child);
            }
        }
        Ok(outermost)
    }

    pub(crate) fn open(&mut self, shape: Shape, anchor: Option<String>, mark: Mark) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(mark.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let kind = match shape {
            Shape::BlockSequence | Shape::IndentlessSequence | Shape::FlowSequence => {
                Kind::Sequence(Vec::new())
            }
            Shape::BlockMapping | Shape::FlowMapping | Shape::FlowPair => Kind::Mapping(Vec::new()),
        };
        let value = self.anchored(anchor, mark, kind);
        // What it is in notes it now: by the time it closes, it is not at hand.
        if let Some(parent) = self.open.last() {
            let parent = parent.value;
            self.tree.add(parent, value);
        }
        self.open.push(Open {
            value,
            shape,
            at: At::First,
            mark,
        });
        Ok(())
    }

    fn close(&mut self) {
        self.open.pop();
    }

    fn now(&mut self, at: At) {
        if let Some(open) = self.open.last_mut() {
            open.at = at;
        }
    }

    /// The value that stands here, unless one of `ends` does: then none, at `mark`.
    fn node_unless(
        &mut self,
        ends: &[Token],
        mark: Mark,
        is_block: bool,
        may_be_indentless: bool,
    ) -> Result<Option<usize>> {
        if self.next_is(ends)? {
            return Ok(Some(self.empty(mark)));
        }
        self.node(is_block, may_be_indentless)
    }

    // --- collections: each takes one step, and returns the value that it added ---

    fn block_sequence(&mut self, open: Open) -> Result<Option<usize>> {
        if let Some(mark) = self.take_if(&Token::BlockEntry)? {
            return self.node_unless(&[Token::BlockEntry, Token::BlockEnd], mark, true, false);
        }
        if self.take_if(&Token::BlockEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        let begun = open.mark.line + 1;
        self.refuse(&format!(
            "expected `- ` for another item of the list that begins on line {begun}, or the \
             indentation is wrong"
        ))
    }

    fn indentless_sequence(&mut self, _: Open) -> Result<Option<usize>> {
        if let Some(mark) = self.take_if(&Token::BlockEntry)? {
            let ends = [Token::BlockEntry, Token::Key, Token::Value, Token::BlockEnd];
            return self.node_unless(&ends, mark, true, false);
        }
        self.close();
        Ok(None)
    }

    fn block_mapping(&mut self, open: Open) -> Result<Option<usize>> {
        let ends = [Token::Key, Token::Value, Token::BlockEnd];
        if open.at == At::Value {
            self.now(At::Next);
            if let Some(mark) = self.take_if(&Token::Value)? {
                return self.node_unless(&ends, mark, true, true);
            }
            let mark = self.scanner.peek()?.mark;
            return Ok(Some(self.empty(mark)));
        }
        if let Some(mark) = self.take_if(&Token::Key)? {
            self.now(At::Value);
            return self.node_unless(&ends, mark, true, true);
        }
        if self.take_if(&Token::BlockEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        let begun = open.mark.line + 1;
        self.refuse(&format!(
            "expected another `key:` of the mapping that begins on line {begun}, or the indentation is wrong"
        ))
    }

    fn flow_sequence(&mut self, open: Open) -> Result<Option<usize>> {
        self.flow_separator(
            open,
            &Token::FlowSequenceEnd,
            "expected `,` or `]` in the list `[…]`",
        )?;
        if self.take_if(&Token::FlowSequenceEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        self.now(At::Next);
        if let Some(mark) = self.take_if(&Token::Key)? {
            self.open(Shape::FlowPair, None, mark)?;
            return Ok(None);
        }
        self.node(false, false)
    }

    /// A comma, where one is due.
    fn flow_separator(&mut self, open: Open, end: &Token, message: &str) -> Result<()> {
        let is_due = open.at != At::First && self.scanner.peek()?.token != *end;
        if is_due && self.take_if(&Token::FlowEntry)?.is_none() {
            return self.refuse(message);
        }
        Ok(())
    }

    fn flow_pair(&mut self, open: Open) -> Result<Option<usize>> {
        let ends = [Token::FlowEntry, Token::FlowSequenceEnd];
        match open.at {
            At::First => {
                self.now(At::Value);
                if self.next_is(&[Token::Value, Token::FlowEntry, Token::FlowSequenceEnd])? {
                    // libyaml takes what ends the missing key with it.
                    let mark = self.scanner.take()?.mark;
                    return Ok(Some(self.empty(mark)));
                }
                self.node(false, false)
            }
            At::Value => {
                self.now(At::End);
                let mark = self.scanner.peek()?.mark;
                match self.take_if(&Token::Value)? {
                    Some(_) => self.node_unless(&ends, mark, false, false),
                    None => Ok(Some(self.empty(mark))),
                }
            }
            At::Next | At::NoValue | At::End => {
                self.close();
                Ok(None)
            }
        }
    }

    fn flow_mapping(&mut self, open: Open) -> Result<Option<usize>> {
        let mark = self.scanner.peek()?.mark;
        match open.at {
            At::NoValue => {
                self.now(At::Next);
                return Ok(Some(self.empty(mark)));
            }
            At::Value => {
                self.now(At::Next);
                let ends = [Token::FlowEntry, Token::FlowMappingEnd];
                return match self.take_if(&Token::Value)? {
                    Some(_) => self.node_unless(&ends, mark, false, false),
                    None => Ok(Some(self.empty(mark))),
                };
            }
            At::First | At::Next | At::End => {}
        }
        self.flow_separator(
            open,
            &Token::FlowMappingEnd,
            "expected `,` or `}` in the mapping `{…}`",
        )?;
        if self.take_if(&Token::FlowMappingEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        if !self.next_is(&[Token::Key])? {
            self.now(At::NoValue);
            return self.node(false, false);
        }
        let mark = self.scanner.take()?.mark;
        self.now(At::Value);
        let ends = [Token::Value, Token::FlowEntry, Token::FlowMappingEnd];
        self.node_unless(&ends, mark, false, false)
    }
}
