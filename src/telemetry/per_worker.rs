//! Data that each worker has of its own, so that no two cores write the same cache line for a
//! review.
//!
//! ```text
//! worker 1 ── own() ──▶ [ place 1 ]   one or more cache lines, which only this thread writes
//! worker 2 ── own() ──▶ [ place 2 ]
//! others   ── own() ──▶ [ place 0 ]   pools, the listeners for probes and the console, reloads
//!                          └── all() ──▶ the sum, whenever it is needed
//! ```
//!
//! A thread may write to the place of another; this is only slower, because everything here is
//! atomic. `tests/it/wide.rs` traces what two workers write for a review.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::thread::available_parallelism;

use prometheus::IntCounter;

/// The number of workers: one for each processor.
static WORKERS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

thread_local! {
    /// The number of the worker that this thread is, from 1; 0 if it is not a worker.
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

/// The number of workers.
pub(crate) fn worker_count() -> usize {
    *WORKERS
}

/// Makes this thread the worker with this number, from 0.
pub(crate) fn become_worker(number: usize) {
    PLACE.set(number + 1);
}

/// A value in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CacheAligned<T>(pub(crate) T);

/// A `T` for each worker, and one for all other threads.
#[derive(Debug)]
pub(crate) struct PerWorker<T> {
    others: CacheAligned<T>,
    workers: Box<[CacheAligned<T>]>,
}

// === impl PerWorker ===

impl<T> PerWorker<T> {
    /// Calls `make` for each worker, and once for all other threads.
    pub(crate) fn new(make: impl Fn() -> T) -> Self {
        Self {
            others: CacheAligned(make()),
            workers: (0..worker_count()).map(|_| CacheAligned(make())).collect(),
        }
    }

    /// The value of the current thread.
    pub(crate) fn own(&self) -> &T {
        let worker = PLACE.get().checked_sub(1);
        let own = worker.and_then(|number| self.workers.get(number));
        &own.unwrap_or(&self.others).0
    }

    /// The values of all threads.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        [&self.others]
            .into_iter()
            .chain(&self.workers)
            .map(|place| &place.0)
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        1 + self.workers.len()
    }
}

impl<T: Default> Default for PerWorker<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

/// A reference to a `T` with a reference count of its own, so that cloning it does not write a
/// cache line that other workers write.
pub(crate) struct WorkerRef<T>(Arc<CacheAligned<Arc<T>>>);

/// A [`WorkerRef`] for each worker, all to the same `T`.
#[derive(Debug)]
pub(crate) struct WorkerRefs<T> {
    shared: Arc<T>,
    refs: PerWorker<WorkerRef<T>>,
}

// === impl WorkerRef ===

impl<T> WorkerRef<T> {
    /// A reference whose clones share one count, on every thread.
    pub(crate) fn new(shared: Arc<T>) -> Self {
        Self(Arc::new(CacheAligned(shared)))
    }
}

impl<T> Clone for WorkerRef<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for WorkerRef<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0.0
    }
}

impl<T: fmt::Debug> fmt::Debug for WorkerRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

// === impl WorkerRefs ===

impl<T> WorkerRefs<T> {
    pub(crate) fn new(shared: Arc<T>) -> Self {
        Self {
            refs: PerWorker::new(|| WorkerRef::new(Arc::clone(&shared))),
            shared,
        }
    }

    /// The value that all of them refer to.
    pub(crate) const fn shared(&self) -> &Arc<T> {
        &self.shared
    }

    /// The reference of this thread.
    pub(crate) fn own(&self) -> WorkerRef<T> {
        self.refs.own().clone()
    }
}

impl<T: Default> Default for WorkerRefs<T> {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

/// A gauge that one thread may increment and another may decrement.
#[derive(Debug, Default)]
pub(crate) struct WorkerGauge(WorkerRefs<PerWorker<AtomicI64>>);

/// One increment of a [`WorkerGauge`], which is taken back when this is dropped.
#[derive(Debug)]
pub(crate) struct Gauged(WorkerRef<PerWorker<AtomicI64>>);

// === impl WorkerGauge ===

impl WorkerGauge {
    /// Counts one more.
    pub(crate) fn enter(&self) -> Gauged {
        let gauged = Gauged(self.0.own());
        gauged.0.own().fetch_add(1, Ordering::Relaxed);
        gauged
    }

