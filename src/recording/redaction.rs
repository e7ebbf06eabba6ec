//! What is removed from a review before it is written.
//!
//! ```text
//! resource, rules ──▶ patterns ──┐
//! kinds anywhere within ─────────┴─▶ marks ──▶ "<redacted>", and a pointer in `redacted`
//! what was there ──▶ Removed: not in a patch, reason or warning either
//! ```
//!
//! Where something of an object is removed, the copies that `kubectl apply` and the API server
//! keep of it in its metadata are removed too. JSON Patches are redacted likewise: what they put where
//! something is removed, and copies of that elsewhere.
//!
//! Users decide what objects are like. So a place is a number until it is written, and what
//! redaction takes is a small multiple of the review.

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

/// What stands where something was removed.
const MARKER: &str = "<redacted>";

/// The same as JSON.
const QUOTED_MARKER: &str = "\"<redacted>\"";

/// The most bytes that the pointers to what was removed from a short text take. Of a longer
/// one they may take as many as the text.
const MAX_POINTER_BYTES: usize = 64 << 10;

/// The most values, and the most bytes of JSON, of secrets that texts are compared with on the way
/// to an answer. Beyond that every text is hidden.
const MAX_COMPARED: (usize, usize) = (10_000, 4 << 20);

/// So much is removed that saying where takes more than the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the places of what is redacted take more bytes than what it is redacted from")]
pub(crate) struct TooManyPlaces;

/// What was removed from one review, and is to be removed from all that goes with it.
#[derive(Debug, Default)]
pub(crate) struct Redaction {
    /// What is never written of its objects.
    patterns: Vec<Pattern>,
    removed: RemovedTexts,
    /// Where something was removed from the line, as JSON Pointers.
    places: Vec<String>,
    /// What was removed is too much to compare texts with.
    hides_all: bool,
}

/// What is secret in a request, for the texts of policies and webhooks that may quote it. It is
/// found once there is such a text.
#[derive(Debug)]
pub(crate) struct QuotedSecrets<'r> {
    request: &'r Request<'r>,
    rules: &'r [Redact],
    /// What changes its object.
    patch: &'r str,
    redaction: OnceCell<Redaction>,
}

// === impl QuotedSecrets ===

impl<'r> QuotedSecrets<'r> {
    /// What `rules` and the built-in ones remove from `request`, and from the JSON Patch that
    /// changes its object; there may be none.
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
    /// The text of the review, in one line, without what `rules` and the built-in ones remove.
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

    /// What is removed from the texts that go with the review alone.
    fn of_texts(request: &Request<'_>, rules: &[Redact], patch: &str) -> Self {
        let mut redaction = Self {
            patterns: patterns(request, rules),
            ..Self::default()
        };
        let marks = redaction.marks(request);
        redaction.note(request.written.document(), &marks);
        if let Some(patch) = Some(patch).filter(|patch| !patch.is_empty()) {
            match Document::parse(patch) {
                Ok(patch) => {
                    let marks = redaction.patch_marks(patch.root());
                    redaction.note(&patch, &marks);
                }
                Err(_) => redaction.hides_all = true,
            }
        }
        redaction.removed.sort();
        redaction
    }

    /// Notes what is marked and texts can be compared with.
    fn note(&mut self, document: &Document<'_>, marks: &Marks) {
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

    /// What is removed of a request.
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
        // The copies in the metadata of the objects in which something is removed.
        for object in objects()
            .filter(|object| marks.is_any_in(*object))
            .collect::<Vec<_>>()
        {
            companions()
                .iter()
                .for_each(|pattern| pattern.find(object, &mut marks));
        }
        marks
    }

    /// What of a JSON Patch is put where something is removed.
    fn patch_marks(&self, root: Node<'_>) -> Marks {
        let mut marks = Marks::default();
        for operation in root.items() {
            let Some(value) = operation.get("value") else {
                continue;
            };
            let target = operation.get("path").and_then(Node::as_str);
            // A path that leads nowhere puts its value nowhere, but it is written.
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

    /// Whether anything was removed.
    pub(crate) const fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// Where something was removed.
    pub(crate) fn places(&self) -> &[String] {
        &self.places
    }

    /// `text`, unless something that was removed stands in it.
    pub(crate) fn scrubbed<'t>(&self, text: &'t str) -> &'t str {
        if self.hides_all || self.removed.is_within(text) {
            MARKER
        } else {
            text
        }
    }

