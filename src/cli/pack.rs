//! `portcullis pack`: converts decision logs and recordings to Parquet files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::output::{self, CommandError, CommandResult, Format, Output};
use super::replay::{HEADER, MAX_LINE_BYTES, recordings_of};
use super::suggest::usage::{self, TextLine, read_lines};
use crate::columns::{PackedFiles, Packer, RowKind};
use crate::recording::RecordingHeader;
use portcullis_cel::json::Document;
use portcullis_policy::explain::Lines;

/// Write decision logs and recordings as Parquet files, about a fiftieth of the size.
///
/// Writes separate files for each cluster and hour, `cluster=NAME/date=DATE/hour=HOUR/….parquet`.
/// DuckDB, ClickHouse, Spark, Trino and Athena read them, and so do `portcullis suggest` and
/// `portcullis replay`. Pack only complete files, such as rotated ones: packing a file again
/// replaces its Parquet files, but a file that has grown since would be counted twice. If a line
/// cannot be read, the command stops and writes nothing of that file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Pack {
    /// Decision logs and recordings, or folders of recordings; `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The folder to write to; it is created if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    into: PathBuf,
    /// Skip lines that cannot be read, with a warning.
    #[arg(long)]
    skip_broken: bool,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis pack /var/log/portcullis/decisions.log.1 --into packed
  gunzip -c decisions.log.2.gz | portcullis pack - --into packed
  portcullis pack recordings --into packed-recordings";

/// How many broken lines of a file are reported individually.
const MAX_BROKEN_LINES_SHOWN: u64 = 10;

/// The JSON output.
#[derive(Debug, Default, Serialize)]
struct PackReport {
    packed: Vec<PackedSource>,
}

#[derive(Debug, Serialize)]
struct PackedSource {
    file: String,
    /// `decisions` or `recordings`.
    kind: &'static str,
    rows: u64,
    /// The number of lines that were left out.
    broken: u64,
    bytes: u64,
    /// The written files.
    files: Vec<PathBuf>,
}

/// A file that is being packed.
struct PackRun<'p> {
    command: &'p Pack,
    path: &'p Path,
    packer: Option<(RowKind, Packer)>,
    broken: u64,
}

// === impl Pack ===

impl Pack {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let mut report = PackReport::default();
        for path in self.sources()? {
            report.packed.push(self.pack(&path)?);
        }
        output::print(self.output.output, &report.in_words(), &report)?;
        Ok(CommandResult::Success)
    }

    fn sources(&self) -> Result<Vec<PathBuf>, CommandError> {
        let mut sources = Vec::new();
        for path in &self.files {
            if !path.is_dir() {
                sources.push(path.clone());
                continue;
            }
            let mut found = recordings_of(path).map_err(|source| CommandError::file("read", path, source))?;
            if found.is_empty() {
                let path = path.display();
                return Err(CommandError::Usage(format!(
                    "there is no recording in `{path}`: to pack decision logs, name the files"
                )));
            }
            found.sort();
            sources.append(&mut found);
        }
        Ok(sources)
    }

    fn pack(&self, path: &Path) -> Result<PackedSource, CommandError> {
        let mut run = PackRun {
            command: self,
            path,
            packer: None,
            broken: 0,
        };
        read_lines(path, MAX_LINE_BYTES, "pack", &mut |number, line| {
            run.add(number, line)
        })?;
        let broken = run.broken;
        if broken > MAX_BROKEN_LINES_SHOWN {
            let more = broken - MAX_BROKEN_LINES_SHOWN;
            let path = path.display();
            output::print_error(format_args!("warning: {path}: {more} more lines were skipped"));
        }
        let (kind, packed) = match run.packer {
            None => (RowKind::Decision, PackedFiles::default()),
            Some((kind, packer)) => (
                kind,
                packer.finish().map_err(|error| pack_error(path, 0, &error))?,
            ),
        };
        Ok(PackedSource {
            file: path.display().to_string(),
            kind: kind.name(),
            rows: packed.rows,
            broken,
            bytes: packed.bytes,
            files: packed.files,
        })
    }

    fn packer(&self, path: &Path, kind: RowKind) -> Result<(RowKind, Packer), CommandError> {
        let packer = Packer::new(kind, &self.into).map_err(|error| pack_error(path, 1, &error))?;
        Ok((kind, packer))
    }
}

