//! Evaluates variables and field selections: `a.b[c].?d`, `has(a.b)`, `c ? a : b`.

use super::Evaluation;
use crate::program::{Attribute, AttributeBase, FoldKind, PlanNode, Qualifier, QualifierKey, Variable};
use crate::value::{List, Map, Opaque, Value, exact_int};
use crate::{EvalError, json};

impl<'a> Evaluation<'_, 'a> {
    /// Evaluates an attribute. It costs one unit besides its selections, or only the cost of its
    /// parts if it is a conditional. With `has()`, it costs one unit less in both cases.
    pub(crate) fn attribute(&mut self, attribute: &'a Attribute) -> Result<Value<'a>, EvalError> {
        let result = self.resolve_attribute(attribute);
        match (attribute.is_presence_test, is_conditional(&attribute.base)) {
            (false, false) => self.settle(result, 1),
            (true, true) => {
                // As upstream, a cost below zero exceeds every limit.
                self.cost = self.cost.checked_sub(1).ok_or(EvalError::CostLimit)?;
                result
            }
            _ => result,
        }
    }

    /// Evaluates a branch or an index, where an attribute costs nothing besides its selections.
    fn resolve(&mut self, node: &'a PlanNode) -> Result<Value<'a>, EvalError> {
        match node {
            PlanNode::Attribute(attribute) => self.resolve_attribute(attribute),
            node => self.value(node),
        }
    }

    fn resolve_attribute(&mut self, attribute: &'a Attribute) -> Result<Value<'a>, EvalError> {
        if let Some(node) = self.json_base(&attribute.base)
            && !attribute.qualifiers.is_empty()
        {
            let value = self.qualify_json(node, &attribute.qualifiers, attribute.is_presence_test)?;
            self.selected(&value)?;
            return Ok(value);
        }
        let base = self.base(&attribute.base)?;
        if attribute.qualifiers.is_empty() && !attribute.is_presence_test && is_conditional(&attribute.base) {
            return self.conditional_result(base);
        }
        let base = self.named(base);
        if attribute.qualifiers.is_empty() {
            return Ok(if attribute.is_presence_test {
                Value::Bool(true)
            } else {
                base
            });
        }
        let value = self.qualify(base, &attribute.qualifiers, attribute.is_presence_test)?;
        self.selected(&value)?;
        Ok(value)
    }

    /// The base, if it is a map in JSON text, as for most expressions, and its value is at hand
    /// without cost. Selecting from it copies nothing.
    #[inline]
    fn json_base(&self, base: &AttributeBase) -> Option<json::Node<'a>> {
        let value = match base {
            AttributeBase::Variable(slot) => match self.variables.variables.get(*slot)? {
                Variable::Value(value) => value,
                _ => return None,
            },
            AttributeBase::Local(slot) if self.deferred.get(*slot).is_none() => self.locals.get(*slot)?,
            _ => return None,
        };
        match value {
            Value::Map(Map::Json(node)) => Some(*node),
            _ => None,
        }
    }

    fn base(&mut self, base: &'a AttributeBase) -> Result<Value<'a>, EvalError> {
        match base {
            AttributeBase::Variable(slot) => self.variable(*slot),
            AttributeBase::Lazy(slot) => {
                let value = self.variable(*slot);
                self.settle(value, 1)
            }
            AttributeBase::Local(slot) => self.local(*slot),
            AttributeBase::Node(node) => self.value(node),
            AttributeBase::Conditional(parts) => {
                let [condition, truthy, falsy] = &**parts;
                match self.value(condition)? {
                    Value::Bool(true) => self.resolve(truthy),
                    Value::Bool(false) => self.resolve(falsy),
                    _ => Err(EvalError::no_such_overload()),
                }
            }
        }
    }

    fn local(&mut self, slot: usize) -> Result<Value<'a>, EvalError> {
        if let Some(deferred) = self.deferred.get_mut(slot) {
            let due = std::mem::take(&mut deferred.due);
            deferred.paid = deferred.paid.saturating_add(due);
            self.charge(due)?;
        }
        self.locals
            .get(slot)
            .cloned()
            .ok_or_else(|| EvalError::failed("no such attribute"))
    }

    /// The value of the base before anything is selected from it.
    fn named(&self, value: Value<'a>) -> Value<'a> {
        if self.takes_optionals_apart() {
            value.collapsed()
        } else {
            value
        }
    }

    /// The result of a conditional. Upstream unwraps optionals there, and fails if it cannot
    /// convert their value back.
    pub(crate) fn conditional_result(&self, value: Value<'a>) -> Result<Value<'a>, EvalError> {
        let value = self.named(value);
        match &value {
            Value::Optional(Some(held)) if self.takes_optionals_apart() && !is_selectable(held) => {
                let of = held.type_of();
                Err(EvalError::failed(format_args!(
                    "unsupported conversion to ref.Val: {of}"
                )))
            }
            _ => Ok(value),
        }
    }

    fn qualify(
        &mut self,
        base: Value<'a>,
        qualifiers: &'a [Qualifier],
        test: bool,
    ) -> Result<Value<'a>, EvalError> {
        match base {
            Value::Map(Map::Json(node)) => self.qualify_json(node, qualifiers, test),
            Value::Optional(None) => Ok(absent(test)),
            Value::Optional(Some(inner)) => {
                if self.takes_optionals_apart() && !is_selectable(&inner) {
                    return Err(self.unselectable(&inner, qualifiers));
                }
                self.qualify_further((*inner).clone(), qualifiers, true, test)
            }
            base => self.qualify_further(base, qualifiers, false, test),
        }
    }

    /// Like [`qualify`](Self::qualify) for a map in JSON text.
    fn qualify_json(
        &mut self,
        node: json::Node<'a>,
        qualifiers: &'a [Qualifier],
        test: bool,
    ) -> Result<Value<'a>, EvalError> {
        let (node, steps) = self.select_fields(node, qualifiers)?;
        self.variables.note(node);
        let further = qualifiers.get(steps..).unwrap_or_default();
        let Some((first, others)) = further.split_first() else {
            return Ok(if test {
                Value::Bool(true)
            } else {
                Value::json(node)
            });
        };
        match &first.key {
            // The field is absent, or it would have been selected above.
            QualifierKey::Field(name) if !first.optional && node.kind() == json::Kind::Object => {
                self.charge(1)?;
                if test && others.is_empty() {
                    Ok(Value::Bool(false))
                } else {
                    Err(EvalError::no_such_key(name))
                }
            }
            _ => self.qualify_further(Value::json(node), further, false, test),
        }
    }

    /// Applies the selections in order. `optional` tells whether an earlier selection was optional.
    fn qualify_further(
        &mut self,
        mut value: Value<'a>,
        qualifiers: &'a [Qualifier],
        mut optional: bool,
        test: bool,
    ) -> Result<Value<'a>, EvalError> {
        let last = qualifiers.len() - 1;
        for (position, qualifier) in qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let tested = test && position == last;
            match self.step(&value, qualifier, optional, tested)? {
                Some(next) => value = next,
                None => return Ok(absent(test)),
            }
            if let Value::Map(Map::Json(node)) | Value::List(List::Json(node)) = &value {
                self.variables.note(*node);
            }
            if tested {
                return Ok(Value::Bool(true));
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// The error for a selection from an optional with this value. As upstream, the index of the
    /// first selection is evaluated before, and may fail.
    fn unselectable(&mut self, held: &Value<'_>, qualifiers: &'a [Qualifier]) -> EvalError {
        if let Some(QualifierKey::Node(node)) = qualifiers.first().map(|first| &first.key)
            && let Err(error) = self.resolve(node)
        {
            return error;
        }
        EvalError::failed(format_args!(
            "unsupported conversion to ref.Val: {}",
            held.type_of()
        ))
    }

    /// Selects fields as long as they are plain and present, without making values of those in
    /// between. Returns how many were selected.
    fn select_fields(
        &mut self,
        mut node: json::Node<'a>,
        qualifiers: &'a [Qualifier],
    ) -> Result<(json::Node<'a>, usize), EvalError> {
        for (position, qualifier) in qualifiers.iter().enumerate() {
            let field = match &qualifier.key {
                QualifierKey::Field(name) if !qualifier.optional => node.get(name),
                _ => None,
            };
            let Some(field) = field else {
                return Ok((node, position));
            };
            self.charge(1)?;
            node = field;
        }
        Ok((node, qualifiers.len()))
    }

    /// Applies one selection; `None` if there is nothing to select and that is no error.
    fn step(
        &mut self,
        value: &Value<'a>,
        qualifier: &'a Qualifier,
        optional: bool,
        test: bool,
    ) -> Result<Option<Value<'a>>, EvalError> {
        let lenient = optional || test;
        let found = match &qualifier.key {
            QualifierKey::Field(name) => field(value, name, lenient),
            QualifierKey::Constant(key) => select(value, key, lenient),
            QualifierKey::ToOptional => return Ok(Some(value.clone())),
            QualifierKey::Node(node) => match self.resolve(node) {
                Ok(key) => {
                    self.met(&key)?;
                    if is_key(&key) {
                        select(value, &key, lenient)
                    } else {
                        Err(EvalError::failed(format_args!(
                            "invalid qualifier type: {}",
                            qualifier_type(node, &key)
                        )))
                    }
                }
                Err(error) => Err(error),
            },
        };
        match found {
            Err(error) if !error.is_absorbable() => Err(error),
            // Upstream does not count an absent optional.
            Ok(None) | Err(_) if optional => found,
            found => self.charge(1).and(found),
        }
    }
}

fn is_conditional(base: &AttributeBase) -> bool {
    match base {
        AttributeBase::Conditional(_) => true,
        AttributeBase::Node(node) => match &**node {
            PlanNode::Fold(fold) => matches!(fold.kind, FoldKind::OptionalMap | FoldKind::OptionalFlatMap),
            _ => false,
        },
        _ => false,
    }
}

/// Whether upstream can select from an optional with this value, even if in vain: it unwraps the
/// value, and cannot convert every value back.
fn is_selectable(value: &Value<'_>) -> bool {
    matches!(value, Value::Opaque(Opaque::Format(_))) || !matches!(value, Value::Opaque(_))
}

const fn absent(test: bool) -> Value<'static> {
    if test { Value::Bool(false) } else { Value::none() }
}

