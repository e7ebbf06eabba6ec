//! What a client sends over HTTP/2 after its preface, to the driver: it ends in time
//! and breaks nothing. The first byte says who the client is, how its bytes are cut
//! into pieces, and whether it goes on to listen when it has sent all.
#![no_main]

use std::cell::OnceCell;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use portcullis::server::fuzzing::Http2;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, split};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Longer than whatever the driver waits for, one after the other: of a clock that
/// moves when nobody has anything to do.
const END: Duration = Duration::from_secs(600);

thread_local! {
    static DRIVER: OnceCell<&'static (Runtime, Http2)> = const { OnceCell::new() };
}

/// There to the end of the process: it cannot be taken down with its thread.
fn start() -> &'static (Runtime, Http2) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let driver = runtime.block_on(Http2::new());
    Box::leak(Box::new((runtime, driver)))
}

fuzz_target!(|data: &[u8]| {
    let Some((how, frames)) = data.split_first() else {
        return;
    };
    let (is_proven, is_patient) = (how & 1 != 0, how & 2 != 0);
    let piece = [usize::MAX, 1000, 100, 7][usize::from(how >> 2 & 3)];
    DRIVER.with(|driver| {
        let (runtime, driver) = driver.get_or_init(start);
        let (ours, theirs) = duplex(16 << 10);
        let client = async move {
            let (mut read, mut write) = split(theirs);
            let sending = async {
                write.write_all(PREFACE).await?;
                for piece in frames.chunks(piece) {
                    write.write_all(piece).await?;
                    tokio::task::yield_now().await;
                }
                if !is_patient {
                    write.shutdown().await?;
                }
                std::io::Result::Ok(())
            };
            let mut received = Vec::new();
            let _closed = tokio::join!(sending, read.read_to_end(&mut received));
        };
        let both = async { tokio::join!(driver.serve(ours, is_proven), client) };
        runtime
            .block_on(async { timeout(END, both).await })
            .expect("a connection that nobody uses ends");
    });
});
