//! Macros over lists, maps and optionals.

use super::{CheckedExpr, Checker};
use crate::environment::Version;
use crate::error::CompileError;
use crate::program::{Fold, FoldKind, Node};
use crate::syntax::Expr;
use crate::types::Type;

/// What a macro makes of each round.
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

/// The macro `function` of so many arguments, if it is one in `version`.
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
        (range, first, second): (Node, usize, Option<usize>),
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
                super::select::attribute(crate::program::AttributeBase::Local(first)),
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
        Ok((Node::Fold(Box::new(fold)), of))
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
        Ok((Node::Fold(Box::new(fold)), of))
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
        Ok((Node::Fold(Box::new(fold)), of))
    }
}
