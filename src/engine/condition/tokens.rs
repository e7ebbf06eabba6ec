//! Bounds that hold before the parser sees an expression, since it recurses.

use super::{ConditionFault, MAX_EXPRESSION_BYTES, MAX_EXPRESSION_NESTING, MAX_EXPRESSION_TOKENS};

/// Counts words, signs and brackets, in string literals too: a bound that
/// misjudged where a literal ends would be none.
pub(super) fn bound(expression: &str) -> Result<(), ConditionFault> {
    if expression.trim().is_empty() {
        return Err(ConditionFault::Empty);
    }
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(ConditionFault::TooLong(expression.len()));
    }
    let (mut tokens, mut depth, mut in_word) = (0, 0_usize, false);
    for byte in expression.bytes() {
        let is_word = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
        if !(byte.is_ascii_whitespace() || is_word && in_word) {
            tokens += 1;
        }
        in_word = is_word;
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if tokens > MAX_EXPRESSION_TOKENS {
            return Err(ConditionFault::TooManyTokens);
        }
        if depth > MAX_EXPRESSION_NESTING {
            return Err(ConditionFault::TooDeep);
        }
    }
    Ok(())
}
