//! Reads decision logs, line by line.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::cli::Error;
use crate::config::files;
use portcullis_policy::explain::logged::LoggedDecision;

/// The longest line that is read. The gateway writes none of a tenth of this.
const MOST_BYTES: u64 = 1 << 20;

/// What becomes of each line of the file at `path`, or of standard input for `-`: `decision` gets
/// its number, from 1, and what it says, `broken` that of a line that says nothing, and why.
///
/// # Errors
///
/// The file cannot be read, or is compressed.
pub(crate) fn read(
    path: &Path,
    decision: &mut impl FnMut(u64, &LoggedDecision<'_>) -> Result<(), Error>,
    broken: &mut impl FnMut(u64, &str),
) -> Result<(), Error> {
    let unreadable = |source| Error::file("read", path, source);
    let mut input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::with_capacity(
            1 << 16,
            files::open(path).map_err(unreadable)?,
        ))
    };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut input).take(MOST_BYTES).read_until(b'\n', &mut line);
        if read.map_err(unreadable)? == 0 {
            break;
        }
        if number == 1 && line.starts_with(&[0x1f, 0x8b]) {
            return Err(Error::Usage(format!(
                "`{}` is compressed: decompress it, such as by `gunzip -c FILE | portcullis suggest -`",
                path.display()
            )));
        }
        let is_whole = line.ends_with(b"\n");
        if !is_whole && line.len() as u64 == MOST_BYTES {
            skip_line(&mut input).map_err(unreadable)?;
            broken(number, "longer than any line of a decision log");
        } else if !line.trim_ascii().is_empty() {
            match serde_json::from_slice(&line) {
                Ok(logged) => decision(number, &logged)?,
                Err(_) if !is_whole => broken(number, "cut off: the program ended while it wrote the line"),
                Err(error) => broken(number, &format!("not a line of a decision log: {error}")),
            }
        }
    }
    Ok(())
}

/// Reads to the end of the line, and keeps nothing of it.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        input.consume(length);
        if end.is_some() {
            return Ok(());
        }
    }
}
