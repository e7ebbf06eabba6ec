//! Reads files with several threads. The result does not depend on the number of threads.
//!
//! ```text
//! file 0, 2, 4, … ──▶ thread ──pieces──▶ ┐
//!                                        ├─▶ taken file by file, in order
//! file 1, 3, 5, … ──▶ thread ──pieces──▶ ┘
//! ```
//!
//! The pieces of a file are only taken after those of all files before it. A thread bounds the size
//! of its pieces, and is at most two pieces ahead.
//!
//! The thread that takes the pieces reads standard input itself, in its turn. Another thread would
//! wait for the next line, which may never come, even after a file before it has failed.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::output::CommandError;

/// The maximum number of threads, which also bounds the memory that they use together.
const MAX_JOBS: u16 = 16;

/// The maximum size of a part that a thread may hold before its file's turn, in bytes. Only one
/// larger part is held at a time.
const MAX_EARLY_BYTES: usize = 16 << 20;

/// How many files are read at the same time.
#[derive(Debug, Default, Clone, Copy, clap::Args)]
pub(crate) struct FileJobs {
    /// The number of files to read at the same time, at most 16 [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_JOBS)))]
    jobs: Option<u16>,
}

/// One of several shares of the files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileShard {
    /// The index of the share, from 0.
    index: usize,
    pub(crate) count: usize,
}

/// A file that a thread works on.
pub(crate) struct FileJob<'j, P> {
    pub(crate) path: &'j Path,
    number: usize,
    /// Hands a piece on.
    send: &'j dyn Fn(P) -> Result<(), CommandError>,
    turn: &'j FileTurn,
}

/// What a thread sends.
enum Step<P> {
    Piece(P),
    Done(Result<(), CommandError>),
}

/// The number of the file whose pieces are taken now.
#[derive(Debug, Default)]
struct FileTurn {
    number: Mutex<usize>,
    changed: Condvar,
}

// === impl FileJobs ===

impl FileJobs {
    fn count(self) -> usize {
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        let wanted = self.jobs.map_or_else(processors, usize::from);
        wanted.min(usize::from(MAX_JOBS))
    }

    /// Runs `work` on the `files` in threads, and passes the pieces that they send to `take`, in
    /// the order of the files.
    ///
    /// # Errors
    ///
    /// The error of the first file in order on which `work` failed, or the error of `take`.
    pub(crate) fn run<P: Send>(
        self,
        files: &[PathBuf],
        work: impl Fn(&FileJob<'_, P>) -> Result<(), CommandError> + Sync,
        take: impl FnMut(&Path, P) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let jobs = self.count().min(files.len());
        let turn = FileTurn::default();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for first in 0..jobs {
                let (sender, receiver) = mpsc::sync_channel(1);
                threads.push(receiver);
                let (work, turn) = (&work, &turn);
                let own = files.iter().enumerate().skip(first).step_by(jobs);
                let own = own.filter(|(_, path)| !is_standard_input(path));
                scope.spawn(move || work_on(own, turn, &sender, work));
            }
            let take = RefCell::new(take);
            let ended = files.iter().zip(threads.iter().cycle()).enumerate();
            let ended = ended.map(|(number, (path, pieces))| {
                turn.begin(number);
                let send = |piece| (take.borrow_mut())(path, piece);
                if is_standard_input(path) {
                    return work(&FileJob {
                        path,
                        number,
                        send: &send,
                        turn: &turn,
                    });
                }
                for step in pieces {
                    match step {
                        Step::Piece(piece) => send(piece)?,
                        Step::Done(done) => return done,
                    }
                }
                // The thread panicked, and the scope propagates the panic.
                Ok(())
            });
            let ended = ended.collect();
            // Releases all threads that wait for their turn, or for a piece to be taken.
            turn.begin(usize::MAX);
            drop(threads);
            ended
        })
    }
}

fn work_on<'j, P>(
    files: impl Iterator<Item = (usize, &'j PathBuf)>,
    turn: &FileTurn,
    pieces: &SyncSender<Step<P>>,
    work: impl Fn(&FileJob<'_, P>) -> Result<(), CommandError>,
) {
    let send = |piece| {
        let stopped = |_| CommandError::Usage("an earlier file cannot be read".to_owned());
        pieces.send(Step::Piece(piece)).map_err(stopped)
    };
    for (number, path) in files {
        let done = work(&FileJob {
            path,
            number,
            send: &send,
            turn,
        });
        let is_done = done.is_ok();
        if pieces.send(Step::Done(done)).is_err() || !is_done {
            return;
        }
    }
}

/// Whether a path that is named means standard input.
pub(crate) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

// === impl FileJob ===

impl<P> FileJob<'_, P> {
    /// Sends a piece of the file.
    ///
    /// # Errors
    ///
    /// A previous file failed, and its error is reported instead, or the piece cannot be taken.
    pub(crate) fn send(&self, piece: P) -> Result<(), CommandError> {
        (self.send)(piece)
    }

    /// Waits for the turn of this file if its next part, of `bytes` bytes, is large.
    pub(crate) fn wait_if_large(&self, bytes: usize) {
        if bytes > MAX_EARLY_BYTES {
            self.turn.wait_for(self.number);
        }
    }
}

