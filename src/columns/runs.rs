//! The values of columns, in runs of consecutive rows with the same value.
//!
//! For each row, a page stores the index of an entry in a dictionary, and for equal consecutive
//! rows only their count. So a value that many rows share is decoded, compared and written only
//! once. The reader of the parquet crate would create a string for each row.
//!
//! Pages come from untrusted files: every length and count in them is checked against the bytes
//! that are available.

use std::fmt::Write as _;

use bytes::{Buf as _, Bytes};
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::schema::types::ColumnDescPtr;

use super::Values;
use super::pages::{ColumnError, damaged_error};

/// The size of the length before a string, and before the levels of a page, in bytes.
const LENGTH_BYTES: usize = size_of::<u32>();

/// The maximum number of bits of the index of a dictionary entry.
const MAX_BITS: usize = u32::BITS as usize;

/// Reads the values of a column in a row group.
pub(crate) enum RunReader {
    Texts(Box<TextReader>),
    /// The reader, and the definition level of rows that have a number.
    Numbers(Box<ColumnReader>, i16),
}

/// The values of a column in a batch of rows, visited from the first to the last.
pub(crate) struct StoredRuns {
    runs: ColumnRuns,
    /// The index of the run with the current row.
    at: usize,
}

enum ColumnRuns {
    Texts(Vec<Run<Bytes>>),
    /// Flags are 0 or 1; seconds are the bits of an `f64`.
    Numbers(Vec<Run<i64>>),
}

/// Consecutive rows with the same value.
struct Run<V> {
    /// The row after the last row of the run.
    end: usize,
    value: Option<V>,
}

/// Reads the strings of a column in a row group.
pub(crate) struct TextReader {
    pages: Box<dyn PageReader>,
    /// The definition level of rows that have a string.
    present: u32,
    dictionary: Dictionary,
    /// The number of rows of the page that have not been read.
    rows: usize,
    levels: Option<PackedNumbers>,
    texts: PageTexts,
}

/// The strings that the rows of a page refer to.
#[derive(Default)]
struct Dictionary {
    texts: Bytes,
    /// The position of each string's length in `texts`.
    places: Vec<u32>,
}

/// The strings of a page, for the rows that have one.
enum PageTexts {
    /// The strings, one after another, and the position of the next one.
    Plain { texts: Bytes, place: usize },
    /// The indices of the strings in the dictionary.
    Entries(PackedNumbers),
}

/// A string in a page, and the position of its end.
struct TextPlace<'t> {
    texts: &'t Bytes,
    text: &'t [u8],
    end: usize,
}

/// Numbers of a fixed size in bits, encoded as runs of one repeated number or of bit-packed
/// numbers: `RLE` in Encodings.md of parquet-format.
struct PackedNumbers {
    bytes: Bytes,
    bits: usize,
    /// The number of values of the run that have not been read.
    left: usize,
    run: NumberRun,
}

enum NumberRun {
    Repeated(u32),
    /// The bytes, and the position of the next number in bits.
    Packed(Bytes, usize),
}

// === impl RunReader ===

impl RunReader {
    pub(crate) fn new(column: ColumnDescPtr, pages: Box<dyn PageReader>) -> Self {
        let present = column.max_def_level();
        match column.physical_type() {
            Type::BYTE_ARRAY => Self::Texts(Box::new(TextReader::new(pages, present))),
            _ => Self::Numbers(Box::new(get_column_reader(column, pages)), present),
        }
    }

    /// Reads the values of the next `rows` rows, and takes the bytes of their pages from `room`.
    ///
    /// # Errors
    ///
    /// There are fewer rows, or a page is damaged or larger than the room.
    pub(crate) fn read(&mut self, rows: usize, room: &mut usize) -> Result<StoredRuns, ColumnError> {
        let runs = match self {
            Self::Texts(reader) => ColumnRuns::Texts(reader.read(rows, room)?),
            Self::Numbers(reader, present) => ColumnRuns::Numbers(numbers(reader, *present, rows)?),
        };
        Ok(StoredRuns { runs, at: 0 })
    }
}

