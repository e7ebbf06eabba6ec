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
pub(super) struct UnreadAnswers(Arc<Semaphore>);

// === impl UnreadAnswers ===

impl UnreadAnswers {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }

    /// The body that is `text`; `None` where others leave it no room.
    pub(super) fn body(&self, text: String) -> Option<BoxBody> {
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
