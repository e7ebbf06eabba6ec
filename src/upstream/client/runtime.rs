//! The threads on which calls are made: a few, shared by all webhooks, started with the
//! first call and kept until the process ends.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::Error;

/// Threads that wait for what cannot be awaited: name servers and files.
const BLOCKING_THREADS: usize = 64;

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Ends its task when dropped.
struct Task<T>(JoinHandle<T>);

/// Runs `call` there. It ends when the caller stops waiting.
pub(crate) async fn run<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    let runtime = RUNTIME.get_or_init(start).as_ref().ok_or(Error::Runtime)?;
    let mut task = Task(runtime.spawn(call));
    (&mut task.0).await.map_err(|_| Error::Runtime)
}

/// Does `work` there; nobody waits for it.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = RUNTIME.get_or_init(start) {
        drop(runtime.spawn(work));
    }
}

fn start() -> Option<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, 4))
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("upstream")
        .enable_all()
        .build()
        .inspect_err(|error| tracing::error!(%error, "cannot start the threads that call webhooks"))
        .ok()
}

// === impl Task ===

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
