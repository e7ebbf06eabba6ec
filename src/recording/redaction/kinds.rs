//! Objects whose kind says that they hold something secret, wherever they stand: in lists,
//! templates and custom resources.

use std::sync::LazyLock;

use memchr::memmem;

use super::marks::Marks;
use super::path::Pattern;
use super::{LAST_APPLIED, MANAGED_FIELDS};
use portcullis_cel::json::{Kind, Node};

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
pub(crate) fn find(root: Node<'_>, marks: &mut Marks) {
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
