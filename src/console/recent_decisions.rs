//! The most recent decisions, as lines of the decision log.
//!
//! ```text
//! push ─▶ [ sealed │ sealed │ … │ current ]   oldest chunks go first
//!              └── shared with readers, which never hold up a push
//! ```
//!
//! Lines are copied one behind the other into chunks. A full chunk is sealed: from then on
//! readers share it, and it is only counted. So a push is one short critical
//! section without allocation for each line, and readers work outside of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_policy::model::Decision;

/// Bytes of lines in a chunk: some two hundred usual lines.
const CHUNK_BYTES: usize = 128 << 10;

/// Bytes of lines in all chunks, however many decisions are to be kept.
const MAX_BYTES: usize = 64 << 20;

/// How many clusters are counted by name; further ones are counted together.
const MAX_CLUSTERS: usize = 256;

/// What further clusters are counted as.
const OTHER: &str = "other clusters";

/// Keeps the newest decisions, bounded in number and in bytes.
#[derive(Debug)]
pub struct RecentDecisions {
    kept: Mutex<KeptDecisions>,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
struct DecisionLimits {
    decisions: u64,
    bytes: usize,
    chunk: usize,
}

#[derive(Debug)]
struct KeptDecisions {
    /// Full chunks, the oldest first.
    sealed: VecDeque<Arc<DecisionChunk>>,
    current: DecisionChunk,
    /// The oldest decision that still counts.
    first: u64,
    /// Bytes of lines in all chunks.
    bytes: usize,
    clusters: Vec<ClusterDecisions>,
    limits: DecisionLimits,
}

/// Lines one behind the other.
#[derive(Debug, Clone, Default)]
struct DecisionChunk {
    /// The sequence number of the first.
    first: u64,
    text: Vec<u8>,
    entries: Vec<DecisionEntry>,
}

/// Where a line ends in the text of its chunk, and what it says.
#[derive(Debug, Clone, Copy)]
struct DecisionEntry {
    end: u32,
    decision: Decision,
}

/// A decision that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptDecision<'s> {
    /// Its number; each is one more than that of the decision before it, from 1 on.
    pub sequence: u64,
    /// What was decided.
    pub decision: Decision,
    /// The line of the decision log, without its line break.
    pub line: &'s [u8],
}

/// How many decisions were made for a cluster since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDecisions {
    /// Its name.
    pub cluster: Arc<str>,
    /// Allow, Deny and no opinion.
    pub counts: [u64; 3],
}

/// Decisions as they were kept at one moment. What was kept then stays as long as this.
#[derive(Debug, Clone)]
pub struct DecisionSlice {
    first: u64,
    chunks: Vec<Arc<DecisionChunk>>,
}

// === impl RecentDecisions ===

impl RecentDecisions {
    /// Keeps so many `decisions`.
    #[must_use]
    pub fn new(decisions: usize) -> Self {
        Self::within(DecisionLimits {
            decisions: u64::try_from(decisions).unwrap_or(u64::MAX),
            bytes: MAX_BYTES,
            chunk: CHUNK_BYTES,
        })
    }

    fn within(limits: DecisionLimits) -> Self {
        let current = DecisionChunk {
            first: 1,
            ..DecisionChunk::default()
        };
        let kept = KeptDecisions {
            sealed: VecDeque::new(),
            current,
            first: 1,
            bytes: 0,
            clusters: Vec::new(),
            limits,
        };
        Self {
            kept: Mutex::new(kept),
        }
    }

    /// None yet, in one of so many equal `parts` of the room that these have.
    #[must_use]
    pub fn part(&self, parts: usize) -> Self {
        let limits = self.kept().limits;
        let parts = parts.max(1);
        Self::within(DecisionLimits {
            decisions: limits.decisions / u64::try_from(parts).unwrap_or(u64::MAX),
            bytes: limits.bytes / parts,
            chunk: limits.chunk.min(limits.bytes / parts / 2),
        })
    }

    /// Keeps as many from now on as `other` does.
    pub fn resize(&self, other: &Self) {
        let limits = other.kept().limits;
        let mut kept = self.kept();
        kept.limits = limits;
        kept.shrink();
    }

    /// Keeps a decision about a request of `cluster` whose line in the decision log is `line`. The
    /// oldest ones go.
    pub fn push(&self, decision: Decision, cluster: &str, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut kept = self.kept();
        kept.count(decision, cluster);
        kept.append(decision, line);
        kept.shrink();
    }

    /// The number of the newest decision; 0 if there was none yet.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.kept().current.next() - 1
    }

    /// Those that are kept from `sequence` on.
    #[must_use]
    pub fn since(&self, sequence: u64) -> DecisionSlice {
        let kept = self.kept();
        let first = sequence.max(kept.first);
        let wanted = |chunk: &&Arc<DecisionChunk>| chunk.next() > first;
        let mut chunks: Vec<_> = kept.sealed.iter().filter(wanted).cloned().collect();
        if kept.current.next() > first {
            chunks.push(Arc::new(kept.current.since(first)));
        }
        DecisionSlice { first, chunks }
    }

    /// The decision of this number with everything behind it, if it is still kept.
    #[must_use]
    pub fn find(&self, sequence: u64) -> Option<Vec<u8>> {
        let slice = self.since(sequence);
        let found = slice.iter().next().filter(|kept| kept.sequence == sequence);
        found.map(|kept| kept.line.to_vec())
    }

    /// How many decisions were made for each cluster, in the order in which they first came.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterDecisions> {
        self.kept().clusters.clone()
    }

    fn kept(&self) -> MutexGuard<'_, KeptDecisions> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for RecentDecisions {
    /// Keeps none.
    fn default() -> Self {
        Self::new(0)
    }
}

