//! What is removed from a review before it is written.
//!
//! ```text
//! resource, rules ──▶ patterns ──┐
//! kinds anywhere within ─────────┴─▶ places ──▶ "<redacted>", and a pointer in `redacted`
//! what was there ──▶ Removed: not in a patch, reason or warning either
//! ```
//!
//! Where something of an object is removed, the copies that `kubectl apply` and the API server
//! keep of it in its metadata are removed too.

mod kinds;
mod patch;
mod path;
mod removed;

use crate::config::{PathStep, Redact};
use portcullis_cel::json::{Document, Node, pointer};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::engine::admission::{GroupVersionResource, Request};

pub(super) use patch::redacted_patch;
use path::{Pattern, RedactedPlace, remove_all};
use removed::Removed;

/// What stands where something was removed.
const MARKER: &str = "<redacted>";

/// How deep a value is taken apart; from there on it is removed as a whole.
const DEEPEST: usize = 100;

/// Where `kubectl apply` keeps what was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where an API server keeps who set which field.
const MANAGED_FIELDS: &str = "managedFields";

/// What was removed from one review, and is to be removed from all that goes with it.
#[derive(Debug, Default)]
pub(super) struct Redaction {
    /// What is never written of its objects.
    patterns: Vec<Pattern>,
    removed: Removed,
    /// Where something was removed from the line, as JSON Pointers.
    places: Vec<String>,
}

// === impl Redaction ===

impl Redaction {
    /// The text of the review, in one line, without what `rules` and the built-in ones remove.
    pub(super) fn of_review(review: &AdmissionReview<'_>, rules: &[Redact]) -> (String, Self) {
        let request = &review.request;
        let document = request.written.document();
        let patterns = patterns(request, rules);
        let root = document.root();
        let member = ["request", "spec"]
            .into_iter()
            .find(|member| root.get(member).is_some_and(|node| !node.is_null()))
            .unwrap_or_default();
        let mut places = Vec::new();
        for (name, object) in [("object", request.object), ("oldObject", request.old_object)] {
            let at = vec![member.to_owned(), name.to_owned()];
            if let Some(object) = object {
                patterns
                    .iter()
                    .for_each(|pattern| pattern.find(object, &at, &mut places));
            }
        }
        let is_whole = patterns.iter().any(Pattern::is_whole);
        if let Some(options) = request.options.filter(|_| is_whole) {
            places.push(RedactedPlace::of(
                vec![member.to_owned(), "options".to_owned()],
                options,
            ));
        }
        kinds::find(root, &mut places);
        beside(root, member, &mut places);
        let mut redaction = Self {
            patterns,
            ..Self::default()
        };
        let text = redaction.remove(document, places);
        (super::digest::one_line(&text), redaction)
    }

    /// Whether anything was removed.
    pub(super) const fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// Where something was removed.
    pub(super) fn places(&self) -> &[String] {
        &self.places
    }

    /// `text`, unless something that was removed stands in it.
    pub(super) fn scrubbed(&self, text: &str) -> String {
        if self.removed.is_within(text) {
            MARKER.to_owned()
        } else {
            text.to_owned()
        }
    }

    fn remove(&mut self, document: &Document<'_>, places: Vec<RedactedPlace<'_>>) -> String {
        // Of managedFields only names of fields could be told.
        let is_content =
            |place: &&RedactedPlace<'_>| place.steps.last().is_none_or(|last| last != MANAGED_FIELDS);
        let content = places.iter().filter(is_content);
        content.for_each(|place| self.removed.add(place.node));
        let (text, at) = remove_all(document.root(), places);
        let pointers = at.iter().map(|steps| pointer_of("/review", steps));
        self.places.extend(pointers);
        text
    }
}

/// What is removed of the objects of a request.
fn patterns(request: &Request<'_>, rules: &[Redact]) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    let is = |group: &str, resource: &str, subresource: &str, kind: &str| {
        let names = |of: &GroupVersionResource<'_>| of.group == group && of.resource == resource;
        let is_resource = names(&request.resource) || names(&request.request_resource);
        let is_kind = [&request.kind, &request.request_kind]
            .iter()
            .any(|of| !kind.is_empty() && of.group == group && of.kind == kind);
        is_resource && (subresource.is_empty() || request.subresource == subresource) || is_kind
    };
    if is("", "secrets", "", "Secret") {
        patterns.extend([Pattern::keys(["data"]), Pattern::keys(["stringData"])]);
    }
    if is("authentication.k8s.io", "tokenreviews", "", "TokenReview") {
        patterns.push(Pattern::keys(["spec", "token"]));
    }
    if is("", "serviceaccounts", "token", "") || is("authentication.k8s.io", "", "", "TokenRequest") {
        patterns.push(Pattern::keys(["status", "token"]));
    }
    for rule in rules.iter().filter(|rule| applies(rule, request)) {
        patterns.push(Pattern::new(rule.path.clone()));
    }
    if !patterns.is_empty() {
        patterns.extend(companions());
    }
    patterns
}

/// The copies that metadata has of what an object was.
fn companions() -> [Pattern; 2] {
    [
        Pattern::keys(["metadata", "annotations", LAST_APPLIED]),
        Pattern::keys(["metadata", MANAGED_FIELDS]),
    ]
}

fn applies(rule: &Redact, request: &Request<'_>) -> bool {
    let names = |of: &GroupVersionResource<'_>| of.group == rule.group && of.resource == rule.resource;
    let is_subresource = rule
        .subresource
        .as_ref()
        .is_none_or(|subresource| *subresource == request.subresource);
    is_subresource && (names(&request.resource) || names(&request.request_resource))
}

/// Adds the copies in the metadata of the objects in which something is removed.
fn beside<'d>(root: Node<'d>, member: &str, places: &mut Vec<RedactedPlace<'d>>) {
    for name in ["object", "oldObject"] {
        let at = vec![member.to_owned(), name.to_owned()];
        let is_concerned = places.iter().any(|place| place.steps.starts_with(&at));
        let object = root.get(member).and_then(|request| request.get(name));
        if let Some(object) = object.filter(|_| is_concerned) {
            companions()
                .iter()
                .for_each(|pattern| pattern.find(object, &at, places));
        }
    }
}

/// The JSON Pointer of `steps` below `base`.
fn pointer_of(base: &str, steps: &[String]) -> String {
    steps.iter().fold(base.to_owned(), |mut pointer, step| {
        pointer.push('/');
        pointer.push_str(&pointer::escape(step));
        pointer
    })
}

/// One step of a path that names a field.
fn key(name: &str) -> PathStep {
    PathStep::Key(name.to_owned())
}

#[cfg(test)]
mod tests;
