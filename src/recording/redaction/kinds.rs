//! Objects whose kind says that they hold something secret, wherever they stand: in lists,
//! templates and custom resources.

use memchr::memmem;

use super::path::{Pattern, RedactedPlace};
use super::{LAST_APPLIED, MANAGED_FIELDS};
use portcullis_cel::json::{Kind, Node};

/// Adds what is secret in all that is below `root`.
pub(super) fn find<'d>(root: Node<'d>, found: &mut Vec<RedactedPlace<'d>>) {
    if !may_have_any(root.raw()) {
        return;
    }
    let mut pending = vec![(root, Vec::new())];
    while let Some((node, at)) = pending.pop() {
        let mut go = |name: String, node: Node<'d>| {
            if matches!(node.kind(), Kind::Object | Kind::Array) {
                let mut at = at.clone();
                at.push(name);
                pending.push((node, at));
            }
        };
        match node.kind() {
            Kind::Object => {
                for pattern in of_kind(node) {
                    pattern.find(node, &at, found);
                }
                node.entries()
                    .for_each(|(name, value)| go(name.into_owned(), value));
            }
            Kind::Array => {
                for (index, item) in node.items().enumerate() {
                    go(index.to_string(), item);
                }
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
        }
    }
}

/// Whether the text may name one of the kinds. An escape may spell any letter.
fn may_have_any(text: &str) -> bool {
    let has = |part: &str| memmem::find(text.as_bytes(), part.as_bytes()).is_some();
    has("Secret") || has("TokenRe") || has("\\u")
}

/// What is secret in an object of the kind that it says it is.
fn of_kind(node: Node<'_>) -> Vec<Pattern> {
    let kind = node.get("kind").and_then(Node::as_str).unwrap_or_default();
    let last_applied = || Pattern::keys(["metadata", "annotations", LAST_APPLIED]);
    match kind.as_ref() {
        "Secret" => vec![
            Pattern::keys(["data"]),
            Pattern::keys(["stringData"]),
            last_applied(),
            Pattern::keys(["metadata", MANAGED_FIELDS]),
        ],
        // Items of a list need not say what they are.
        "SecretList" => vec![
            Pattern::keys(["items", "data"]),
            Pattern::keys(["items", "stringData"]),
            Pattern::keys(["items", "metadata", "annotations", LAST_APPLIED]),
            Pattern::keys(["items", "metadata", MANAGED_FIELDS]),
        ],
        "TokenReview" => vec![Pattern::keys(["spec", "token"]), last_applied()],
        "TokenRequest" => vec![Pattern::keys(["status", "token"]), last_applied()],
        _ => Vec::new(),
    }
}
