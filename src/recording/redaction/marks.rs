//! The values that are removed, as places in the index of a document: those that paths lead to, and
//! what is secret in objects whose kind says so, wherever they stand (lists, templates, custom
//! resources).

use std::sync::LazyLock;

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

/// One step of a path that names a field.
fn key(name: &str) -> PathStep {
    PathStep::Key(name.to_owned())
}
