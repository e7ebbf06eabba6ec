//! JSON written into a line that has a bounded length.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

use portcullis_cel::json::write_string;
use portcullis_policy::engine::text::truncate_with_mark;

/// Longest text of a line, in bytes.
const TEXT_BYTES: usize = 2048;

/// From this length on a line's lists are cut.
const LINE_BYTES: usize = 32 << 10;

/// A line being built.
pub(crate) struct Line<'b> {
    pub(crate) out: &'b mut String,
    pub(crate) truncated: bool,
}

// === impl Line ===

impl Line<'_> {
    pub(crate) fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// A JSON string; a long one is cut and ends in `…`.
    pub(crate) fn text(&mut self, text: &str) {
        if text.len() <= TEXT_BYTES {
            write_string(self.out, text);
            return;
        }
        self.truncated = true;
        write_string(self.out, &truncate_with_mark(text, TEXT_BYTES));
    }

    /// The items of a list, separated, until the line is long.
    pub(crate) fn items<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        for (position, item) in items.iter().enumerate() {
            if self.out.len() > LINE_BYTES {
                self.truncated = true;
                return;
            }
            if position > 0 {
                self.raw(",");
            }
            write(self, item);
        }
    }

    pub(crate) fn texts(&mut self, texts: &[Cow<'_, str>]) {
        self.raw("[");
        self.items(texts, |line, text| line.text(text));
        self.raw("]");
    }

    /// The members that are not empty, as on the wire.
    pub(crate) fn members(&mut self, members: &[(&'static str, &str)]) {
        for (name, value) in members.iter().filter(|(_, value)| !value.is_empty()) {
            self.key(name);
            self.text(value);
        }
    }

    /// `"name":` within an object, after a comma unless it is the first. No name has an escape.
    pub(crate) fn key(&mut self, name: &'static str) {
        if !self.out.ends_with('{') {
            self.raw(",");
        }
        self.raw("\"");
        self.raw(name);
        self.raw("\":");
    }

    /// RFC 3339 in UTC with microseconds.
    pub(crate) fn time(&mut self, time: SystemTime) {
        let time = OffsetDateTime::from(time);
        let (year, month, day) = time.to_calendar_date();
        let (hour, minute, second, microsecond) = time.to_hms_micro();
        self.digits(u32::try_from(year).unwrap_or_default(), 4);
        self.raw("-");
        self.digits(u32::from(u8::from(month)), 2);
        self.raw("-");
        self.digits(u32::from(day), 2);
        self.raw("T");
        self.digits(u32::from(hour), 2);
        self.raw(":");
        self.digits(u32::from(minute), 2);
        self.raw(":");
        self.digits(u32::from(second), 2);
        self.raw(".");
        self.digits(microsecond, 6);
        self.raw("Z");
    }

    /// Seconds to the nanosecond, which is as far as clocks tell.
    pub(crate) fn seconds(&mut self, duration: Duration) {
        // Writing to a String does not fail.
        let _infallible = write!(self.out, "{}.", duration.as_secs());
        self.digits(duration.subsec_nanos(), 9);
    }

    /// The last `width` digits, ten at most.
    pub(crate) fn digits(&mut self, mut value: u32, width: usize) {
        let mut digits = [b'0'; 10];
        for digit in digits.iter_mut().rev().take(width) {
            *digit += u8::try_from(value % 10).unwrap_or_default();
            value /= 10;
        }
        let written = digits
            .get(digits.len() - width.min(digits.len())..)
            .unwrap_or_default();
        self.out.extend(written.iter().copied().map(char::from));
    }
}
