//! Removes secrets from reviews before they are recorded.
//!
//! ```text
//! resource, rules ──▶ patterns ──┐
//! secret kinds at any depth ─────┴─▶ marks ──▶ "<redacted>", and a pointer in `redacted`
//! removed strings ──▶ RemovedTexts: removed from patches, reasons and warnings, too
//! ```
//!
//! If a part of an object is removed, the copies of it in the metadata that `kubectl apply` and the
//! API server keep are removed, too. JSON Patches are redacted in the same way: the values that
//! they set at removed paths, and copies of removed values elsewhere.
//!
//! Users control their objects. Therefore a removed value is represented by a number until it is
//! written, and the memory for redaction is a small multiple of the review.

mod removed_texts;

use std::cell::OnceCell;
use std::sync::LazyLock;

use memchr::memmem;

use crate::config::{PathStep, Redact};
use crate::telemetry::decision_log::TextRedaction;
use portcullis_cel::json::{Children, Document, Kind, Node, escape_bytes, patch, replaced, write_string};
use portcullis_policy::admission::{GroupVersionResource, Request};
use portcullis_policy::api::AdmissionReview;
use removed_texts::RemovedTexts;

/// The replacement for a removed value.
const MARKER: &str = "<redacted>";

/// The replacement as JSON.
const QUOTED_MARKER: &str = "\"<redacted>\"";

/// The most bytes of the pointers to removed values for a short document. For a longer one the
/// limit is its length.
const MAX_POINTER_BYTES: usize = 64 << 10;

/// The most values, and the most bytes of JSON, of secrets with which strings are compared before a
/// review is answered. Beyond that, every string is hidden.
const MAX_COMPARED: (usize, usize) = (10_000, 4 << 20);

/// So many values are removed that their pointers are longer than the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of redacted fields takes more bytes than the review itself")]
pub(crate) struct TooManyPlaces;

/// The values removed from one review, which are also removed from everything that is recorded with
/// it.
#[derive(Debug, Default)]
pub(crate) struct Redaction {
    /// The paths that are never recorded of the objects in the review.
    patterns: Vec<Pattern>,
    removed: RemovedTexts,
    /// The places in the line where values were removed, as JSON Pointers.
    places: Vec<String>,
    /// Whether every string is hidden, because too much was removed to compare it with.
    hides_all: bool,
}

/// The secrets of a request, which messages of policies and webhooks may quote. They are collected
/// when the first message has to be checked.
#[derive(Debug)]
pub(crate) struct QuotedSecrets<'r> {
    request: &'r Request<'r>,
    rules: &'r [Redact],
    /// The JSON Patch that changes the object.
    patch: &'r str,
    redaction: OnceCell<Redaction>,
}

// === impl QuotedSecrets ===

impl<'r> QuotedSecrets<'r> {
    /// The secrets that `rules` and the built-in rules remove from `request`, and from the JSON
    /// Patch that changes its object; `patch` may be empty.
    pub(crate) const fn new(request: &'r Request<'r>, rules: &'r [Redact], patch: &'r str) -> Self {
        Self {
            request,
            rules,
            patch,
            redaction: OnceCell::new(),
        }
    }
}

impl TextRedaction for QuotedSecrets<'_> {
    fn redacted<'t>(&self, text: &'t str) -> &'t str {
        let redaction = || Redaction::of_texts(self.request, self.rules, self.patch);
        self.redaction.get_or_init(redaction).scrubbed(text)
    }
}

// === impl Redaction ===

impl Redaction {
    /// Returns the review in one line, without what `rules` and the built-in rules remove.
    ///
    /// # Errors
    ///
    /// [`TooManyPlaces`].
    pub(crate) fn of_review(
        review: &AdmissionReview<'_>,
        rules: &[Redact],
    ) -> Result<(String, Self), TooManyPlaces> {
        let request = &review.request;
        let mut redaction = Self {
            patterns: patterns(request, rules),
            ..Self::default()
        };
        let marks = redaction.marks(request);
        let text = redaction.remove(request.written.document().root(), marks, "/review")?;
        Ok((into_line(text), redaction))
    }

