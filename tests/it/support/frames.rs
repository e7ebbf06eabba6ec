//! HTTP/2 by hand, for what no valid client sends.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::ssl::SslStream;

use super::client::Client;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

/// The reason that a peer is too much trouble.
pub(crate) const ENHANCE_YOUR_CALM: u8 = 11;

/// A connection of frames, whose preface and SETTINGS are sent.
pub(crate) struct Frames {
    stream: SslStream<TcpStream>,
}

/// A frame that came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frames {
    /// Connects, with `settings` as the payload of SETTINGS.
    pub(crate) fn open(client: &Client<'_>, address: SocketAddr, settings: &[u8]) -> io::Result<Self> {
        let tcp = TcpStream::connect(address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
        tcp.set_write_timeout(Some(Duration::from_secs(30)))?;
        let connector = client.connector(|context| context.set_alpn_protos(b"\x02h2").unwrap());
        let stream = connector.connect("localhost", tcp).map_err(io::Error::other)?;
        let mut frames = Self { stream };
        frames.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        frames.send(SETTINGS, 0, 0, settings)?;
        Ok(frames)
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(kind, flags, stream, payload))
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame.
    pub(crate) fn receive(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
            payload,
        })
    }

    /// Reads until the server closes the connection; the reason that it gave, if any.
    /// A server that asks for a sign of life first has not closed it for what it sent.
    pub(crate) fn reason(&mut self) -> Option<u8> {
        let mut reason = None;
        loop {
            match self.receive() {
                Ok(frame) if frame.kind == GOAWAY => reason = frame.payload.get(7).copied(),
                Ok(frame) => assert_ne!(frame.kind, PING, "the connection stays open"),
                Err(error) => {
                    let is_late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                    assert!(!is_late, "the connection stays open");
                    return reason;
                }
            }
        }
    }
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The compressed head of a POST to `/authorize`, to which fields may be added.
pub(crate) fn post() -> Vec<u8> {
    let mut block = vec![0x83, 0x87];
    block.extend(literal(4, b"/authorize"));
    block.extend(literal(1, b"localhost"));
    block
}

/// A field whose name is in the static table at `index`, not to be remembered.
fn literal(index: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![index, u8::try_from(value.len()).unwrap()];
    field.extend(value);
    field
}

/// A field of this name and an empty value, not to be remembered.
pub(crate) fn field(name: &str) -> Vec<u8> {
    let mut field = vec![0, u8::try_from(name.len()).unwrap()];
    field.extend(name.as_bytes());
    field.push(0);
    field
}

/// A field of 4,000 bytes that is remembered, so that one byte, [`REMEMBERED`], stands for it.
pub(crate) fn remember() -> Vec<u8> {
    let mut field = vec![0x40, 1, b'x', 0x7f];
    // 4000 = 127 + 3873, in groups of seven bits.
    field.extend([0xa1, 0x1e]);
    field.extend([b'v'; 4000]);
    field
}

/// The last field that was remembered.
pub(crate) const REMEMBERED: u8 = 0x80 | 62;
