//! The namespace of the object, for expressions.

use std::sync::Arc;

use crate::engine::admission::Request;
use crate::engine::admission::matching::MissingNamespace;
use crate::engine::admission::set::AdmissionSet;
use crate::engine::admission::variables::NamespaceObject;
use portcullis_cel::json::{Document, ObjectWriter};

/// The Namespace that a request is about.
pub(crate) enum RequestNamespace {
    None,
    Known(Arc<Document<'static>>),
    Unknown,
}

impl RequestNamespace {
    pub(crate) fn as_variable(&self) -> NamespaceObject<'_> {
        match self {
            Self::None => NamespaceObject::Null,
            Self::Known(document) => NamespaceObject::Known(document.root()),
            Self::Unknown => NamespaceObject::Unknown,
        }
    }
}

impl AdmissionSet {
    /// A Namespace is not in itself, although its request names it. One that is
    /// not known matters only to expressions that look at it.
    pub(crate) fn namespace_of(&self, request: &Request<'_>) -> RequestNamespace {
        let kind = &request.request_kind;
        let is_namespace = kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace";
        if request.namespace.is_empty() || is_namespace {
            return RequestNamespace::None;
        }
        let name = &request.namespace;
        let missing = self.namespaces.missing(name, self.missing_namespace);
        match (self.namespaces.namespace(name), missing) {
            (Some(document), _) => RequestNamespace::Known(document),
            (None, MissingNamespace::NameOnly) => name_only(name),
            (None, MissingNamespace::Fail) => RequestNamespace::Unknown,
        }
    }
}

fn name_only(name: &str) -> RequestNamespace {
    let mut text = String::new();
    ObjectWriter::write(&mut text, |namespace| {
        namespace.object("metadata", |metadata| {
            metadata.text("name", name);
            metadata.object("labels", |labels| {
                labels.text("kubernetes.io/metadata.name", name)
            });
        });
    });
    Document::parse(text).map_or(RequestNamespace::Unknown, |document| {
        RequestNamespace::Known(Arc::new(document))
    })
}
