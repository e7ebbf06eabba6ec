//! `patchStrategicMerge`: the result of Kyverno's preprocessing and Kustomize's merge
//! (`pkg/engine/mutate/patch` of Kyverno, `yaml/merge2` of Kustomize).
//!
//! In lists with a merge key, the elements of the patch come first, in its order, then the others.
//! All other lists are replaced. If a condition does not hold, the element of the list or the whole
//! object remains unchanged.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::edits::{self, EachElement, Edit, MAX_DEPTH, NewElements, PatchPart, PathStep, matching_first};
use super::pattern::{Anchor, anchor, has_anchor, pruned};
use super::scalar;
use super::scope::Scope;
use crate::conversion::Refusal;
use crate::kyverno::expression::{CelCondition, field, literal};

/// Fields that are maps, whose keys are data.
const MAPS: [&str; 11] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "data",
    "stringData",
    "binaryData",
    "limits",
    "requests",
    "hard",
    "parameters",
];

/// Lists whose elements are merged by a key field.
const KEYED: [(&str, &str); 9] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("imagePullSecrets", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("hostAliases", "ip"),
];

/// The loop around a patch.
pub(crate) struct PatchLoop {
    /// The path of the list, and the CEL variables for the index of an element and for the element.
    pub(crate) list: Vec<String>,
    pub(crate) index: String,
    pub(crate) element: String,
    /// The condition that the loop runs for at least one element.
    pub(crate) runs: CelCondition,
}

/// A patch that is being converted.
pub(crate) struct Merge<'s> {
    pub(crate) scope: &'s Scope,
    pub(crate) looped: Option<PatchLoop>,
    /// The values of variables whose evaluation may fail.
    pub(crate) fallible: Vec<String>,
    /// Changes that are made once, before the loop.
    pub(crate) before: Vec<Edit>,
    /// Whether elements of the loop's list are merged, and so move to the front.
    pub(crate) moves: bool,
}

// === impl Merge ===

impl<'s> Merge<'s> {
    pub(crate) const fn new(scope: &'s Scope, looped: Option<PatchLoop>) -> Self {
        Self {
            scope,
            looped,
            fallible: Vec::new(),
            before: Vec::new(),
            moves: false,
        }
    }

    /// The changes of the object by `patch`.
    pub(crate) fn edits(&mut self, patch: &Value) -> Result<Vec<Edit>, Refusal> {
        let Value::Object(entries) = patch else {
            return Err(Refusal::whole("it is no map"));
        };
        let object = PatchPart::object(self.scope);
        let applies = self.conditions(entries, &object)?;
        let edits = self.of_map(entries, &object)?;
        Ok(edits::fail_if_failing(
            &self.fallible,
            Edit::only_if(applies, edits),
        ))
    }

    // Conditions.

    /// The condition that the anchors of a map and of the maps in it hold for `at`, and the global
    /// anchors of lists in it.
    fn conditions(&self, entries: &Map<String, Value>, at: &PatchPart) -> Result<CelCondition, Refusal> {
        let mut all = Vec::new();
        for (key, value) in entries {
            let (anchor, name) = anchor(key);
            let within = |refusal: Refusal| refusal.within(key);
            let child = at.child(name);
            let inner = match (anchor, value) {
                (Anchor::Condition | Anchor::Global, _) => self.condition(value, &child).map_err(within)?,
                (Anchor::None, Value::Object(entries)) => self.conditions(entries, &child).map_err(within)?,
                (Anchor::None, Value::Array(items)) => self.of_items(items, &child).map_err(within)?,
                _ => continue,
            };
            let is_anchor = matches!(anchor, Anchor::Condition | Anchor::Global);
            if is_anchor || !inner.is(true) {
                all.push(at.has(&child));
            }
            all.push(inner);
        }
        Ok(CelCondition::all(all))
    }

