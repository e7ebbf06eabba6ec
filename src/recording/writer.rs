//! The thread that redacts reviews and writes them.

use std::io;
use std::time::{Duration, SystemTime};

use super::files::RecordingFiles;
use super::line;
use super::review::RecordedReview;
use crate::config::{self, Redact};
use crate::telemetry::BatchWriter;

/// From how many bytes on lines are written, however many are to follow.
const BATCH_BYTES: usize = 1 << 20;

/// Memory kept for the next lines.
const SPARE_BYTES: usize = 256 << 10;

/// How many places for reviews are kept for the next batch.
const SPARE_REVIEWS: usize = 1024;

/// Writes reviews to files.
#[derive(Debug)]
pub(crate) struct RecordingWriter {
    files: RecordingFiles,
    redact: Vec<Redact>,
    /// Lines that were not written yet, and how many.
    lines: String,
    count: u64,
    /// The last write failed.
    is_broken: bool,
}

// === impl RecordingWriter ===

impl RecordingWriter {
    /// # Errors
    ///
    /// The folder cannot be made or read.
    pub(crate) fn open(settings: &config::RecordingSettings, now: SystemTime) -> io::Result<Self> {
        Ok(Self {
            files: RecordingFiles::open(settings, now)?,
            redact: settings.redact.clone(),
            lines: String::new(),
            count: 0,
            is_broken: false,
        })
    }

    /// Adds the line of a review. How many were lost.
    fn add(&mut self, review: &RecordedReview) -> u64 {
        let before = self.lines.len();
        if let Err(error) = line::write(&mut self.lines, review, &self.redact) {
            self.lines.truncate(before);
            tracing::warn!(%error, "a review that cannot be redacted is not recorded");
            return 1;
        }
        let (length, most) = (self.lines.len() - before, self.files.most());
        if length > most {
            self.lines.truncate(before);
            tracing::warn!(bytes = length, most, "a review is too long to be recorded");
            return 1;
        }
        let mut lost = 0;
        if self.lines.len() > most {
            // The lines before go first.
            let last = self.lines.split_off(before);
            lost = self.flush();
            self.lines = last;
        }
        self.count += 1;
        if self.lines.len() >= BATCH_BYTES {
            lost += self.flush();
        }
        lost
    }

    /// Writes the lines. How many were lost.
    fn flush(&mut self) -> u64 {
        if self.lines.is_empty() {
            return 0;
        }
        let written = self.files.append(self.lines.as_bytes(), SystemTime::now());
        self.lines.clear();
        self.lines.shrink_to(SPARE_BYTES);
        let count = std::mem::take(&mut self.count);
        match written {
            Ok(()) => {
                self.is_broken = false;
                0
            }
            Err(error) => {
                if !self.is_broken {
                    tracing::error!(%error, "cannot write to the recording: reviews are lost");
                }
                self.is_broken = true;
                count
            }
        }
    }
}

impl BatchWriter<Vec<RecordedReview>> for RecordingWriter {
    fn write(&mut self, reviews: &mut Vec<RecordedReview>, _: u64) -> u64 {
        let mut lost = 0;
        for review in reviews.drain(..) {
            lost += self.add(&review);
        }
        reviews.shrink_to(SPARE_REVIEWS);
        lost + self.flush()
    }

    fn rest(&mut self) -> Option<Duration> {
        Some(self.files.rest(SystemTime::now()))
    }
}

#[cfg(test)]
mod tests;
