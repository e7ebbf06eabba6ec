//! What can be known of an expression before any request: its names, whether
//! its result is a bool, and how its cost grows with a request's size.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr};

use super::{ConditionFault, MAX_EXPRESSION_DEPTH};

/// How the cost of an expression grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    nodes: u64,
    loops: u32,
}

/// The fields of the spec that may be named, by the path before them.
const FIELDS: [(&str, &[&str]); 5] = [
    (
        "request",
        &[
            "user",
            "uid",
            "groups",
            "extra",
            "resourceAttributes",
            "nonResourceAttributes",
        ],
    ),
    (
        "request.resourceAttributes",
        &[
            "namespace",
            "verb",
            "group",
            "version",
            "resource",
            "subresource",
            "name",
            "fieldSelector",
            "labelSelector",
        ],
    ),
    ("request.nonResourceAttributes", &["path", "verb"]),
    (
        "request.resourceAttributes.fieldSelector",
        &["requirements", "rawSelector"],
    ),
    (
        "request.resourceAttributes.labelSelector",
        &["requirements", "rawSelector"],
    ),
];

/// Names of types, which are values too.
const TYPES: [&str; 10] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
];

const FUNCTIONS: [&str; 19] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bytes",
    "type",
    "dyn",
    "optional",
    "none",
    "of",
    "hasValue",
    "value",
    "orValue",
    "or",
];

const BOOL_FUNCTIONS: [&str; 15] = [
    "_==_",
    "_!=_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "_&&_",
    "_||_",
    "!_",
    "@in",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "hasValue",
];

struct Walk<'e> {
    scope: Vec<&'e str>,
    nodes: u64,
    levels: u32,
    loops: u32,
    most_loops: u32,
}

pub(super) fn check(expression: &IdedExpr) -> Result<Shape, ConditionFault> {
    let mut walk = Walk {
        scope: vec!["request"],
        nodes: 0,
        levels: 0,
        loops: 0,
        most_loops: 0,
    };
    walk.visit(&expression.expr)?;
    if !is_bool(&expression.expr) {
        return Err(ConditionFault::NotBool);
    }
    Ok(Shape {
        nodes: walk.nodes,
        loops: walk.most_loops,
    })
}

// === impl Shape ===

impl Shape {
    /// The most steps for a request of `weight`: every node once, and once
    /// more for each turn of the loops around it.
    pub(super) fn cost(self, weight: u64) -> u64 {
        let turns = weight.saturating_add(1).saturating_pow(self.loops.max(1));
        // Without loops an operation still reads a text or list to its end.
        if self.loops == 0 {
            self.nodes.saturating_add(turns)
        } else {
            self.nodes.saturating_mul(turns)
        }
    }
}

// === impl Walk ===

impl<'e> Walk<'e> {
    fn visit(&mut self, expression: &'e Expr) -> Result<(), ConditionFault> {
        self.nodes += 1;
        self.levels += 1;
        if self.levels > MAX_EXPRESSION_DEPTH {
            return Err(ConditionFault::TooManyLevels);
        }
        self.visit_kind(expression)?;
        self.levels -= 1;
        Ok(())
    }

    fn visit_kind(&mut self, expression: &'e Expr) -> Result<(), ConditionFault> {
        match expression {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.visit_variable(name),
            Expr::Select(select) => self.visit_select(select),
            Expr::Call(call) => self.visit_call(call),
            Expr::Comprehension(comprehension) => self.visit_comprehension(comprehension),
            Expr::List(list) => list
                .elements
                .iter()
                .try_for_each(|element| self.visit(&element.expr)),
            Expr::Map(map) => map
                .entries
                .iter()
                .try_for_each(|entry| self.visit_entry(&entry.expr)),
            Expr::Struct(made) => Err(ConditionFault::UnknownVariable(made.type_name.clone())),
        }
    }