    /// The condition of an anchor on a present value.
    fn condition(&self, pattern: &Value, at: &PatchPart) -> Result<CelCondition, Refusal> {
        match pattern {
            Value::Object(entries) if entries.is_empty() => Ok(CelCondition::constant(true)),
            Value::String(text) if text == "*" && self.scope.is_typed => Ok(CelCondition::constant(true)),
            Value::String(text) if self.scope.is_typed => {
                if text.contains("{{") {
                    return Err(Refusal::whole(
                        "a variable in a condition of a patch has no counterpart, but `{{ element.name }}` of the list \
                         itself: ask for it in `preconditions`",
                    ));
                }
                scalar::condition(pattern, &at.value())
            }
            _ => Err(Refusal::whole(
                "the condition of a patch must be a text, for kinds that Kubernetes serves itself: ask for it in \
                 `preconditions`",
            )),
        }
    }

    /// The condition that an element meets the global anchors of a list's items.
    fn of_items(&self, items: &[Value], at: &PatchPart) -> Result<CelCondition, Refusal> {
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let Some(entries) = item.as_object().filter(|_| has_anchor(item, &[Anchor::Global])) else {
                continue;
            };
            let within = |refusal: Refusal| refusal.within_index(index);
            if has_anchor(item, &[Anchor::Condition, Anchor::Addition]) {
                return Err(within(Refusal::whole(
                    "conditions of the element beside those of the object have no counterpart: write two rules",
                )));
            }
            let element = self.scope.fresh("e");
            let of_element = self
                .conditions(entries, &at.item("-", &element))
                .map_err(within)?;
            let list = at.value();
            all.push(CelCondition::any([
                CelCondition::relation(format!("size({list}) == 0")),
                CelCondition::primary(format!("{list}.exists({element}, {of_element})")),
            ]));
        }
        Ok(CelCondition::all(all))
    }

    // Changes.

    fn of_map(&mut self, entries: &Map<String, Value>, at: &PatchPart) -> Result<Vec<Edit>, Refusal> {
        if at.path.len() > MAX_DEPTH {
            return Err(Refusal::whole(format!("a patch nests at most {MAX_DEPTH} deep")));
        }
        let (mut edits, mut names) = (Vec::new(), BTreeSet::new());
        for (key, value) in entries {
            if !names.insert(anchor(key).1) {
                let refusal =
                    Refusal::whole("Kyverno fails where a patch names a field with and without an anchor");
                return Err(refusal.within(key));
            }
            edits.extend(
                self.of_entry(key, value, at)
                    .map_err(|refusal| refusal.within(key))?,
            );
        }
        Ok(edits)
    }

    fn of_entry(&mut self, key: &str, value: &Value, at: &PatchPart) -> Result<Vec<Edit>, Refusal> {
        let (anchor, name) = anchor(key);
        if name.starts_with('$') {
            return Err(Refusal::whole(
                "directives have no counterpart: write `patchesJson6902`",
            ));
        }
        let part = match name.contains("{{") {
            true => self.computed(anchor, name, at)?,
            false => {
                let part = at.child(name);
                edits::check_known(self.scope, &part.names())?;
                part
            }
        };
        match anchor {
            Anchor::None => self.of_value(value, at, part),
            Anchor::Addition => {
                if self.is_shared(&part) {
                    return Err(Refusal::whole(
                        "what one element adds the next one finds: add it in a rule of its own",
                    ));
                }
                if has_anchor(value, &[Anchor::Condition, Anchor::Global]) {
                    return Err(Refusal::whole("conditions in what is added have no counterpart"));
                }
                let made = self.whole(value, &part)?;
                let add = made.map(|made| part.operation("add", Some(made)));
                Ok(Edit::only_if(at.has(&part).not(), add.into_iter().collect()))
            }
            Anchor::Condition | Anchor::Global => Ok(Vec::new()),
            _ => Err(Refusal::whole("this anchor means nothing in a patch")),
        }
    }

    fn computed(&mut self, anchor: Anchor, name: &str, at: &PatchPart) -> Result<PatchPart, Refusal> {
        let is_map = at.names().last().is_some_and(|last| MAPS.contains(last));
        if anchor != Anchor::None || !is_map {
            return Err(Refusal::whole(
                "a variable in a key is converted in maps of texts alone, without an anchor",
            ));
        }
        let key = edits::text(&name.into(), self.scope, &mut self.fallible)?;
        Ok(at.computed(&key))
    }

    /// Whether several elements of the loop change the part.
    fn is_shared(&self, part: &PatchPart) -> bool {
        self.looped.is_some() && !part.path.iter().any(PathStep::is_named_index)
    }

    fn of_value(&mut self, value: &Value, at: &PatchPart, part: PatchPart) -> Result<Vec<Edit>, Refusal> {
        let there = at.has(&part);
        match value {
            Value::Object(entries) if self.is_shared(&part) && !there.is(true) => {
                if pruned(value).is_none() {
                    return Ok(Vec::new());
                }
                let make = Edit::only_if(there.not(), vec![part.operation("add", Some("{}".to_owned()))]);
                let runs = self.looped.as_ref().map(|looped| looped.runs.clone());
                let make = Edit::only_if(runs.unwrap_or_else(|| CelCondition::constant(true)), make);
                self.before.extend(make);
                self.of_map(entries, &part.made())
            }
            Value::Object(entries) => {
                let edits = self.of_map(entries, &part)?;
                self.or_whole(there, edits, value, &part)
            }
            Value::Array(items) => self.of_list(items, value, (there, part)),
            Value::Null => Err(Refusal::whole(
                "null removes what is there: write `patchesJson6902`",
            )),
            scalar => {
                let made = edits::value(scalar, self.scope, &mut self.fallible)?;
                Ok(vec![part.operation("add", Some(made))])
            }
        }
    }

    /// The edits if the part is present, otherwise the whole value as written.
    fn or_whole(
        &mut self,
        there: CelCondition,
        edits: Vec<Edit>,
        value: &Value,
        part: &PatchPart,
    ) -> Result<Vec<Edit>, Refusal> {
        if there.is(true) {
            return Ok(edits);
        }
        let whole = self.whole(value, part)?;
        let add: Vec<Edit> = whole
            .map(|made| part.operation("add", Some(made)))
            .into_iter()
            .collect();
        Ok(match (edits.is_empty(), add.is_empty()) {
            (true, _) => Edit::only_if(there.not(), add),
            (_, true) => Edit::only_if(there, edits),
            _ => vec![Edit::Choice(there, edits, add)],
        })
    }

    /// The value to create if there is none yet; `None` if the patch only contains conditions.
    fn whole(&mut self, value: &Value, part: &PatchPart) -> Result<Option<String>, Refusal> {
        let Some(made) = pruned(value) else {
            return Ok(None);
        };
        if has_null(&made) {
            return Err(Refusal::whole(
                "null removes what is there: write `patchesJson6902`",
            ));
        }
        edits::check_known_value(self.scope, &part.names(), &made)?;
        edits::value(&made, self.scope, &mut self.fallible).map(Some)
    }

    fn of_list(
        &mut self,
        items: &[Value],
        value: &Value,
        (there, part): (CelCondition, PatchPart),
    ) -> Result<Vec<Edit>, Refusal> {
        let names = part.names();
        let list = names.last().copied().unwrap_or_default();
        let key = KEYED.iter().find(|(name, _)| *name == list).map(|(_, key)| *key);
        match key.filter(|_| self.scope.is_typed) {
            None if has_anchor(value, &[Anchor::Condition, Anchor::Global, Anchor::Addition]) => {
                Err(Refusal::whole(
                    "conditions in a list that has no merge key have no counterpart: write `foreach`",
                ))
            }
            None if !edits::is_atomic(self.scope, &names) => Err(Refusal::whole(
                "how Kyverno merges this list has no counterpart: write `patchesJson6902`",
            )),
            None => {
                let made = self.whole(value, &part)?;
                let made = made.map(|made| part.operation("add", Some(made)));
                Ok(made.into_iter().collect())
            }
            Some(_) if items.is_empty() => Err(Refusal::whole("an empty list merges nothing: leave it out")),
            Some(key) => {
                let items: Vec<(usize, &Value)> = items
                    .iter()
                    .enumerate()
                    .filter(|(_, item)| !has_anchor(item, &[Anchor::Global]))
                    .collect();
                self.of_keyed(&items, key, (there, part))
            }
        }
    }

    fn of_keyed(
        &mut self,
        items: &[(usize, &Value)],
        key: &str,
        (there, part): (CelCondition, PatchPart),
    ) -> Result<Vec<Edit>, Refusal> {
        let mut maps = Vec::new();
        for (index, item) in items {
            let entries = item.as_object().filter(|entries| !entries.is_empty());
            let not_map = || Refusal::whole("an element of it is no map").within_index(*index);
            maps.push((*index, entries.ok_or_else(not_map)?));
        }
        if let [(index, entries)] = maps.as_slice() {
            let within = |refusal: Refusal| refusal.within_index(*index);
            if self.is_element(entries, key, &part) {
                return self.of_element(entries, key, &part).map_err(within);
            }
            if entries.keys().any(|name| anchor(name).0 == Anchor::Condition) {
                let edits = self.of_matching(entries, key, &part).map_err(within)?;
                return Ok(Edit::only_if(there, edits));
            }
        }
        if self.is_shared(&part) {
            return Err(Refusal::whole(
                "a list that does not belong to the element changes with each: write a rule of its own for it",
            ));
        }
        self.of_written(&maps, key, (there, part))
    }

    /// Whether the item patches the element of the loop.
    fn is_element(&self, entries: &Map<String, Value>, key: &str, part: &PatchPart) -> bool {
        let Some(looped) = self.looped.as_ref().filter(|looped| looped.list == part.names()) else {
            return false;
        };
        let asked = entries.iter().find(|(name, _)| anchor(name).1 == key);
        let variable = asked.and_then(|(_, value)| value.as_str()).and_then(|text| {
            let query = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
            Some(query.trim().to_owned())
        });
        !looped.index.is_empty() && variable.is_some_and(|query| query == format!("element.{key}"))
    }

    fn of_element(
        &mut self,
        entries: &Map<String, Value>,
        key: &str,
        part: &PatchPart,
    ) -> Result<Vec<Edit>, Refusal> {
        let Some(looped) = &self.looped else {
            return Ok(Vec::new());
        };
        let item = part.item(&looped.index, &looped.element);
        let rest = without_key(entries, key, &[Anchor::None, Anchor::Condition])?;
        if has_anchor(&Value::Object(rest.clone()), &[Anchor::Condition]) {
            return Err(Refusal::whole(
                "more conditions of the element have no counterpart: ask for them in `preconditions`",
            ));
        }
        if !entries.contains_key(key) {
            refuse_additions(&rest)?;
        } else if has_anchor(&Value::Object(rest.clone()), &[Anchor::Addition]) {
            return Err(Refusal::whole(format!(
                "Kyverno applies what has `+()` to every element: write `({key})`"
            )));
        }
        if adds_only(&rest) {
            return Err(Refusal::whole(
                "Kyverno leaves an element to which `+()` adds nothing where it is, and puts the others first: write \
                 `patchesJson6902`",
            ));
        }
        self.moves = true;
        self.of_map(&rest, &item)
    }

    /// An item that applies to every element that meets its conditions. Those elements move to the
    /// front.
    fn of_matching(
        &mut self,
        entries: &Map<String, Value>,
        key: &str,
        part: &PatchPart,
    ) -> Result<Vec<Edit>, Refusal> {
        let rest: Map<String, Value> = entries
            .iter()
            .filter(|(name, _)| anchor(name).0 != Anchor::Condition)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if key != "name" || self.looped.is_some() || rest.contains_key(key) {
            return Err(Refusal::whole(
                "Kyverno merges elements with conditions by their `name`: write `foreach` over the list",
            ));
        }
        if has_anchor(
            &Value::Object(rest.clone()),
            &[Anchor::Condition, Anchor::Addition],
        ) {
            return Err(Refusal::whole(
                "Kyverno decides about `+()` for all elements by the first: write `foreach` over the list, with \
                 `(name): \"{{ element.name }}\"`",
            ));
        }
        let (index, element) = (self.scope.fresh("i"), self.scope.fresh("e"));
        let item = part.item(&index, &element);
        let mut all = Vec::new();
        for (name, pattern) in entries
            .iter()
            .filter(|(name, _)| anchor(name).0 == Anchor::Condition)
        {
            let name = anchor(name).1;
            let child = item.child(name);
            let is_there = if name == key {
                CelCondition::constant(true)
            } else {
                item.has(&child)
            };
            let is_any = name == key && (pattern == "*" || pattern == "?*");
            let condition = match is_any {
                true => CelCondition::constant(true),
                false => self.condition(pattern, &child)?,
            };
            all.extend([is_there, condition]);
        }
        let matches = CelCondition::all(all);
        let edits = self.of_map(&rest, &item)?;
        if edits.is_empty() {
            return Ok(edits);
        }
        let (move_first, list) = matching_first(part, (&index, &element), &matches);
        let each = EachElement {
            list,
            index,
            element,
            applies: CelCondition::constant(true),
            is_reversed: false,
            edits,
        };
        Ok(move_first.into_iter().chain([Edit::Each(each)]).collect())
    }

    /// Items with constant keys. They come first, either as existing elements or as new ones.
    fn of_written(
        &mut self,
        items: &[(usize, &Map<String, Value>)],
        key: &str,
        (there, part): (CelCondition, PatchPart),
    ) -> Result<Vec<Edit>, Refusal> {
        let (list, element) = (part.value(), self.scope.fresh("e"));
        let (mut keys, mut edits, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let mut merged = NewElements::of(&part, (&self.scope.fresh("i"), &element));
        for (place, (index, entries)) in items.iter().enumerate() {
            let within = |refusal: Refusal| refusal.within_index(*index);
            let value = Value::Object((*entries).clone());
            if has_anchor(&value, &[Anchor::Condition, Anchor::Addition]) {
                return Err(within(Refusal::whole(
                    "conditions in one of several elements have no counterpart: write a rule for each",
                )));
            }
            let own = entries.get(key).and_then(Value::as_str).unwrap_or_default();
            if own.is_empty() || own.contains("{{") || keys.contains(&literal(own)) {
                return Err(within(Refusal::whole(format!(
                    "each element needs a `{key}` of its own, which is no variable"
                ))));
            }
            let is_own = format!("{} == {}", field(&element, key), literal(own));
            let place_part = part.item("-", &element);
            let Some(made) = self.whole(&value, &place_part).map_err(within)? else {
                return Err(within(Refusal::whole("an element of it is empty")));
            };
            merged.first_or(&CelCondition::relation(is_own.clone()), &made);
            whole.push(made);
            keys.push(literal(own));
            let item = part.item(&place.to_string(), &element);
            let rest = without_key(entries, key, &[Anchor::None])?;
            let changes = self.of_map(&rest, &item).map_err(within)?;
            if !changes.is_empty() {
                edits.push(Edit::Each(EachElement {
                    list: format!("{list}.filter({element}, {is_own})"),
                    index: self.scope.fresh("i"),
                    element: element.clone(),
                    applies: CelCondition::constant(true),
                    is_reversed: false,
                    edits: changes,
                }));
            }
        }
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let others =
            CelCondition::relation(format!("{} in [{}]", field(&element, key), keys.join(", "))).not();
        edits.insert(0, merged.all(&others).edit());
        let add = part.operation("add", Some(format!("[{}]", whole.join(", "))));
        Ok(match there.is(true) {
            true => edits,
            false => vec![Edit::Choice(there, edits, vec![add])],
        })
    }
}