    /// The removed values of a request and patch that are not written, for checking messages only.
    fn of_texts(request: &Request<'_>, rules: &[Redact], patch: &str) -> Self {
        let mut redaction = Self {
            patterns: patterns(request, rules),
            ..Self::default()
        };
        let marks = redaction.marks(request);
        redaction.collect_removed(request.written.document(), &marks);
        if let Some(patch) = Some(patch).filter(|patch| !patch.is_empty()) {
            match Document::parse(patch) {
                Ok(patch) => {
                    let marks = redaction.patch_marks(patch.root());
                    redaction.collect_removed(&patch, &marks);
                }
                Err(_) => redaction.hides_all = true,
            }
        }
        redaction.removed.sort();
        redaction
    }

    /// Collects the marked values, as long as there are few enough to compare strings with.
    fn collect_removed(&mut self, document: &Document<'_>, marks: &Marks) {
        let (mut values, mut bytes) = MAX_COMPARED;
        for node in marks.content(document) {
            let size = (node.end() - node.position()) as usize;
            let left = values.checked_sub(size).zip(bytes.checked_sub(node.raw().len()));
            let Some(left) = left else {
                self.hides_all = true;
                return;
            };
            (values, bytes) = left;
            self.removed.add(node);
        }
    }

    /// Marks what is removed from a request.
    fn marks(&self, request: &Request<'_>) -> Marks {
        let root = request.written.document().root();
        let objects = || [request.object, request.old_object].into_iter().flatten();
        let mut marks = Marks::default();
        for object in objects() {
            let patterns = self.patterns.iter();
            patterns.for_each(|pattern| pattern.find(object, &mut marks));
        }
        if self.patterns.iter().any(Pattern::is_whole) {
            request.options.into_iter().for_each(|options| marks.add(options));
        }
        mark_secret_kinds(root, &mut marks);
        // Also mark the copies in the metadata of objects in which something is removed.
        for object in objects()
            .filter(|object| marks.is_any_in(*object))
            .collect::<Vec<_>>()
        {
            metadata_copies()
                .iter()
                .for_each(|pattern| pattern.find(object, &mut marks));
        }
        marks
    }

    /// Marks the values that a JSON Patch sets at removed paths.
    fn patch_marks(&self, root: Node<'_>) -> Marks {
        let mut marks = Marks::default();
        for operation in root.items() {
            let Some(value) = operation.get("value") else {
                continue;
            };
            let target = operation.get("path").and_then(Node::as_str);
            // A value at an invalid path is not applied, but would be recorded: remove all of it.
            let steps = target.as_deref().and_then(patch::steps);
            for pattern in &self.patterns {
                let left = match &steps {
                    Some(steps) => pattern.after(steps),
                    None => Some([].as_slice()),
                };
                if let Some(left) = left {
                    follow_path(left, value, &mut marks);
                }
            }
        }
        mark_secret_kinds(root, &mut marks);
        marks
    }

    /// Whether any value was removed.
    pub(crate) const fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// The places where values were removed.
    pub(crate) fn places(&self) -> &[String] {
        &self.places
    }

    /// Returns `text`, or the marker if it contains a removed string.
    pub(crate) fn scrubbed<'t>(&self, text: &'t str) -> &'t str {
        if self.hides_all || self.removed.is_within(text) {
            MARKER
        } else {
            text
        }
    }

    /// Returns the JSON of `root` without what is marked. `base` is the pointer to `root` in the
    /// line.
    fn remove(&mut self, root: Node<'_>, marks: Marks, base: &str) -> Result<String, TooManyPlaces> {
        let document = root.document();
        marks.content(document).for_each(|node| self.removed.add(node));
        self.removed.sort();
        let mut left = Some(root.raw().len().max(MAX_POINTER_BYTES));
        let text = replaced(root, &marks.into_positions(), |node, pointer| {
            left = left.and_then(|left| left.checked_sub(base.len() + pointer.len()));
            if left.is_some() {
                self.places.push([base, pointer].concat());
            }
            marker(node, pointer)
        });
        left.map(|_| text).ok_or(TooManyPlaces)
    }
}

/// The replacement for a value. An object or options in the review must remain objects, so that the
/// review can be decoded.
fn marker(node: Node<'_>, pointer: &str) -> &'static str {
    let is_member = memchr::memchr_iter(b'/', pointer.as_bytes()).take(3).count() == 2;
    if is_member && node.kind() == Kind::Object {
        "{}"
    } else {
        QUOTED_MARKER
    }
}

/// The paths that are removed from the objects of a request.
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
        patterns.extend(metadata_copies());
    }
    patterns
}

