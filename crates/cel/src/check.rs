//! The type checker: resolves every name, field and function before evaluation (cel-go
//! `checker/checker.go`), and generates the program.

mod call;
mod select;
mod unify;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::CompileError;
use super::environment::{Environment, Version};
use super::program::{Fold, FoldKind, PlanNode, Program};
use super::regex::{Regex, RegexUse};
use super::syntax::{self, Expr, ExprKind, MAX_DEPTH};
use super::types::Type;
use crate::cost::CompileBudget;
use unify::Bindings;

/// How many levels an expression may have, together with the variables that it refers to, directly or indirectly.
const MAX_COMPOSED_DEPTH: u32 = 5 * MAX_DEPTH;

/// The compile steps for reading one character.
const STEPS_PER_CHARACTER: u64 = 8;

/// The compile steps of every expression, however short.
const STEPS_PER_EXPRESSION: u64 = 200;

/// The bytes that one part of an expression takes in its program.
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

/// A plan node and the type of its value.
type CheckedExpr = Result<(PlanNode, Type), CompileError>;

struct Checker<'e> {
    environment: &'e Environment,
    text: &'e str,
    /// The offset in the text of what is being checked.
    at: usize,
    bindings: Bindings<'e>,
    /// The variables of the enclosing comprehensions, innermost last.
    scope: Vec<Local>,
    /// How many local variables were in scope at most.
    locals: usize,
    /// The depth of the deepest variable that was named and is itself an expression.
    composed: u32,
    /// Pairs of types of one list or map literal that must turn out the same.
    pending: Vec<(usize, Type, Type)>,
    /// How many calls of `format` enclose what is being checked: the types of their arguments have to be known
    /// later.
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

/// The shape of a macro: its kind, and its arguments.
#[derive(Clone, Copy)]
struct FoldShape {
    kind: FoldKind,
    /// Whether it has two variables.
    two: bool,
    /// Whether an argument before the last is a filter.
    filter: bool,
    /// Whether the last argument itself is the filter.
    only_filter: bool,
}

impl FoldShape {
    const fn new(kind: FoldKind) -> Self {
        Self {
            kind,
            two: false,
            filter: false,
            only_filter: false,
        }
    }

    const fn two(self) -> Self {
        Self { two: true, ..self }
    }

    const fn filtered(self) -> Self {
        Self { filter: true, ..self }
    }
}

/// The shape of the macro `function` with this number of arguments, if it is a macro in `version`.
fn shape(function: &str, arguments: usize, version: Version) -> Option<FoldShape> {
    let list = FoldShape::new(FoldKind::List);
    let map = FoldShape::new(FoldKind::Map).two();
    let entry = FoldShape::new(FoldKind::MapEntry).two();
    let shape = match (function, arguments) {
        ("all", 2) => FoldShape::new(FoldKind::All),
        ("exists", 2) => FoldShape::new(FoldKind::Exists),
        ("exists_one", 2) => FoldShape::new(FoldKind::ExistsOne),
        ("map", 2) => list,
        ("map", 3) => list.filtered(),
        ("filter", 2) => FoldShape {
            only_filter: true,
            ..list
        },
        ("optMap", 2) => FoldShape::new(FoldKind::OptionalMap),
        ("optFlatMap", 2) => FoldShape::new(FoldKind::OptionalFlatMap),
        ("all", 3) => FoldShape::new(FoldKind::All).two(),
        ("exists", 3) => FoldShape::new(FoldKind::Exists).two(),
        ("exists_one" | "existsOne", 3) => FoldShape::new(FoldKind::ExistsOne).two(),
        ("transformList", 3) => list.two(),
        ("transformList", 4) => list.two().filtered(),
        ("transformMap", 3) => map,
        ("transformMap", 4) => map.filtered(),
        ("transformMapEntry", 3) => entry,
        ("transformMapEntry", 4) => entry.filtered(),
        ("sortBy", 2) => FoldShape::new(FoldKind::SortBy { known: false }),
        _ => return None,
    };
    let since = match shape.kind {
        FoldKind::SortBy { .. } => Version::new(34),
        _ if shape.two => Version::new(32),
        _ => Version::OLDEST,
    };
    (version >= since).then_some(shape)
}

