//! The decision alone: manifests that are loaded, and reviews that run through them.

#![allow(dead_code, reason = "each test program uses its own part of the harness")]

use portcullis_cel::json::{Document, patch};
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{AdmissionSet, Chain, Outcome, Phase, RunOptions};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{Manifests, Options, Source, load};
use serde_json::Value;

/// A file of this text, for every cluster.
pub(crate) fn source(text: impl Into<String>) -> Source {
    Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: None,
    }
}

/// The manifests of a text, which must be valid.
pub(crate) fn manifests(text: &str) -> Manifests {
    let (manifests, faults) = load(&[source(text)], &Options::default());
    manifests.unwrap_or_else(|| panic!("{faults}"))
}

/// What is wrong with the manifests of a text.
pub(crate) fn faults(text: &str) -> Faults {
    load(&[source(text)], &Options::default()).1
}

/// What comes of a review where no webhook is asked.
pub(crate) fn outcome(phase: Phase, set: &AdmissionSet, review: &Value, run: RunOptions<'_>) -> Outcome {
    let document = Document::parse(review.to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    Chain::run(phase, set, &review.request, run, &mut fail_every_call)
}

/// `object` as the patch of an outcome leaves it; none leaves it as it is.
pub(crate) fn patched(object: &Value, patch: &str) -> Value {
    let operations = Document::parse(if patch.is_empty() { "[]" } else { patch }).unwrap();
    let object = Document::parse(object.to_string()).unwrap();
    let changed = patch::apply(object.root(), patch::read(operations.root()).unwrap()).unwrap();
    serde_json::from_str(&changed.to_text()).unwrap()
}