fn numbers(reader: &mut ColumnReader, present: i16, rows: usize) -> Result<Vec<Run<i64>>, ColumnError> {
    match reader {
        ColumnReader::Int64ColumnReader(reader) => number_runs(reader, present, rows, |number| number),
        ColumnReader::Int32ColumnReader(reader) => number_runs(reader, present, rows, i64::from),
        ColumnReader::BoolColumnReader(reader) => number_runs(reader, present, rows, i64::from),
        ColumnReader::DoubleColumnReader(reader) => {
            number_runs(reader, present, rows, |number| number.to_bits().cast_signed())
        }
        _ => Err(wrong("a column has another type")),
    }
}

fn number_runs<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    present: i16,
    rows: usize,
    convert: impl Fn(T::T) -> i64,
) -> Result<Vec<Run<i64>>, ColumnError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (read, _, _) = reader
        .read_records(rows, Some(&mut levels), None, &mut values)
        .map_err(damaged_error)?;
    if read != rows {
        return Err(too_few());
    }
    let mut values = values.into_iter().map(convert);
    let mut runs = Vec::new();
    for row in 0..rows {
        let is_present = present == 0 || levels.get(row) == Some(&present);
        let value = is_present.then(|| values.next()).flatten();
        add_run(&mut runs, value, row + 1);
    }
    Ok(runs)
}

/// Adds a run that ends at `end`, or extends the last run if it has the same value.
fn add_run<V: PartialEq>(runs: &mut Vec<Run<V>>, value: Option<V>, end: usize) {
    match runs.last_mut() {
        Some(last) if last.value == value => last.end = end,
        _ => runs.push(Run { end, value }),
    }
}

// === impl StoredRuns ===

impl StoredRuns {
    /// Makes `row`, which is the current row or a later one, the current row.
    pub(crate) fn go_to(&mut self, row: usize) {
        while self.end() <= row {
            self.at += 1;
        }
    }

    /// The row after the run of the current row.
    pub(crate) fn end(&self) -> usize {
        let end = match &self.runs {
            ColumnRuns::Texts(runs) => runs.get(self.at).map(|run| run.end),
            ColumnRuns::Numbers(runs) => runs.get(self.at).map(|run| run.end),
        };
        end.unwrap_or(usize::MAX)
    }

    /// Whether the current row has a value.
    pub(crate) fn has_value(&self) -> bool {
        match &self.runs {
            ColumnRuns::Texts(runs) => runs.get(self.at).is_some_and(|run| run.value.is_some()),
            ColumnRuns::Numbers(_) => self.number().is_some(),
        }
    }

    /// The number of the current row.
    pub(crate) fn number(&self) -> Option<i64> {
        match &self.runs {
            ColumnRuns::Texts(_) => None,
            ColumnRuns::Numbers(runs) => runs.get(self.at)?.value,
        }
    }

    /// The text of the current row.
    ///
    /// # Errors
    ///
    /// The text is not UTF-8.
    pub(crate) fn text(&self) -> Result<&str, ColumnError> {
        let bytes = match &self.runs {
            ColumnRuns::Texts(runs) => runs.get(self.at).and_then(|run| run.value.as_deref()),
            ColumnRuns::Numbers(_) => None,
        };
        str::from_utf8(bytes.unwrap_or_default()).map_err(|_| wrong("a text is not UTF-8"))
    }

    /// Writes the number of the current row as JSON.
    pub(crate) fn write_number(&self, holds: Values, out: &mut String) {
        let number = self.number().unwrap_or_default();
        // Writing to a String does not fail.
        let _infallible = match holds {
            Values::Flag => write!(out, "{}", number != 0),
            Values::Seconds => {
                let seconds = f64::from_bits(number.cast_unsigned());
                let seconds = if seconds.is_finite() { seconds } else { 0.0 };
                write!(out, "{seconds}")
            }
            _ => write!(out, "{number}"),
        };
    }
}

// === impl TextReader ===

