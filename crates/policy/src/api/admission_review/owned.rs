//! An AdmissionReview that keeps its own text.

use self_cell::self_cell;

use super::{AdmissionReview, AdmissionReviewError};
use portcullis_cel::json::{self, Document};

self_cell! {
    /// A review together with its text: read once, and then the same to all who look at
    /// it, however long that takes. Looking cannot fail.
    pub struct OwnedAdmissionReview {
        owner: Document<'static>,
        #[covariant]
        dependent: AdmissionReview,
    }

    impl {Debug}
}

impl OwnedAdmissionReview {
    /// Reads the review in `body`, whose bytes are not copied where they are text.
    ///
    /// # Errors
    ///
    /// As [`AdmissionReview::decode`], and [`AdmissionReviewError::Malformed`].
    pub fn read(body: Vec<u8>) -> Result<Self, AdmissionReviewError> {
        Self::try_new(document(body)?, |document| AdmissionReview::decode(document))
    }

    /// The review.
    #[must_use]
    pub fn review(&self) -> &AdmissionReview<'_> {
        self.borrow_dependent()
    }

    /// How long its text is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.borrow_owner().text().len()
    }

    /// How many bytes of memory it holds: its text and the index of it.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.borrow_owner().bytes()
    }
}

fn document(body: Vec<u8>) -> Result<Document<'static>, json::Error> {
    match String::from_utf8(body) {
        Ok(text) => Document::parse(text),
        Err(error) => Document::parse_bytes(error.as_bytes()).map(Document::into_owned),
    }
}
