//! Checks names and field selections.

use std::sync::Arc;

use super::unify::unwrap_optional;
use super::{CheckedExpr, Checker};
use crate::CompileError;
use crate::program::{
    Attribute, AttributeBase, ListNode, MapEntry, ObjectField, ObjectNode, PlanNode, Qualifier, QualifierKey,
};
use crate::syntax::{EntryExpr, Expr, FieldExpr, ItemExpr, Literal};
use crate::types::Type;
use crate::value::{Bytes, Entries, Key, Value};

/// The prefix of variables that are expressions.
const VARIABLES: &str = "variables";

impl Checker<'_> {
    pub(crate) fn ident(&mut self, expr: &Expr, name: &str) -> CheckedExpr {
        if let Some(slot) = self.local(name) {
            let of = self.scope.get(slot).map_or(Type::Dyn, |local| local.of.clone());
            return Ok((attribute(AttributeBase::Local(slot)), of));
        }
        let name = name.strip_prefix('.').unwrap_or(name);
        match self.declared(name) {
            Some(found) => Ok(found),
            None if name == VARIABLES && self.environment.has_lazy_variables() => {
                Err(self.fault(expr, "`variables` is followed by the name of a variable"))
            }
            None => Err(self.undeclared(expr, name)),
        }
    }

    /// Resolves a variable of the environment, or a type.
    fn declared(&mut self, name: &str) -> Option<(PlanNode, Type)> {
        if let Some((slot, declaration)) = self.environment.find_variable(name) {
            self.composed = self.composed.max(declaration.depth);
            let base = if declaration.lazy {
                AttributeBase::Lazy(slot)
            } else {
                AttributeBase::Variable(slot)
            };
            return Some((attribute(base), declaration.of.clone()));
        }
        let of = Type::of_type(self.environment.find_type(name)?);
        let Type::Type(named) = &of else { return None };
        Some((PlanNode::Constant(Value::Type(named.clone())), of))
    }

    /// Checks `operand.field`, or a name that contains dots.
    pub(crate) fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> CheckedExpr {
        if !optional
            && let Some(name) = expr.qualified_name()
            && let Some(found) = self.qualified(&name)
        {
            return Ok(found);
        }
        if operand.ident() == Some(VARIABLES) && self.is_composed() {
            return self.composed(expr, field, optional);
        }
        let (node, of) = self.check(operand)?;
        let result = self.field_type(expr, &of, field, optional)?;
        let qualifier = Qualifier {
            key: QualifierKey::Field(field.into()),
            optional,
        };
        Ok((qualified(node, qualifier, false), result))
    }

    fn qualified(&mut self, name: &str) -> Option<(PlanNode, Type)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let shadowed = name.starts_with("variables.") && self.local(VARIABLES).is_some();
        if shadowed { None } else { self.declared(name) }
    }

    /// Whether `variables` refers to the variables that are expressions.
    fn is_composed(&self) -> bool {
        self.local(VARIABLES).is_none()
            && self.environment.find_variable(VARIABLES).is_none()
            && self.environment.has_lazy_variables()
    }

    /// Checks `variables.name` and `variables.?name`.
    fn composed(&mut self, expr: &Expr, field: &str, optional: bool) -> CheckedExpr {
        let Some((node, of)) = self.declared(&format!("{VARIABLES}.{field}")) else {
            return Err(self.fault(expr, format_args!("undefined field '{field}'")));
        };
        if !optional {
            return Ok((node, of));
        }
        let itself = Qualifier {
            key: QualifierKey::ToOptional,
            optional: true,
        };
        Ok((qualified(node, itself, false), Type::optional(of)))
    }

    /// Checks `has(operand.field)`.
    pub(crate) fn presence(&mut self, expr: &Expr, operand: &Expr, field: &str) -> CheckedExpr {
        if operand.ident() == Some(VARIABLES) && self.is_composed() {
            let (node, _) = self.composed(expr, field, false)?;
            return Ok((tested(node), Type::Bool));
        }
        let (node, of) = self.check(operand)?;
        self.field_type(expr, &of, field, false)?;
        let qualifier = Qualifier {
            key: QualifierKey::Field(field.into()),
            optional: false,
        };
        Ok((qualified(node, qualifier, true), Type::Bool))
    }

    fn field_type(
        &mut self,
        expr: &Expr,
        operand: &Type,
        field: &str,
        optional: bool,
    ) -> Result<Type, CompileError> {
        let (target, was_optional) = unwrap_optional(&self.bindings.substitute(operand, false)?);
        let result = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(object) => match object.field(field) {
                Some(of) => of,
                None => return Err(self.fault(expr, format_args!("undefined field '{field}'"))),
            },
            Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &target)?;
                Type::Dyn
            }
            Type::Dyn => Type::Dyn,
            other => {
                let other = self.resolved(other)?;
                let message = format_args!("type '{other}' does not support field selection");
                return Err(self.fault(expr, message));
            }
        };
        let result = if was_optional || optional {
            Type::optional(result)
        } else {
            result
        };
        Ok(self.bindings.substitute(&result, false)?)
    }

    /// Checks `operand[index]`.
    pub(crate) fn index(&mut self, expr: &Expr, operand: &Expr, index: &Expr, optional: bool) -> CheckedExpr {
        let (operand, operand_type) = self.check(operand)?;
        let (index, index_type) = self.check(index)?;
        let function = if optional { "_[?_]" } else { "_[_]" };
        let (_, result) = self.resolve(expr, function, false, &[operand_type, index_type])?;
        let key = match index {
            PlanNode::Constant(value) if Key::new(&value).is_none() => {
                let message = format_args!(
                    "program instantiation failed: invalid qualifier type: {}",
                    value.go_type()
                );
                return Err(self.fault(expr, message));
            }
            PlanNode::Constant(value) => QualifierKey::Constant(value),
            node => QualifierKey::Node(node),
        };
        Ok((qualified(operand, Qualifier { key, optional }, false), result))
    }
}

