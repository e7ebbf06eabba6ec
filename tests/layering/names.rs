//! A type's name stands for one thing.

use std::collections::BTreeMap;

use crate::sources;

/// Names that stand for more than one thing, and why a reader expects it.
const EXPECTED: &[(&str, &str)] = &[
    ("Error", "a module's own, named with the module: `json::Error`"),
    // What a manifest says, and what the engine makes of it.
    ("AuthorizationPolicy", V1ALPHA1),
    ("Condition", V1ALPHA1),
    ("NonResourceRule", V1ALPHA1),
    ("Requirement", V1ALPHA1),
    ("ResourceRule", V1ALPHA1),
    ("Selectors", V1ALPHA1),
    ("Subject", V1ALPHA1),
    // A section of the configuration, and what runs by it.
    ("Authorization", SECTION),
    ("Breaker", SECTION),
    ("DecisionLog", SECTION),
    ("Server", SECTION),
    ("Upstreams", SECTION),
    (
        "FailurePolicy",
        "`failurePolicy` is Fail or Ignore for admission, Deny or NoOpinion for authorization",
    ),
    ("User", "a kubeconfig has users, and so has a request"),
    (
        "Call",
        "of a function in an expression, and of a webhook over the wire",
    ),
    // A tree of values: YAML's, JSON's, an expression's.
    ("Attempt", TREE),
    ("Document", TREE),
    ("Entries", TREE),
    ("Items", TREE),
    ("Node", TREE),
    ("Reader", TREE),
    ("Value", TREE),
];

/// Parsers, which have the words of their grammar to themselves: token, scanner, tree.
const PARSERS: [&str; 4] = [
    "src/cel/regex/",
    "src/cel/syntax/",
    "src/document/json.rs",
    "src/document/yaml/",
];

const V1ALPHA1: &str = "`manifest::v1alpha1` has the kind as written, `engine::authorization` as decided by";
const SECTION: &str = "`config` has the section, the module of its name what runs by it";
const TREE: &str = "`document` is YAML, `json` is JSON, `cel` is an expression: each has its own tree";

#[test]
fn a_name_stands_for_one_thing() {
    let found = repeated();
    let wrong: Vec<String> = found
        .iter()
        .filter(|(name, _)| !EXPECTED.iter().any(|(expected, _)| expected == name))
        .map(|(name, places)| format!("`{name}`: {}", places.join(", ")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_exception_is_still_one() {
    let found = repeated();
    let stale: Vec<_> = EXPECTED
        .iter()
        .filter(|(name, reason)| !found.contains_key(*name) || reason.is_empty())
        .collect();
    assert!(stale.is_empty(), "{stale:?}");
}

/// The types that are defined more than once, with where. Tests name as they like.
fn repeated() -> BTreeMap<String, Vec<String>> {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        if source.path.contains("/tests") || PARSERS.iter().any(|place| source.path.starts_with(place)) {
            continue;
        }
        for (line, text) in source.code() {
            if let Some(name) = definition(text) {
                let place = format!("{}:{line}", source.path);
                defined.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    defined.retain(|_, places| places.len() > 1);
    defined
}

/// The name of the type that a line begins to define. What is indented is an
/// associated type, or local to a function or a test.
fn definition(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
        return None;
    }
    let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_');
    Some(&rest[..end.unwrap_or(rest.len())])
}

#[test]
fn a_definition_is_found_however_it_is_written() {
    for (line, name) in [
        ("struct A;", Some("A")),
        ("pub enum B<'a> {", Some("B")),
        ("pub(crate) trait C: D {", Some("C")),
        ("pub(in crate::a) type E<T> = F<T>;", Some("E")),
        ("    type Error = G;", None),
        ("use a::H;", None),
        ("pub fn type_of() {}", None),
    ] {
        assert_eq!(definition(line), name, "{line}");
    }
}
