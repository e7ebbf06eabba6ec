//! Comprehensions: the macros over lists and maps.
//!
//! Upstream expands a macro to a loop over an accumulator. Here each macro is its own
//! loop that charges the cost of the steps of that expansion: reading the accumulator
//! (1), `@not_strictly_false` (1), `!` (1), a list of one (10), appending (1).

use super::call::{not_a_list, of_trait, of_types};
use super::{DeferredCost, Evaluation};
use crate::cost::STEPS_PER_NODE;
use crate::library::lists;
use crate::program::{Fold, FoldKind, put_at};
use crate::value::{Entries, Key, List, Value};
use crate::{EvalError, cost};

/// Reading the accumulator.
const ACCUMULATOR: u64 = 1;

/// The rounds of a fold: the values of its one or two variables.
type Rounds<'a> = Vec<(Value<'a>, Value<'a>)>;

impl<'a> Evaluation<'_, 'a> {
    pub(crate) fn fold(&mut self, fold: &'a Fold) -> Result<Value<'a>, EvalError> {
        match fold.kind {
            FoldKind::OptionalMap | FoldKind::OptionalFlatMap => return self.optional_map(fold),
            FoldKind::SortBy { known } => return self.sort_by(fold, known),
            _ => {}
        }
        let range = self.value(&fold.range)?;
        let watched = self.variables.watched;
        let result = match fold.kind {
            FoldKind::All => self.quantify(fold, &range, false),
            FoldKind::Exists => self.quantify(fold, &range, true),
            FoldKind::ExistsOne => self.exists_one(fold, &range),
            FoldKind::Map => self.transform_map(fold, &range),
            FoldKind::MapEntry => self.transform_map_entry(fold, &range),
            _ => self.transform_list(fold, &range).map(Value::list),
        };
        // A false `all` was decided by one item, and keeps what that item read last. Any other result depends on
        // the whole range.
        if !matches!(result, Ok(Value::Bool(false)) if matches!(fold.kind, FoldKind::All)) {
            self.variables.watched = watched;
        }
        result
    }

    /// Calls `round` with the variables set to each item in turn, until it
    /// returns false.
    fn each(
        &mut self,
        fold: &'a Fold,
        range: &Value<'a>,
        mut round: impl FnMut(&mut Self) -> Result<bool, EvalError>,
    ) -> Result<(), EvalError> {
        if let (Value::List(list), None) = (range, fold.second) {
            for item in list.items() {
                self.selected(&item)?;
                self.bind(fold.first, item);
                if !round(self)? {
                    break;
                }
                self.tick()?;
            }
            return Ok(());
        }
        let size = size_of(range);
        self.allocate_items(size)?;
        for (first, second) in rounds(fold, range)? {
            self.bind(fold.first, first);
            if let Some(slot) = fold.second {
                self.bind(slot, second);
            }
            if !round(self)? {
                break;
            }
            self.tick()?;
        }
        self.release(size * List::BYTES_PER_ITEM);
        Ok(())
    }

    fn bind(&mut self, slot: usize, value: Value<'a>) {
        // There is room for all; a place gets its value when a variable is first bound to it.
        put_at(&mut self.locals, slot, value, || Value::Null);
    }

    /// `all` (decided by false) and `exists` (decided by true).
    fn quantify(
        &mut self,
        fold: &'a Fold,
        range: &Value<'a>,
        decisive: bool,
    ) -> Result<Value<'a>, EvalError> {
        // all: @not_strictly_false(accumulator); exists: @not_strictly_false(!accumulator)
        let condition = if decisive { 3 } else { 2 };
        let mut decided = false;
        let mut failure = None;
        self.each(fold, range, |own| {
            own.charge(condition)?;
            if decided {
                return Ok(false);
            }
            own.charge(ACCUMULATOR)?;
            match own.truth(&fold.body) {
                Ok(value) => decided = value == decisive,
                Err(error) if error.is_absorbable() => failure = failure.take().or(Some(error)),
                Err(error) => return Err(error),
            }
            Ok(true)
        })?;
        self.charge(ACCUMULATOR)?;
        match failure {
            Some(error) if !decided => Err(error),
            _ => Ok(Value::Bool(decided == decisive)),
        }
    }

    fn exists_one(&mut self, fold: &'a Fold, range: &Value<'a>) -> Result<Value<'a>, EvalError> {
        let mut count = Ok(0u64);
        self.each(fold, range, |own| {
            match own.body(&fold.body)? {
                Ok(Value::Bool(true)) => {
                    own.charge(ACCUMULATOR + 1)?;
                    count = count.clone().map(|count| count + 1);
                }
                Ok(Value::Bool(false)) => {}
                Ok(_) => count = Err(EvalError::no_such_overload()),
                Err(error) => count = Err(error),
            }
            Ok(true)
        })?;
        self.charge(ACCUMULATOR + 1)?;
        count.map(|count| Value::Bool(count == 1))
    }

    /// Whether the filter accepts this round. The inner error may be absorbed.
    fn passes(&mut self, fold: &'a Fold) -> Result<Result<bool, EvalError>, EvalError> {
        let Some(filter) = &fold.filter else {
            return Ok(Ok(true));
        };
        Ok(match self.body(filter)? {
            Ok(Value::Bool(passes)) => Ok(passes),
            Ok(_) => Err(EvalError::no_such_overload()),
            Err(error) => Err(error),
        })
    }

    fn transform_list(&mut self, fold: &'a Fold, range: &Value<'a>) -> Result<Vec<Value<'a>>, EvalError> {
        let list_of_one = if fold.body.constant().is_some() {
            0
        } else {
            cost::LIST
        };
        let mut items = Ok(Vec::new());
        self.each(fold, range, |own| {
            match own.passes(fold)? {
                Ok(false) => return Ok(true),
                Ok(true) => {}
                Err(error) => {
                    items = Err(error);
                    return Ok(true);
                }
            }
            own.charge(ACCUMULATOR)?;
            let item = own.body(&fold.body)?;
            own.allocate(List::BYTES_PER_ITEM)?;
            own.charge(list_of_one)?;
            own.charge(1)?;
            match (&mut items, item) {
                (Ok(items), Ok(item)) => items.push(item),
                (Ok(_), Err(error)) => items = Err(error),
                (Err(_), _) => {}
            }
            Ok(true)
        })?;
        self.charge(ACCUMULATOR)?;
        items
    }

    fn transform_map(&mut self, fold: &'a Fold, range: &Value<'a>) -> Result<Value<'a>, EvalError> {
        let mut entries = Ok(Entries::new());
        self.each(fold, range, |own| {
            match own.passes(fold)? {
                Ok(false) => return Ok(true),
                Ok(true) => {}
                Err(error) => {
                    entries = Err(error);
                    return Ok(true);
                }
            }
            own.charge(ACCUMULATOR)?;
            // Upstream's insertion ends at its first argument that failed, here the map.
            let Ok(map) = &mut entries else { return Ok(true) };
            own.charge(1)?;
            let key = own.locals.get(fold.first).and_then(Key::new);
            let value = own.body(&fold.body)?;
            own.allocate(Entries::BYTES_PER_ENTRY)?;
            own.charge(1)?;
            match (key, value) {
                (Some(key), Ok(value)) => {
                    insert(map, key, value).unwrap_or_else(|error| entries = Err(error))
                }
                (_, Err(error)) => entries = Err(error),
                (None, _) => entries = Err(EvalError::no_such_overload()),
            }
            Ok(true)
        })?;
        self.charge(ACCUMULATOR)?;
        entries.map(Value::map)
    }

    fn transform_map_entry(&mut self, fold: &'a Fold, range: &Value<'a>) -> Result<Value<'a>, EvalError> {
        let mut entries = Ok(Entries::new());
        self.each(fold, range, |own| {
            match own.passes(fold)? {
                Ok(false) => return Ok(true),
                Ok(true) => {}
                Err(error) => {
                    entries = Err(error);
                    return Ok(true);
                }
            }
            own.charge(ACCUMULATOR)?;
            let added = own.body(&fold.body)?;
            let size = added.as_ref().map_or(0, size_of);
            own.work(size * STEPS_PER_NODE)?;
            own.allocate(size * Entries::BYTES_PER_ENTRY)?;
            own.charge(1)?;
            let Ok(map) = &mut entries else { return Ok(true) };
            if let Err(error) = added.and_then(|added| insert_all(map, &added)) {
                entries = Err(error);
            }
            Ok(true)
        })?;
        self.charge(ACCUMULATOR)?;
        entries.map(Value::map)
    }

    /// `target.hasValue() ? optional.of(body) : optional.none()`, where the
    /// variable's first use reads the target again.
    fn optional_map(&mut self, fold: &'a Fold) -> Result<Value<'a>, EvalError> {
        // The first uses of enclosing variables are charged only once: they are no part of what reading the target
        // again costs.
        let before = (self.cost, self.paid_before(fold.first));
        let target = self.value(&fold.range);
        let reading = (self.cost - before.0).saturating_sub(self.paid_before(fold.first) - before.1);
        let target = self.settle(target, 1)?;
        let Value::Optional(target) = target else {
            return Err(of_types("hasValue", [&target]));
        };
        let Some(target) = target else {
            self.charge(1)?;
            return Ok(Value::none());
        };
        self.bind(fold.first, (*target).clone());
        if self.deferred.len() <= fold.first {
            self.deferred.resize(fold.first + 1, DeferredCost::default());
        }
        self.defer(fold.first, reading + 1);
        let result = self.value(&fold.body);
        self.defer(fold.first, 0);
        if fold.kind == FoldKind::OptionalFlatMap {
            return result.and_then(|value| self.conditional_result(value));
        }
        let result = self.settle(result, 1)?;
        self.conditional_result(Value::some(result))
    }

    fn defer(&mut self, slot: usize, due: u64) {
        if let Some(deferred) = self.deferred.get_mut(slot) {
            deferred.due = due;
        }
    }

    /// The costs charged so far for the first uses of variables in the slots before `slot`.
    fn paid_before(&self, slot: usize) -> u64 {
        let places = self.deferred.iter().take(slot);
        places.fold(0, |paid, deferred| paid.saturating_add(deferred.paid))
    }

    /// `known` tells whether the type of the keys is known at compile time.
    fn sort_by(&mut self, fold: &'a Fold, known: bool) -> Result<Value<'a>, EvalError> {
        let range = self.value(&fold.range);
        // Upstream's expansion names the target twice: to sort it, and to map it to its keys.
        let range = match self.settle(range, 2) {
            Err(error) if known && error.is_absorbable() => return Err(not_a_list(None)),
            range if range.is_err() => self.settle(range, 1)?,
            range => range?,
        };
        let keys = match self.transform_list(fold, &range) {
            Err(error) if known && error.is_absorbable() => return Err(not_a_list(None)),
            keys if keys.is_err() => self.settle(keys, 1)?,
            keys => keys?,
        };
        self.charge(if known {
            lists::self_compare(keys.first(), keys.len())
        } else {
            1
        })?;
        let Value::List(list) = &range else {
            return Err(of_trait("@sortByAssociatedKeys", &range, false));
        };
        lists::sort_by_keys(self, list, &keys)
    }
}

/// How many items or entries there are.
fn size_of(value: &Value<'_>) -> usize {
    match value {
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => 0,
    }
}

fn rounds<'a>(fold: &Fold, range: &Value<'a>) -> Result<Rounds<'a>, EvalError> {
    match range {
        Value::List(list) => {
            let items = list.items().zip(0..);
            Ok(items.map(|(item, index)| (Value::Int(index), item)).collect())
        }
        Value::Map(map) if fold.second.is_some() => Ok(map.entries().collect()),
        Value::Map(map) => Ok(map.keys().into_iter().map(|key| (key, Value::Null)).collect()),
        other if fold.second.is_some() => Err(EvalError::failed(format_args!(
            "unsupported comprehension range type: {}",
            other.go_type()
        ))),
        other => Err(EvalError::failed(format_args!(
            "got '{}', expected iterable type",
            other.go_type()
        ))),
    }
}

fn insert_all<'a>(map: &mut Entries<'a>, added: &Value<'a>) -> Result<(), EvalError> {
    let Value::Map(added) = added else {
        let map = Value::map(Entries::new());
        return Err(of_types("cel.@mapInsert", [&map, added]));
    };
    for (key, value) in added.entries() {
        let key = Key::new(&key).ok_or_else(EvalError::no_such_overload)?;
        insert(map, key, value)?;
    }
    Ok(())
}

fn insert<'a>(map: &mut Entries<'a>, key: Key<'a>, value: Value<'a>) -> Result<(), EvalError> {
    if map.search(&key.to_value()).is_some() {
        return Err(EvalError::failed(format_args!(
            "insert failed: key {} already exists",
            key.to_value().printed()
        )));
    }
    map.insert(key, value);
    Ok(())
}
