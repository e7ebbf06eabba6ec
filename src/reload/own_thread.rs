//! Loads snapshots on separate threads, so that their memory is returned to the system.
//!
//! Loading needs many times the memory of its result. The allocator (mimalloc) keeps what
//! a thread has freed for that thread, for a second after its end, and then returns a
//! quarter of it whenever a thread ends. In an idle gateway no thread ends.

use std::hint::black_box;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

/// Longer than freed pages rest (`purge_delay`).
const PURGE_WAIT: Duration = Duration::from_millis(1500);

/// How many threads have to end after that.
const THREAD_ENDS: usize = 8;

/// What `load` gives; without a thread to be had, it is called here.
pub(crate) fn on_own_thread<T: Send>(load: impl Fn() -> T + Sync) -> T {
    let loaded = thread::scope(|scope| {
        let thread = thread::Builder::new().name("load".to_owned());
        match thread.spawn_scoped(scope, &load) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => load(),
        }
    });
    if let Err(error) = thread::Builder::new().name("tidy".to_owned()).spawn(tidy) {
        tracing::debug!(%error, "memory freed by the reload is returned later");
    }
    loaded
}

fn tidy() {
    thread::sleep(PURGE_WAIT);
    for _ in 0..THREAD_ENDS {
        // The end of a thread that has allocated nothing is none to the allocator.
        let ended = thread::Builder::new().spawn(|| drop(black_box(vec![0u8; 64])));
        // That it ended is all there is to know.
        let _ = ended.map(thread::JoinHandle::join);
    }
}
