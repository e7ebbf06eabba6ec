//! `mutate`: strategic merges, JSON patches and loops over them become one JSONPatch.
//!
//! Kyverno changes the object step by step, while the generated expression reads the original
//! object. So a step that reads what an earlier step changed is refused.

use serde_json::{Value, json};

use super::edits::{EachElement, Edit, PatchPart, PathStep, matching_first};
use super::fields::{self, Part};
use super::jmespath::{self, QueryNode};
use super::json_patch::{JsonPatch, PatchedElement};
use super::merge::{Merge, PatchLoop};
use super::scope::{NUMBERS, Scope, Term};
use super::{conditions, context};
use crate::conversion;
use crate::conversion::Refusal;
use crate::kyverno::expression::{CelCondition, FallibleCondition};

/// How deep loops may nest.
const MAX_LOOPS: usize = 3;

/// The fields of a loop.
const LOOP: [&str; 7] = [
    "list",
    "order",
    "context",
    "preconditions",
    "patchStrategicMerge",
    "patchesJson6902",
    "foreach",
];

/// The changes by `mutate`.
pub(crate) fn changes(mutate: &Value, scope: &Scope) -> Result<Vec<Edit>, Refusal> {
    fields::check(Part::Mutate, mutate)?;
    match &mutate["foreach"] {
        Value::Null => of_patch(mutate, scope),
        loops => of_loops(loops, scope, &[]),
    }
}

fn of_patch(written: &Value, scope: &Scope) -> Result<Vec<Edit>, Refusal> {
    if !written["patchStrategicMerge"].is_null() {
        let edits = Merge::new(scope, None).edits(&written["patchStrategicMerge"]);
        return edits.map_err(|refusal| refusal.within("patchStrategicMerge"));
    }
    let edits = JsonPatch::new(scope, &[]).edits(&written["patchesJson6902"]);
    edits.map_err(|refusal| refusal.within("patchesJson6902"))
}

fn of_loops(loops: &Value, scope: &Scope, outer: &[PatchedElement]) -> Result<Vec<Edit>, Refusal> {
    let mut all: Vec<Edit> = Vec::new();
    for (index, written) in loops.as_array().into_iter().flatten().enumerate() {
        let within = |refusal: Refusal| refusal.within_index(index).within("foreach");
        let edits = of_loop(written, scope, outer).map_err(within)?;
        check_apart(&all, &edits, written).map_err(within)?;
        all.extend(edits);
    }
    Ok(all)
}

/// The list of a loop, whose elements may be parts of the object.
struct PatchedList {
    term: Term,
    /// The elements of the list in CEL.
    elements: String,
    /// The path of the list, and the part of the object.
    part: Option<(Vec<PathStep>, PatchPart)>,
}

fn of_loop(written: &Value, scope: &Scope, outer: &[PatchedElement]) -> Result<Vec<Edit>, Refusal> {
    conversion::unknown(written, &LOOP)?;
    if outer.len() >= MAX_LOOPS {
        return Err(Refusal::whole(format!("loops nest at most {MAX_LOOPS} deep")));
    }
    let list = list(written, scope, outer).map_err(|refusal| refusal.within("list"))?;
    let (index, element) = (scope.fresh("i"), scope.fresh("e"));
    let mut inner = with_element(scope, (&index, list.term.element(&element)), outer.len());
    context::add_variables(&written["context"], &mut inner)?;
    let applies = conditions::condition_of(&written["preconditions"], &inner)
        .map_err(|refusal| refusal.within("preconditions"))?;
    let condition = match scope.is_typed {
        true => applies.condition,
        false => CelCondition::all([
            CelCondition::relation(format!("{element} != null")),
            applies.condition,
        ]),
    };
    let is_merge = !written["patchStrategicMerge"].is_null();
    let is_reversed = match written["order"].as_str() {
        None => is_merge,
        Some("Descending") => true,
        Some("Ascending") if !is_merge => false,
        Some(_) => {
            return conversion::of(
                "order",
                "merged elements come first, so that this order turns them round",
            );
        }
    };
    let is_counted = written["preconditions"].to_string().contains("elementIndex");
    let runs = CelCondition::primary(format!("{}.exists({element}, {condition})", list.elements));
    let runs = if condition.is(true) {
        CelCondition::relation(format!("size({}) > 0", list.elements))
    } else {
        runs
    };
    let mut each = EachElement {
        list: list.elements.clone(),
        index: index.clone(),
        element: element.clone(),
        applies: condition,
        is_reversed,
        edits: Vec::new(),
    };
    let mut before = Vec::new();
    if is_merge {
        let looped = PatchLoop {
            list: list
                .part
                .as_ref()
                .map(|(path, _)| names(path))
                .unwrap_or_default(),
            index,
            element: element.clone(),
            runs,
        };
        let mut merge = Merge::new(&inner, Some(looped));
        each.edits = merge
            .edits(&written["patchStrategicMerge"])
            .map_err(|refusal| refusal.within("patchStrategicMerge"))?;
        before = merge.before;
        if let Some((_, part)) = list.part.filter(|_| merge.moves) {
            if !each.applies.is(true) && written.to_string().contains("elementIndex") {
                return Err(Refusal::whole(
                    "the place of an element that moves has no counterpart",
                ));
            }
            let (moved, matching) = matching_first(&part, (&each.index, &element), &each.applies);
            each.list = matching;
            each.applies = CelCondition::constant(true);
            before.extend(moved);
        }
    } else {
        let own = PatchedElement {
            list: list.part.map(|(path, _)| path).unwrap_or_default(),
            index,
            element,
            is_reversed,
        };
        let loops: Vec<PatchedElement> = outer.iter().cloned().chain([own]).collect();
        each.edits = match &written["foreach"] {
            Value::Null => {
                let mut patch = JsonPatch::new(&inner, &loops);
                let edits = patch.edits(&written["patchesJson6902"]);
                let edits = edits.map_err(|refusal| refusal.within("patchesJson6902"))?;
                before = Edit::only_if(runs, patch.before);
                edits
            }
            inner_loops => of_loops(inner_loops, &inner, &loops)?,
        };
    }
    scope.made.set(inner.made.get());
    if is_counted && !before.is_empty() {
        return conversion::of(
            "preconditions",
            "what is changed once for all elements cannot depend on `elementIndex`",
        );
    }
    if !outer.is_empty() && !before.is_empty() {
        return Err(Refusal::whole(
            "an inner loop that changes more than its elements has no counterpart",
        ));
    }
    if !each.edits.is_empty() {
        before.push(Edit::Each(each));
    }
    Ok(before)
}