/// The copies of an object in its metadata.
fn metadata_copies() -> [Pattern; 2] {
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

/// Returns the patch in one line of JSON, without what is removed from the object that it changes.
/// `at` is the pointer to the patch in the line.
///
/// # Errors
///
/// [`TooManyPlaces`].
pub(crate) fn redacted_patch(
    patch: &[u8],
    redaction: &mut Redaction,
    at: &str,
) -> Result<String, TooManyPlaces> {
    let text = escape_bytes(patch);
    let Ok(document) = Document::parse(text.as_ref()) else {
        // What an invalid patch changes is unknown: it is written as a string if there is nothing
        // to hide.
        if redaction.patterns.is_empty() && !redaction.is_any() {
            let mut written = String::new();
            write_string(&mut written, &text);
            return Ok(written);
        }
        redaction.places.push(at.to_owned());
        return Ok(QUOTED_MARKER.to_owned());
    };
    let root = document.root();
    let mut marks = redaction.patch_marks(root);
    // Also mark every string that is or contains a value removed elsewhere.
    let is_copy = |node: &Node<'_>| {
        node.kind() == Kind::String && redaction.removed.is_within(&node.as_str().unwrap_or_default())
    };
    root.descendants()
        .filter(is_copy)
        .for_each(|node| marks.add(node));
    let text = redaction.remove(root, marks, at)?;
    Ok(into_line(text))
}

/// The JSON without line breaks. There are none within its strings.
pub(crate) fn into_line(json: String) -> String {
    if json.contains(['\n', '\r']) {
        return json.trim().replace(['\n', '\r'], " ");
    }
    json
}

// The removed values, as positions in the index of a document: those at removed paths, and the
// secrets in objects of certain kinds at any depth (in lists, templates and custom resources).

/// The annotation in which `kubectl apply` keeps the applied object.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The field in which an API server keeps the owners of fields.
pub(crate) const MANAGED_FIELDS: &str = "managedFields";

/// The values to remove. A value may be marked several times, and within another marked value.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The position of each value, and whether its content is secret.
    found: Vec<(u32, bool)>,
}

// === impl Marks ===

impl Marks {
    /// Marks a value whose content is secret.
    pub(crate) fn add(&mut self, node: Node<'_>) {
        self.found.push((node.position(), true));
    }

    /// Marks a value that could reveal only the names of fields.
    pub(crate) fn add_names(&mut self, node: Node<'_>) {
        self.found.push((node.position(), false));
    }

    /// Whether `node`, or a value within it, is marked.
    pub(crate) fn is_any_in(&self, node: Node<'_>) -> bool {
        let within = node.position()..node.end();
        self.found.iter().any(|(position, _)| within.contains(position))
    }

    /// The values whose content is secret, without those within others of them.
    pub(crate) fn content<'d>(&self, document: &'d Document<'d>) -> impl Iterator<Item = Node<'d>> {
        let secret = self.found.iter().filter(|(_, is_content)| *is_content);
        let mut positions: Vec<u32> = secret.map(|(position, _)| *position).collect();
        positions.sort_unstable();
        let mut end = 0;
        positions.into_iter().filter_map(move |position| {
            let node = document.at(position).filter(|_| position >= end)?;
            end = node.end();
            Some(node)
        })
    }

    /// The positions of all values, ascending and without duplicates.
    pub(crate) fn into_positions(self) -> Vec<u32> {
        let mut positions: Vec<u32> = self.found.into_iter().map(|(position, _)| position).collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}

/// A path from the root of an object to a value that is removed.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Vec<PathStep>);

// === impl Pattern ===

impl Pattern {
    pub(crate) const fn new(steps: Vec<PathStep>) -> Self {
        Self(steps)
    }

    pub(crate) fn keys<const N: usize>(names: [&str; N]) -> Self {
        Self(names.map(key).to_vec())
    }

    /// Whether the path is that of the object itself.
    pub(crate) const fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks the values at the path in `node`.
    pub(crate) fn find(&self, node: Node<'_>, marks: &mut Marks) {
        follow_path(&self.0, node, marks);
    }

