//! Threads on which the expressions of watched objects are compiled.

use tokio::sync::Mutex;
use tokio::task::block_in_place;

/// Compiles for one cluster: one kind after the other, and on a thread that no other cluster
/// needs, so that the objects of one delay those of none.
#[derive(Debug, Default)]
pub(crate) struct CompileTurn(Mutex<()>);

impl CompileTurn {
    /// Runs `compile`, which blocks, once those before it have ended.
    pub(crate) async fn run<T>(&self, compile: impl FnOnce() -> T) -> T {
        let _turn = self.0.lock().await;
        block_in_place(compile)
    }
}

#[cfg(test)]
impl CompileTurn {
    /// Holds the turn, as what compiles does.
    pub(crate) async fn begin(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.lock().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;

    /// Longer than any test runs.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn compiling_for_one_cluster_holds_up_no_other() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (release, released) = mpsc::channel();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let [east, west] = [(); 2].map(|()| Arc::new(CompileTurn::default()));
        let compiling = runtime.spawn(async move {
            let compile = move || {
                begin.send(()).unwrap();
                released.recv_timeout(LONG).is_ok()
            };
            east.run(compile).await
        });
        let other = runtime.spawn(async move {
            begun.await.unwrap();
            west.run(|| release.send(()).unwrap()).await;
        });
        runtime.block_on(async {
            other.await.unwrap();
            assert!(compiling.await.unwrap(), "it waited for the other");
        });
    }
}
