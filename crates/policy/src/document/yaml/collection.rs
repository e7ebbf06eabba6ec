//! Lists and mappings, step by step: each step reads the next token of the innermost open
//! collection.

use super::super::MAX_DEPTH;
use super::parser::{CollectionState, CollectionStyle, EventParser, NodeKind, OpenCollection};
use super::scanner::{Mark, YamlToken};
use crate::document::layout::Unreadable;

type Result<T> = std::result::Result<T, Unreadable>;

// === impl EventParser ===

impl EventParser<'_> {
    /// Reads on until the outermost collection is closed.
    pub(crate) fn collections(&mut self) -> Result<usize> {
        let mut outermost = 0;
        while let Some(open) = self.open.last().copied() {
            outermost = open.value;
            self.check_values()?;
            let child = match open.style {
                CollectionStyle::BlockSequence => self.block_sequence(open)?,
                CollectionStyle::IndentlessSequence => self.indentless_sequence(open)?,
                CollectionStyle::BlockMapping => self.block_mapping(open)?,
                CollectionStyle::FlowSequence => self.flow_sequence(open)?,
                CollectionStyle::FlowMapping => self.flow_mapping(open)?,
                CollectionStyle::FlowPair => self.flow_pair(open)?,
            };
            if let Some(child) = child {
                self.tree.add(open.value, child);
            }
        }
        Ok(outermost)
    }

    pub(crate) fn open(&mut self, style: CollectionStyle, anchor: Option<String>, mark: Mark) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(mark.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let kind = match style {
            CollectionStyle::BlockSequence
            | CollectionStyle::IndentlessSequence
            | CollectionStyle::FlowSequence => NodeKind::Sequence(Vec::new()),
            CollectionStyle::BlockMapping | CollectionStyle::FlowMapping | CollectionStyle::FlowPair => {
                NodeKind::Mapping(Vec::new())
            }
        };
        let value = self.anchored(anchor, mark, kind);
        // What it is in notes it now: by the time it closes, it is not at hand.
        if let Some(parent) = self.open.last() {
            let parent = parent.value;
            self.tree.add(parent, value);
        }
        self.open.push(OpenCollection {
            value,
            style,
            at: CollectionState::First,
            mark,
        });
        Ok(())
    }

    fn close(&mut self) {
        self.open.pop();
    }

    fn now(&mut self, at: CollectionState) {
        if let Some(open) = self.open.last_mut() {
            open.at = at;
        }
    }

    /// The value that stands here, unless one of `ends` does: then none, at `mark`.
    fn node_unless(
        &mut self,
        ends: &[YamlToken],
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

    fn block_sequence(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        if let Some(mark) = self.take_if(&YamlToken::BlockEntry)? {
            return self.node_unless(&[YamlToken::BlockEntry, YamlToken::BlockEnd], mark, true, false);
        }
        if self.take_if(&YamlToken::BlockEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        let begun = open.mark.line + 1;
        self.refuse(&format!(
            "expected `- ` for another item of the list that begins on line {begun}, or the \
             indentation is wrong"
        ))
    }

    fn indentless_sequence(&mut self, _: OpenCollection) -> Result<Option<usize>> {
        if let Some(mark) = self.take_if(&YamlToken::BlockEntry)? {
            let ends = [
                YamlToken::BlockEntry,
                YamlToken::Key,
                YamlToken::Value,
                YamlToken::BlockEnd,
            ];
            return self.node_unless(&ends, mark, true, false);
        }
        self.close();
        Ok(None)
    }

    fn block_mapping(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        let ends = [YamlToken::Key, YamlToken::Value, YamlToken::BlockEnd];
        if open.at == CollectionState::Value {
            self.now(CollectionState::Next);
            if let Some(mark) = self.take_if(&YamlToken::Value)? {
                return self.node_unless(&ends, mark, true, true);
            }
            let mark = self.scanner.peek()?.mark;
            return Ok(Some(self.empty(mark)));
        }
        if let Some(mark) = self.take_if(&YamlToken::Key)? {
            self.now(CollectionState::Value);
            return self.node_unless(&ends, mark, true, true);
        }
        if self.take_if(&YamlToken::BlockEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        let begun = open.mark.line + 1;
        self.refuse(&format!(
            "expected another `key:` of the mapping that begins on line {begun}, or the indentation is wrong"
        ))
    }

    fn flow_sequence(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        self.flow_separator(
            open,
            &YamlToken::FlowSequenceEnd,
            "expected `,` or `]` in the list `[…]`",
        )?;
        if self.take_if(&YamlToken::FlowSequenceEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        self.now(CollectionState::Next);
        if let Some(mark) = self.take_if(&YamlToken::Key)? {
            self.open(CollectionStyle::FlowPair, None, mark)?;
            return Ok(None);
        }
        self.node(false, false)
    }

    /// A comma, where one is due.
    fn flow_separator(&mut self, open: OpenCollection, end: &YamlToken, message: &str) -> Result<()> {
        let is_due = open.at != CollectionState::First && self.scanner.peek()?.token != *end;
        if is_due && self.take_if(&YamlToken::FlowEntry)?.is_none() {
            return self.refuse(message);
        }
        Ok(())
    }

    fn flow_pair(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        let ends = [YamlToken::FlowEntry, YamlToken::FlowSequenceEnd];
        match open.at {
            CollectionState::First => {
                self.now(CollectionState::Value);
                if self.next_is(&[YamlToken::Value, YamlToken::FlowEntry, YamlToken::FlowSequenceEnd])? {
                    // libyaml takes what ends the missing key with it.
                    let mark = self.scanner.take()?.mark;
                    return Ok(Some(self.empty(mark)));
                }
                self.node(false, false)
            }
            CollectionState::Value => {
                self.now(CollectionState::End);
                let mark = self.scanner.peek()?.mark;
                match self.take_if(&YamlToken::Value)? {
                    Some(_) => self.node_unless(&ends, mark, false, false),
                    None => Ok(Some(self.empty(mark))),
                }
            }
            CollectionState::Next | CollectionState::NoValue | CollectionState::End => {
                self.close();
                Ok(None)
            }
        }
    }

    fn flow_mapping(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        let mark = self.scanner.peek()?.mark;
        match open.at {
            CollectionState::NoValue => {
                self.now(CollectionState::Next);
                return Ok(Some(self.empty(mark)));
            }
            CollectionState::Value => {
                self.now(CollectionState::Next);
                let ends = [YamlToken::FlowEntry, YamlToken::FlowMappingEnd];
                return match self.take_if(&YamlToken::Value)? {
                    Some(_) => self.node_unless(&ends, mark, false, false),
                    None => Ok(Some(self.empty(mark))),
                };
            }
            CollectionState::First | CollectionState::Next | CollectionState::End => {}
        }
        self.flow_separator(
            open,
            &YamlToken::FlowMappingEnd,
            "expected `,` or `}` in the mapping `{…}`",
        )?;
        if self.take_if(&YamlToken::FlowMappingEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        if !self.next_is(&[YamlToken::Key])? {
            self.now(CollectionState::NoValue);
            return self.node(false, false);
        }
        let mark = self.scanner.take()?.mark;
        self.now(CollectionState::Value);
        let ends = [YamlToken::Value, YamlToken::FlowEntry, YamlToken::FlowMappingEnd];
        self.node_unless(&ends, mark, false, false)
    }
}