// === impl PackRun ===

impl PackRun<'_> {
    fn add(&mut self, number: u64, line: TextLine<'_>) -> Result<(), CommandError> {
        let (text, is_last) = match line {
            TextLine::Whole(text) => (text, false),
            TextLine::Last(text) => (text, true),
            TextLine::TooLong => return self.broken(number, &"longer than any line of a recording"),
        };
        let text = text.trim_ascii_end();
        if text.starts_with(HEADER) {
            return self.begin_recording(number, text);
        }
        if is_last && Document::parse_bytes(text).is_err() {
            self.broken += 1;
            self.complain(number, "cut off, as when a process is killed: skipped");
            return Ok(());
        }
        if self.packer.is_none() {
            self.packer = Some(self.command.packer(self.path, RowKind::Decision)?);
        }
        let Some((kind, packer)) = &mut self.packer else {
            return Ok(());
        };
        if *kind == RowKind::Decision && text.len() as u64 > usage::MAX_LINE_BYTES {
            return self.broken(number, &"longer than any line of a decision log");
        }
        match packer.add(text) {
            Ok(()) => Ok(()),
            Err(error) if error.is_of_line() => self.broken(number, &error),
            Err(error) => Err(pack_error(self.path, number, &error)),
        }
    }

    /// Starts a recording, or continues with another one: recordings may be concatenated.
    fn begin_recording(&mut self, number: u64, header: &[u8]) -> Result<(), CommandError> {
        if let Err(error) = RecordingHeader::read(header) {
            return Err(pack_error(self.path, number, &error));
        }
        match &self.packer {
            None => {
                self.packer = Some(self.command.packer(self.path, RowKind::Recording)?);
                Ok(())
            }
            Some((RowKind::Recording, _)) => Ok(()),
            Some((RowKind::Decision, _)) => {
                let why = "a recording begins after lines of a decision log: pack them separately";
                Err(pack_error(self.path, number, &why))
            }
        }
    }

    fn broken(&mut self, number: u64, why: &dyn std::fmt::Display) -> Result<(), CommandError> {
        if !self.command.skip_broken {
            let why = format!("{why}; `--skip-broken` skips such lines");
            return Err(pack_error(self.path, number, &why));
        }
        self.broken += 1;
        self.complain(number, why);
        Ok(())
    }

    fn complain(&self, number: u64, why: impl std::fmt::Display) {
        if self.broken <= MAX_BROKEN_LINES_SHOWN {
            let path = self.path.display();
            output::print_error(format_args!("warning: {path}:{number}: {why}"));
        }
    }
}

/// The error for the line `number`, or for the whole file if it is 0.
fn pack_error(path: &Path, number: u64, why: &dyn std::fmt::Display) -> CommandError {
    let path = path.display();
    CommandError::Usage(match number {
        0 => format!("cannot pack `{path}`: {why}"),
        number => format!("cannot pack `{path}`, line {number}: {why}"),
    })
}

// === impl PackReport ===

impl PackReport {
    fn in_words(&self) -> Lines {
        let mut by_kind: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
        let mut lines = Lines::new();
        for source in &self.packed {
            let files = output::count(source.files.len() as u64, "file");
            let rows = match source.kind {
                "decisions" => output::count(source.rows, "decision"),
                _ => output::count(source.rows, "review"),
            };
            lines.line(format_args!("{}: {rows} in {files}", source.file));
            let sum = by_kind.entry(source.kind).or_default();
            sum.0 += source.rows;
            sum.1 += source.files.len() as u64;
            sum.2 += source.bytes;
        }
        for (kind, (rows, files, bytes)) in by_kind {
            let files = output::count(files, "file");
            lines.line(format_args!("{kind}: {rows} rows in {files} of {bytes} bytes"));
        }
        lines
    }
}
