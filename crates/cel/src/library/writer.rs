//! Text that is written piece by piece, each of which counts before it is written.

use std::fmt::{self, Display, Write};

use super::standard::Computed;
use crate::error::EvalError;
use crate::evaluate::Evaluation;
use crate::value::{Text, Value};

/// Text under way. It grows only by what the evaluation has room for.
pub(crate) struct TextWriter<'w, 'e, 'a> {
    pub(crate) own: &'w mut Evaluation<'e, 'a>,
    text: String,
    /// The bytes that `text` was allowed to take, given back once it is gone.
    allocated: usize,
    /// Why writing ended: `fmt::Error` cannot say it.
    fault: Option<EvalError>,
}

// === impl TextWriter ===

impl<'w, 'e, 'a> TextWriter<'w, 'e, 'a> {
    pub(crate) const fn new(own: &'w mut Evaluation<'e, 'a>) -> Self {
        Self {
            own,
            text: String::new(),
            allocated: 0,
            fault: None,
        }
    }

    /// Writes `piece`, if there is room and time for it.
    pub(crate) fn push(&mut self, piece: &str) -> Result<(), EvalError> {
        self.own.work(piece.len())?;
        self.reserve(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    /// Writes what `value` says, each piece of it as [`push`](Self::push) does.
    pub(crate) fn display(&mut self, value: impl Display) -> Result<(), EvalError> {
        let written = write!(self, "{value}");
        written.map_err(|fmt::Error| self.fault.take().unwrap_or_else(EvalError::no_such_overload))
    }

    /// Makes room for so many bytes more.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), EvalError> {
        let needed = self.text.len().saturating_add(bytes);
        let missing = needed.saturating_sub(self.allocated);
        if missing == 0 {
            return Ok(());
        }
        // Twice as much if there is room for that, so that a long text is moved seldom.
        let more = missing.max(self.allocated.min(self.own.room()));
        self.own.allocate(more)?;
        self.allocated += more;
        self.text.reserve_exact(self.allocated - self.text.len());
        Ok(())
    }

    /// How many bytes the text was allowed to take so far.
    pub(crate) const fn allocated(&self) -> usize {
        self.allocated
    }

    /// The text, which is counted no longer.
    pub(crate) fn into_string(mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// The text as a value.
    pub(crate) fn finish(self) -> Computed<'a> {
        self.own.allocate(self.text.len() + Text::BYTES)?;
        Ok(Value::String(Text::Shared(self.text.as_str().into())))
    }
}

impl Write for TextWriter<'_, '_, '_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.push(piece).map_err(|fault| {
            self.fault = Some(fault);
            fmt::Error
        })
    }
}

impl Drop for TextWriter<'_, '_, '_> {
    fn drop(&mut self) {
        self.own.release(self.allocated);
    }
}