// === impl FileTurn ===

impl FileTurn {
    fn begin(&self, number: usize) {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = number;
        self.changed.notify_all();
    }

    fn wait_for(&self, number: usize) {
        let current = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(current, |current| *current < number);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

// === impl FileShard ===

impl FileShard {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let number = |text: &str| text.parse::<usize>().ok();
        let parts = parts.and_then(|(index, count)| number(index).zip(number(count)));
        match parts {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Self {
                index: index - 1,
                count,
            }),
            _ => Err("must be the number of the part and the number of parts, such as 1/4".to_owned()),
        }
    }

    /// The files of this share.
    pub(crate) fn of(self, files: Vec<PathBuf>) -> Vec<PathBuf> {
        files.into_iter().skip(self.index).step_by(self.count).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The pieces that `jobs` threads send, if files whose names end with `failing` fail.
    fn taken(jobs: u16, failing: Option<&str>) -> (Vec<String>, Option<String>) {
        let files: Vec<PathBuf> = (0..40).map(|number| format!("{number}").into()).collect();
        let mut taken = Vec::new();
        let ended = FileJobs { jobs: Some(jobs) }.run(
            &files,
            |job| {
                let name = job.path.display().to_string();
                if failing.is_some_and(|failing| name.ends_with(failing)) {
                    return Err(CommandError::Usage(name));
                }
                (0..5).try_for_each(|piece| {
                    job.wait_if_large(MAX_EARLY_BYTES + piece % 2);
                    job.send(format!("{name}.{piece}"))
                })
            },
            |_, piece| {
                taken.push(piece);
                Ok(())
            },
        );
        (taken, ended.err().map(|error| error.to_string()))
    }

    #[test]
    fn pieces_are_taken_in_the_order_of_the_files_whatever_the_number_of_threads() {
        let (one, failed) = taken(1, None);
        assert_eq!((one.len(), failed), (200, None));
        assert_eq!((&*one[0], &*one[199]), ("0.0", "39.4"));
        for jobs in [2, 3, 16] {
            assert_eq!(taken(jobs, None).0, one);
        }
    }

    #[test]
    fn the_first_file_that_fails_is_reported_and_nothing_after_it_is_taken() {
        for jobs in [1, 2, 16] {
            let (pieces, failed) = taken(jobs, Some("7"));
            assert_eq!((pieces.len(), failed.as_deref()), (35, Some("7")), "{jobs}");
        }
    }

    #[test]
    fn what_cannot_be_taken_ends_all_threads() {
        let files: Vec<PathBuf> = vec!["a".into(), "b".into(), "c".into()];
        let ended = FileJobs { jobs: Some(3) }.run(
            &files,
            |job| (0..100).try_for_each(|piece| job.send(piece)),
            |_, piece| match piece {
                50 => Err(CommandError::Usage("full".to_owned())),
                _ => Ok(()),
            },
        );
        assert_eq!(ended.unwrap_err().to_string(), "full");
    }

    /// What is read of standard input, with `before` in front of it, until a piece cannot be taken.
    fn read_of_standard_input(before: &[&str]) -> (usize, String) {
        let files: Vec<PathBuf> = before.iter().chain(&["-"]).map(PathBuf::from).collect();
        let read = AtomicUsize::new(0);
        let ended = FileJobs { jobs: Some(4) }.run(
            &files,
            |job| match is_standard_input(job.path) {
                false => Err(CommandError::Usage("unreadable".to_owned())),
                // It has another line as long as anybody asks for one.
                true => (0..100).try_for_each(|piece| {
                    read.fetch_add(1, Ordering::Relaxed);
                    job.send(piece)
                }),
            },
            |_, _| Err(CommandError::Usage("full".to_owned())),
        );
        (read.into_inner(), ended.unwrap_err().to_string())
    }

    #[test]
    fn nothing_more_is_read_of_standard_input_once_the_run_failed() {
        assert_eq!(read_of_standard_input(&["a"]), (0, "unreadable".to_owned()));
        assert_eq!(read_of_standard_input(&[]), (1, "full".to_owned()));
    }
}