    /// The current value.
    pub(crate) fn get(&self) -> i64 {
        let places = self.0.shared().all();
        places.map(|place| place.load(Ordering::Relaxed)).sum()
    }
}

// === impl Gauged ===

impl Drop for Gauged {
    fn drop(&mut self) {
        self.0.own().fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters that fill one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CountLine([AtomicU64; COUNTS_PER_LINE]);

const COUNTS_PER_LINE: usize = 8;

/// Counters by number, which only grow. The counters of a worker are allocated at its first
/// increment.
#[derive(Debug)]
pub(crate) struct WorkerCounts {
    length: usize,
    places: PerWorker<OnceLock<Box<[CountLine]>>>,
}

// === impl WorkerCounts ===

impl WorkerCounts {
    /// Creates `length` counters.
    pub(crate) fn new(length: usize) -> Self {
        Self {
            length,
            places: PerWorker::default(),
        }
    }

    /// Adds to the counter with this number, if there is one.
    pub(crate) fn add(&self, number: usize, amount: u64) {
        let lines = || {
            let lines = self.length.div_ceil(COUNTS_PER_LINE);
            (0..lines).map(|_| CountLine::default()).collect()
        };
        let line = self.places.own().get_or_init(lines).get(number / COUNTS_PER_LINE);
        if let Some(count) = line.and_then(|line| line.0.get(number % COUNTS_PER_LINE)) {
            count.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// The sum of each counter over all threads, by number.
    pub(crate) fn sums(&self) -> Vec<u64> {
        let mut sums = vec![0_u64; self.length];
        for lines in self.places.all().filter_map(OnceLock::get) {
            let counts = lines.iter().flat_map(|line| &line.0);
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

/// Counters whose series in Prometheus' registry are updated before they are read.
#[derive(Debug)]
pub(crate) struct WorkerSeries {
    counts: WorkerCounts,
    series: Vec<IntCounter>,
    /// The value that each series has.
    gathered: Mutex<Vec<u64>>,
}

// === impl WorkerSeries ===

impl WorkerSeries {
    /// Creates counters, of which the one with number `n` is reported by `series[n]`.
    pub(crate) fn new(series: Vec<IntCounter>) -> Self {
        Self {
            counts: WorkerCounts::new(series.len()),
            gathered: Mutex::new(vec![0; series.len()]),
            series,
        }
    }

    /// Adds to the counter with this number.
    pub(crate) fn add(&self, number: usize, amount: u64) {
        self.counts.add(number, amount);
    }

    /// The sum of each counter over all threads, by number.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.counts.sums()
    }

    /// Updates each series.
    pub(crate) fn gather(&self) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = self.counts.sums();
        for ((series, gathered), counted) in self.series.iter().zip(&mut *gathered).zip(counted) {
            series.inc_by(counted.wrapping_sub(*gathered));
            *gathered = counted;
        }
    }
}

impl Drop for WorkerSeries {
    fn drop(&mut self) {
        self.gather();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_workers_and_others_count_is_summed() {
        let series = IntCounter::new("requests", "requests").unwrap();
        let (counts, gauge) = (WorkerSeries::new(vec![series.clone(); 1]), WorkerGauge::default());
        let entered = gauge.enter();
        thread::scope(|scope| {
            for worker in 0..worker_count() {
                let (counts, gauge) = (&counts, &gauge);
                scope.spawn(move || {
                    become_worker(worker);
                    counts.add(0, 2);
                    std::mem::forget(gauge.enter());
                });
            }
            scope.spawn(move || drop(entered));
        });
        counts.add(0, 1);
        counts.add(1, 1);
        let workers = worker_count() as u64;
        assert_eq!(series.get(), 0, "not gathered yet");
        counts.gather();
        counts.gather();
        assert_eq!(series.get(), 2 * workers + 1);
        assert_eq!(gauge.get(), workers as i64);
        counts.add(0, 1);
        drop(counts);
        assert_eq!(series.get(), 2 * workers + 2, "what was counted last is not lost");
    }

    #[test]
    fn each_place_has_cache_lines_of_its_own() {
        let places = PerWorker::<AtomicI64>::default();
        let mut lines: Vec<_> = places
            .all()
            .map(|place| std::ptr::from_ref(place) as usize / 64)
            .collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), places.len());
        let refs = WorkerRefs::new(Arc::new(0_u8));
        assert!(size_of_val(&*refs.own().0) >= 64 && align_of_val(&*refs.own().0) >= 64);
    }
}
