//! Changes of an object as the operations of a JSONPatch in CEL.

use serde_json::Value;

use super::conditions;
use super::scope::{NULL, Scope, TEXT, cel, listed};
use crate::conversion::Refusal;
use crate::kyverno::expression::{CelCondition, field, has_field, literal, optional_field};
use portcullis_policy::admission::GroupVersionKind;
use portcullis_policy::admission::apply::Schemas;

/// How deep patches may nest.
pub(crate) const MAX_DEPTH: usize = 20;

/// The most bytes of the expression for one rule.
pub(crate) const MAX_EDITS_BYTES: usize = 50_000;

/// A step of the path to a part of the object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PathStep {
    /// A field, or a key of a map.
    Key(String),
    /// A key of a map that is a CEL expression.
    ComputedKey(String),
    /// An index of a list: a number, `-`, or a CEL variable.
    Index(String),
}

/// A change.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    /// An operation. Its value is CEL, and absent for a removal.
    Operation(&'static str, Vec<PathStep>, Option<String>),
    /// The first changes if the condition holds, otherwise the others.
    Choice(CelCondition, Vec<Edit>, Vec<Edit>),
    /// Changes for each element of a list.
    Each(EachElement),
    /// Replaces the elements of a list by operations, which are a CEL expression.
    Elements(Vec<PathStep>, String),
}

/// Changes for each element of a list.
#[derive(Debug, Clone)]
pub(crate) struct EachElement {
    /// The list in CEL.
    pub(crate) list: String,
    /// The CEL variables for the index of an element and for the element.
    pub(crate) index: String,
    pub(crate) element: String,
    /// The condition on elements for which the changes are made.
    pub(crate) applies: CelCondition,
    /// Whether the elements are taken in reverse order.
    pub(crate) is_reversed: bool,
    pub(crate) edits: Vec<Edit>,
}

/// A part of the patched object.
#[derive(Debug, Clone)]
pub(crate) struct PatchPart {
    pub(crate) path: Vec<PathStep>,
    /// The selection of the part in CEL, and the same as an optional.
    selection: String,
    optional_selection: String,
    /// Whether the part may be missing in the object, because an earlier change creates it.
    may_be_created: bool,
    /// Whether the object is of a kind that Kubernetes serves, and so has no null values.
    is_typed: bool,
}

// === impl PatchPart ===

impl PatchPart {
    /// The object of the scope.
    pub(crate) fn object(scope: &Scope) -> Self {
        Self {
            path: Vec::new(),
            selection: scope.object.clone(),
            optional_selection: scope.object.clone(),
            may_be_created: false,
            is_typed: scope.is_typed,
        }
    }

    fn with(&self, step: PathStep, plain: String, optional: String) -> Self {
        let mut path = self.path.clone();
        path.push(step);
        Self {
            path,
            selection: plain,
            optional_selection: optional,
            ..*self
        }
    }

    /// The field or key `name`.
    pub(crate) fn child(&self, name: &str) -> Self {
        let step = PathStep::Key(name.to_owned());
        self.with(
            step,
            field(&self.selection, name),
            optional_field(&self.optional_selection, name),
        )
    }

    /// The key that is a CEL expression.
    pub(crate) fn computed(&self, key: &str) -> Self {
        let (plain, optional) = (
            format!("{}[{key}]", self.selection),
            format!("{}[?{key}]", self.optional_selection),
        );
        self.with(PathStep::ComputedKey(key.to_owned()), plain, optional)
    }

    /// The element at a constant index: a negative one counts from the end, and `-` is the position
    /// after the end.
    pub(crate) fn place(&self, place: &str) -> Self {
        let list = self.value();
        let at = match place.strip_prefix('-') {
            Some(back) => format!("size({list}) - {back}"),
            None => place.to_owned(),
        };
        let step = PathStep::Index(place.to_owned());
        self.with(step, format!("{list}[{at}]"), format!("{list}[?{at}]"))
    }

    /// The element at `index` of this list; `element` is its CEL.
    pub(crate) fn item(&self, index: &str, element: &str) -> Self {
        let step = PathStep::Index(index.to_owned());
        let mut item = self.with(step, element.to_owned(), element.to_owned());
        item.may_be_created = false;
        item
    }

    /// The same part, which an earlier change creates if it is missing.
    pub(crate) fn made(mut self) -> Self {
        self.may_be_created |= !self.is_always_there();
        self
    }