impl TextReader {
    fn new(pages: Box<dyn PageReader>, present: i16) -> Self {
        Self {
            pages,
            present: u32::from(present.unsigned_abs()),
            dictionary: Dictionary::default(),
            rows: 0,
            levels: None,
            texts: PageTexts::plain(Bytes::new()),
        }
    }

    fn read(&mut self, rows: usize, room: &mut usize) -> Result<Vec<Run<Bytes>>, ColumnError> {
        let (mut runs, mut read) = (Vec::new(), 0);
        while read < rows {
            if self.rows == 0 {
                self.turn_page(room)?;
                continue;
            }
            let most = self.rows.min(rows - read);
            let (level, count) = match &mut self.levels {
                Some(levels) => levels.peek(most)?,
                None => (self.present, most),
            };
            let count = if level == self.present {
                let (text, count) = self.texts.take(&self.dictionary, count)?;
                text.add_to(&mut runs, read + count);
                count
            } else {
                add_run(&mut runs, None, read + count);
                count
            };
            if let Some(levels) = &mut self.levels {
                levels.skip(count);
            }
            self.rows -= count;
            read += count;
        }
        Ok(runs)
    }

    fn turn_page(&mut self, room: &mut usize) -> Result<(), ColumnError> {
        let page = self.pages.get_next_page().map_err(damaged_error)?;
        let page = page.ok_or_else(too_few)?;
        // The texts of a batch keep their pages.
        let left = room.checked_sub(page.buffer().len());
        *room = left.ok_or_else(|| wrong("the pages of few rows are too large"))?;
        match page {
            Page::DictionaryPage { .. } if !self.dictionary.places.is_empty() => {
                return Err(wrong("a column has two dictionaries"));
            }
            Page::DictionaryPage { buf, num_values, .. } => {
                self.dictionary = Dictionary::new(buf, num_values)?;
            }
            Page::DataPage {
                mut buf,
                num_values,
                encoding,
                def_level_encoding,
                ..
            } => {
                let levels = match self.present {
                    0 => Bytes::new(),
                    _ if def_level_encoding != Encoding::RLE => return Err(other_encoding()),
                    _ => {
                        let length = length_of(&buf).ok_or_else(cut)?;
                        buf.advance(LENGTH_BYTES);
                        split(&mut buf, length)?
                    }
                };
                self.begin(num_values, levels, buf, encoding)?;
            }
            Page::DataPageV2 {
                mut buf,
                num_values,
                encoding,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                split(&mut buf, rep_levels_byte_len as usize)?;
                let levels = split(&mut buf, def_levels_byte_len as usize)?;
                self.begin(num_values, levels, buf, encoding)?;
            }
        }
        Ok(())
    }

    /// Begins a page of `rows` rows.
    fn begin(
        &mut self,
        rows: u32,
        levels: Bytes,
        mut texts: Bytes,
        encoding: Encoding,
    ) -> Result<(), ColumnError> {
        self.rows = rows as usize;
        let bits = (u32::BITS - self.present.leading_zeros()) as usize;
        self.levels = (bits > 0).then(|| PackedNumbers::new(levels, bits));
        self.texts = match encoding {
            Encoding::PLAIN => PageTexts::plain(texts),
            // A page may be empty if none of its rows has a string.
            _ if texts.is_empty() => PageTexts::plain(texts),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                let bits = usize::from(texts.get_u8());
                if bits > MAX_BITS {
                    return Err(wrong("the numbers of a dictionary's entries have too many bits"));
                }
                PageTexts::Entries(PackedNumbers::new(texts, bits))
            }
            _ => return Err(other_encoding()),
        };
        Ok(())
    }
}

// === impl Dictionary ===

impl Dictionary {
    fn new(texts: Bytes, count: u32) -> Result<Self, ColumnError> {
        let (mut places, mut place) = (Vec::new(), 0);
        for _ in 0..count {
            places.push(u32::try_from(place).map_err(|_| cut())?);
            place = TextPlace::at(&texts, place)?.end;
        }
        Ok(Self { texts, places })
    }
}

// === impl PageTexts ===

impl PageTexts {
    const fn plain(texts: Bytes) -> Self {
        Self::Plain { texts, place: 0 }
    }