/// The scope with the names that a loop defines.
fn with_element(scope: &Scope, (index, element): (&str, Term), nesting: usize) -> Scope {
    let mut inner = scope.clone();
    let mut place = Term::new(index, NUMBERS);
    place.is_plain = true;
    for name in ["element".to_owned(), format!("element{nesting}")] {
        inner.names.push((name, Ok(element.clone())));
    }
    for name in ["elementIndex".to_owned(), format!("elementIndex{nesting}")] {
        inner.names.push((name, Ok(place.clone())));
    }
    inner
}

fn list(written: &Value, scope: &Scope, outer: &[PatchedElement]) -> Result<PatchedList, Refusal> {
    let query = written["list"].as_str().unwrap_or_default();
    let node = jmespath::parse(query).map_err(Refusal::whole)?;
    let chosen = one_of_lists(&node, written);
    let node = chosen.as_ref().unwrap_or(&node);
    let term = scope.term(node)?;
    let elements = match (&term.or_error, &chosen) {
        // A missing list is an error.
        (Some(strict), None) => strict.clone(),
        _ => term.elements(scope),
    };
    let part = part_of(node, scope, outer);
    Ok(PatchedList { term, elements, part })
}

/// Of several lists (`[a, b][]`), the one to which the patch applies: the patch selects its
/// elements by `(name)`, which elements of the other lists do not match.
fn one_of_lists(node: &QueryNode, written: &Value) -> Option<QueryNode> {
    let QueryNode::Projection(flattened, current) = node else {
        return None;
    };
    let (QueryNode::Flatten(lists), QueryNode::Current) = (&**flattened, &**current) else {
        return None;
    };
    let QueryNode::Sub(base, lists) = &**lists else {
        return None;
    };
    let QueryNode::List(lists) = &**lists else {
        return None;
    };
    let path = field_path(base)?;
    let patch = path
        .iter()
        .skip(2)
        .try_fold(&written["patchStrategicMerge"], |patch, name| {
            match patch.as_object() {
                Some(entries) if entries.len() == 1 => entries.get(*name),
                _ => None,
            }
        })?;
    let (key, items) = patch
        .as_object()
        .filter(|entries| entries.len() == 1)?
        .iter()
        .next()?;
    let is_named = items[0]["(name)"].is_string() && items.as_array().is_some_and(|items| items.len() == 1);
    let is_plain = written["preconditions"].is_null() && written["context"].is_null();
    let found = lists.iter().find(|list| **list == QueryNode::Field(key.clone()));
    let found = found.filter(|_| is_named && is_plain && path.starts_with(&["request", "object"]))?;
    let list = QueryNode::Sub(base.clone(), Box::new(found.clone()));
    Some(QueryNode::Or(
        Box::new(list),
        Box::new(QueryNode::Literal(json!([]))),
    ))
}

/// The names in `a.b.c`.
fn field_path(node: &QueryNode) -> Option<Vec<&str>> {
    match node {
        QueryNode::Field(name) => Some(vec![name]),
        QueryNode::Sub(left, right) => {
            let mut path = field_path(left)?;
            path.extend(field_path(right)?);
            Some(path)
        }
        _ => None,
    }
}

