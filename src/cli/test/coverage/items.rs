//! What there is to reach in a manifest, and where it stands.

use std::path::{Component, Path, PathBuf};

use portcullis_policy::document::{Document, Node, Value};
use portcullis_policy::field::FieldPath;

use super::{CoveredPlace, ItemName, ItemPart};

/// What an item of a list is, by its place there.
type PartOf = fn(usize, &Node) -> Option<ItemPart>;

/// What there is to reach in `object`, with its place.
pub(crate) fn of(object: &Document) -> Vec<CoveredPlace> {
    let kind = object.text("kind").unwrap_or_default().to_owned();
    let lists: &[(&[&str], PartOf)] = match kind.as_str() {
        "Role" | "ClusterRole" => &[(&["rules"], rule)],
        "AuthorizationPolicy" => &[
            (&["spec", "resourceRules"], rule),
            (&["spec", "nonResourceRules"], rule),
        ],
        "ValidatingAdmissionPolicy" => &[
            (&["spec", "matchConditions"], condition),
            (&["spec", "validations"], |index, _| {
                Some(ItemPart::Validation(index))
            }),
        ],
        "MutatingAdmissionPolicy" => &[
            (&["spec", "matchConditions"], condition),
            (&["spec", "mutations"], |index, _| Some(ItemPart::Mutation(index))),
        ],
        _ => return Vec::new(),
    };
    let metadata = |field| object.root().get("metadata")?.get(field)?.as_str();
    let is_namespaced = kind == "Role";
    let place = |path: FieldPath, part| CoveredPlace {
        file: object.file().map(|file| plain(file)).unwrap_or_default(),
        line: object.place(path).line,
        item: ItemName {
            kind: kind.clone(),
            namespace: metadata("namespace")
                .filter(|_| is_namespaced)
                .unwrap_or_default()
                .to_owned(),
            name: metadata("name").unwrap_or_default().to_owned(),
            part,
        },
    };
    let mut found = Vec::new();
    if kind.ends_with("Policy") {
        found.push(place(FieldPath::root(), ItemPart::Policy));
    }
    let mut before = 0;
    for (path, part_of) in lists {
        let at = path.iter().fold(FieldPath::root(), |path, name| path.field(name));
        let items = items(object, path);
        for (index, item) in items.iter().enumerate() {
            // Rules for paths are numbered after those for resources.
            let number = if *path == ["spec", "nonResourceRules"] {
                before + index
            } else {
                index
            };
            found.extend(part_of(number, item).map(|part| place(at.index(index), part)));
        }
        before = items.len();
    }
    found
}

fn items<'o>(object: &'o Document, path: &[&str]) -> &'o [Node] {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    match node.map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn rule(index: usize, _: &Node) -> Option<ItemPart> {
    Some(ItemPart::Rule(index))
}

fn condition(_: usize, item: &Node) -> Option<ItemPart> {
    let name = item.get("name")?.as_str()?;
    Some(ItemPart::MatchCondition(name.to_owned()))
}

/// Without `..` after a folder, so that a file that several suites name is one.
fn plain(file: &str) -> String {
    let mut path = PathBuf::new();
    for component in Path::new(file).components() {
        let is_folder = matches!(path.components().next_back(), Some(Component::Normal(_)));
        match component {
            Component::ParentDir if is_folder => {
                path.pop();
            }
            Component::CurDir => {}
            component => path.push(component),
        }
    }
    path.display().to_string()
}

/// The part that a step of a trace names.
pub(crate) fn part(written: &str) -> Option<ItemPart> {
    let (kind, which) = written.split_once(' ')?;
    match kind {
        "validation" => which.parse().ok().map(ItemPart::Validation),
        "mutation" => which.parse().ok().map(ItemPart::Mutation),
        "matchCondition" => Some(ItemPart::MatchCondition(which.to_owned())),
        _ => None,
    }
}

/// The field in which a part stands.
pub(crate) fn field(kind: &str, part: &ItemPart) -> String {
    match part {
        ItemPart::Policy => "no case applies it".to_owned(),
        ItemPart::Rule(index) if kind == "AuthorizationPolicy" => format!("rule {index}"),
        ItemPart::Rule(index) => format!("rules[{index}]"),
        ItemPart::Validation(index) => format!("spec.validations[{index}]"),
        ItemPart::Mutation(index) => format!("spec.mutations[{index}]"),
        ItemPart::MatchCondition(name) => format!("spec.matchConditions `{name}`"),
    }
}
