//! Additional indexes of lists and maps: duplicate keys, and the positions of many items.

use std::borrow::Cow;

use super::{Frame, Scanner, small};
use crate::json::document::{TapeToken, WIDE, Wide};
use crate::json::text::unescape;

impl Scanner<'_> {
    /// The key just read has the shape of an earlier one.
    #[inline(never)]
    pub(crate) fn suspect(&mut self, key: u32) {
        let Frame { token, count, .. } = self.frame;
        // What is wide has its keys compared when it is closed.
        let is_repeated = count as usize <= WIDE && self.repeats(token, count, key);
        self.frame.maybe_repeated |= is_repeated;
    }

    /// Whether one of the `count` entries of the map at `token` has the text of `key`.
    fn repeats(&self, token: u32, count: u32, key: u32) -> bool {
        let text_of_key = self.key_text(key);
        let mut at = token + 1;
        for _ in 0..count {
            if self.key_text(at) == text_of_key {
                return true;
            }
            at = self.token(at + 1).map_or(at, |value| value.next);
        }
        false
    }

    /// Indexes what has just been closed. Returns how many of its keys others supersede.
    #[cold]
    pub(crate) fn index(&mut self, frame: Frame) -> u32 {
        if frame.is_map {
            return self.index_keys(frame.token, frame.count);
        }
        self.index_items(frame.token, frame.count);
        0
    }

    fn index_items(&mut self, token: u32, count: u32) {
        let from = self.tape.order.len();
        self.tape.order.reserve(count as usize);
        let mut item = token + 1;
        for _ in 0..count {
            self.tape.order.push(item);
            item = self.token(item).map_or(item, |token| token.next);
        }
        self.wide(token, from);
    }

    /// Orders the keys, marks those that a later equal key supersedes, and
    /// keeps the order if the map is wide. Returns how many were superseded.
    fn index_keys(&mut self, token: u32, count: u32) -> u32 {
        let mut keys = Vec::with_capacity(count as usize);
        let mut key = token + 1;
        for _ in 0..count {
            keys.push(key);
            key = self.token(key + 1).map_or(key, |value| value.next);
        }
        // Stable: of equal keys the last written stays last.
        keys.sort_by(|left, right| self.name(*left).cmp(&self.name(*right)));
        let repeated: Vec<u32> = keys
            .windows(2)
            .filter_map(|pair| match pair {
                [left, right] if self.name(*left) == self.name(*right) => Some(*left),
                _ => None,
            })
            .collect();
        for key in &repeated {
            if let Some(token) = self.tape.tokens.get_mut(*key as usize) {
                token.supersede();
            }
        }
        keys.retain(|key| !self.token(*key).is_some_and(TapeToken::superseded));
        if keys.len() > WIDE {
            let from = self.tape.order.len();
            self.tape.order.extend(keys);
            self.wide(token, from);
        }
        small(repeated.len())
    }

    fn wide(&mut self, token: u32, from: usize) {
        self.tape.wide.push(Wide {
            token,
            from: small(from),
            to: small(self.tape.order.len()),
        });
    }

    /// What the key says.
    fn name(&self, key: u32) -> Cow<'_, str> {
        let escaped = self.token(key).is_some_and(TapeToken::escaped);
        unescape(self.key_text(key), escaped)
    }

    /// The key as it is written.
    fn key_text(&self, key: u32) -> &str {
        self.token(key)
            .and_then(|token| self.text.get(token.start as usize..token.end as usize))
            .unwrap_or_default()
    }

    fn token(&self, token: u32) -> Option<TapeToken> {
        self.tape.tokens.get(token as usize).copied()
    }
}

// A quick comparison of keys that distinguishes most of them without reading them.

/// A number below 64 for the string from `start` to `end`, quotes included:
/// equal strings have equal ones, others seldom.
#[inline(always)]
pub(crate) fn shape(bytes: &[u8], start: usize, end: usize) -> usize {
    let byte = |at: usize| bytes.get(at).copied().map_or(0, usize::from);
    let length = end - start;
    let (first, middle, last) = (
        byte(start + 1),
        byte(start + length / 2),
        byte(end.wrapping_sub(2)),
    );
    (length ^ (first << 1) ^ (middle << 3) ^ (last << 2)) & 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_have_equal_shapes_wherever_they_stand() {
        for length in 2..40 {
            let string = format!("\"{}\"", "k".repeat(length - 2));
            let texts = [
                "{string}",
                "{string}:1",
                "{string}:1,\"other\":[1,2,3,4]",
                " \"x\":2, {string}",
            ];
            let shapes = texts.map(|text| {
                let text = text.replace("{string}", &string);
                let start = text.find(&string).unwrap();
                shape(text.as_bytes(), start, start + length)
            });
            assert_eq!(shapes, [shapes[0]; 4], "{string}");
        }
    }
}