    /// The value in CEL, if the part is present.
    pub(crate) fn value(&self) -> String {
        match self.may_be_created {
            true => format!("{}.value()", self.optional_selection),
            false => self.selection.clone(),
        }
    }

    /// The condition that `child`, a field, key or element of this part, is present.
    pub(crate) fn has(&self, child: &Self) -> CelCondition {
        if child.is_always_there() {
            return CelCondition::constant(true);
        }
        let there = match (child.path.last(), self.may_be_created) {
            (Some(PathStep::Key(name)), false) => has_field(&self.selection, name),
            (Some(PathStep::ComputedKey(key)), false) => {
                CelCondition::relation(format!("{key} in {}", self.selection))
            }
            _ => CelCondition::primary(format!("{}.hasValue()", child.optional_selection)),
        };
        // Kyverno treats null as absent.
        match self.is_typed || self.is_metadata() {
            true => there,
            false => CelCondition::all([
                there,
                CelCondition::relation(format!("{}.orValue(null) != null", child.optional_selection)),
            ]),
        }
    }

    /// Whether every object has the part.
    fn is_always_there(&self) -> bool {
        let names: Option<Vec<&str>> = self.path.iter().map(PathStep::key).collect();
        match names.as_deref() {
            Some(["metadata"]) => true,
            Some(["spec", rest @ ..]) => {
                let template = rest.strip_prefix(&["jobTemplate", "spec"]).unwrap_or(rest);
                self.is_typed
                    && matches!(
                        template,
                        [] | ["jobTemplate"] | ["template"] | ["template", "spec"]
                    )
            }
            _ => false,
        }
    }

    fn is_metadata(&self) -> bool {
        self.path.first().and_then(PathStep::key) == Some("metadata")
    }

    /// The field names and keys on the path, without list indexes.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.path.iter().filter_map(PathStep::key).collect()
    }

    /// An operation on the part.
    pub(crate) fn operation(&self, operation: &'static str, value: Option<String>) -> Edit {
        Edit::Operation(operation, self.path.clone(), value)
    }
}

// === impl PathStep ===

impl PathStep {
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Key(name) => Some(name),
            Self::ComputedKey(_) | Self::Index(_) => None,
        }
    }

    /// Whether adding or removing at this step moves other elements.
    pub(crate) const fn shifts(&self) -> bool {
        matches!(self, Self::Index(_))
    }

    /// Whether the step is a CEL variable for the index of a list.
    pub(crate) fn is_named_index(&self) -> bool {
        matches!(self, Self::Index(index) if index.starts_with(|first: char| first.is_ascii_alphabetic()))
    }
}

/// The path as a JSON Pointer in CEL.
fn pointer(path: &[PathStep]) -> String {
    let (mut parts, mut text) = (Vec::new(), String::new());
    for step in path {
        text.push('/');
        let computed = match step {
            PathStep::Key(name) => {
                text.push_str(&name.replace('~', "~0").replace('/', "~1"));
                continue;
            }
            PathStep::Index(index) if !step.is_named_index() => {
                text.push_str(index);
                continue;
            }
            PathStep::Index(name) => format!("string({name})"),
            PathStep::ComputedKey(key) => format!("jsonpatch.escapeKey({key})"),
        };
        parts.push(literal(&text));
        parts.push(computed);
        text.clear();
    }
    if !text.is_empty() {
        parts.push(literal(&text));
    }
    parts.join(" + ")
}

// === impl Edit ===

