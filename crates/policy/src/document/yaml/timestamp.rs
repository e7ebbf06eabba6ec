//! Dates and times. They stay text; recognizing them matters only for the tag
//! `!!timestamp`.

/// Whether `text` is one of the forms that go-yaml takes: `2001-12-14`, with a
/// time after `T` or `t` and then a zone, or with one after a space and no zone.
pub(crate) fn is_timestamp(text: &str) -> bool {
    let mut rest = Rest(text);
    let Some(year) = rest.digits(4, 4) else {
        return false;
    };
    let date = (|| {
        rest.literal("-")?;
        let month = rest.digits(1, 2)?;
        rest.literal("-")?;
        let day = rest.digits(1, 2)?;
        is_day(year, month, day).then_some(())
    })();
    date.is_some() && (rest.0.is_empty() || rest.time().is_some_and(|()| rest.0.is_empty()))
}

/// What of the text has not been read.
struct Rest<'t>(&'t str);

// === impl Rest ===

impl Rest<'_> {
    fn literal(&mut self, literal: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(literal)?;
        Some(())
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at_checked(count).filter(|_| count >= least)?;
        self.0 = rest;
        digits.parse().ok()
    }

    fn time(&mut self) -> Option<()> {
        let has_zone = self.literal(" ").is_none();
        if has_zone {
            self.literal("T").or_else(|| self.literal("t"))?;
        }
        self.digits(1, 2).filter(|hour| *hour < 24)?;
        self.literal(":")?;
        self.digits(1, 2).filter(|minute| *minute < 60)?;
        self.literal(":")?;
        self.digits(1, 2).filter(|second| *second < 60)?;
        let fraction = self.0.strip_prefix(['.', ',']).unwrap_or_default();
        if fraction.starts_with(|first: char| first.is_ascii_digit()) {
            self.0 = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
        }
        if has_zone { self.zone() } else { Some(()) }
    }

    fn zone(&mut self) -> Option<()> {
        if self.literal("Z").is_some() {
            return Some(());
        }
        self.literal("+").or_else(|| self.literal("-"))?;
        self.digits(2, 2).filter(|hours| *hours <= 24)?;
        self.literal(":")?;
        self.digits(2, 2).filter(|minutes| *minutes <= 60)?;
        Some(())
    }
}

const fn is_day(year: u32, month: u32, day: u32) -> bool {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => 0,
    };
    day >= 1 && day <= days
}