/// The part of the object that a list is: `request.object.a.b`, or `element.c` of the outer loop,
/// also with `[]` and with a default of an empty list.
fn part_of(node: &QueryNode, scope: &Scope, outer: &[PatchedElement]) -> Option<(Vec<PathStep>, PatchPart)> {
    let path = match node {
        QueryNode::Or(list, otherwise) if **otherwise == QueryNode::Literal(json!([])) => {
            return part_of(list, scope, outer);
        }
        QueryNode::Projection(flattened, current) if **current == QueryNode::Current => match &**flattened {
            QueryNode::Flatten(list) if scope.is_typed => return part_of(list, scope, outer),
            _ => return None,
        },
        node => field_path(node)?,
    };
    let (part, names) = match (path.as_slice(), outer.last()) {
        (["request", "object", names @ ..], None) => (PatchPart::object(scope), names),
        (["element", names @ ..], Some(outer)) => {
            let mut list = outer.list.iter().filter_map(PathStep::key);
            let of_list = list.try_fold(PatchPart::object(scope), |part, name| Some(part.child(name)))?;
            (of_list.item(&outer.index, &outer.element), names)
        }
        _ => return None,
    };
    let part = names.iter().fold(part, |part, name| part.child(name));
    Some((part.path.clone(), part))
}

fn names(path: &[PathStep]) -> Vec<String> {
    path.iter().filter_map(PathStep::key).map(str::to_owned).collect()
}

/// Refuses loops that change the same part as an earlier one, or read what an earlier one changed.
fn check_apart(before: &[Edit], edits: &[Edit], written: &Value) -> Result<(), Refusal> {
    let fixed = |edits: &[Edit]| -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        Edit::paths(edits, &mut paths);
        let fixed = paths
            .into_iter()
            .map(|path| path.iter().map_while(PathStep::key).map(str::to_owned).collect());
        fixed.collect()
    };
    let overlaps = |one: &[String], other: &[String]| one.starts_with(other) || other.starts_with(one);
    let own = fixed(edits);
    let read = read_paths(&written.to_string());
    for changed in fixed(before) {
        if own.iter().chain(&read).any(|path| overlaps(path, &changed)) {
            return Err(Refusal::whole(format!(
                "a loop before it changes `{}`, which Kyverno looks at again: write a rule for each",
                changed.join(".")
            )));
        }
    }
    Ok(())
}

/// The paths below `request.object` that occur in a text.
fn read_paths(text: &str) -> Vec<Vec<String>> {
    let rests = text.split("request.object").skip(1);
    let names = rests.map(|rest| {
        let end = rest.find(|next: char| next != '.' && next != '_' && !next.is_ascii_alphanumeric());
        let path = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        path.split('.')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    });
    names.collect()
}

/// Whether the rule may read what it changes, because a word in its variables is a step of a
/// changed path. If it were invoked again, it would read its own changes. Preconditions that cannot
/// fail do not matter: they only find that there is nothing left to do.
fn reads_changes(rule: &Value, paths: &[&[PathStep]], may_fail: bool) -> bool {
    let mut mutate = rule["mutate"].to_string();
    if may_fail {
        mutate.push_str(&rule["preconditions"].to_string());
    }
    let context = rule["context"].to_string();
    let variables = mutate
        .split("{{")
        .skip(1)
        .map(|rest| rest.split("}}").next().unwrap_or(rest));
    let mut words = variables
        .chain([context.as_str()])
        .flat_map(|text| text.split(|part: char| !part.is_ascii_alphanumeric()));
    let places = ["spec", "metadata", "template", "jobTemplate"];
    words.any(|word| {
        let mut keys = paths
            .iter()
            .flat_map(|path| path.iter().filter_map(PathStep::key));
        !places.contains(&word) && keys.any(|key| key == word)
    })
}

/// The spec of a MutatingAdmissionPolicy that makes the changes if `applies` holds.
pub(crate) fn spec(
    rule: &Value,
    edits: Vec<Edit>,
    applies: FallibleCondition,
    failure_policy: &str,
) -> Result<Value, Refusal> {
    let mut paths = Vec::new();
    Edit::paths(&edits, &mut paths);
    // Appending would be repeated by another invocation.
    let is_repeatable = !reads_changes(rule, &paths, applies.may_fail)
        && !paths.iter().any(|path| path.last().is_some_and(PathStep::shifts));
    let expression = Edit::expression(&Edit::only_if(applies.condition, edits))?;
    Ok(json!({
        "failurePolicy": failure_policy,
        "reinvocationPolicy": if is_repeatable { "IfNeeded" } else { "Never" },
        "mutations": [{
            "patchType": "JSONPatch",
            "jsonPatch": {"expression": expression},
        }],
    }))
}