/// Fails if the value of the field `name` is unknown.
fn check_known(value: &Value<'_>, name: &str) -> Result<(), EvalError> {
    match value {
        Value::Map(Map::Object(object)) => object
            .unknown(name)
            .map_or(Ok(()), |name| Err(EvalError::Unknown(name))),
        _ => Ok(()),
    }
}

/// Selects the field or string key `name`.
fn field<'a>(value: &Value<'a>, name: &str, lenient: bool) -> Result<Option<Value<'a>>, EvalError> {
    check_known(value, name)?;
    match value {
        Value::Map(map) => match map.field(name) {
            None if map.object_type().is_some() && !lenient => Ok(Some(Value::Null)),
            None if !lenient => Err(EvalError::no_such_key(name)),
            found => Ok(found),
        },
        Value::List(_) => Err(EvalError::failed("unsupported index type 'string' in list")),
        _ if lenient => Ok(None),
        _ => Err(EvalError::no_such_key(name)),
    }
}

/// Selects the item or entry `key`.
fn select<'a>(value: &Value<'a>, key: &Value<'_>, lenient: bool) -> Result<Option<Value<'a>>, EvalError> {
    if let Value::String(name) = key {
        check_known(value, name)?;
    }
    match value {
        Value::Map(map) => match map.get(key) {
            None if !lenient => Err(EvalError::no_such_key(KeyText(key))),
            found => Ok(found),
        },
        Value::List(list) => item(list, key, lenient),
        _ if lenient => Ok(None),
        _ => Err(EvalError::no_such_key(KeyText(key))),
    }
}

