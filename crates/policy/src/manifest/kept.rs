//! The document of an object, kept to place what is found out about it later.

use std::borrow::Cow;

use super::object::Content;
use crate::document::{Document, PackedDocument};
use crate::field::{FieldPath, Place};

/// A document, packed where there may be very many of its kind and no expressions in it.
#[derive(Debug, Clone)]
pub(crate) enum KeptDocument {
    Whole(Box<Document>),
    Packed(PackedDocument),
}

impl KeptDocument {
    /// The `document` of an object that says `content`.
    pub(crate) fn new(document: Document, content: &Content) -> Self {
        match content {
            Content::Role(_) | Content::Binding(_) | Content::Namespace(_) => {
                Self::Packed(PackedDocument::new(&document))
            }
            Content::Policy(_) | Content::Exception(_) | Content::Admission(_) | Content::Parameter => {
                Self::Whole(Box::new(document))
            }
        }
    }

    /// The document; borrowed but for those of [`Role`](crate::authorization::Role)s,
    /// bindings and Namespaces.
    pub(crate) fn get(&self) -> Cow<'_, Document> {
        match self {
            Self::Whole(document) => Cow::Borrowed(document),
            Self::Packed(packed) => Cow::Owned(packed.unpack()),
        }
    }

    /// As [`Document::place`].
    pub(crate) fn place(&self, path: FieldPath) -> Place {
        self.get().place(path)
    }
}