    /// Takes the string of the next row, together with the following rows that are known to have
    /// the same string. Returns the string and the number of these rows, at most `most`.
    fn take<'t>(
        &'t mut self,
        dictionary: &'t Dictionary,
        most: usize,
    ) -> Result<(TextPlace<'t>, usize), ColumnError> {
        match self {
            Self::Plain { texts, place } => {
                let text = TextPlace::at(texts, *place)?;
                *place = text.end;
                Ok((text, 1))
            }
            Self::Entries(numbers) => {
                let (number, count) = numbers.peek(most)?;
                numbers.skip(count);
                let place = dictionary.places.get(number as usize);
                let place =
                    place.ok_or_else(|| wrong("a row has an entry that its dictionary does not have"))?;
                Ok((TextPlace::at(&dictionary.texts, *place as usize)?, count))
            }
        }
    }
}

// === impl TextPlace ===

impl<'t> TextPlace<'t> {
    /// The string whose length is at the position `place`.
    fn at(texts: &'t Bytes, place: usize) -> Result<Self, ColumnError> {
        let rest = texts.get(place..).unwrap_or_default();
        let length = length_of(rest).ok_or_else(cut)?;
        let start = place + LENGTH_BYTES;
        let end = start + length;
        match texts.get(start..end) {
            Some(text) => Ok(Self { texts, text, end }),
            None => Err(cut()),
        }
    }

    /// Adds a run of this string that ends at `end`, or extends the last run if it has the same
    /// string.
    fn add_to(&self, runs: &mut Vec<Run<Bytes>>, end: usize) {
        match runs.last_mut() {
            Some(Run {
                end: last,
                value: Some(same),
                // Equal strings of a dictionary are the same memory.
            }) if std::ptr::eq(same.as_ref(), self.text) || same == self.text => *last = end,
            _ => runs.push(Run {
                end,
                value: Some(self.texts.slice_ref(self.text)),
            }),
        }
    }
}

// === impl PackedNumbers ===

impl PackedNumbers {
    const fn new(bytes: Bytes, bits: usize) -> Self {
        Self {
            bytes,
            bits,
            left: 0,
            run: NumberRun::Repeated(0),
        }
    }

    /// The next number, and how often it is known to follow, at most `most` times.
    fn peek(&mut self, most: usize) -> Result<(u32, usize), ColumnError> {
        while self.left == 0 {
            self.begin_run()?;
        }
        match &self.run {
            NumberRun::Repeated(number) => Ok((*number, self.left.min(most))),
            NumberRun::Packed(bytes, place) => {
                let number = packed_number(bytes, *place, self.bits).ok_or_else(cut)?;
                Ok((number, 1))
            }
        }
    }

    /// Skips `count` numbers of the run.
    fn skip(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
        if let NumberRun::Packed(_, place) = &mut self.run {
            *place += count * self.bits;
        }
    }

    /// Reads the header of a run. The lowest bit tells whether it is bit-packed; the other bits are
    /// the count of groups of eight numbers if it is, and of numbers if not.
    fn head(&mut self) -> Result<usize, ColumnError> {
        let mut head = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.bytes.try_get_u8().map_err(|_| cut())?;
            head |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(head);
            }
        }
        Err(cut())
    }

    fn begin_run(&mut self) -> Result<(), ColumnError> {
        let head = self.head()?;
        let count = head >> 1;
        if head & 1 == 0 {
            let value = split(&mut self.bytes, self.bits.div_ceil(8))?;
            let value = value
                .iter()
                .rev()
                .fold(0, |value, byte| (value << 8) | u32::from(*byte));
            (self.left, self.run) = (count, NumberRun::Repeated(value));
            return Ok(());
        }
        // A group of eight numbers takes `bits` bytes. The last group may be incomplete.
        let length = count.saturating_mul(self.bits).min(self.bytes.len());
        let packed = split(&mut self.bytes, length)?;
        (self.left, self.run) = (count.saturating_mul(8), NumberRun::Packed(packed, 0));
        Ok(())
    }
}

