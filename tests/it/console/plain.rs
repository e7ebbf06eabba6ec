//! A client of the console that sends bytes as they are, and reads answers as they come.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open connection without TLS.
pub(super) struct Plain {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// One request on a connection of its own: `head` without its last line.
pub(super) fn ask(address: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let mut connection = Plain::connect(address);
    connection.send(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes());
    // An answer may come before the body was read.
    let _sent = connection.stream.write_all(body);
    connection
        .receive()
        .unwrap_or_else(|error| panic!("{head}: {error}"))
}

impl Plain {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends until the server takes no more.
    pub(super) fn send_all_that_is_taken(&mut self, bytes: &[u8]) {
        let _refused = self.stream.write_all(bytes);
    }

    /// Reads one answer, to its end.
    pub(super) fn receive(&mut self) -> io::Result<Answer> {
        let mut answer = self.receive_head()?;
        let header = |name: &str| answer.header(name).map(str::to_owned);
        let body = if header("transfer-encoding").is_some() {
            self.read_chunks()?
        } else {
            let length = header("content-length").map_or(0, |length| length.parse().unwrap());
            self.read_exactly(length)?
        };
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Ok(answer)
    }

    /// Reads status and headers; what follows comes later.
    pub(super) fn receive_head(&mut self) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more()?;
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok(Answer {
            status,
            headers,
            body: String::new(),
        })
    }

    /// Reads until the bytes hold `text`; `false` when the connection ended before.
    pub(super) fn read_until(&mut self, text: &str) -> bool {
        loop {
            if String::from_utf8_lossy(&self.unread).contains(text) {
                return true;
            }
            if self.read_more().is_err() {
                return false;
            }
        }
    }

    /// Reads what still comes until the server ends the connection.
    ///
    /// # Panics
    /// When it does not.
    pub(super) fn read_to_end(&mut self) {
        loop {
            match self.read_more() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("it stays open"),
                Err(_) => return,
            }
        }
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = self.unread.windows(2).position(|window| window == b"\r\n") {
                    break at + 2;
                }
                self.read_more()?;
            };
            let line = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
            let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            body.extend(self.read_exactly(length)?);
            self.read_exactly(2)?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn read_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            self.read_more()?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.unread.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }
}