    /// The rest of the path after the steps `taken`; `None` if these lead to another value. List
    /// indices among the steps are skipped, because paths do not contain them.
    pub(crate) fn after<S: AsRef<str>>(&self, taken: &[S]) -> Option<&[PathStep]> {
        let mut left = self.0.as_slice();
        for step in taken.iter().map(AsRef::as_ref) {
            match left.split_first() {
                // The steps lead into a removed value.
                None => break,
                Some((PathStep::Each, rest)) => left = rest,
                Some((PathStep::Key(name), rest)) if name == step => left = rest,
                Some(_) if is_index(step) => {}
                Some(_) => return None,
            }
        }
        Some(left)
    }
}

/// Marks the values at the path `steps` in `node`.
pub(crate) fn follow_path<'s, 'd>(steps: &'s [PathStep], node: Node<'d>, marks: &mut Marks) {
    let is_content = !matches!(steps.last(), Some(PathStep::Key(name)) if name == MANAGED_FIELDS);
    // The enclosing lists and maps that are being iterated, each with the steps for its values.
    let mut around: Vec<(Children<'d>, &'s [PathStep])> = Vec::new();
    let mut next = Some((node, steps));
    while let Some((node, steps)) = next.take() {
        match (steps.split_first(), node.kind()) {
            (None, Kind::Null) => {}
            (None, _) if is_content => marks.add(node),
            (None, _) => marks.add_names(node),
            (Some((PathStep::Key(name), rest)), Kind::Object) => {
                next = node.get(name).map(|value| (value, rest));
            }
            (Some((PathStep::Each, rest)), Kind::Object | Kind::Array) => {
                around.push((node.children(), rest))
            }
            // A key applies to each item of a list.
            (Some((PathStep::Key(_), _)), Kind::Array) => around.push((node.children(), steps)),
            // The value does not have the type that the path expects, but may contain the secret.
            (Some(_), Kind::String) => marks.add(node),
            (Some(_), Kind::Null | Kind::Bool | Kind::Number) => {}
        }
        while next.is_none()
            && let Some((children, steps)) = around.last_mut()
        {
            let steps = *steps;
            next = children.next().map(|child| (child, steps));
            if next.is_none() {
                around.pop();
            }
        }
    }
}

fn is_index(step: &str) -> bool {
    step == "-" || !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit())
}

/// The secret paths in objects of each kind.
static KINDS: LazyLock<[(&str, Vec<Pattern>); 4]> = LazyLock::new(|| {
    let last_applied = || Pattern::keys(["metadata", "annotations", LAST_APPLIED]);
    let secret = vec![
        Pattern::keys(["data"]),
        Pattern::keys(["stringData"]),
        last_applied(),
        Pattern::keys(["metadata", MANAGED_FIELDS]),
    ];
    // The items of a list may lack `kind`.
    let list = vec![
        Pattern::keys(["items", "data"]),
        Pattern::keys(["items", "stringData"]),
        Pattern::keys(["items", "metadata", "annotations", LAST_APPLIED]),
        Pattern::keys(["items", "metadata", MANAGED_FIELDS]),
    ];
    [
        ("Secret", secret),
        ("SecretList", list),
        (
            "TokenReview",
            vec![Pattern::keys(["spec", "token"]), last_applied()],
        ),
        (
            "TokenRequest",
            vec![Pattern::keys(["status", "token"]), last_applied()],
        ),
    ]
});

/// Marks the secrets in all objects within `root`.
pub(crate) fn mark_secret_kinds(root: Node<'_>, marks: &mut Marks) {
    if !may_have_any(root.raw()) {
        return;
    }
    for node in root.descendants().filter(|node| node.kind() == Kind::Object) {
        let Some(kind) = node.get("kind") else { continue };
        let patterns = KINDS.iter().filter(|(name, _)| kind.is_str(name));
        for pattern in patterns.flat_map(|(_, patterns)| patterns) {
            pattern.find(node, marks);
        }
    }
}

/// Whether `text` may contain the name of one of the kinds, of which any letter may be escaped.
fn may_have_any(text: &str) -> bool {
    let has = |part: &str| memmem::find(text.as_bytes(), part.as_bytes()).is_some();
    has("Secret") || has("TokenRe") || has("\\u")
}

/// A step to a field.
fn key(name: &str) -> PathStep {
    PathStep::Key(name.to_owned())
}

#[cfg(test)]
mod tests;