/// The number of `bits` bits at the position `place`, in bits; `None` if `bytes` end before it
/// does.
fn packed_number(bytes: &[u8], place: usize, bits: usize) -> Option<u32> {
    let first = place / 8;
    let within = match bytes.get(first..first + size_of::<u64>()) {
        Some(within) => u64::from_le_bytes(within.try_into().ok()?),
        None => {
            let within = bytes.get(first..(place + bits).div_ceil(8))?;
            within
                .iter()
                .rev()
                .fold(0, |value, byte| (value << 8) | u64::from(*byte))
        }
    };
    let number = (within >> (place % 8)) & ((1 << bits) - 1);
    u32::try_from(number).ok()
}

fn length_of(bytes: &[u8]) -> Option<usize> {
    let length = bytes.first_chunk::<LENGTH_BYTES>()?;
    usize::try_from(u32::from_le_bytes(*length)).ok()
}

/// Splits off the first bytes.
fn split(bytes: &mut Bytes, length: usize) -> Result<Bytes, ColumnError> {
    match length <= bytes.len() {
        true => Ok(bytes.split_to(length)),
        false => Err(cut()),
    }
}

fn cut() -> ColumnError {
    wrong("a page is cut")
}

fn other_encoding() -> ColumnError {
    wrong("a page is encoded as `portcullis pack` encodes none")
}

fn too_few() -> ColumnError {
    wrong("a column has fewer rows than its row group")
}

fn wrong(what: &str) -> ColumnError {
    ColumnError::Damaged(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers in `bytes`, each with its count, and the error at the end.
    fn numbers(bytes: &[u8], bits: usize) -> (Vec<(u32, usize)>, String) {
        let mut packed = PackedNumbers::new(Bytes::copy_from_slice(bytes), bits);
        let mut found = Vec::new();
        loop {
            match packed.peek(100) {
                Ok((number, count)) => found.push((number, count)),
                Err(error) => return (found, error.to_string()),
            }
            packed.skip(found.last().unwrap().1);
        }
    }

    #[test]
    fn numbers_are_repeated_or_packed_and_none_is_made_up() {
        let packed = |numbers: &[u32]| numbers.iter().map(|number| (*number, 1)).collect::<Vec<_>>();
        // The example of Encodings.md, with three bits each; then 5, 200 times, at most 100 at
        // once.
        let (found, error) = numbers(&[3, 0x88, 0xc6, 0xfa, 0x90, 3, 5], 3);
        let expected = [packed(&[0, 1, 2, 3, 4, 5, 6, 7]), vec![(5, 100), (5, 100)]].concat();
        assert_eq!((found, error.contains("cut")), (expected, true));
        // Of an incomplete group, the numbers that are complete are read.
        assert_eq!(numbers(&[3, 0x88, 0xc6], 3).0, packed(&[0, 1, 2, 3, 4]));
        // Numbers of 0 bits, an empty run before another run, and numbers of 32 bits.
        assert_eq!(numbers(&[6], 0).0, [(0, 3)]);
        assert_eq!(numbers(&[0, 1, 2, 1], 8).0, [(1, 1)]);
        assert_eq!(numbers(&[2, 0xff, 0xff, 0xff, 0xff], 32).0, [(u32::MAX, 1)]);
        // More than the bytes contain: 2^63 groups, an incomplete value, and an endless header.
        assert_eq!(numbers(&[[0xff; 9].as_slice(), &[1]].concat(), 32).0, []);
        assert_eq!(numbers(&[2, 0xff], 12).0, []);
        assert_eq!(numbers(&[0xff; 20], 1).0, []);
    }

    #[test]
    fn a_text_ends_within_its_page() {
        let texts = Bytes::from_static(b"\x02\0\0\0ab\x03\0\0\0cd");
        assert!(TextPlace::at(&texts, 0).is_ok_and(|place| place.text == b"ab" && place.end == 6));
        for place in [6, 9, 12, usize::MAX] {
            assert!(TextPlace::at(&texts, place).is_err(), "{place}");
        }
        assert!(Dictionary::new(texts.clone(), 1).is_ok());
        assert!(Dictionary::new(texts, 2).is_err());
    }
}
