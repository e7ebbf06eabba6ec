//! The type checker: resolves every name, field and function before evaluation (cel-go
//! `checker/checker.go`), and generates the program.

mod call;
mod fold;
mod select;
mod unify;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use unify::Bindings;

use super::environment::Environment;
use super::error::CompileError;
use super::program::{Node, Program};
use super::regex::{Regex, RegexUse};
use super::syntax::{self, Expr, ExprKind, MAX_DEPTH};
use super::types::Type;
use crate::cost::CompileBudget;

/// How deep an expression may be together with the variables that it names, and those that they
/// name.
pub(crate) const MAX_COMPOSED_DEPTH: u32 = 5 * MAX_DEPTH;

/// The steps that a character takes to be read.
const STEPS_PER_CHARACTER: u64 = 8;

/// The steps that an expression takes, however short it is.
const STEPS_PER_EXPRESSION: u64 = 200;

/// The bytes that a part of an expression takes in its program.
const BYTES_PER_PART: usize = 160;

/// Compiles `expression` in `environment`.
pub(crate) fn compile(
    environment: &Environment,
    expression: &str,
    expected: &[Type],
    budget: &CompileBudget<'_>,
) -> Result<Program, CompileError> {
    let mut checker = Checker {
        environment,
        text: expression,
        at: 0,
        bindings: Bindings::new(budget),
        scope: Vec::new(),
        locals: 0,
        composed: 0,
        pending: Vec::new(),
        formats: 0,
        types: HashMap::new(),
        patterns: HashMap::new(),
    };
    let program = checker.program(expected);
    program.map_err(|error| error.placed(|| syntax::position(expression, checker.at)))
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
    /// The byte of the text where it is.
    at: usize,
    bindings: Bindings<'e>,
    /// The variables of the comprehensions around, innermost last.
    scope: Vec<Local>,
    /// How many local variables were in scope at most.
    locals: usize,
    /// How deep the variables are that are expressions and were named.
    composed: u32,
    /// Pairs of types of one list or map literal that must turn out the same.
    pending: Vec<(usize, Type, Type)>,
    /// How many calls of `format` are around: its values may be of many types.
    formats: usize,
    /// Within those, the types of all expressions, by their addresses.
    types: HashMap<*const Expr, Type>,
    /// The patterns that are constant, compiled.
    patterns: HashMap<(RegexUse, Box<str>), Arc<Regex>>,
}

struct Local {
    name: String,
    of: Type,
}

// === impl Checker ===

impl Checker<'_> {
    fn program(&mut self, expected: &[Type]) -> Result<Program, CompileError> {
        let budget = self.bindings.budget();
        budget.work(STEPS_PER_EXPRESSION + STEPS_PER_CHARACTER * self.text.len() as u64)?;
        let tree = syntax::parse(self.text)?;
        budget.keep(self.text.len())?;
        let (root, of) = self.check(&tree)?;
        self.settle_pending()?;
        let output = self.bindings.substitute(&of, true)?;
        if !expected.is_empty() && !expected.contains(&output) {
            return Err(self.fault(&tree, unexpected(expected, &output)));
        }
        let depth = tree.depth() + self.composed;
        if depth > MAX_COMPOSED_DEPTH {
            let message = format_args!(
                "expression recursion limit exceeded: {MAX_COMPOSED_DEPTH}, with the variables that it names"
            );
            return Err(self.fault(&tree, message));
        }
        Ok(Program {
            root,
            output,
            locals: self.locals,
            depth,
            version: self.environment.version(),
            name: None,
        })
    }

    fn check(&mut self, expr: &Expr) -> CheckedExpr {
        self.at = expr.at;
        self.bindings.budget().keep(BYTES_PER_PART)?;
        let (node, of) = self.check_kind(expr)?;
        if self.formats > 0 {
            self.types.insert(std::ptr::from_ref(expr), of.clone());
        }
        Ok((node, of))
    }

    fn check_kind(&mut self, expr: &Expr) -> CheckedExpr {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(select::constant(literal)),
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
        if !self.bindings.assign(&of, expected)? {
            return Err(self.mismatch(expr, expected, &of));
        }
        Ok(node)
    }

    fn mismatch(&self, expr: &Expr, expected: &Type, found: &Type) -> CompileError {
        let resolved = self
            .resolved(expected)
            .and_then(|expected| Ok((expected, self.resolved(found)?)));
        match resolved {
            Ok((expected, found)) => self.fault(
                expr,
                format_args!("expected type '{expected}' but found '{found}'"),
            ),
            Err(exhausted) => exhausted,
        }
    }

    fn undeclared(&self, expr: &Expr, name: &str) -> CompileError {
        self.fault(
            expr,
            format_args!("undeclared reference to '{name}' (in container '')"),
        )
    }

    fn fault(&self, expr: &Expr, message: impl fmt::Display) -> CompileError {
        self.fault_at(expr.at, message)
    }

    fn fault_at(&self, at: usize, message: impl fmt::Display) -> CompileError {
        CompileError::new(message, syntax::position(self.text, at))
    }

    fn resolved(&self, of: &Type) -> Result<Type, CompileError> {
        Ok(self.bindings.substitute(of, true)?)
    }

    /// A type made of others, if it is no larger than one may be.
    fn sized(&self, of: Type) -> Result<Type, CompileError> {
        Ok(self.bindings.sized(of)?)
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