// === impl KeptDecisions ===

impl KeptDecisions {
    fn count(&mut self, decision: Decision, cluster: &str) {
        let known = self.clusters.iter().position(|known| *known.cluster == *cluster);
        let place = known.unwrap_or_else(|| {
            let name = if self.clusters.len() < MAX_CLUSTERS {
                cluster
            } else {
                OTHER
            };
            if self.clusters.len() <= MAX_CLUSTERS {
                self.clusters.push(ClusterDecisions {
                    cluster: name.into(),
                    counts: [0; 3],
                });
            }
            self.clusters.len() - 1
        });
        let of_cluster = self.clusters.get_mut(place);
        let count = of_cluster.and_then(|of_cluster| of_cluster.counts.get_mut(index(decision)));
        if let Some(count) = count {
            *count += 1;
        }
    }

    fn append(&mut self, decision: Decision, line: &[u8]) {
        let chunk = self.limits.chunk;
        if !self.current.entries.is_empty() && self.current.text.len() + line.len() > chunk {
            let next = DecisionChunk {
                first: self.current.next(),
                text: Vec::with_capacity(chunk),
                entries: Vec::with_capacity(self.current.entries.len()),
            };
            self.sealed
                .push_back(Arc::new(std::mem::replace(&mut self.current, next)));
        }
        self.current.text.extend_from_slice(line);
        // A chunk is far smaller than 4 GiB, and so is a line.
        let end = u32::try_from(self.current.text.len()).unwrap_or(u32::MAX);
        self.current.entries.push(DecisionEntry { end, decision });
        self.bytes += line.len();
    }

    fn shrink(&mut self) {
        let limits = self.limits;
        let next = self.current.next();
        self.first = self.first.max(next.saturating_sub(limits.decisions));
        while let Some(oldest) = self.sealed.front() {
            if oldest.next() > self.first && self.bytes <= limits.bytes {
                return;
            }
            self.bytes -= oldest.text.len();
            self.first = self.first.max(oldest.next());
            self.sealed.pop_front();
        }
    }
}

/// The place of a decision among the counts.
const fn index(decision: Decision) -> usize {
    match decision {
        Decision::Allow => 0,
        Decision::Deny => 1,
        Decision::NoOpinion => 2,
    }
}

// === impl DecisionChunk ===

impl DecisionChunk {
    /// The number of the first decision after it.
    fn next(&self) -> u64 {
        self.first + u64::try_from(self.entries.len()).unwrap_or_default()
    }

    /// The place of a decision among the entries.
    fn place(&self, sequence: u64) -> usize {
        usize::try_from(sequence.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }

    /// Where the line at a place begins.
    fn start(&self, place: usize) -> usize {
        let before = place.checked_sub(1).and_then(|before| self.entries.get(before));
        before.map_or(0, |entry| usize::try_from(entry.end).unwrap_or_default())
    }

    /// A copy of what is there from `sequence` on.
    fn since(&self, sequence: u64) -> Self {
        let place = self.place(sequence);
        let start = self.start(place);
        let offset = u32::try_from(start).unwrap_or_default();
        let entries = self.entries.get(place..).unwrap_or_default();
        Self {
            first: sequence.max(self.first),
            text: self.text.get(start..).unwrap_or_default().to_vec(),
            entries: entries
                .iter()
                .map(|entry| DecisionEntry {
                    end: entry.end - offset,
                    ..*entry
                })
                .collect(),
        }
    }

    /// Those from `sequence` on.
    fn iter(&self, sequence: u64) -> impl DoubleEndedIterator<Item = KeptDecision<'_>> {
        let place = self.place(sequence);
        let entries = self.entries.iter().enumerate().skip(place);
        entries.filter_map(|(place, entry)| {
            let end = usize::try_from(entry.end).ok()?;
            Some(KeptDecision {
                sequence: self.first + u64::try_from(place).ok()?,
                decision: entry.decision,
                line: self.text.get(self.start(place)..end)?,
            })
        })
    }
}

// === impl DecisionSlice ===

impl DecisionSlice {
    /// Each, the oldest first; from the back, the newest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = KeptDecision<'_>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter(self.first))
    }

    /// The same without those before `sequence`.
    #[must_use]
    pub fn starting_at(&self, sequence: u64) -> Self {
        let first = sequence.max(self.first);
        let wanted = |chunk: &&Arc<DecisionChunk>| chunk.next() > first;
        Self {
            first,
            chunks: self.chunks.iter().filter(wanted).cloned().collect(),
        }
    }

    /// The number of the first decision that it may hold: one that is greater than that asked for
    /// if older ones have gone.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number after its last decision.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.chunks.last().map_or(self.first, |last| last.next())
    }

    /// How many it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.next().saturating_sub(self.first)
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
