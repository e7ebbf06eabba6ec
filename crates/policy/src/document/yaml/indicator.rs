//! Tokens for characters such as `-`, `:` and `[`, and their effect on keys and
//! indentation.

use super::super::Unreadable;
use super::scanner::{MOST_LEVELS, Scanner, SimpleKey};
use super::token::Token;

type Result<T> = std::result::Result<T, Unreadable>;

// === impl Scanner ===

impl Scanner<'_> {
    pub(crate) fn stream_end(&mut self) -> Result<()> {
        // What is missing at the end is missing behind the last token.
        let mark = self.last;
        self.cursor.end_line();
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push(Token::StreamEnd, mark);
        Ok(())
    }

    pub(crate) fn directive(&mut self) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.scan_directive()
    }

    pub(crate) fn document_indicator(&mut self, token: Token) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.indicator(token);
        self.cursor.skip();
        self.cursor.skip();
        Ok(())
    }

    pub(crate) fn flow_start(&mut self, token: Token) -> Result<()> {
        self.save_key()?;
        self.keys.push(SimpleKey {
            token: self.next_number(),
            mark: self.cursor.mark(),
            ..SimpleKey::default()
        });
        self.flow += 1;
        if self.flow > MOST_LEVELS {
            return self.refuse("too many nested `[` and `{`");
        }
        self.key_allowed = true;
        self.indicator(token);
        Ok(())
    }

    pub(crate) fn flow_end(&mut self, token: Token) -> Result<()> {
        self.drop_key()?;
        if self.flow > 0 {
            self.flow -= 1;
            if let Some(key) = self.keys.pop() {
                self.key_at.remove(&key.token);
            }
        }
        self.key_allowed = false;
        self.indicator(token);
        Ok(())
    }

    pub(crate) fn flow_entry(&mut self) -> Result<()> {
        self.drop_key()?;
        self.key_allowed = true;
        self.indicator(Token::FlowEntry);
        Ok(())
    }

    /// `-`. In a flow collection it is for the parser to refuse.
    pub(crate) fn block_entry(&mut self) -> Result<()> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.refuse("a list item (`- `) is not allowed here");
            }
            let mark = self.cursor.mark();
            self.roll(self.column(), None, Token::BlockSequenceStart, mark)?;
        }
        self.drop_key()?;
        self.key_allowed = true;
        self.indicator(Token::BlockEntry);
        Ok(())
    }

    /// `?`
    pub(crate) fn key(&mut self) -> Result<()> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.refuse("a key (`? `) is not allowed here");
            }
            let mark = self.cursor.mark();
            self.roll(self.column(), None, Token::BlockMappingStart, mark)?;
        }
        self.drop_key()?;
        self.key_allowed = self.flow == 0;
        self.indicator(Token::Key);
        Ok(())
    }

    /// `:`, which makes a key of what stands before it.
    pub(crate) fn value(&mut self) -> Result<()> {
        let level = self.keys.len() - 1;
        let is_simple = self.key_is_valid(level)?;
        match self.keys.get_mut(level) {
            Some(key) if is_simple => {
                key.possible = false;
                let SimpleKey { token, mark, .. } = *key;
                self.insert(token, Token::Key, mark);
                let column = isize::try_from(mark.column).unwrap_or(isize::MAX);
                self.roll(column, Some(token), Token::BlockMappingStart, mark)?;
                self.key_at.remove(&token);
                self.key_allowed = false;
            }
            _ => {
                if self.flow == 0 {
                    if !self.key_allowed {
                        return self
                            .refuse("a second `: ` on one line; put text that contains `: ` in quotes");
                    }
                    let mark = self.cursor.mark();
                    self.roll(self.column(), None, Token::BlockMappingStart, mark)?;
                }
                self.key_allowed = self.flow == 0;
            }
        }
        self.indicator(Token::Value);
        Ok(())
    }

    /// What may itself begin a key, and after which none begins.
    pub(crate) fn property(&mut self, scan: fn(&mut Self) -> Result<()>) -> Result<()> {
        self.save_key()?;
        self.key_allowed = false;
        scan(self)
    }

    pub(crate) fn block_scalar(&mut self) -> Result<()> {
        self.drop_key()?;
        self.key_allowed = true;
        self.scan_block_scalar()
    }
}
