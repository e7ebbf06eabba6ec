//! Strangers who would have the gateway run out of memory, descriptors or time:
//! honest callers are answered meanwhile, and memory stays within bounds.

use std::io;
use std::thread;

use crate::h2::{Connection, block_on, until};
use crate::support::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frames, HEADERS, REMEMBERED, RST_STREAM, field,
    frame, post, remember,
};
use crate::support::process::Process;
use crate::support::{Builder, Gateway, JANE_GETS, v1};

/// The most memory that the process may ever take, in MiB.
const MEMORY: u64 = 120;

/// SETTINGS_INITIAL_WINDOW_SIZE of 0: answers get no room.
const NO_ROOM: [u8; 6] = [0, 4, 0, 0, 0, 0];

/// Runs `attack` of one stranger `times` at once, while a caller asks, and again after it.
fn withstands(times: usize, attack: impl Fn(&Process) -> io::Result<()> + Sync) {
    let process = Builder::new().spawn();
    let mut caller = process.connect();
    thread::scope(|scope| {
        let attackers: Vec<_> = (0..times).map(|_| scope.spawn(|| attack(&process))).collect();
        while attackers.iter().any(|attacker| !attacker.is_finished()) {
            assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
            assert_eq!(process.connect().authorize(v1(JANE_GETS)).status, 200);
        }
        for attacker in attackers {
            // What the server refuses ends an attack early.
            let _refused = attacker.join().unwrap();
        }
    });
    assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
    let (memory, log) = (process.peak_memory(), process.log());
    assert!(memory < MEMORY, "{memory} MiB");
    assert!(!log.contains("panicked"), "{log}");
}

/// A head that one byte for each 4 KB makes `fields` times 4 KB long.
fn inflated(stream: u32, fields: usize) -> Vec<u8> {
    let block = [post(), remember(), vec![REMEMBERED; fields]].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

#[test]
fn headers_that_grow_when_decoded_cost_no_memory() {
    // The first are just shorter than what h2 would take by itself.
    for fields in [4_000, 12_000] {
        withstands(15, |process| {
            let mut frames = Frames::open(&process.stranger(), process.server, &[])?;
            (0..400).try_for_each(|n| frames.send_raw(&inflated(2 * n + 1, fields)))
        });
    }
}

#[test]
fn headers_just_below_the_limit_cost_no_memory() {
    withstands(15, |process| {
        let mut frames = Frames::open(&process.stranger(), process.server, &NO_ROOM)?;
        let small = [post(), field("a").repeat(1900)].concat();
        (0..200).try_for_each(|n| {
            frames.send_raw(&inflated(4 * n + 1, 14))?;
            frames.send_raw(&frame(HEADERS, END_HEADERS, 4 * n + 3, &small))
        })
    });
}

#[test]
fn header_blocks_that_never_end_cost_no_memory() {
    withstands(200, |process| {
        let mut frames = Frames::open(&process.stranger(), process.server, &[])?;
        let block = [post(), field("a").repeat(3000)].concat();
        frames.send(HEADERS, END_STREAM, 1, &block)?;
        (0..4).try_for_each(|_| frames.send(CONTINUATION, 0, 1, &field("b").repeat(3000)))?;
        frames.reason();
        Ok(())
    });
}

#[test]
fn a_hundred_thousand_streams_with_unread_responses_cost_no_memory() {
    withstands(100, |process| {
        let mut frames = Frames::open(&process.stranger(), process.server, &NO_ROOM)?;
        let head = |n: u32| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &post());
        frames.send_raw(&(0..1000).flat_map(head).collect::<Vec<_>>())?;
        // A reset by the system may overtake the reason.
        let reason = frames.reason();
        assert!(reason.is_none_or(|reason| reason == ENHANCE_YOUR_CALM));
        Ok(())
    });
}

