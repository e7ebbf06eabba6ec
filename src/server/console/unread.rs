//! What browsers have asked for and not read yet: how much of it is kept for them.
//!
//! An answer stays in memory until its last byte is taken, and whoever asks decides when that
//! is. So large answers share a bounded room, and are handed to their connection piece by piece.

use std::convert::Infallible;
use std::sync::Arc;

use actix_web::body::{BoxBody, SizedStream};
use actix_web::web::Bytes;
use futures_util::stream;
use tokio::sync::Semaphore;

/// Bytes of all large answers together.
const MOST: usize = 64 << 20;

/// An answer of so many bytes always has room: the limit of connections bounds their number.
const SMALL: usize = 64 << 10;

/// What a connection is handed at once.
const PIECE: usize = 16 << 10;

/// The room for answers that are not read yet.
pub(crate) struct UnreadAnswers(Arc<Semaphore>);

// === impl UnreadAnswers ===

impl UnreadAnswers {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }

    /// The body that is `text`; `None` where others leave it no room.
    pub(crate) fn body(&self, text: String) -> Option<BoxBody> {
        let text = Bytes::from(text);
        if text.len() <= SMALL {
            return Some(BoxBody::new(text));
        }
        // One that is larger than all the room is sent when it has all of it.
        let room = u32::try_from(text.len().min(MOST)).ok()?;
        let held = Arc::clone(&self.0).try_acquire_many_owned(room).ok()?;
        let length = u64::try_from(text.len()).ok()?;
        let pieces = stream::unfold((text, held), |(mut rest, held)| async move {
            let piece = rest.split_to(rest.len().min(PIECE));
            (!piece.is_empty()).then(|| (Ok::<_, Infallible>(piece), (rest, held)))
        });
        Some(BoxBody::new(SizedStream::new(length, pieces)))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::body::{BodySize, MessageBody as _, to_bytes};

    use super::*;

    fn mk_text(length: usize) -> String {
        let mut text = "0123456789ab".repeat(length / 12 + 1);
        text.truncate(length);
        text
    }

    #[actix_web::test]
    async fn an_answer_is_sent_as_it_is() {
        let unread = UnreadAnswers::new();
        for length in [0, 1, SMALL, SMALL + 1, 10 * PIECE, 1 << 20] {
            let text = mk_text(length);
            let body = unread.body(text.clone()).unwrap();
            assert_eq!(body.size(), BodySize::Sized(u64::try_from(length).unwrap()));
            assert!(to_bytes(body).await.unwrap() == text, "{length}");
        }
        assert_eq!(unread.0.available_permits(), MOST);
    }

    #[actix_web::test]
    async fn what_nobody_reads_is_bounded() {
        let unread = UnreadAnswers::new();
        let half = || unread.body(mk_text(MOST / 2));
        let (one, two) = (half().unwrap(), half().unwrap());
        assert!(unread.body(mk_text(SMALL + 1)).is_none());
        assert!(unread.body(mk_text(SMALL)).is_some(), "a small one has room");
        // Read, or given up: there is room again.
        to_bytes(one).await.unwrap();
        assert!(half().is_some());
        drop(two);
        // One that is too large has the room to itself.
        let huge = unread.body(mk_text(MOST + 1)).unwrap();
        assert!(unread.body(mk_text(SMALL + 1)).is_none());
        drop(huge);
        assert_eq!(unread.0.available_permits(), MOST);
    }
}
