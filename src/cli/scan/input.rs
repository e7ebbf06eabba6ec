//! The manifests of `-f`: files, folders, standard input, read one at a time.
//!
//! ```text
//! survey: Namespaces, parameters, CustomResourceDefinitions ─▶ what the policies look at
//! each file again ─▶ its objects, judged, and dropped
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::{Error, authorize, loading};
use crate::reload;
use portcullis_cel::json;
use portcullis_policy::document::Document;
use portcullis_policy::engine::admission::ParamKind;
use portcullis_policy::explain::kinds::CustomKinds;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest;

/// What is to be read, in order.
pub(crate) struct ScanInput {
    pub(crate) parts: Vec<InputPart>,
}

/// One text of manifests.
pub(crate) enum InputPart {
    /// A file, read when its turn comes.
    File(PathBuf),
    /// Standard input, which comes once.
    Text(String),
}

/// What objects of the input say about others.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) namespaces: Vec<Arc<json::Document<'static>>>,
    pub(crate) parameters: Vec<Arc<json::Document<'static>>>,
    pub(crate) kinds: CustomKinds,
}

const STDIN: &str = "-";

// === impl ScanInput ===

impl ScanInput {
    /// What is at `paths`; `-` is standard input.
    ///
    /// # Errors
    ///
    /// A path leads nowhere or cannot be read, or none of them to a manifest.
    pub(crate) fn of(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut parts = Vec::new();
        for path in paths {
            if path == Path::new(STDIN) {
                if parts.iter().any(|part| matches!(part, InputPart::Text(_))) {
                    return Err(Error::Usage(
                        "standard input can be read once: name `-` once".into(),
                    ));
                }
                let text = String::from_utf8(authorize::read(path)?);
                let text = text.map_err(|error| Error::file("read", path, std::io::Error::other(error)))?;
                parts.push(InputPart::Text(text));
                continue;
            }
            let files = loading::applied(std::slice::from_ref(path))?;
            parts.extend(files.into_iter().map(InputPart::File));
        }
        Ok(Self { parts })
    }

    /// Reads all of it once, for what `kinds` of parameters and Namespaces there are. Faults
    /// are left to the second reading.
    pub(crate) fn survey(&self, kinds: &[&ParamKind]) -> Survey {
        let mut survey = Survey::default();
        let mut unread = Faults::new();
        for part in &self.parts {
            let Ok(text) = part.text() else { continue };
            let names = kinds.iter().map(|kind| kind.kind.as_str());
            let mut names = names.chain(["Namespace", "CustomResourceDefinition"]);
            if names.any(|name| text.contains(name)) {
                for document in part.documents(text.into_owned(), &mut unread) {
                    survey.add(&document, kinds);
                }
            }
        }
        survey
    }
}

// === impl InputPart ===

impl InputPart {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => STDIN.to_owned(),
        }
    }

    fn text(&self) -> std::io::Result<std::borrow::Cow<'_, str>> {
        match self {
            Self::File(path) => reload::read_manifest(path).map(Into::into),
            Self::Text(text) => Ok(text.into()),
        }
    }

    fn documents(&self, text: String, faults: &mut Faults) -> Vec<Document> {
        let source = manifest::Source {
            file: self.name(),
            text,
            cluster: None,
        };
        manifest::documents(&source, faults)
    }

    /// Its objects; what cannot be read goes to `faults`.
    pub(crate) fn objects(&self, faults: &mut Faults) -> Vec<Document> {
        match self.text() {
            Ok(text) => self.documents(text.into_owned(), faults),
            Err(error) => {
                let place = Place {
                    file: Some(self.name().into()),
                    ..Place::default()
                };
                faults.push(Fault::error(place, FaultKind::Unreadable, error.to_string()));
                Vec::new()
            }
        }
    }
}

// === impl Survey ===

impl Survey {
    pub(crate) fn add(&mut self, document: &Document, kinds: &[&ParamKind]) {
        self.kinds.add(document);
        let (version, kind) = (document.text("apiVersion"), document.text("kind"));
        let (Some(version), Some(kind)) = (version, kind) else {
            return;
        };
        let json = || json::Document::parse(document.root().to_json().to_string()).map(Arc::new);
        if (version, kind) == ("v1", "Namespace") {
            self.namespaces.extend(json());
        }
        if kinds
            .iter()
            .any(|wanted| (wanted.api_version.as_str(), wanted.kind.as_str()) == (version, kind))
        {
            self.parameters.extend(json());
        }
    }
}