impl Edit {
    /// Collects the paths of all operations.
    pub(crate) fn paths<'e>(edits: &'e [Self], found: &mut Vec<&'e [PathStep]>) {
        for edit in edits {
            match edit {
                Self::Operation(_, path, _) | Self::Elements(path, _) => found.push(path),
                Self::Choice(_, first, others) => {
                    Self::paths(first, found);
                    Self::paths(others, found);
                }
                Self::Each(each) => Self::paths(&each.edits, found),
            }
        }
    }

    /// The edits, if the condition holds.
    pub(crate) fn only_if(condition: CelCondition, edits: Vec<Self>) -> Vec<Self> {
        match edits.is_empty() || condition.is(false) {
            true => Vec::new(),
            false if condition.is(true) => edits,
            false => vec![Self::Choice(condition, edits, Vec::new())],
        }
    }

    /// The list of operations in CEL.
    ///
    /// # Errors
    ///
    /// The expression is too long.
    pub(crate) fn expression(edits: &[Self]) -> Result<String, Refusal> {
        let expression = Self::joined(edits);
        match expression.len() {
            0..=MAX_EDITS_BYTES => Ok(expression),
            _ => Err(Refusal::whole(
                "it becomes too long an expression: split the patch into several rules",
            )),
        }
    }

    fn joined(edits: &[Self]) -> String {
        let (mut parts, mut operations) = (Vec::new(), Vec::new());
        for edit in edits {
            match edit {
                Self::Operation(operation, path, value) => {
                    let value = value.as_ref().map(|value| format!(", value: {value}"));
                    operations.push(format!(
                        "JSONPatch{{op: '{operation}', path: {}{}}}",
                        pointer(path),
                        value.unwrap_or_default()
                    ));
                    continue;
                }
                _ if operations.is_empty() => {}
                _ => parts.push(format!("[{}]", std::mem::take(&mut operations).join(", "))),
            }
            parts.push(edit.part());
        }
        if !operations.is_empty() || parts.is_empty() {
            parts.push(format!("[{}]", operations.join(", ")));
        }
        parts.join(" + ")
    }

    fn part(&self) -> String {
        match self {
            Self::Operation(..) => Self::joined(std::slice::from_ref(self)),
            Self::Elements(_, operations) => operations.clone(),
            Self::Choice(condition, first, others) => {
                let [first, others] = [first, others].map(|edits| CelCondition::primary(Self::joined(edits)));
                format!("({})", condition.choice(&first, &others))
            }
            Self::Each(each) => {
                let applies = match each.applies.is(true) {
                    true => String::new(),
                    false => format!("{}, ", each.applies),
                };
                let reversed = if each.is_reversed { ".reverse()" } else { "" };
                format!(
                    "{}.transformList({}, {}, {applies}{}){reversed}.flatten()",
                    each.list,
                    each.index,
                    each.element,
                    Self::joined(&each.edits)
                )
            }
        }
    }
}

/// Reorders the elements of a list, and adds new ones.
///
/// An API server does not accept elements of a list of the object in the value of an operation. So
/// each element is copied to the end of the list, and then the original elements are removed.
pub(crate) struct NewElements<'p> {
    part: &'p PatchPart,
    index: String,
    element: String,
    parts: Vec<String>,
}

impl<'p> NewElements<'p> {
    /// `index` and `element` are CEL variables for the index of an element and for the element.
    pub(crate) fn of(part: &'p PatchPart, (index, element): (&str, &str)) -> Self {
        Self {
            part,
            index: index.to_owned(),
            element: element.to_owned(),
            parts: Vec::new(),
        }
    }

    fn at(&self, place: &str) -> String {
        let step = PathStep::Index(place.to_owned());
        pointer(&[self.part.path.as_slice(), &[step]].concat())
    }

    /// The operations, in CEL, that copy the elements for which the condition holds.
    fn copies(&self, condition: &CelCondition) -> String {
        let Self { index, element, .. } = self;
        let copy = format!(
            "JSONPatch{{op: 'copy', from: {}, path: {}}}",
            self.at(index),
            self.at("-")
        );
        format!(
            "{}.transformList({index}, {element}, {condition}, {copy})",
            self.part.value()
        )
    }

    /// Copies all elements for which the condition holds.
    pub(crate) fn all(mut self, condition: &CelCondition) -> Self {
        self.parts.push(self.copies(condition));
        self
    }

    /// Copies the first element for which the condition holds, or adds `value` if there is none.
    pub(crate) fn first_or(&mut self, condition: &CelCondition, value: &str) {
        let there = format!("{}.exists({}, {condition})", self.part.value(), self.element);
        let add = format!("JSONPatch{{op: 'add', path: {}, value: {value}}}", self.at("-"));
        self.parts
            .push(format!("({there} ? [{}[0]] : [{add}])", self.copies(condition)));
    }

    /// The change of the list.
    pub(crate) fn edit(mut self) -> Edit {
        let remove = format!("JSONPatch{{op: 'remove', path: {}}}", self.at("0"));
        self.parts
            .push(format!("{}.map({}, {remove})", self.part.value(), self.element));
        Edit::Elements(self.part.path.clone(), self.parts.join(" + "))
    }
}

/// Moves the matching elements to the front, and returns the change and the list of matching
/// elements. The names are those of the CEL variables for the index of an element and for the
/// element.
pub(crate) fn matching_first(
    part: &PatchPart,
    (index, element): (&str, &str),
    matches: &CelCondition,
) -> (Option<Edit>, String) {
    let list = part.value();
    if matches.is(true) {
        return (None, list);
    }
    let moved = NewElements::of(part, (index, element))
        .all(matches)
        .all(&matches.clone().not());
    let differs = CelCondition::primary(format!("{list}.exists({element}, {matches})"));
    let moved = Edit::Choice(differs, vec![moved.edit()], Vec::new());
    (Some(moved), format!("{list}.filter({element}, {matches})"))
}

