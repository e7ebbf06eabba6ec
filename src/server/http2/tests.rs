//! The driver with clients that make it wait.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use h2::client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};

use super::*;
use crate::config::ConnectionLimits;
use crate::server::accept::Connections;
use crate::server::respond::Rejection;

const LIMITS: ConnectionLimits = ConnectionLimits {
    max: 10,
    per_address: 10,
    authentication_timeout: Duration::from_secs(3600),
};

/// So short that what is waited for in vain ends soon, or so long that it never does.
const NEVER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(20);

const PATIENT: Timeouts = Timeouts {
    send: NEVER,
    rest: NEVER,
    ping: NEVER,
    pong: NEVER,
};

fn mk_connection() -> Rc<Connection> {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let tracked = Connections::new(None).add(IpAddr::from([127, 0, 0, 1]), LIMITS);
    let tracked = tracked.unwrap();
    tracked.handshake_done(true);
    Connection::new(tracked, address, None, NEVER)
}

/// Serves routes that answer at once, besides `client`, which must end.
async fn beside<T>(timeouts: Timeouts, client: impl AsyncFnOnce(DuplexStream) -> T) -> T {
    let app = |head: &RequestHead<'_>, body: StreamBody| {
        let reply = if head.path == "/large" {
            Reply::review(vec![0; 300_000].into())
        } else {
            Rejection::NotFound.reply()
        };
        std::future::ready((reply, body))
    };
    let (ours, theirs) = duplex(1 << 20);
    let serving = serve(ours, mk_connection(), app, timeouts);
    let (ended, ()) = tokio::join!(client(theirs), serving);
    ended
}

fn get(path: &str) -> http::Request<()> {
    let request = http::Request::get(format!("https://localhost{path}"));
    request.body(()).unwrap()
}