/// The entries without the merge key.
fn without_key(
    entries: &Map<String, Value>,
    key: &str,
    anchors: &[Anchor],
) -> Result<Map<String, Value>, Refusal> {
    let is_key = |name: &str| {
        let (anchor, own) = anchor(name);
        own == key && anchors.contains(&anchor)
    };
    let rest: Map<String, Value> = entries
        .iter()
        .filter(|(name, _)| !is_key(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    match rest.keys().any(|name| anchor(name).1 == key) {
        true => Err(Refusal::new(
            key,
            "the merge key of an element stands there as it is",
        )),
        false => Ok(rest),
    }
}

/// Refuses anchors for additions, because Kyverno decides about them by the first element, even if
/// another one is patched.
fn refuse_additions(entries: &Map<String, Value>) -> Result<(), Refusal> {
    match entries.keys().find(|name| anchor(name).0 == Anchor::Addition) {
        Some(name) => Err(Refusal::new(
            name,
            "Kyverno decides about it by the first element of the list: ask for it in `preconditions`",
        )),
        None => Ok(()),
    }
}

/// Whether everything that the entries set is within `+()`.
fn adds_only(entries: &Map<String, Value>) -> bool {
    let adds = |(name, value): (&String, &Value)| {
        anchor(name).0 == Anchor::Addition || value.as_object().is_some_and(adds_only)
    };
    !entries.is_empty() && entries.iter().all(adds)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(entries) => entries.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}
