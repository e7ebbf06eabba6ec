//! A buffer of the most recent decisions, as decision log lines.
//!
//! ```text
//! push ─▶ [ sealed │ sealed │ … │ current ]   oldest chunks go first
//!              └── shared with readers, which never delay a push
//! ```
//!
//! Lines are copied into chunks. A full chunk is sealed: from then on it is shared with readers by
//! reference count. So a push is one short critical section per line, without allocation unless a
//! chunk is full, and readers do not hold the lock while they read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_policy::model::Decision;

/// The size of a chunk, in bytes: about two hundred ordinary lines.
const CHUNK_BYTES: usize = 128 << 10;

/// The maximum size of all chunks, in bytes, regardless of the number of decisions.
const MAX_BYTES: usize = 64 << 20;

/// The maximum number of clusters with their own counts. Further ones are counted together.
const MAX_CLUSTERS: usize = 256;

/// The name under which further clusters are counted.
const OTHER: &str = "other clusters";

/// Keeps the newest decisions, up to a number and a size.
#[derive(Debug)]
pub struct RecentDecisions {
    kept: Mutex<KeptDecisions>,
}

/// The limits of what is kept.
#[derive(Debug, Clone, Copy)]
struct DecisionLimits {
    decisions: u64,
    bytes: usize,
    chunk: usize,
}

#[derive(Debug)]
struct KeptDecisions {
    /// Full chunks, oldest first.
    sealed: VecDeque<Arc<DecisionChunk>>,
    current: DecisionChunk,
    /// The sequence number of the oldest decision that is returned.
    first: u64,
    /// The size of the lines in all chunks, in bytes.
    bytes: usize,
    clusters: Vec<ClusterDecisions>,
    limits: DecisionLimits,
}

/// A chunk of lines.
#[derive(Debug, Clone, Default)]
struct DecisionChunk {
    /// The sequence number of the first line.
    first: u64,
    text: Vec<u8>,
    entries: Vec<DecisionEntry>,
}

/// The end of a line in the text of its chunk, and its decision.
#[derive(Debug, Clone, Copy)]
struct DecisionEntry {
    end: u32,
    decision: Decision,
}

/// A decision that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptDecision<'s> {
    /// The sequence number: 1 for the first decision, and one more for each further one.
    pub sequence: u64,
    pub decision: Decision,
    /// The decision log line, without its line break.
    pub line: &'s [u8],
}

/// The number of decisions for a cluster since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDecisions {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// The numbers of allow, deny and no opinion.
    pub counts: [u64; 3],
}

/// The decisions that were kept at one moment. They stay in memory as long as this.
#[derive(Debug, Clone)]
pub struct DecisionSlice {
    first: u64,
    chunks: Vec<Arc<DecisionChunk>>,
}

// === impl RecentDecisions ===

impl RecentDecisions {
    /// Keeps up to `decisions` decisions.
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

    /// An empty buffer with an equal share of this one's limits, divided by `parts`.
    #[must_use]
    pub fn empty_share(&self, parts: usize) -> Self {
        let limits = self.kept().limits;
        let parts = parts.max(1);
        Self::within(DecisionLimits {
            decisions: limits.decisions / u64::try_from(parts).unwrap_or(u64::MAX),
            bytes: limits.bytes / parts,
            chunk: limits.chunk.min(limits.bytes / parts / 2),
        })
    }

    /// Takes over the limits of `other`.
    pub fn set_limits_of(&self, other: &Self) {
        let limits = other.kept().limits;
        let mut kept = self.kept();
        kept.limits = limits;
        kept.shrink();
    }

    /// Adds a decision about a request of `cluster`, and removes the oldest ones beyond the limits.
    /// `line` is the decision log line.
    pub fn push(&self, decision: Decision, cluster: &str, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut kept = self.kept();
        kept.count(decision, cluster);
        kept.append(decision, line);
        kept.shrink();
    }

    /// The number of the newest decision; 0 if there has been none.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.kept().current.next() - 1
    }

    /// The decisions that are kept, from `sequence` on.
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

    /// The line of the decision with this number, if it is still kept.
    #[must_use]
    pub fn find(&self, sequence: u64) -> Option<Vec<u8>> {
        let slice = self.since(sequence);
        let found = slice.iter().next().filter(|kept| kept.sequence == sequence);
        found.map(|kept| kept.line.to_vec())
    }

    /// The numbers of decisions for each cluster, in the order of their first decisions.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterDecisions> {
        self.kept().clusters.clone()
    }

    fn kept(&self) -> MutexGuard<'_, KeptDecisions> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for RecentDecisions {
    /// Keeps no decisions.
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
        // Chunks and lines are far smaller than 4 GiB.
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

/// The index of a decision in the counts.
const fn index(decision: Decision) -> usize {
    match decision {
        Decision::Allow => 0,
        Decision::Deny => 1,
        Decision::NoOpinion => 2,
    }
}

// === impl DecisionChunk ===

impl DecisionChunk {
    /// The sequence number after the last decision of the chunk.
    fn next(&self) -> u64 {
        self.first + u64::try_from(self.entries.len()).unwrap_or_default()
    }

    /// The index of a decision in the entries.
    fn place(&self, sequence: u64) -> usize {
        usize::try_from(sequence.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }

    /// The start of the line at an index.
    fn start(&self, place: usize) -> usize {
        let before = place.checked_sub(1).and_then(|before| self.entries.get(before));
        before.map_or(0, |entry| usize::try_from(entry.end).unwrap_or_default())
    }

    /// Copies the decisions from `sequence` on.
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

    /// The decisions from `sequence` on.
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
    /// The decisions, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = KeptDecision<'_>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter(self.first))
    }

    /// The decisions from `sequence` on.
    #[must_use]
    pub fn starting_at(&self, sequence: u64) -> Self {
        let first = sequence.max(self.first);
        let wanted = |chunk: &&Arc<DecisionChunk>| chunk.next() > first;
        Self {
            first,
            chunks: self.chunks.iter().filter(wanted).cloned().collect(),
        }
    }

    /// The lowest number in the slice. It is greater than the requested one if older decisions are
    /// no longer kept.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number after the last decision.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.chunks.last().map_or(self.first, |last| last.next())
    }

    /// The number of decisions.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.next().saturating_sub(self.first)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