fn item<'a>(list: &List<'a>, key: &Value<'_>, lenient: bool) -> Result<Option<Value<'a>>, EvalError> {
    let index = match key {
        Value::Int(index) => Some(*index),
        Value::Uint(index) => i64::try_from(*index).ok(),
        Value::Double(index) => exact_int(*index),
        _ => None,
    };
    let Some(index) = index else {
        return Err(EvalError::failed(match key {
            Value::Uint(_) | Value::Double(_) => format!("unsupported index value {} in list", key.printed()),
            key => format!("unsupported index type '{}' in list", key.type_of()),
        }));
    };
    match usize::try_from(index).ok().and_then(|index| list.get(index)) {
        None if !lenient => Err(EvalError::failed(format_args!("index out of bounds: {index}"))),
        found => Ok(found),
    }
}

/// The Go type of an invalid key, for the error. Values of a request's object still have the types
/// to which Go decodes JSON.
fn qualifier_type(node: &PlanNode, key: &Value<'_>) -> &'static str {
    let is_named = matches!(
        node,
        PlanNode::Attribute(Attribute {
            base: AttributeBase::Variable(_),
            ..
        })
    );
    match key {
        Value::List(_) if is_named => "[]interface {}",
        Value::Map(_) if is_named => "map[string]interface {}",
        Value::Null if is_named => "<nil>",
        key => key.go_type(),
    }
}

/// Whether the value can be a key.
const fn is_key(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
    )
}

/// Displays a key for an error.
struct KeyText<'k, 'a>(&'k Value<'a>);

impl std::fmt::Display for KeyText<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Value::String(text) => f.write_str(text),
            Value::Int(int) => write!(f, "{int}"),
            Value::Uint(uint) => write!(f, "{uint}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Double(double) => write!(f, "{double}"),
            other => write!(f, "{}", other.type_of()),
        }
    }
}
