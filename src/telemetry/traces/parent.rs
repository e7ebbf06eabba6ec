//! The header `traceparent`, by which a trace goes on from one program to the next, and the
//! numbers of traces that begin here.
//!
//! <https://www.w3.org/TR/trace-context/#traceparent-header>

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The header `traceparent`: which span of which trace a request belongs to. Displayed as
/// version 00 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    /// The sender of the request sends its own spans of this trace.
    pub(crate) is_sampled: bool,
}

// === impl TraceParent ===

impl TraceParent {
    /// Reads the value of the header; `None` if it is none, which starts a new trace. Of later
    /// versions, only what version 00 has is read, as they promise.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = str::from_utf8(value).ok()?;
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = hexadecimal(version, 2)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let trace = hexadecimal(trace, 32).filter(|trace| *trace != 0)?;
        let span = hexadecimal(span, 16).filter(|span| *span != 0)?;
        let flags = hexadecimal(flags, 2)?;
        Some(Self {
            trace,
            span: u64::try_from(span).ok()?,
            is_sampled: flags & 1 == 1,
        })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

/// A number of so many digits, which are in lower case.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// A number that nobody else has, but that somebody could guess; never 0.
pub(crate) fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    // SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_header_is_read() {
        let expected = TraceParent {
            trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span: 0xb7ad_6b71_6920_3331,
            is_sampled: true,
        };
        assert_eq!(TraceParent::parse(VALID.as_bytes()), Some(expected));
        let unsampled = VALID.replace("-01", "-00");
        let unsampled = TraceParent::parse(unsampled.as_bytes()).unwrap();
        assert!(!unsampled.is_sampled);
        assert_eq!(unsampled.to_string(), VALID.replace("-01", "-00"));
        // Other flags say nothing of sampling; later versions may have more.
        let later = VALID.replace("00-0af", "01-0af").replace("-01", "-03-more");
        assert_eq!(TraceParent::parse(later.as_bytes()), Some(expected));
        assert_eq!(expected.to_string(), VALID);
    }

    #[test]
    fn numbers_are_written_with_all_their_digits() {
        let small = TraceParent {
            trace: 0xa,
            span: 0xb,
            is_sampled: true,
        };
        let text = small.to_string();
        assert_eq!(text, "00-0000000000000000000000000000000a-000000000000000b-01");
        assert_eq!(TraceParent::parse(text.as_bytes()), Some(small));
    }

    #[test]
    fn anything_else_is_no_header() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(TraceParent::parse(b"\xff"), None);
    }

    #[test]
    fn numbers_differ() {
        let numbers: HashSet<u64> = (0..10_000).map(|_| random()).collect();
        assert_eq!(numbers.len(), 10_000);
        assert!(!numbers.contains(&0));
    }
}
