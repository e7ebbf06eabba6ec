//! GOAWAY among frames, on a stream that takes bytes as it likes.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Takes at most so many bytes at each write, or none for now.
struct Slow {
    takes: Vec<Option<usize>>,
    written: Rc<RefCell<Vec<u8>>>,
    /// What a pending write must be repeated with.
    promised: Vec<u8>,
}

impl AsyncWrite for Slow {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        assert!(
            bytes.starts_with(&self.promised),
            "TLS refuses another write than the one begun"
        );
        match self.takes.pop().unwrap_or(Some(usize::MAX)) {
            None => {
                self.promised = bytes.to_vec();
                Poll::Pending
            }
            Some(most) => {
                self.promised.clear();
                let taken = bytes.len().min(most.max(1));
                self.written.borrow_mut().extend_from_slice(&bytes[..taken]);
                Poll::Ready(Ok(taken))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Slow {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

fn frame(payload: usize) -> Vec<u8> {
    let mut frame = vec![0, (payload >> 8) as u8, payload as u8, 0, 0, 0, 0, 0, 1];
    frame.resize(9 + payload, 0xaa);
    frame
}

/// The frames of a connection's bytes.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = 9 + usize::from(bytes[1]) * 256 + usize::from(bytes[2]);
        let (frame, rest) = bytes.split_at(length);
        frames.push(frame.to_vec());
        bytes = rest;
    }
    frames
}

fn read(stream: &mut Stream<Slow>) -> Poll<io::Result<()>> {
    let mut buffer = [0; 8];
    Pin::new(stream).poll_read(
        &mut Context::from_waker(Waker::noop()),
        &mut ReadBuf::new(&mut buffer),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn goaway_stands_once_and_between_frames(
        payloads in vec(0_usize..40, 1..6),
        takes in vec(proptest::option::of(1_usize..30), 0..40),
        told_at in 0_usize..60,
        reads in vec(any::<bool>(), 60),
    ) {
        let farewell = Farewell::default();
        let written = Rc::new(RefCell::new(Vec::new()));
        let slow = Slow { takes, written: Rc::clone(&written), promised: Vec::new() };
        let mut stream = farewell.stream(slow, true);
        let frames: Vec<_> = payloads.into_iter().map(frame).collect();
        let bytes = frames.concat();
        let (mut sent, mut turn) = (0, 0);
        while sent < bytes.len() {
            if turn == told_at {
                farewell.tell(Stage::Draining);
            }
            if reads.get(turn) == Some(&true) {
                prop_assert!(read(&mut stream).is_pending());
            }
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(taken) = Pin::new(&mut stream).poll_write(&mut context, &bytes[sent..]) {
                sent += taken.unwrap();
            }
            turn += 1;
        }
        farewell.tell(Stage::Draining);
        for _ in 0..60 {
            prop_assert!(read(&mut stream).is_pending());
        }
        let mut found = split(&written.borrow());
        let place = found.iter().position(|frame| frame == &GOAWAY).expect("GOAWAY");
        prop_assert!(place > 0, "SETTINGS comes first");
        found.remove(place);
        prop_assert_eq!(found, frames);
    }
}

#[test]
fn http_1_is_let_alone_until_nothing_is_in_flight() {
    let farewell = Farewell::default();
    let written = Rc::new(RefCell::new(Vec::new()));
    let slow = Slow {
        takes: Vec::new(),
        written: Rc::clone(&written),
        promised: Vec::new(),
    };
    let mut stream = farewell.stream(slow, false);
    farewell.tell(Stage::Draining);
    assert!(read(&mut stream).is_pending());
    assert!(written.borrow().is_empty());
    farewell.tell(Stage::Closing);
    assert!(read(&mut stream).is_ready(), "the end of the stream");
    assert_eq!(farewell.open(), 1);
    drop(stream);
    assert_eq!(farewell.open(), 0);
}