    fn visit_entry(&mut self, entry: &'e EntryExpr) -> Result<(), ConditionFault> {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value.expr),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key.expr)?;
                self.visit(&entry.value.expr)
            }
        }
    }

    fn visit_variable(&self, name: &str) -> Result<(), ConditionFault> {
        if self.scope.contains(&name) || TYPES.contains(&name) {
            Ok(())
        } else {
            Err(ConditionFault::UnknownVariable(name.to_owned()))
        }
    }

    fn visit_select(&mut self, select: &'e SelectExpr) -> Result<(), ConditionFault> {
        self.visit(&select.operand.expr)?;
        self.check_field(&select.operand.expr, &select.field)
    }

    fn visit_call(&mut self, call: &'e CallExpr) -> Result<(), ConditionFault> {
        let name = call.func_name.as_str();
        let is_operator = !name.starts_with(|first: char| first.is_ascii_alphabetic());
        if !is_operator && !name.split('.').all(|part| FUNCTIONS.contains(&part)) {
            return Err(ConditionFault::UnknownFunction(name.to_owned()));
        }
        if let Some(target) = &call.target
            && !matches!(&target.expr, Expr::Ident(namespace) if namespace == "optional")
        {
            self.visit(&target.expr)?;
        }
        call.args
            .iter()
            .try_for_each(|argument| self.visit(&argument.expr))?;
        match (name, call.args.as_slice()) {
            ("_?._" | "_[_]" | "_[?_]", [operand, field]) => match &field.expr {
                Expr::Literal(LiteralValue::String(field)) => self.check_field(&operand.expr, field.inner()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn check_field(&self, operand: &Expr, field: &str) -> Result<(), ConditionFault> {
        // A loop variable called `request` is data, not the spec.
        if self.scope.iter().filter(|&&name| name == "request").count() > 1 {
            return Ok(());
        }
        let Some(parent) = path(operand) else {
            return Ok(());
        };
        let known = FIELDS
            .iter()
            .find(|(path, _)| *path == parent)
            .is_none_or(|(_, fields)| fields.contains(&field));
        if known {
            Ok(())
        } else {
            Err(ConditionFault::UnknownField {
                parent,
                field: field.to_owned(),
            })
        }
    }

    fn visit_comprehension(&mut self, loops: &'e ComprehensionExpr) -> Result<(), ConditionFault> {
        self.visit(&loops.iter_range.expr)?;
        self.visit(&loops.accu_init.expr)?;
        let outer = self.scope.len();
        self.scope.push(&loops.accu_var);
        self.scope.push(&loops.iter_var);
        self.scope.extend(loops.iter_var2.as_deref());
        // A list that is built as it goes may be copied at every turn.
        let levels = if matches!(loops.accu_init.expr, Expr::List(_)) {
            2
        } else {
            1
        };
        self.loops += levels;
        self.most_loops = self.most_loops.max(self.loops);
        self.visit(&loops.loop_cond.expr)?;
        self.visit(&loops.loop_step.expr)?;
        self.loops -= levels;
        self.visit(&loops.result.expr)?;
        self.scope.truncate(outer);
        Ok(())
    }
}

/// The fields selected from `request`, joined by dots; `None` for anything else.
fn path(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Ident(name) => (name == "request").then(|| name.clone()),
        Expr::Select(select) if !select.test => {
            path(&select.operand.expr).map(|parent| format!("{parent}.{}", select.field))
        }
        Expr::Call(call) if matches!(call.func_name.as_str(), "_?._" | "_[_]" | "_[?_]") => {
            match call.args.as_slice() {
                [
                    operand,
                    IdedExpr {
                        expr: Expr::Literal(LiteralValue::String(field)),
                        ..
                    },
                ] => path(&operand.expr).map(|parent| format!("{parent}.{}", field.inner())),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether the result can be nothing but true or false.
fn is_bool(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(LiteralValue::Boolean(_)) => true,
        Expr::Select(select) => select.test,
        Expr::Call(call) if call.func_name == "_?_:_" => {
            call.args.iter().skip(1).all(|branch| is_bool(&branch.expr))
        }
        Expr::Call(call) => BOOL_FUNCTIONS.contains(&call.func_name.as_str()),
        Expr::Comprehension(loops) => is_bool(&loops.accu_init.expr) || (is_bool(&loops.result.expr)),
        _ => false,
    }
}