    /// The text of `root`, which stands at `base` in the line, without what is marked.
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

/// What stands in place of a value. A review has an object, or none: text is neither.
fn marker(node: Node<'_>, pointer: &str) -> &'static str {
    let is_member = memchr::memchr_iter(b'/', pointer.as_bytes()).take(3).count() == 2;
    if is_member && node.kind() == Kind::Object {
        "{}"
    } else {
        QUOTED_MARKER
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

/// The patch in one line of JSON, without what is removed from the object that it changes; `at`
/// is its place in the line.
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
        // What it would change cannot be told: written where there is nothing to hide, as text.
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
    // Every text that is, or has in it, what was removed elsewhere.
    let is_copy = |node: &Node<'_>| {
        node.kind() == Kind::String && redaction.removed.is_within(&node.as_str().unwrap_or_default())
    };
    root.descendants()
        .filter(is_copy)
        .for_each(|node| marks.add(node));
    let text = redaction.remove(root, marks, at)?;
    Ok(into_line(text))
}

/// The same JSON without line breaks: within its texts there are none.
pub(crate) fn into_line(json: String) -> String {
    if json.contains(['\n', '\r']) {
        return json.trim().replace(['\n', '\r'], " ");
    }
    json
}

// The values that are removed, as places in the index of a document: those that paths lead to, and
// what is secret in objects whose kind says so, wherever they stand (lists, templates, custom
// resources).

/// Where `kubectl apply` keeps what was applied.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where an API server keeps who set which field.
pub(crate) const MANAGED_FIELDS: &str = "managedFields";

/// Values that are removed; a value may be marked several times, and within another.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Position, and whether what is there is secret.
    found: Vec<(u32, bool)>,
}

// === impl Marks ===

impl Marks {
    /// Marks a value whose content is secret.
    pub(crate) fn add(&mut self, node: Node<'_>) {
        self.found.push((node.position(), true));
    }

    /// Marks one that could tell the names of fields alone.
    pub(crate) fn add_names(&mut self, node: Node<'_>) {
        self.found.push((node.position(), false));
    }

    /// Whether something in `node` is marked, or all of it.
    pub(crate) fn is_any_in(&self, node: Node<'_>) -> bool {
        let within = node.position()..node.end();
        self.found.iter().any(|(position, _)| within.contains(position))
    }

    /// The values whose content is secret, of those within others the outermost.
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

    /// The positions of all, in rising order.
    pub(crate) fn into_positions(self) -> Vec<u32> {
        let mut positions: Vec<u32> = self.found.into_iter().map(|(position, _)| position).collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}

/// What is removed of an object: a path from its root.
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

    /// Whether it is the object itself.
    pub(crate) const fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks what it leads to in `node`.
    pub(crate) fn find(&self, node: Node<'_>, marks: &mut Marks) {
        follow_path(&self.0, node, marks);
    }

    /// What of the path is left once `taken` have been gone; `None` where they lead elsewhere.
    /// Indices of lists need no step of their own.
    pub(crate) fn after<S: AsRef<str>>(&self, taken: &[S]) -> Option<&[PathStep]> {
        let mut left = self.0.as_slice();
        for step in taken.iter().map(AsRef::as_ref) {
            match left.split_first() {
                // Within what is removed.
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

/// Marks what `steps` lead to in `node`.
pub(crate) fn follow_path<'s, 'd>(steps: &'s [PathStep], node: Node<'d>, marks: &mut Marks) {
    let is_content = !matches!(steps.last(), Some(PathStep::Key(name)) if name == MANAGED_FIELDS);
    // The lists and maps all of whose values are gone into, and with which steps.
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
            // A name is that of each item.
            (Some((PathStep::Key(_), _)), Kind::Array) => around.push((node.children(), steps)),
            // Not of the type that the path expects: what it hides may be in there.
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

/// What is secret in an object of each of these kinds.
static KINDS: LazyLock<[(&str, Vec<Pattern>); 4]> = LazyLock::new(|| {
    let last_applied = || Pattern::keys(["metadata", "annotations", LAST_APPLIED]);
    let secret = vec![
        Pattern::keys(["data"]),
        Pattern::keys(["stringData"]),
        last_applied(),
        Pattern::keys(["metadata", MANAGED_FIELDS]),
    ];
    // Items of a list need not say what they are.
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

/// Marks what is secret in all that is below `root`.
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

/// Whether the text may name one of the kinds. An escape may spell any letter.
fn may_have_any(text: &str) -> bool {
    let has = |part: &str| memmem::find(text.as_bytes(), part.as_bytes()).is_some();
    has("Secret") || has("TokenRe") || has("\\u")
}

/// One step of a path that names a field.
fn key(name: &str) -> PathStep {
    PathStep::Key(name.to_owned())
}

#[cfg(test)]
mod tests;
