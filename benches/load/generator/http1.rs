//! HTTP/1.1, by hand: the least that a client can cost.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use super::Turn;

/// The bytes of a request as an API server sends it.
pub(super) fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n\
         Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
         Accept-Encoding: gzip\r\n\r\n{body}",
        body.len()
    )
}

/// Asks over one connection for a turn; the latency of each answer in microseconds.
pub(super) async fn ask(stream: SslStream<TcpStream>, request: Arc<str>, turn: Turn) -> Vec<u32> {
    ask_all(stream, [request], turn).await
}

/// The same, with several requests after each other that count as one.
pub(super) async fn ask_all(
    mut stream: SslStream<TcpStream>,
    requests: impl IntoIterator<Item = impl AsRef<str>>,
    turn: Turn,
) -> Vec<u32> {
    let requests: Vec<_> = requests.into_iter().collect();
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut buffer = vec![0; 16 << 10];
    while let Some(begin) = turn.next().await {
        for request in &requests {
            stream
                .write_all(request.as_ref().as_bytes())
                .await
                .expect("the server reads");
            answer(&mut stream, &mut buffer).await;
        }
        latencies.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    latencies
}

/// Reads one answer, which must be a granted 200.
async fn answer(stream: &mut SslStream<TcpStream>, buffer: &mut [u8]) {
    let mut length = 0;
    loop {
        let read = stream.read(&mut buffer[length..]).await.expect("an answer");
        assert!(read > 0, "the server hung up");
        length += read;
        let text = &buffer[..length];
        if is_whole(text) {
            assert!(
                text.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(text)
            );
            super::assert_allowed(text);
            return;
        }
    }
}

/// Whether the head and all of the body that it announces are there.
fn is_whole(text: &[u8]) -> bool {
    let head = text.windows(4).position(|window| window == b"\r\n\r\n");
    head.is_some_and(|head| text.len() >= head + 4 + content_length(&text[..head]))
}

fn content_length(head: &[u8]) -> usize {
    let head = std::str::from_utf8(head).expect("a head in ASCII");
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim())
    });
    value
        .and_then(|value| value.parse().ok())
        .expect("a content-length")
}