// Values.

/// A value of a patch in CEL, including its variables. Values whose evaluation may fail are added
/// to `fallible`; an error of one is an error of the whole rule.
pub(crate) fn value(written: &Value, scope: &Scope, fallible: &mut Vec<String>) -> Result<String, Refusal> {
    match written {
        Value::String(_) => text(written, scope, fallible),
        Value::Array(items) => {
            let items = items.iter().enumerate().map(|(index, item)| {
                value(item, scope, fallible).map_err(|refusal| refusal.within_index(index))
            });
            let items: Vec<String> = items.collect::<Result<_, _>>()?;
            Ok(
                match written
                    .as_array()
                    .is_some_and(|items| items.iter().all(Value::is_string))
                {
                    true => format!("[{}]", items.join(", ")),
                    false => listed(&items),
                },
            )
        }
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, item)| {
                if key.contains("{{") {
                    return Err(Refusal::new(key, "a variable in a key has no counterpart here"));
                }
                let item = value(item, scope, fallible).map_err(|refusal| refusal.within(key))?;
                Ok(format!("{}: dyn({item})", literal(key)))
            });
            let entries: Vec<String> = entries.collect::<Result<_, _>>()?;
            Ok(format!("{{{}}}", entries.join(", ")))
        }
        scalar => Ok(cel(scalar)),
    }
}

/// A string with variables in CEL.
pub(crate) fn text(written: &Value, scope: &Scope, fallible: &mut Vec<String>) -> Result<String, Refusal> {
    let term = conditions::operand(written, scope)?;
    if !(term.is_only(TEXT) || term.is_never_null && term.is_only(TEXT | NULL)) {
        return Err(Refusal::whole(
            "it may not be there, or be no text: end its query with `|| ''`",
        ));
    }
    if term.may_fail() && !fallible.iter().any(|known| known == term.as_whole_query()) {
        fallible.push(term.as_whole_query().to_owned());
    }
    Ok(term.as_whole_query().to_owned())
}

/// The edits, which fail if the evaluation of one of these values fails.
pub(crate) fn fail_if_failing(fallible: &[String], edits: Vec<Edit>) -> Vec<Edit> {
    if fallible.is_empty() || edits.is_empty() {
        return edits;
    }
    let evaluated = format!("size({}) == {}", listed(fallible), fallible.len());
    vec![Edit::Choice(CelCondition::relation(evaluated), edits, Vec::new())]
}

// The fields of kinds.

fn kinds(scope: &Scope) -> impl Iterator<Item = GroupVersionKind<'_>> {
    scope
        .kinds
        .iter()
        .flatten()
        .map(|[group, version, kind]| GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        })
}

/// Refuses a field that objects of a kind lack: an API server drops it from Kyverno's patch, but
/// rejects the request with such a patch of an admission policy.
pub(crate) fn check_known(scope: &Scope, names: &[&str]) -> Result<(), Refusal> {
    for kind in kinds(scope) {
        if !matches!(Schemas::builtin().is_atomic(&kind, names), Ok(Some(_))) {
            return Err(Refusal::whole(format!(
                "a {} has no `{}`, and Kubernetes refuses an admission policy that adds it: leave it out, or write a \
                 rule for the kinds that have it",
                kind.kind,
                names.join(".")
            )));
        }
    }
    Ok(())
}

/// Like [`check_known`], for all fields in a value.
pub(crate) fn check_known_value(scope: &Scope, names: &[&str], value: &Value) -> Result<(), Refusal> {
    match value {
        Value::Object(entries) => entries.iter().try_for_each(|(key, value)| {
            let names: Vec<&str> = names.iter().copied().chain([key.as_str()]).collect();
            check_known(scope, &names)?;
            check_known_value(scope, &names, value)
        }),
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| check_known_value(scope, names, item)),
        _ => Ok(()),
    }
}

/// Whether a list or map can only be replaced as a whole, for all kinds.
pub(crate) fn is_atomic(scope: &Scope, names: &[&str]) -> bool {
    let mut kinds = kinds(scope);
    kinds.all(|kind| matches!(Schemas::builtin().is_atomic(&kind, names), Ok(Some(true))))
}