impl Checker<'_> {
    pub(crate) fn fold_macro(
        &mut self,
        expr: &Expr,
        target: &Expr,
        function: &str,
        arguments: &[Expr],
    ) -> Option<CheckedExpr> {
        let shape = shape(function, arguments.len(), self.environment.version())?;
        Some(match shape.kind {
            FoldKind::OptionalMap | FoldKind::OptionalFlatMap => {
                self.optional_map(expr, target, arguments, shape.kind)
            }
            FoldKind::SortBy { .. } => self.sort_by(expr, target, arguments),
            _ => self.comprehension(target, arguments, shape),
        })
    }

    fn comprehension(&mut self, target: &Expr, arguments: &[Expr], shape: FoldShape) -> CheckedExpr {
        let first_name = self.variable_name(arguments.first())?;
        let second_name = if shape.two {
            Some(self.variable_name(arguments.get(1))?)
        } else {
            None
        };
        if let (Some(second), Some(argument)) = (second_name, arguments.get(1))
            && second == first_name
        {
            return Err(self.fault(argument, format_args!("duplicate variable name: {second}")));
        }
        let (range, range_of) = self.check(target)?;
        let (first_of, second_of) = self.range(target, &range_of, shape.two)?;
        let rest = arguments.get(1 + usize::from(shape.two)..).unwrap_or_default();
        self.with_local(first_name, first_of.clone(), |own, first| {
            let within = |own: &mut Self, second| own.rounds(rest, shape, (range, first, second), first_of);
            match second_name {
                Some(name) => own.with_local(name, second_of, |own, second| within(own, Some(second))),
                None => within(own, None),
            }
        })
    }

    /// The filter and body of a macro, its variables in scope.
    fn rounds(
        &mut self,
        rest: &[Expr],
        shape: FoldShape,
        (range, first, second): (PlanNode, usize, Option<usize>),
        key_of: Type,
    ) -> CheckedExpr {
        let (filter, body) = match rest {
            [filter, body] if shape.filter => (Some(filter), Some(body)),
            [filter] if shape.only_filter => (Some(filter), None),
            [body] => (None, Some(body)),
            _ => (None, None),
        };
        let filter = filter
            .map(|filter| self.checked_as(filter, &Type::Bool))
            .transpose()?;
        let (body, of) = match body {
            Some(body) => self.body(body, shape.kind)?,
            None => (
                select::attribute(crate::program::AttributeBase::Local(first)),
                key_of.clone(),
            ),
        };
        let of = match shape.kind {
            FoldKind::List => self.sized(Type::list(of))?,
            FoldKind::Map => self.sized(Type::map(key_of, of))?,
            _ => of,
        };
        let fold = Fold {
            kind: shape.kind,
            range,
            first,
            second,
            filter,
            body,
        };
        Ok((PlanNode::Fold(Box::new(fold)), of))
    }

    fn body(&mut self, body: &Expr, kind: FoldKind) -> CheckedExpr {
        match kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => {
                Ok((self.checked_as(body, &Type::Bool)?, Type::Bool))
            }
            FoldKind::MapEntry => {
                let expected = Type::map(self.bindings.fresh(), self.bindings.fresh());
                let node = self.checked_as(body, &expected)?;
                Ok((node, self.bindings.substitute(&expected, false)?))
            }
            _ => self.check(body),
        }
    }

    fn variable_name<'x>(&self, argument: Option<&'x Expr>) -> Result<&'x str, CompileError> {
        match argument {
            Some(argument) => argument
                .ident()
                .ok_or_else(|| self.fault(argument, "argument must be a simple name")),
            None => Err(self.fault_at(0, "argument must be a simple name")),
        }
    }

    /// The types of the variables of a macro over a value of type `of`.
    fn range(&mut self, expr: &Expr, of: &Type, two: bool) -> Result<(Type, Type), CompileError> {
        match self.bindings.substitute(of, false)? {
            Type::List(item) if two => Ok((Type::Int, Type::clone(&item))),
            Type::List(item) => Ok((Type::clone(&item), Type::Dyn)),
            Type::Map(entry) => Ok((entry.0.clone(), entry.1.clone())),
            Type::Dyn => Ok((Type::Dyn, Type::Dyn)),
            variable @ Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &variable)?;
                Ok((Type::Dyn, Type::Dyn))
            }
            other => {
                let other = self.resolved(&other)?;
                let message = format_args!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                Err(self.fault(expr, message))
            }
        }
    }

    /// `target.optMap(name, body)`
    fn optional_map(
        &mut self,
        expr: &Expr,
        target: &Expr,
        arguments: &[Expr],
        kind: FoldKind,
    ) -> CheckedExpr {
        let name = self.variable_name(arguments.first())?;
        let (range, range_of) = self.check(target)?;
        let inner = self.bindings.fresh();
        if !self.bindings.assign(&range_of, &Type::optional(inner.clone()))? {
            return Err(self.mismatch(target, &Type::optional(Type::Dyn), &range_of));
        }
        let inner = self.bindings.substitute(&inner, false)?;
        let body = arguments.get(1).unwrap_or(expr);
        let (first, body, of) = self.with_local(name, inner, |own, slot| {
            let (node, of) = own.check(body)?;
            Ok((slot, node, of))
        })?;
        let of = if kind == FoldKind::OptionalMap {
            self.sized(Type::optional(of))?
        } else {
            of
        };
        let none = Type::optional(self.bindings.fresh());
        let of = self.resolve_conditional(expr, &[Type::Bool, of, none])?;
        let fold = Fold {
            kind,
            range,
            first,
            second: None,
            filter: None,
            body,
        };
        Ok((PlanNode::Fold(Box::new(fold)), of))
    }

    /// `target.sortBy(name, key)`
    fn sort_by(&mut self, expr: &Expr, target: &Expr, arguments: &[Expr]) -> CheckedExpr {
        let name = self.variable_name(arguments.first())?;
        let (range, range_of) = self.check(target)?;
        let (item_of, _) = self.range(target, &range_of, false)?;
        let body = arguments.get(1).unwrap_or(expr);
        let (first, body, key_of) = self.with_local(name, item_of, |own, slot| {
            let (node, of) = own.check(body)?;
            Ok((slot, node, of))
        })?;
        let types = [range_of, self.sized(Type::list(key_of))?];
        let (overloads, of) = self.resolve(expr, "@sortByAssociatedKeys", true, &types)?;
        let kind = FoldKind::SortBy {
            known: overloads.len() == 1,
        };
        let fold = Fold {
            kind,
            range,
            first,
            second: None,
            filter: None,
            body,
        };
        Ok((PlanNode::Fold(Box::new(fold)), of))
    }
}

