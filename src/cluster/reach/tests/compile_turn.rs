//! Threads on which the expressions of watched objects are compiled.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::super::*;

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
