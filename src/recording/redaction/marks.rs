//! The values that are removed, as places in the index of a document: those that paths lead to, and
//! what is secret in objects whose kind says so, wherever they stand (lists, templates, custom
//! resources).

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;

use crate::config::PathStep;
use portcullis_cel::json::{Children, Document, Kind, Node};

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

// The texts that were removed, so that copies of them are removed too: a mutation may have
// put them elsewhere, a message may quote them.
//
// Looking for any number of them takes one pass over a text. Of each position the next six
// bytes say whether one of them may begin there (a Bloom filter); where one may, it is looked
// for among them in their order.

/// The shortest text that is looked for within others.
const MIN_QUOTED_BYTES: usize = 6;

/// The shortest text that is looked for as a whole.
const MIN_WHOLE_BYTES: usize = 4;

/// How much is looked for of a longer text: where its beginning stands, so may the rest.
const MAX_COMPARED_BYTES: usize = 256;

/// As many bytes as become [`MAX_COMPARED_BYTES`] in base64.
const MAX_ENCODED_BYTES: usize = MAX_COMPARED_BYTES / 4 * 3;

/// Bits of the filter for each text.
const FILTER_BITS_PER_TEXT: usize = 16;

/// Texts that were removed.
#[derive(Debug, Default)]
pub(crate) struct RemovedTexts {
    /// The texts one after the other, as far as they are looked for.
    bytes: Vec<u8>,
    /// Where each is, in their order once they are sorted. None begins as another.
    within: Vec<(u32, u32)>,
    /// Those that are too short to be looked for within others.
    whole: Vec<(u32, u32)>,
    /// A bit is set for the beginning of each of `within`.
    filter: Vec<u64>,
}

// === impl RemovedTexts ===

impl RemovedTexts {
    /// Remembers every text in `node`, also what it is in base64, and what it is base64 of.
    pub(crate) fn add(&mut self, node: Node<'_>) {
        for text in node.descendants().filter(|node| node.kind() == Kind::String) {
            self.add_text(&text.as_str().unwrap_or_default());
        }
    }

    fn add_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        self.add_bytes(bytes);
        self.add_bytes(
            STANDARD
                .encode(bytes.get(..MAX_ENCODED_BYTES).unwrap_or(bytes))
                .as_bytes(),
        );
        if let Ok(decoded) = STANDARD.decode(bytes)
            && std::str::from_utf8(&decoded).is_ok()
        {
            self.add_bytes(&decoded);
        }
    }

    fn add_bytes(&mut self, text: &[u8]) {
        let text = text.get(..MAX_COMPARED_BYTES).unwrap_or(text);
        let of_length = match text.len() {
            MIN_QUOTED_BYTES.. => &mut self.within,
            MIN_WHOLE_BYTES.. => &mut self.whole,
            _ => return,
        };
        // What is beyond counting is beyond what a review may be.
        let end = self.bytes.len() + text.len();
        if let (Ok(from), Ok(to)) = (u32::try_from(self.bytes.len()), u32::try_from(end)) {
            of_length.push((from, to));
            self.bytes.extend_from_slice(text);
        }
    }

    /// Prepares for looking, after texts were added.
    pub(crate) fn sort(&mut self) {
        let Self {
            bytes,
            within,
            whole,
            filter,
        } = self;
        let text = |place: &(u32, u32)| at(bytes, *place);
        whole.sort_unstable_by(|one, other| text(one).cmp(text(other)));
        within.sort_unstable_by(|one, other| text(one).cmp(text(other)));
        // One that begins as another is found with that.
        within.dedup_by(|one, before| text(one).starts_with(text(before)));
        let bits = (FILTER_BITS_PER_TEXT * within.len()).next_power_of_two().max(64);
        filter.clear();
        filter.resize(bits / 64, 0);
        for place in within.iter() {
            let (word, bit) = bit_of(at(bytes, *place), bits);
            if let Some(word) = filter.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// Whether one of them is `text` or stands in it.
    pub(crate) fn is_within(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let order = |place: &(u32, u32)| at(&self.bytes, *place).cmp(text);
        if self.whole.binary_search_by(order).is_ok() {
            return true;
        }
        !self.within.is_empty()
            && (0..text.len()).any(|begin| self.begins(text.get(begin..).unwrap_or_default()))
    }

    /// Whether `text` begins as one of them.
    fn begins(&self, text: &[u8]) -> bool {
        if text.len() < MIN_QUOTED_BYTES {
            return false;
        }
        let (word, bit) = bit_of(text, self.filter.len() * 64);
        if self.filter.get(word).is_none_or(|word| word & bit == 0) {
            return false;
        }
        // None begins as another, so that it is the last of those that do not come after it.
        let after = self
            .within
            .partition_point(|place| at(&self.bytes, *place) <= text);
        let last = after.checked_sub(1).and_then(|last| self.within.get(last));
        last.is_some_and(|place| text.starts_with(at(&self.bytes, *place)))
    }
}

fn at(bytes: &[u8], (from, to): (u32, u32)) -> &[u8] {
    bytes.get(from as usize..to as usize).unwrap_or_default()
}

/// The word and the bit in it that stand for texts that begin as this one, of so many bits.
fn bit_of(text: &[u8], bits: usize) -> (usize, u64) {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut beginning = [0; 8];
    beginning
        .iter_mut()
        .zip(text.iter().take(MIN_QUOTED_BYTES))
        .for_each(|(byte, other)| *byte = *other);
    let hash = u64::from_le_bytes(beginning).wrapping_mul(ODD) >> 32;
    let place = usize::try_from(hash).unwrap_or_default() & (bits - 1);
    (place / 64, 1 << (place % 64))
}

/// One step of a path that names a field.
fn key(name: &str) -> PathStep {
    PathStep::Key(name.to_owned())
}

#[cfg(test)]
mod tests {
    use memchr::memmem;
    use proptest::prelude::*;

    use super::*;
    use portcullis_cel::json::Document;

    fn removed(texts: &[String]) -> RemovedTexts {
        let list = serde_json::to_string(texts).unwrap();
        let document = Document::parse(list).unwrap();
        let mut removed = RemovedTexts::default();
        removed.add(document.root());
        removed.sort();
        removed
    }

    /// Every text by itself.
    fn naive(texts: &[String], text: &str) -> bool {
        let forms = texts.iter().flat_map(|text| {
            let decoded = STANDARD.decode(text).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            [Some(text.clone()), decoded, Some(STANDARD.encode(text))]
        });
        forms.flatten().any(|form| {
            let is_within =
                form.len() >= MIN_QUOTED_BYTES && memmem::find(text.as_bytes(), form.as_bytes()).is_some();
            form.len() >= MIN_WHOLE_BYTES && form == text || is_within
        })
    }

    #[test]
    fn of_a_long_text_the_beginning_is_found() {
        let removed = removed(&["x".repeat(1_000)]);
        assert!(removed.is_within(&format!("<{}>", "x".repeat(256))));
        assert!(!removed.is_within(&format!("<{}>", "x".repeat(255))));
        assert!(removed.is_within(&STANDARD.encode("x".repeat(1_000))));
    }

    proptest! {
        #[test]
        fn texts_are_found_as_if_each_was_looked_for(
            texts in prop::collection::vec("[ab]{0,9}|[a-c]{3,12}|YWJj(YWJj)?", 0..8),
            text in "[ab]{0,20}|[a-c]{0,30}|x?(YWJj){0,3}y?",
        ) {
            prop_assert_eq!(removed(&texts).is_within(&text), naive(&texts, &text), "{:?} {}", texts, text);
        }
    }
}
