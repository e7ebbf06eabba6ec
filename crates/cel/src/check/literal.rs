//! Literals: of scalars, lists, maps and objects.

use std::sync::Arc;

use super::unify::unwrap_optional;
use super::{CheckedExpr, Checker};
use crate::error::CompileError;
use crate::program::{ListNode, MapEntry, Node, ObjectField, ObjectNode};
use crate::syntax::{EntryExpr, Expr, FieldExpr, ItemExpr, Literal};
use crate::types::Type;
use crate::value::{Bytes, Entries, Key, Value};

pub(crate) fn constant(literal: &Literal) -> (Node, Type) {
    let (value, of) = match literal {
        Literal::Null => (Value::Null, Type::Null),
        Literal::Bool(value) => (Value::Bool(*value), Type::Bool),
        Literal::Int(value) => (Value::Int(*value), Type::Int),
        Literal::Uint(value) => (Value::Uint(*value), Type::Uint),
        Literal::Double(value) => (Value::Double(*value), Type::Double),
        Literal::String(text) => (Value::string(text.as_str()), Type::String),
        Literal::Bytes(bytes) => (Value::Bytes(Bytes::from(bytes.clone())), Type::Bytes),
    };
    (Node::Constant(value), of)
}

impl Checker<'_> {
    pub(crate) fn list(&mut self, items: &[ItemExpr]) -> CheckedExpr {
        let (mut of, mut first) = (None, None);
        let mut nodes = Vec::with_capacity(items.len());
        for item in items {
            let (node, item_type) = self.check(&item.value)?;
            nodes.push(node);
            let item_type = self.collected(&item.value, item_type, item.optional)?;
            self.alike(&item.value, &mut first, &item_type);
            of = Some(self.join(of, item_type)?);
        }
        let of = of.unwrap_or_else(|| self.bindings.fresh());
        let optional: Box<[bool]> = items.iter().map(|item| item.optional).collect();
        let optional = if optional.contains(&true) {
            optional
        } else {
            Box::default()
        };
        Ok((list_node(nodes, optional), self.sized(Type::list(of))?))
    }

    pub(crate) fn map(&mut self, entries: &[EntryExpr]) -> CheckedExpr {
        let (mut key_of, mut value_of) = (None, None);
        let (mut first_key, mut first_value) = (None, None);
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            let (key, key_type) = self.check(&entry.key)?;
            self.alike(&entry.key, &mut first_key, &key_type);
            key_of = Some(self.join(key_of, key_type)?);
            let (value, value_type) = self.check(&entry.value)?;
            let value_type = self.collected(&entry.value, value_type, entry.optional)?;
            self.alike(&entry.value, &mut first_value, &value_type);
            value_of = Some(self.join(value_of, value_type)?);
            nodes.push(MapEntry {
                key,
                value,
                optional: entry.optional,
            });
        }
        let key_of = key_of.unwrap_or_else(|| self.bindings.fresh());
        let value_of = value_of.unwrap_or_else(|| self.bindings.fresh());
        Ok((map_node(nodes), self.sized(Type::map(key_of, value_of))?))
    }

    /// The type that an element adds to a list or map. Upstream's validator of
    /// literals, which leaves those within `format` alone, cannot stand what may
    /// turn out not to be optional.
    fn collected(&self, expr: &Expr, of: Type, optional: bool) -> Result<Type, CompileError> {
        if optional && self.formats == 0 && self.resolved(&of)?.is_dyn() {
            return Err(self.mismatch(expr, &Type::optional(Type::Dyn), &of));
        }
        self.element(expr, of, optional)
    }

    /// The type of an element, or of the value of a field.
    fn element(&self, expr: &Expr, of: Type, optional: bool) -> Result<Type, CompileError> {
        if !optional {
            return Ok(of);
        }
        let (inner, was_optional) = unwrap_optional(&of);
        if !was_optional && !inner.is_dyn() {
            return Err(self.mismatch(expr, &Type::optional(inner), &of));
        }
        Ok(inner)
    }

    /// The type of elements so far and of one more; `dyn` if they do not fit.
    fn join(&mut self, before: Option<Type>, of: Type) -> Result<Type, CompileError> {
        let Some(before) = before else { return Ok(of) };
        if !self.bindings.assign(&before, &of)? {
            return Ok(Type::Dyn);
        }
        Ok(self.bindings.most_general(&before, &of)?.clone())
    }

    /// Remembers that all elements must turn out to be of the `first` one's type.
    fn alike(&mut self, expr: &Expr, first: &mut Option<Type>, of: &Type) {
        match first {
            None => *first = Some(of.clone()),
            Some(first) if self.formats == 0 => self.pending.push((expr.at, first.clone(), of.clone())),
            Some(_) => {}
        }
    }

    /// Elements of one literal must have one type, also where `dyn` would let
    /// another pass (cel-go's validator of homogeneous literals).
    pub(crate) fn settle_pending(&self) -> Result<(), CompileError> {
        for (at, expected, found) in &self.pending {
            let (expected, found) = (self.resolved(expected)?, self.resolved(found)?);
            if !self.bindings.is_same(&expected, &found)? {
                let message = format_args!("expected type '{expected}' but found '{found}'");
                return Err(self.fault_at(*at, message));
            }
        }
        Ok(())
    }

    pub(crate) fn object(&mut self, expr: &Expr, name: &str, fields: &[FieldExpr]) -> CheckedExpr {
        let name = name.strip_prefix('.').unwrap_or(name);
        let of = match self.environment.find_type(name) {
            Some(Type::Object(of)) => of,
            Some(other) => return Err(self.fault(expr, format_args!("'{other}' is not a message type"))),
            None => return Err(self.undeclared(expr, name)),
        };
        let mut nodes = Vec::with_capacity(fields.len());
        for field in fields {
            let (value, value_type) = self.check(&field.value)?;
            let Some(expected) = of.field(&field.name) else {
                return Err(self.fault_at(field.at, format_args!("undefined field '{}'", field.name)));
            };
            let value_type = self.element(&field.value, value_type, field.optional)?;
            if !self.bindings.assign(&expected, &value_type)? {
                let found = self.resolved(&value_type)?;
                let name = &field.name;
                let message = format_args!(
                    "expected type of field '{name}' is '{expected}' but provided type is '{found}'"
                );
                return Err(self.fault_at(field.at, message));
            }
            nodes.push(ObjectField {
                name: field.name.as_str().into(),
                value,
                optional: field.optional,
            });
        }
        let node = ObjectNode {
            of: Arc::clone(&of),
            fields: nodes.into(),
        };
        Ok((Node::Object(Box::new(node)), Type::Object(of)))
    }
}

/// A list of constants is a constant, which costs nothing.
fn list_node(nodes: Vec<Node>, optional: Box<[bool]>) -> Node {
    let constants: Option<Vec<Value<'static>>> = nodes.iter().map(|node| node.constant().cloned()).collect();
    match constants {
        Some(items) if optional.is_empty() => Node::Constant(Value::list(items)),
        _ => Node::List(Box::new(ListNode {
            items: nodes.into(),
            optional,
        })),
    }
}

fn map_node(nodes: Vec<MapEntry>) -> Node {
    let constant = |entry: &MapEntry| {
        let key = Key::new(entry.key.constant()?)?;
        (!entry.optional).then(|| entry.value.constant().cloned().map(|value| (key, value)))?
    };
    let constants: Option<Vec<_>> = nodes.iter().map(constant).collect();
    match constants {
        Some(entries) => Node::Constant(Value::map(entries.into_iter().collect::<Entries<'static>>())),
        None => Node::Map(nodes.into()),
    }
}
