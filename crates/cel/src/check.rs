//! The type checker: resolves every name, field and function before evaluation (cel-go
//! `checker/checker.go`), and generates the program.

mod call;
mod fold;
mod literal;
mod select;
mod unify;

use std::collections::HashMap;

use unify::Bindings;

use super::environment::Environment;
use super::error::CompileError;
use super::program::{Node, Program};
use super::syntax::{self, Expr, ExprKind};
use super::types::Type;

/// Compiles `expression` in `environment`.
pub(crate) fn compile(
    environment: &Environment,
    expression: &str,
    expected: &[Type],
) -> Result<Program, CompileError> {
    let tree = syntax::parse(expression)?;
    let mut checker = Checker {
        environment,
        text: expression,
        bindings: Bindings::default(),
        scope: Vec::new(),
        locals: 0,
        pending: Vec::new(),
        formats: 0,
        types: HashMap::new(),
    };
    let (root, of) = checker.check(&tree)?;
    checker.settle_pending()?;
    let output = checker.bindings.substitute(&of, true);
    if !expected.is_empty() && !expected.contains(&output) {
        return Err(checker.fault(&tree, unexpected(expected, &output)));
    }
    Ok(Program {
        root,
        output,
        locals: checker.locals,
        version: environment.version(),
        name: None,
    })
}

fn unexpected(expected: &[Type], output: &Type) -> String {
    match expected {
        [only] => format!("must evaluate to {only} but got {output}"),
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("must evaluate to one of [{}] but got {output}", names.join(" "))
        }
    }
}

/// A step and the type of its value.
type CheckedExpr = Result<(Node, Type), CompileError>;

struct Checker<'e> {
    environment: &'e Environment,
    text: &'e str,
    bindings: Bindings,
    /// The variables of the comprehensions around, innermost last.
    scope: Vec<Local>,
    /// How many local variables were in scope at most.
    locals: usize,
    /// Pairs of types of one list or map literal that must turn out the same.
    pending: Vec<(usize, Type, Type)>,
    /// How many calls of `format` are around: its values may be of many types.
    formats: usize,
    /// Within those, the types of all expressions, by their addresses.
    types: HashMap<*const Expr, Type>,
}

struct Local {
    name: String,
    of: Type,
}

// === impl Checker ===

impl Checker<'_> {
    fn check(&mut self, expr: &Expr) -> CheckedExpr {
        let (node, of) = self.check_kind(expr)?;
        if self.formats > 0 {
            self.types.insert(std::ptr::from_ref(expr), of.clone());
        }
        Ok((node, of))
    }

    fn check_kind(&mut self, expr: &Expr) -> CheckedExpr {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(literal::constant(literal)),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select {
                operand,
                field,
                optional,
            } => self.select(expr, operand, field, *optional),
            ExprKind::Index {
                operand,
                index,
                optional,
            } => self.index(expr, operand, index, *optional),
            ExprKind::Call {
                target,
                function,
                arguments,
            } => self.call_or_macro(expr, target.as_deref(), function, arguments),
            ExprKind::And(terms) => Ok((Node::And(self.terms(terms)?), Type::Bool)),
            ExprKind::Or(terms) => Ok((Node::Or(self.terms(terms)?), Type::Bool)),
            ExprKind::Conditional(parts) => self.conditional(expr, parts),
            ExprKind::List(items) => self.list(items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => self.object(expr, name, fields),
        }
    }

    fn terms(&mut self, terms: &[Expr]) -> Result<Box<[Node]>, CompileError> {
        terms
            .iter()
            .map(|term| self.checked_as(term, &Type::Bool))
            .collect()
    }

    /// Checks `expr`, which must fit `expected`.
    fn checked_as(&mut self, expr: &Expr, expected: &Type) -> Result<Node, CompileError> {
        let (node, of) = self.check(expr)?;
        if !self.bindings.assign(&of, expected) {
            return Err(self.mismatch(expr, expected, &of));
        }
        Ok(node)
    }

    fn mismatch(&self, expr: &Expr, expected: &Type, found: &Type) -> CompileError {
        let (expected, found) = (self.resolved(expected), self.resolved(found));
        self.fault(expr, format!("expected type '{expected}' but found '{found}'"))
    }

    fn undeclared(&self, expr: &Expr, name: &str) -> CompileError {
        self.fault(
            expr,
            format!("undeclared reference to '{name}' (in container '')"),
        )
    }

    fn fault(&self, expr: &Expr, message: impl Into<String>) -> CompileError {
        self.fault_at(expr.at, message)
    }

    fn fault_at(&self, at: usize, message: impl Into<String>) -> CompileError {
        CompileError::new(message, syntax::position(self.text, at))
    }

    fn resolved(&self, of: &Type) -> Type {
        self.bindings.substitute(of, true)
    }

    /// The variables that a name in a comprehension may mean, innermost first.
    fn local(&self, name: &str) -> Option<usize> {
        self.scope.iter().rposition(|local| local.name == name)
    }

    /// Runs `within` with a local variable, and returns its slot.
    fn with_local<T>(
        &mut self,
        name: &str,
        of: Type,
        within: impl FnOnce(&mut Self, usize) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        let slot = self.scope.len();
        self.scope.push(Local {
            name: name.into(),
            of,
        });
        self.locals = self.locals.max(self.scope.len());
        let result = within(self, slot);
        self.scope.truncate(slot);
        result
    }
}
