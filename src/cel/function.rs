//! Declarations of library functions.

use std::fmt;

use super::error::EvalError;
use super::evaluate::Evaluation;
use super::program::Call;
use super::types::Type;
use super::value::Value;

/// One signature of a function.
pub(crate) struct Overload {
    /// As cel-go names it; the checker and the cost model know it by this.
    pub(crate) id: &'static str,
    /// The function's name, with its namespace if it has one.
    pub(crate) name: &'static str,
    /// Whether it is called on its first argument.
    pub(crate) member: bool,
    pub(crate) parameters: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) apply: Apply,
    pub(crate) cost: Cost,
}

/// Computes the result. The checker knows the types of only some arguments, so
/// each is looked at again.
pub(crate) type Apply =
    for<'a> fn(&mut Evaluation<'_, 'a>, &'a Call, &[Value<'a>]) -> Result<Value<'a>, EvalError>;

/// What a call costs once its arguments are there.
#[derive(Clone, Copy)]
pub(crate) enum Cost {
    /// What any call costs.
    One,
    /// What the function costs, whichever of its overloads is meant.
    OfFunction(CostOf),
    /// Looking at all of the first argument, whichever overload is meant.
    Traversal,
    /// What this overload costs; one if it is not known which is meant.
    OfOverload(CostOf),
    /// The same, of an overload whose argument of this number is a list:
    /// anything else there ends the whole expression, as it does upstream.
    OfList(usize, CostOf),
    /// The same, of an overload whose argument of this number is an int.
    OfInt(usize, CostOf),
}

/// Of arguments and result. An argument or a result that failed counts as a
/// number.
pub(crate) type CostOf = fn(&[Value<'_>], &Value<'_>) -> u64;

/// Names of the type parameters of a signature.
pub(crate) const A: Type = Type::Param(0);
pub(crate) const B: Type = Type::Param(1);

impl Overload {
    /// A function `name`, called with all its arguments in brackets.
    pub(crate) fn global(
        id: &'static str,
        name: &'static str,
        parameters: impl Into<Vec<Type>>,
        result: Type,
        apply: Apply,
    ) -> Self {
        Self {
            id,
            name,
            member: false,
            parameters: parameters.into(),
            result,
            apply,
            cost: Cost::One,
        }
    }

    /// A function called on its first argument.
    pub(crate) fn member(
        id: &'static str,
        name: &'static str,
        parameters: impl Into<Vec<Type>>,
        result: Type,
        apply: Apply,
    ) -> Self {
        Self {
            member: true,
            ..Self::global(id, name, parameters, result, apply)
        }
    }

    /// The same, at this cost.
    pub(crate) fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// Whether it takes values of these types.
    pub(crate) fn takes(&self, arguments: &[Value<'_>]) -> bool {
        self.parameters.len() == arguments.len()
            && self
                .parameters
                .iter()
                .zip(arguments)
                .all(|(parameter, argument)| is_a(parameter, argument))
    }
}

fn is_a(of: &Type, value: &Value<'_>) -> bool {
    match (of, value) {
        (Type::Dyn | Type::Param(_), _)
        | (Type::Null, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(_))
        | (Type::Object(_), Value::Map(_))
        | (Type::Optional(_), Value::Optional(_))
        | (Type::Type(_), Value::Type(_)) => true,
        // Its first item or entry stands for all.
        (Type::List(of), Value::List(list)) => is_any(of) || list.get(0).is_none_or(|item| is_a(of, &item)),
        (Type::Map(of), Value::Map(map)) => {
            is_any(&of.0) && is_any(&of.1)
                || map
                    .first()
                    .is_none_or(|(key, value)| is_a(&of.0, &key) && is_a(&of.1, &value))
        }
        (Type::Opaque(name), Value::Opaque(opaque)) => *name == opaque.type_name(),
        _ => false,
    }
}

/// Whether every value is of this type.
const fn is_any(of: &Type) -> bool {
    matches!(of, Type::Dyn | Type::Param(_))
}

impl fmt::Debug for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "One",
            Self::OfFunction(_) => "OfFunction",
            Self::OfOverload(_) => "OfOverload",
            Self::Traversal => "Traversal",
            Self::OfList(..) => "OfList",
            Self::OfInt(..) => "OfInt",
        })
    }
}