pub(crate) fn attribute(base: AttributeBase) -> PlanNode {
    PlanNode::Attribute(Attribute {
        base,
        qualifiers: Box::default(),
        is_presence_test: false,
    })
}

/// Adds a selection to `node`.
fn qualified(node: PlanNode, qualifier: Qualifier, test: bool) -> PlanNode {
    let mut attribute = match node {
        PlanNode::Attribute(attribute) if !attribute.is_presence_test => attribute,
        node => Attribute {
            base: AttributeBase::Node(Box::new(node)),
            qualifiers: Box::default(),
            is_presence_test: false,
        },
    };
    let mut qualifiers = attribute.qualifiers.into_vec();
    qualifiers.push(qualifier);
    attribute.qualifiers = qualifiers.into_boxed_slice();
    attribute.is_presence_test = test;
    PlanNode::Attribute(attribute)
}

/// A test whether the variable `node` has a value, which fails if its expression fails.
fn tested(node: PlanNode) -> PlanNode {
    match node {
        PlanNode::Attribute(attribute) => PlanNode::Attribute(Attribute {
            is_presence_test: true,
            ..attribute
        }),
        node => node,
    }
}

// Checks literals of scalars, lists, maps and objects.

pub(crate) fn constant(literal: &Literal) -> (PlanNode, Type) {
    let (value, of) = match literal {
        Literal::Null => (Value::Null, Type::Null),
        Literal::Bool(value) => (Value::Bool(*value), Type::Bool),
        Literal::Int(value) => (Value::Int(*value), Type::Int),
        Literal::Uint(value) => (Value::Uint(*value), Type::Uint),
        Literal::Double(value) => (Value::Double(*value), Type::Double),
        Literal::String(text) => (Value::string(text.as_str()), Type::String),
        Literal::Bytes(bytes) => (Value::Bytes(Bytes::from(bytes.clone())), Type::Bytes),
    };
    (PlanNode::Constant(value), of)
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

    /// The type that an element adds to a list or map. Upstream's validator of literals, which
    /// skips those within `format`, rejects optional elements whose static type is `dyn`.
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

    /// The common type of the elements so far and one more; `dyn` if there is none.
    fn join(&mut self, before: Option<Type>, of: Type) -> Result<Type, CompileError> {
        let Some(before) = before else { return Ok(of) };
        if !self.bindings.assign(&before, &of)? {
            return Ok(Type::Dyn);
        }
        Ok(self.bindings.most_general(&before, &of)?.clone())
    }

    /// Records that the type of an element must turn out to be that of the `first` one.
    fn alike(&mut self, expr: &Expr, first: &mut Option<Type>, of: &Type) {
        match first {
            None => *first = Some(of.clone()),
            Some(first) if self.formats == 0 => self.pending.push((expr.at, first.clone(), of.clone())),
            Some(_) => {}
        }
    }

    /// Elements of one literal must have the same type, even where `dyn` would allow another
    /// (cel-go's validator of homogeneous literals).
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
        Ok((PlanNode::Object(Box::new(node)), Type::Object(of)))
    }
}

/// A list of constants is a constant, which costs nothing.
fn list_node(nodes: Vec<PlanNode>, optional: Box<[bool]>) -> PlanNode {
    let constants: Option<Vec<Value<'static>>> = nodes.iter().map(|node| node.constant().cloned()).collect();
    match constants {
        Some(items) if optional.is_empty() => PlanNode::Constant(Value::list(items)),
        _ => PlanNode::List(Box::new(ListNode {
            items: nodes.into(),
            optional,
        })),
    }
}

fn map_node(nodes: Vec<MapEntry>) -> PlanNode {
    let constant = |entry: &MapEntry| {
        let key = Key::new(entry.key.constant()?)?;
        (!entry.optional).then(|| entry.value.constant().cloned().map(|value| (key, value)))?
    };
    let constants: Option<Vec<_>> = nodes.iter().map(constant).collect();
    match constants {
        Some(entries) => PlanNode::Constant(Value::map(entries.into_iter().collect::<Entries<'static>>())),
        None => PlanNode::Map(nodes.into()),
    }
}