#[actix_web::test]
async fn a_response_that_is_not_read_in_time_is_dropped() {
    let timeouts = Timeouts {
        send: SOON,
        ..PATIENT
    };
    beside(timeouts, async |io| {
        let (mut send, connection) = client::Builder::new()
            .initial_window_size(1000)
            .handshake::<_, Bytes>(io)
            .await
            .unwrap();
        let talk = async move {
            let (answer, _) = send.send_request(get("/large"), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            let mut read = 0;
            // Nothing is released, so that there is never more room.
            let error = loop {
                match body.data().await.unwrap() {
                    Ok(chunk) => read += chunk.len(),
                    Err(error) => break error,
                }
            };
            assert_eq!((read, error.reason()), (1000, Some(Reason::CANCEL)));
            let (answer, _) = send.send_request(get("/other"), true).unwrap();
            assert_eq!(
                answer.await.unwrap().status(),
                404,
                "the connection is as good as before"
            );
        };
        let (_ended, ()) = tokio::join!(connection, talk);
    })
    .await;
}

#[actix_web::test]
async fn a_large_answer_arrives_as_there_is_room() {
    beside(PATIENT, async |io| {
        let (mut send, connection) = client::Builder::new()
            .initial_window_size(1000)
            .handshake::<_, Bytes>(io)
            .await
            .unwrap();
        let talk = async move {
            let (answer, _) = send.send_request(get("/large"), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            let mut read = 0;
            while let Some(chunk) = body.data().await {
                let length = chunk.unwrap().len();
                read += length;
                body.flow_control().release_capacity(length).unwrap();
            }
            assert_eq!(read, 300_000);
        };
        let (_ended, ()) = tokio::join!(connection, talk);
    })
    .await;
}

#[actix_web::test]
async fn the_connection_of_a_client_that_answers_no_ping_is_closed() {
    let timeouts = Timeouts {
        ping: SOON,
        pong: SOON,
        ..PATIENT
    };
    beside(timeouts, async |mut io| {
        io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .unwrap();
        let mut received = Vec::new();
        io.read_to_end(&mut received).await.unwrap();
        assert!(!received.is_empty());
    })
    .await;
}

#[actix_web::test]
async fn a_client_that_answers_pings_stays() {
    let timeouts = Timeouts {
        ping: SOON,
        ..PATIENT
    };
    beside(timeouts, async |io| {
        let (mut send, connection) = client::handshake(io).await.unwrap();
        let talk = async move {
            tokio::time::sleep(10 * SOON).await;
            let (answer, _) = send.send_request(get("/other"), true).unwrap();
            assert_eq!(answer.await.unwrap().status(), 404);
        };
        let (_ended, ()) = tokio::join!(connection, talk);
    })
    .await;
}

#[actix_web::test]
async fn a_request_that_goes_on_after_its_answer_ends_in_time() {
    let timeouts = Timeouts {
        rest: SOON,
        ..PATIENT
    };
    beside(timeouts, async |io| {
        let (mut send, connection) = client::handshake(io).await.unwrap();
        let talk = async move {
            let (answer, mut body) = send.send_request(get("/other"), false).unwrap();
            assert_eq!(answer.await.unwrap().status(), 404);
            let reason = poll_fn(|context| body.poll_reset(context)).await.unwrap();
            assert_eq!(reason, Reason::NO_ERROR);
            body.send_data(Bytes::new(), true).unwrap_err();
        };
        let (_ended, ()) = tokio::join!(connection, talk);
    })
    .await;
}

#[actix_web::test]
async fn a_head_that_is_too_long_is_431() {
    beside(PATIENT, async |io| {
        let (mut send, connection) = client::handshake(io).await.unwrap();
        let talk = async move {
            for (length, status) in [(3000, 404), (5000, 431)] {
                let mut request = get("/other");
                for number in 0..14 {
                    let name = format!("x-{number}").parse::<http::HeaderName>().unwrap();
                    let value = http::HeaderValue::from_str(&"v".repeat(length)).unwrap();
                    request.headers_mut().insert(name, value);
                }
                let (answer, _) = send.send_request(request, true).unwrap();
                assert_eq!(answer.await.unwrap().status(), status, "{length}");
            }
        };
        let (_ended, ()) = tokio::join!(connection, talk);
    })
    .await;
}

#[actix_web::test]
async fn a_head_of_too_many_fields_is_431() {
    beside(PATIENT, async |io| {
        let (mut send, connection) = client::handshake(io).await.unwrap();
        let talk = async move {
            let mut request = get("/other");
            for number in 0..=MAX_FIELDS {
                let name = format!("x-{number}").parse::<http::HeaderName>().unwrap();
                request
                    .headers_mut()
                    .insert(name, http::HeaderValue::from_static(""));
            }
            let (answer, _) = send.send_request(request, true).unwrap();
            assert_eq!(answer.await.unwrap().status(), 431);
        };
        let (_ended, ()) = tokio::join!(connection, talk);
    })
    .await;
}

/// Reads what the gate lets through at this moment.
fn pass(gate: &mut Gate<DuplexStream>) -> std::io::Result<usize> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    let (mut passed, mut buffer) = (0, [0; 4096]);
    loop {
        let mut into = ReadBuf::new(&mut buffer);
        match Pin::new(&mut *gate).poll_read(&mut context, &mut into) {
            Poll::Ready(Ok(())) if !into.filled().is_empty() => passed += into.filled().len(),
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => return Ok(passed),
        }
    }
}

/// A client that has sent its preface, and the gate before its connection.
async fn mk_gate() -> (DuplexStream, Gate<DuplexStream>, Rc<FrameAllowance>) {
    let (ours, mut theirs) = duplex(1 << 20);
    theirs
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let allowance = Rc::new(FrameAllowance::default());
    let gate = Gate::new(ours, mk_connection(), Rc::clone(&allowance));
    (theirs, gate, allowance)
}

const PREFACE: usize = 24;

#[actix_web::test]
async fn in_one_turn_nothing_is_read_after_there_was_nothing() {
    let (mut client, mut gate, allowance) = mk_gate().await;
    allowance.grant(4);
    allowance.begin_turn();
    assert_eq!(pass(&mut gate).unwrap(), PREFACE);
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    client.write_all(&settings).await.unwrap();
    assert_eq!(pass(&mut gate).unwrap(), 0, "it was checked already");
    allowance.begin_turn();
    assert_eq!(pass(&mut gate).unwrap(), settings.len());
}

#[actix_web::test]
async fn who_sends_frames_that_ask_for_nothing_is_ended() {
    const MAX_IDLE: usize = 1_000;
    let idle: [&[u8]; 7] = [
        &[0, 0, 5, 2, 0, 0, 0, 0, 5, 0, 0, 0, 0, 16],
        &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 1, 0, 0, 0, 0, 0, 1, 0],
        &[0, 0, 8, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 8, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 4, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0xfa, 0, 0, 0, 0, 0],
    ];
    for frame in idle {
        let (mut client, mut gate, allowance) = mk_gate().await;
        allowance.grant(1_000);
        client.write_all(&frame.repeat(MAX_IDLE)).await.unwrap();
        assert_eq!(pass(&mut gate).unwrap(), PREFACE + MAX_IDLE * frame.len());
        // A request makes up for some.
        let head = [0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x87];
        client
            .write_all(&[&head[..], &frame.repeat(10)].concat())
            .await
            .unwrap();
        pass(&mut gate).unwrap();
        client.write_all(&frame.repeat(MAX_IDLE)).await.unwrap();
        pass(&mut gate).unwrap_err();
    }
}