// === impl Checker ===

impl Checker<'_> {
    fn program(&mut self, expected: &[Type]) -> Result<Program, CompileError> {
        let budget = self.bindings.budget();
        budget.charge_steps(STEPS_PER_EXPRESSION + STEPS_PER_CHARACTER * self.text.len() as u64)?;
        let tree = syntax::parse(self.text)?;
        budget.charge_bytes(self.text.len())?;
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
        self.bindings.budget().charge_bytes(BYTES_PER_PART)?;
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
            ExprKind::And(terms) => Ok((PlanNode::And(self.terms(terms)?), Type::Bool)),
            ExprKind::Or(terms) => Ok((PlanNode::Or(self.terms(terms)?), Type::Bool)),
            ExprKind::Conditional(parts) => self.conditional(expr, parts),
            ExprKind::List(items) => self.list(items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => self.object(expr, name, fields),
        }
    }

    fn terms(&mut self, terms: &[Expr]) -> Result<Box<[PlanNode]>, CompileError> {
        terms
            .iter()
            .map(|term| self.checked_as(term, &Type::Bool))
            .collect()
    }

    /// Checks `expr`, which must fit `expected`.
    fn checked_as(&mut self, expr: &Expr, expected: &Type) -> Result<PlanNode, CompileError> {
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

    /// Returns a type made of others, if it is not too large.
    fn sized(&self, of: Type) -> Result<Type, CompileError> {
        Ok(self.bindings.sized(of)?)
    }

    /// The slot of the innermost local variable of this name.
    fn local(&self, name: &str) -> Option<usize> {
        self.scope.iter().rposition(|local| local.name == name)
    }

    /// Runs `within` with a local variable in scope, and passes it the slot of the variable.
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