#[test]
fn thirty_three_thousand_header_names_do_no_harm() {
    withstands(4, |process| {
        let mut frames = Frames::open(&process.stranger(), process.server, &[])?;
        let names: Vec<_> = (0..33_000).map(|n| field(&format!("n{n}"))).collect();
        let mut kind = HEADERS;
        for part in [post(), names.concat()].concat().chunks(16_000) {
            frames.send(kind, 0, 1, part)?;
            kind = CONTINUATION;
        }
        frames.send(CONTINUATION, END_HEADERS, 1, &[])
    });
}

#[test]
fn streams_that_are_reset_at_once_end_their_connection() {
    let gateway = Gateway::usual();
    let mut frames = Frames::open(&gateway.client(), gateway.addresses.server, &[]).unwrap();
    let mut refused = Ok(());
    for n in 0..5000 {
        let head = frame(HEADERS, END_HEADERS, 2 * n + 1, &post());
        let reset = frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8]);
        refused = refused.and_then(|()| frames.send_raw(&[head, reset].concat()));
    }
    let reason = frames.reason();
    assert!(
        reason.is_none_or(|reason| reason == ENHANCE_YOUR_CALM),
        "{reason:?}"
    );
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
}

/// A caller whose streams announce bodies that do not come holds what is its cluster's to
/// hold, and nothing of the others'.
#[test]
fn streams_without_bodies_of_one_cluster_leave_the_others_their_part() {
    let gateway = Builder::new().limits("{inFlight: 64}").east().start();
    block_on(async {
        let address = gateway.addresses.server;
        let path = "/authorize?timeout=30s";
        let east = Connection::open_as(&gateway.stranger(), address).await;
        let begin = || east.begin_as(path, Some("east-token"));
        // With the first answer the connection may have as many streams as it likes.
        let (answer, mut body) = begin().await.unwrap();
        body.send_data(v1(JANE_GETS).into(), true).unwrap();
        assert_eq!(Connection::end(answer).await.unwrap().0, 200);
        let mut held = Vec::new();
        for _ in 0..256 {
            held.push(begin().await.unwrap());
        }
        let series = r#"portcullis_in_flight_requests{endpoint="authorize"}"#;
        until("a quarter and the common half are held", || {
            gateway.metric(series) == 48.0
        })
        .await;
        let others = Connection::open(&gateway).await;
        for _ in 0..50 {
            assert_eq!(others.authorize(v1(JANE_GETS)).await.unwrap().0, 200);
        }
        // None of its 256 has any more room, and one that ends makes room.
        let refused = begin().await.unwrap();
        assert_eq!(Connection::end(refused.0).await.unwrap().0, 429);
        drop(held);
        until("all is given back", || gateway.metric(series) == 0.0).await;
    });
}

#[test]
fn an_unfinished_header_block_ends_the_connection_of_a_caller() {
    let gateway = Gateway::usual();
    let mut frames = Frames::open(&gateway.client(), gateway.addresses.server, &[]).unwrap();
    frames.send(HEADERS, 0, 1, &post()).unwrap();
    frames.reason();
}

#[test]
fn a_head_in_several_frames_is_answered() {
    let gateway = Gateway::usual();
    let mut frames = Frames::open(&gateway.client(), gateway.addresses.server, &[]).unwrap();
    let (block, fields) = (post(), field("a").repeat(3));
    frames.send(HEADERS, END_STREAM, 1, &block[..3]).unwrap();
    for byte in frame(CONTINUATION, 0, 1, &block[3..]) {
        frames.send_raw(&[byte]).unwrap();
    }
    frames.send(CONTINUATION, END_HEADERS, 1, &fields).unwrap();
    let answer = loop {
        let frame = frames.receive().unwrap();
        if frame.kind == HEADERS {
            break frame;
        }
    };
    assert_eq!((answer.stream, answer.flags & END_HEADERS), (1, END_HEADERS));
    // 415 is in no static table; its digits are.
    assert!(!answer.payload.is_empty());
}
