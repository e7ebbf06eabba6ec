//! Names and field selections.

use super::unify::unwrap_optional;
use super::{CheckedExpr, Checker};
use crate::error::CompileError;
use crate::program::{Attribute, AttributeBase, Node, Qualifier, QualifierKey};
use crate::syntax::Expr;
use crate::types::Type;
use crate::value::{Key, Value};

/// The name under which variables that are expressions are found.
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

    /// A variable of the environment or a type of this name.
    fn declared(&mut self, name: &str) -> Option<(Node, Type)> {
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
        Some((Node::Constant(Value::Type(named.clone())), of))
    }

    /// `operand.field`, or a name with points in it.
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

    fn qualified(&mut self, name: &str) -> Option<(Node, Type)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let shadowed = name.starts_with("variables.") && self.local(VARIABLES).is_some();
        if shadowed { None } else { self.declared(name) }
    }

    /// Whether `variables` names the variables that are expressions.
    fn is_composed(&self) -> bool {
        self.local(VARIABLES).is_none()
            && self.environment.find_variable(VARIABLES).is_none()
            && self.environment.has_lazy_variables()
    }

    /// `variables.?name`: a variable that is there.
    fn composed(&mut self, expr: &Expr, field: &str, optional: bool) -> CheckedExpr {
        let Some((node, of)) = self.declared(&format!("{VARIABLES}.{field}")) else {
            return Err(self.fault(expr, format_args!("undefined field '{field}'")));
        };
        if !optional {
            return Ok((node, of));
        }
        let itself = Qualifier {
            key: QualifierKey::Itself,
            optional: true,
        };
        Ok((qualified(node, itself, false), Type::optional(of)))
    }

    /// `has(operand.field)`
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

    /// `operand[index]`
    pub(crate) fn index(&mut self, expr: &Expr, operand: &Expr, index: &Expr, optional: bool) -> CheckedExpr {
        let (operand, operand_type) = self.check(operand)?;
        let (index, index_type) = self.check(index)?;
        let function = if optional { "_[?_]" } else { "_[_]" };
        let (_, result) = self.resolve(expr, function, false, &[operand_type, index_type])?;
        let key = match index {
            Node::Constant(value) if Key::new(&value).is_none() => {
                let message = format_args!(
                    "program instantiation failed: invalid qualifier type: {}",
                    value.go_type()
                );
                return Err(self.fault(expr, message));
            }
            Node::Constant(value) => QualifierKey::Constant(value),
            node => QualifierKey::Node(node),
        };
        Ok((qualified(operand, Qualifier { key, optional }, false), result))
    }
}

pub(crate) fn attribute(base: AttributeBase) -> Node {
    Node::Attribute(Attribute {
        base,
        qualifiers: Box::default(),
        test: false,
    })
}

/// `node` with one more selection.
fn qualified(node: Node, qualifier: Qualifier, test: bool) -> Node {
    let mut attribute = match node {
        Node::Attribute(attribute) if !attribute.test => attribute,
        node => Attribute {
            base: AttributeBase::Node(Box::new(node)),
            qualifiers: Box::default(),
            test: false,
        },
    };
    let mut qualifiers = attribute.qualifiers.into_vec();
    qualifiers.push(qualifier);
    attribute.qualifiers = qualifiers.into_boxed_slice();
    attribute.test = test;
    Node::Attribute(attribute)
}

/// Whether the variable `node` has a value: its expression may fail.
fn tested(node: Node) -> Node {
    match node {
        Node::Attribute(attribute) => Node::Attribute(Attribute {
            test: true,
            ..attribute
        }),
        node => node,
    }
}
