//! Calls: overload resolution and constant folding.

use std::sync::Arc;

use super::{CheckedExpr, Checker};
use crate::cost::{Budget, Exhaustion};
use crate::environment::Version;
use crate::function::{Cost, Overload};
use crate::library::PreparedArgument;
use crate::program::{Activation, Attribute, AttributeBase, Call, InSet, PlanNode, Program};
use crate::regex::{CompileFault, Regex, RegexUse};
use crate::syntax::{Expr, ExprKind, ItemExpr, Literal};
use crate::types::Type;
use crate::value::{Entries, Key, List, Value, exact_int};
use crate::{CompileError, brief, library, regex};

/// Conversions that are evaluated at compile time if the argument is constant, and so cost nothing later (cel-go
/// `overloads.IsTypeConversionFunction`).
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

/// The compile steps for making one entry of a constant set.
const STEPS_PER_ENTRY: u64 = 16;

/// The compile steps for copying one part of a constant.
const STEPS_PER_PART: u64 = 4;

impl Checker<'_> {
    pub(crate) fn call_or_macro(
        &mut self,
        expr: &Expr,
        target: Option<&Expr>,
        function: &str,
        arguments: &[Expr],
    ) -> CheckedExpr {
        match target {
            None if function == "has" && arguments.len() == 1 => self.has(expr, arguments),
            None => self.call(expr, function, None, arguments),
            Some(target) => match self.fold_macro(expr, target, function, arguments) {
                Some(checked) => checked,
                None => self.member_call(expr, target, function, arguments),
            },
        }
    }

    fn has(&mut self, expr: &Expr, arguments: &[Expr]) -> CheckedExpr {
        match arguments {
            [
                Expr {
                    kind:
                        ExprKind::Select {
                            operand,
                            field,
                            optional: false,
                        },
                    ..
                },
            ] => self.presence(expr, operand, field),
            _ => Err(self.fault(expr, "invalid argument to has() macro")),
        }
    }

    /// `a.b.f()`: the function `a.b.f`, or `f` of `a.b`.
    fn member_call(&mut self, expr: &Expr, target: &Expr, function: &str, arguments: &[Expr]) -> CheckedExpr {
        if let Some(prefix) = target.qualified_name() {
            let name = format!("{prefix}.{function}");
            let name = name.strip_prefix('.').unwrap_or(&name);
            if self.environment.functions_of(name).is_some() {
                return self.call(expr, name, None, arguments);
            }
        }
        let is_format = usize::from(function == "format");
        self.formats += is_format;
        let target = self.check(target)?;
        let checked = self.call(expr, function, Some(target), arguments);
        self.formats -= is_format;
        checked
    }

    /// Checks a call of `format` in advance, if the format is a literal and the arguments are a list literal.
    fn check_format(
        &self,
        expr: &Expr,
        function: &str,
        nodes: &[PlanNode],
        arguments: &[Expr],
    ) -> Result<(), CompileError> {
        let (
            "format",
            [format, _],
            [
                Expr {
                    kind: ExprKind::List(items),
                    ..
                },
            ],
        ) = (function, nodes, arguments)
        else {
            return Ok(());
        };
        // A computed format is not checked.
        let is_literal = matches!(&expr.kind, ExprKind::Call { target: Some(target), .. }
            if matches!(target.kind, ExprKind::Literal(_)));
        let (true, Some(Value::String(format))) = (is_literal, format.constant()) else {
            return Ok(());
        };
        let written = |item: &ItemExpr| self.written_type(&item.value);
        let types: Vec<Type> = items.iter().map(written).collect::<Result<_, _>>()?;
        library::check_format(format, &types).map_err(|message| self.fault(expr, message))
    }

    /// The type of a value to format; for a list or map literal with a part that cannot be formatted, the type of
    /// that part.
    fn written_type(&self, expr: &Expr) -> Result<Type, CompileError> {
        let of = self.types.get(&std::ptr::from_ref(expr));
        let of = of.map_or(Ok(Type::Dyn), |of| self.resolved(of))?;
        let parts: Vec<&Expr> = match &expr.kind {
            ExprKind::List(items) => items.iter().map(|item| &item.value).collect(),
            ExprKind::Map(entries) => entries
                .iter()
                .flat_map(|entry| [&entry.key, &entry.value])
                .collect(),
            _ => Vec::new(),
        };
        for part in parts {
            let part = self.written_type(part)?;
            if !library::is_formattable(&part) {
                return Ok(part);
            }
        }
        Ok(of)
    }

    /// A literal pattern must compile (cel-go's validator for regular expressions). In the form
    /// `matches(text, pattern)`, upstream checks the text instead.
    fn check_pattern(&mut self, function: &str, arguments: &[Expr]) -> Result<(), CompileError> {
        let ("matches", Some(first)) = (function, arguments.first()) else {
            return Ok(());
        };
        let ExprKind::Literal(Literal::String(pattern)) = &first.kind else {
            return Ok(());
        };
        match self.pattern(pattern, RegexUse::Match)? {
            Err(error) if self.environment.version() >= Version::new(29) => {
                Err(self.fault(first, format_args!("invalid matches argument: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Compiles a pattern, only once if it occurs several times in the expression. The inner error says what is
    /// wrong with the pattern; the outer one, that the budget is exhausted.
    fn pattern(
        &mut self,
        pattern: &str,
        purpose: RegexUse,
    ) -> Result<Result<Arc<Regex>, regex::RegexError>, CompileError> {
        if let Some(known) = self.patterns.get(&(purpose, pattern.into())) {
            return Ok(Ok(Arc::clone(known)));
        }
        let budget = self.bindings.budget();
        let mut exhausted = None;
        let compiled = Regex::constant(pattern, purpose, budget.bytes(), &mut |steps| {
            exhausted = budget.charge_steps(steps as u64).err();
            exhausted.is_none()
        });
        match compiled {
            Ok(regex) => {
                budget.charge_bytes(regex.bytes())?;
                let regex = Arc::new(regex);
                self.patterns
                    .insert((purpose, pattern.into()), Arc::clone(&regex));
                Ok(Ok(regex))
            }
            Err(CompileFault::Invalid(error)) => Ok(Err(error)),
            Err(CompileFault::Stopped) => Err(exhausted.unwrap_or(Exhaustion::Bytes).into()),
        }
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<(PlanNode, Type)>,
        arguments: &[Expr],
    ) -> CheckedExpr {
        let is_member = target.is_some();
        let (mut nodes, mut types): (Vec<PlanNode>, Vec<Type>) = target.into_iter().unzip();
        for argument in arguments {
            let (node, of) = self.check(argument)?;
            nodes.push(node);
            types.push(of);
        }
        let (overloads, result) = self.resolve(expr, function, is_member, &types)?;
        self.check_format(expr, function, &nodes, arguments)?;
        self.check_pattern(function, arguments)?;
        Ok((self.step(expr, function, overloads, nodes)?, result))
    }

    /// The overloads that take arguments of these types, and the type of the
    /// result, where they agree.
    pub(crate) fn resolve(
        &mut self,
        expr: &Expr,
        function: &str,
        is_member: bool,
        arguments: &[Type],
    ) -> Result<(Vec<Arc<Overload>>, Type), CompileError> {
        let Some(known) = self.environment.functions_of(function) else {
            return Err(self.undeclared(expr, function));
        };
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for overload in known.iter().filter(|overload| overload.member == is_member) {
            self.bindings
                .budget()
                .charge_steps(1 + overload.parameters.len() as u64)?;
            let Some(of) = self.result_of(overload, arguments)? else {
                continue;
            };
            overloads.push(Arc::clone(overload));
            result = Some(match result {
                Some(before) if !before.is_dyn() && !self.bindings.is_same(&before, &of)? => Type::Dyn,
                Some(before) => before,
                None => of,
            });
        }
        match result {
            Some(result) => Ok((overloads, result)),
            None => Err(self.no_overload(expr, function, is_member, arguments)),
        }
    }

    /// The type of the result of `overload` for these arguments, if it accepts them.
    fn result_of(&mut self, overload: &Overload, arguments: &[Type]) -> Result<Option<Type>, CompileError> {
        if !overload.is_generic {
            let takes = self.bindings.assign_all(arguments, &overload.parameters)?;
            return Ok(takes.then(|| overload.result.clone()));
        }
        let signature = [&*overload.parameters, std::slice::from_ref(&overload.result)];
        let [parameters, results] = self.bindings.instantiate(signature);
        if !self.bindings.assign_all(arguments, &parameters)? {
            return Ok(None);
        }
        let of = results.first().unwrap_or(&Type::Dyn);
        Ok(Some(self.bindings.substitute(of, false)?))
    }

    fn no_overload(&self, expr: &Expr, function: &str, is_member: bool, arguments: &[Type]) -> CompileError {
        // `brief` bounds the message, because names of types may have any length.
        let written = |of: &Type| Ok(brief(self.resolved(of)?));
        let resolved: Result<Vec<String>, CompileError> = arguments.iter().map(written).collect();
        let applied = match resolved.as_deref() {
            Ok([target, others @ ..]) if is_member => format!("{target}.({})", others.join(", ")),
            Ok(all) => format!("({})", all.join(", ")),
            Err(exhausted) => return exhausted.clone(),
        };
        self.fault(
            expr,
            format_args!("found no matching overload for '{function}' applied to '{applied}'"),
        )
    }

    /// The plan of a call: some functions have a plan node of their own.
    fn step(
        &mut self,
        expr: &Expr,
        function: &str,
        overloads: Vec<Arc<Overload>>,
        nodes: Vec<PlanNode>,
    ) -> Result<PlanNode, CompileError> {
        let only = if let [only] = &*overloads {
            Some(only.id)
        } else {
            None
        };
        if nodes.len() == 2 && matches!(function, "_==_" | "_!=_" | "or" | "orValue" | "@in") {
            return self.pair(function, only, overloads, nodes);
        }
        let foldable = CONVERSIONS.contains(&function) && nodes.iter().all(|node| node.constant().is_some());
        let prepared = self.prepared(expr, function, &nodes)?;
        let call = call_node(overloads, nodes, prepared);
        if foldable {
            return self.evaluate_now(expr, call).map(PlanNode::Constant);
        }
        Ok(call)
    }

    /// What can be prepared for a call of `function` at compile time. A constant pattern that is invalid is an
    /// error.
    fn prepared(
        &mut self,
        expr: &Expr,
        function: &str,
        arguments: &[PlanNode],
    ) -> Result<Option<PreparedArgument>, CompileError> {
        let pattern = match arguments {
            [_, pattern, ..] => pattern.constant(),
            _ => None,
        };
        let purpose = match function {
            "matches" => RegexUse::Match,
            "find" | "findAll" => RegexUse::Find,
            _ => return Ok(None),
        };
        let Some(Value::String(pattern)) = pattern else {
            return Ok(None);
        };
        let regex = self
            .pattern(pattern, purpose)?
            .map_err(|error| self.fault(expr, format_args!("program instantiation failed: {error}")))?;
        Ok(Some(PreparedArgument::Regex(regex)))
    }

    /// The result of a call whose arguments are constants.
    fn evaluate_now(&self, expr: &Expr, call: PlanNode) -> Result<Value<'static>, CompileError> {
        let program = Program {
            root: call,
            output: Type::Dyn,
            locals: 0,
            depth: 1,
            version: Version::NEWEST,
            name: None,
        };
        let value = program.evaluate(&mut Activation::default(), &mut Budget::new(u64::MAX));
        let value =
            value.map_err(|error| self.fault(expr, format_args!("program instantiation failed: {error}")))?;
        // The value is no larger than the constants that it is computed from, whose memory is counted.
        let parts = count_parts(&value);
        self.bindings.budget().charge_steps(STEPS_PER_PART * parts)?;
        Ok(value.into_owned())
    }

    /// The plan of a function of two arguments that has a plan node of its own.
    fn pair(
        &self,
        function: &str,
        only: Option<&str>,
        overloads: Vec<Arc<Overload>>,
        nodes: Vec<PlanNode>,
    ) -> Result<PlanNode, CompileError> {
        let Ok([left, right]) = <[PlanNode; 2]>::try_from(nodes) else {
            return Ok(PlanNode::Constant(Value::Null));
        };
        Ok(match function {
            "_==_" => PlanNode::Equal(Box::new((left, right))),
            "_!=_" => PlanNode::NotEqual(Box::new((left, right))),
            "or" => PlanNode::OptionalOr(Box::new((left, right)), false),
            "orValue" => PlanNode::OptionalOr(Box::new((left, right)), true),
            _ => match (only, right.constant()) {
                (Some("in_list"), Some(Value::List(list))) if list.is_empty() => {
                    PlanNode::Constant(Value::Bool(false))
                }
                (Some("in_list"), Some(list)) => match self.constant_set(list)? {
                    Some(set) => PlanNode::InSet(Box::new(InSet { item: left, set })),
                    None => call_node(overloads, vec![left, right], None),
                },
                _ => call_node(overloads, vec![left, right], None),
            },
        })
    }

    /// The items of a constant list as a set, if `in` can look them up.
    fn constant_set(&self, list: &Value<'static>) -> Result<Option<Entries<'static>>, CompileError> {
        let Value::List(list) = list else { return Ok(None) };
        self.bindings
            .budget()
            .charge_steps(STEPS_PER_ENTRY * list.len() as u64)?;
        self.bindings
            .budget()
            .charge_bytes(Entries::BYTES_PER_ENTRY * list.len())?;
        Ok(set_of(list))
    }

    pub(crate) fn conditional(&mut self, expr: &Expr, parts: &[Expr; 3]) -> CheckedExpr {
        let mut types = Vec::with_capacity(3);
        let mut check = |part: &Expr| {
            let (node, of) = self.check(part)?;
            types.push(of);
            Ok::<_, CompileError>(node)
        };
        let [condition, truthy, falsy] = parts;
        let nodes = [check(condition)?, check(truthy)?, check(falsy)?];
        let result = self.resolve_conditional(expr, &types)?;
        let base = AttributeBase::Conditional(Box::new(nodes));
        Ok((
            PlanNode::Attribute(Attribute {
                base,
                qualifiers: Box::default(),
                is_presence_test: false,
            }),
            result,
        ))
    }

    /// The type of `a ? b : c`, of parts of these types.
    pub(crate) fn resolve_conditional(&mut self, expr: &Expr, parts: &[Type]) -> Result<Type, CompileError> {
        let either = self.bindings.fresh();
        if !self
            .bindings
            .assign_all(parts, &[Type::Bool, either.clone(), either.clone()])?
        {
            return Err(self.no_overload(expr, "_?_:_", false, parts));
        }
        Ok(self.bindings.substitute(&either, false)?)
    }
}

fn call_node(
    overloads: Vec<Arc<Overload>>,
    arguments: Vec<PlanNode>,
    prepared: Option<PreparedArgument>,
) -> PlanNode {
    let of_function = |cost: &Cost| matches!(cost, Cost::OfFunction(_) | Cost::Traversal);
    let cost = match &*overloads {
        [only] => only.cost,
        several => several
            .iter()
            .map(|overload| overload.cost)
            .find(of_function)
            .unwrap_or(Cost::One),
    };
    // Upstream dispatches an operator by itself, any other function of several
    // overloads with all its arguments.
    let name = overloads.first().map_or("", |overload| overload.name);
    let is_operator = name.starts_with('_') || name == "@in";
    let sequential = prepared.is_some() || name == "format" || overloads.len() > 1 && !is_operator;
    PlanNode::Call(Box::new(Call {
        overloads: overloads.into(),
        arguments: arguments.into(),
        cost,
        stops_at_first_error: sequential,
        prepared,
        is_negation: name == "!_",
    }))
}

/// The number of parts of a constant, which nests no deeper than the expression that it was made of.
fn count_parts(value: &Value<'_>) -> u64 {
    let within = match value {
        Value::String(text) => text.len() as u64 / 64,
        Value::Bytes(bytes) => bytes.len() as u64 / 64,
        Value::List(list) => list.items().map(|item| count_parts(&item)).sum(),
        Value::Map(map) => {
            let values = map.entries().map(|(_, value)| value);
            values.map(|value| 1 + count_parts(&value)).sum()
        }
        _ => 0,
    };
    1 + within
}

/// The items of a list as a set, if `in` can look them up.
fn set_of(list: &List<'static>) -> Option<Entries<'static>> {
    let mut set = Entries::new();
    for item in list.items() {
        // CEL compares numbers of different types, so a whole double must be found as an int, too.
        if let Value::Double(double) = item
            && let Some(int) = exact_int(double)
        {
            set.insert(Key::Int(int), Value::Bool(true));
        }
        set.insert(Key::new(&item)?, Value::Bool(true));
    }
    Some(set)
}