#[actix_web::test]
async fn no_more_heads_are_decoded_than_may_be_accepted() {
    let (mut client, mut gate, allowance) = mk_gate().await;
    let head = [&[0, 0, 3, 1, 5, 0, 0, 0, 1][..], &[0x82, 0x84, 0x87]].concat();
    client.write_all(&head.repeat(100)).await.unwrap();
    assert_eq!(pass(&mut gate).unwrap(), 0);
    allowance.grant(4);
    assert_eq!(pass(&mut gate).unwrap(), PREFACE + 4 * head.len());
    assert_eq!(pass(&mut gate).unwrap(), 0);
    allowance.grant(2);
    assert_eq!(pass(&mut gate).unwrap(), 2 * head.len());
}

#[actix_web::test]
async fn a_head_of_several_frames_is_decoded_once_it_is_there_and_never_if_it_is_too_long() {
    let frame = |kind: u8, flags: u8| {
        let mut frame = vec![0, 0x40, 0, kind, flags, 0, 0, 0, 1];
        frame.resize(9 + 0x4000, 0);
        frame
    };
    let (mut client, mut gate, allowance) = mk_gate().await;
    allowance.grant(4);
    client.write_all(&frame(1, 0)).await.unwrap();
    client.write_all(&frame(9, 0)).await.unwrap();
    assert_eq!(pass(&mut gate).unwrap(), PREFACE + 9, "it has begun");
    client.write_all(&frame(9, 4)).await.unwrap();
    assert_eq!(pass(&mut gate).unwrap(), 3 * frame(9, 4).len() - 9);

    client.write_all(&frame(1, 0)).await.unwrap();
    for _ in 0..4 {
        client.write_all(&frame(9, 0)).await.unwrap();
    }
    pass(&mut gate).unwrap_err();
}

#[actix_web::test]
async fn a_client_may_reset_only_so_many_streams_more_than_it_lets_be_answered() {
    use ExchangeOutcome::{Answered, Reset};
    let (connection, mut tally) = (mk_connection(), StreamTally::default());
    let mut is_too_many_after = |outcome, times| {
        (0..times).for_each(|_| tally.count(outcome));
        tally.is_too_many(0, &connection)
    };
    assert!(!is_too_many_after(Reset, MAX_RESETS));
    assert!(!is_too_many_after(Answered, 1));
    assert!(!is_too_many_after(Reset, 1));
    assert!(is_too_many_after(Reset, 1));
}
