//! The thread that redacts reviews and writes them, a line for each.

use std::io;
use std::time::{Duration, SystemTime};

use super::files::RecordingFiles;
use super::redaction::{Redaction, TooManyPlaces, into_line, redacted_patch};
use super::review::{RecordedBody, RecordedReview};
use crate::config::{self, Redact};
use crate::telemetry::BatchWriter;
use portcullis_cel::json::{self, Document, ObjectWriter, escape_bytes, write_list};
use portcullis_policy::engine::{Cause, Time};

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
            files: RecordingFiles::open(&settings.files, now)?,
            redact: settings.redact.clone(),
            lines: String::new(),
            count: 0,
            is_broken: false,
        })
    }

    /// Adds the line of a review. How many were lost.
    fn add(&mut self, review: &RecordedReview) -> u64 {
        let before = self.lines.len();
        if let Err(error) = write(&mut self.lines, review, &self.redact) {
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

/// Why a review is not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// It cannot be read, so that nothing can be removed from it.
    #[error(transparent)]
    Unreadable(#[from] json::JsonError),
    #[error(transparent)]
    TooManyPlaces(#[from] TooManyPlaces),
}

/// Appends the line of `review`, its line break included.
///
/// # Errors
///
/// What is appended then is no line.
pub(crate) fn write(out: &mut String, review: &RecordedReview, rules: &[Redact]) -> Result<(), LineError> {
    let (text, mut redaction) = match &review.body {
        RecordedBody::Access(body) => {
            let text = escape_bytes(body);
            // What is not one value would be more than one line, or none.
            Document::parse(text.as_ref())?;
            (into_line(text.into_owned()), Redaction::default())
        }
        RecordedBody::Admission(read) => Redaction::of_review(read.review(), rules)?,
    };
    let mut written = Ok(());
    ObjectWriter::write(out, |fields| {
        fields.text("time", &Time::from(review.time).to_string());
        fields.text("endpoint", review.endpoint.as_str());
        fields.text_if_any("name", review.name.as_deref().unwrap_or_default());
        fields.text("cluster", &review.cluster);
        fields.text("caller", &review.caller);
        fields.text("revision", &review.revision);
        written = write_decision(fields, review, &mut redaction);
        write_opinions(fields, review);
        if !review.calls.is_empty() {
            let out = fields.key("webhooks");
            write_list(out, review.calls.iter().enumerate(), |out, (index, call)| {
                let at = format!("/webhooks/{index}");
                ObjectWriter::write(out, |fields| {
                    written = written.and(call.write(fields, &mut redaction, &at));
                });
            });
        }
        fields.texts_if_any("redacted", redaction.places());
        fields.json("review", &text);
    });
    out.push('\n');
    Ok(written?)
}

fn write_decision(
    fields: &mut ObjectWriter<'_>,
    review: &RecordedReview,
    redaction: &mut Redaction,
) -> Result<(), TooManyPlaces> {
    let decided = &review.decision;
    fields.text("decision", decided.decision.as_str());
    fields.text_if_any("reason", redaction.scrubbed(&decided.reason));
    if let Some(cause) = &decided.cause {
        write_cause(fields, cause);
    }
    fields.text_if_any("evaluationError", redaction.scrubbed(&decided.error));
    if !decided.patch.is_empty() {
        let patch = redacted_patch(decided.patch.as_bytes(), redaction, "/patch")?;
        fields.json("patch", &patch);
    }
    Ok(())
}

fn write_cause(fields: &mut ObjectWriter<'_>, cause: &Cause<'_>) {
    fields.object("cause", |fields| {
        fields.text("kind", cause.kind.as_str());
        fields.text_if_any("namespace", &cause.namespace);
        fields.text_if_any("name", &cause.name);
        if let Some(rule) = cause.rule {
            fields.json("rule", &rule.to_string());
        }
    });
}

fn write_opinions(fields: &mut ObjectWriter<'_>, review: &RecordedReview) {
    if review.opinions.is_empty() {
        return;
    }
    fields.list("authorizers", &review.opinions, |out, named| {
        ObjectWriter::write(out, |fields| {
            fields.text("name", &named.name);
            fields.text("decision", named.opinion.decision.as_str());
            fields.text_if_any("reason", &named.opinion.reason);
            if let Some(error) = &named.opinion.error {
                fields.text("error", error);
            }
        });
    });
}

#[cfg(test)]
mod tests;
