//! Declarations of library functions.

use std::fmt;

use super::EvalError;
use super::evaluate::Evaluation;
use super::program::Call;
use super::types::Type;
use super::value::Value;

/// One signature of a function.
pub(crate) struct Overload {
    /// The ID of the overload in cel-go, by which the checker and the cost model know it.
    pub(crate) id: &'static str,
    /// The function's name, with its namespace if it has one.
    pub(crate) name: &'static str,
    /// Whether it is called on its first argument.
    pub(crate) member: bool,
    pub(crate) parameters: Vec<Type>,
    /// The sorts of values that each parameter accepts.
    sorts: Vec<ValueSorts>,
    pub(crate) result: Type,
    /// Whether the signature contains type parameters.
    pub(crate) is_generic: bool,
    pub(crate) apply: Apply,
    pub(crate) cost: Cost,
}

/// Computes the result. The checker knows the types of only some arguments, so
/// each is checked again.
pub(crate) type Apply =
    for<'a> fn(&mut Evaluation<'_, 'a>, &'a Call, &[Value<'a>]) -> Result<Value<'a>, EvalError>;

/// The cost of a call, without that of its arguments.
#[derive(Clone, Copy)]
pub(crate) enum Cost {
    /// The basic cost of every call.
    One,
    /// Computed in the same way for all overloads of the function.
    OfFunction(CostOf),
    /// Visiting all of the first argument, for all overloads of the function.
    Traversal,
    /// Computed for this overload; 1 if it is not known which overload is meant.
    OfOverload(CostOf),
    /// Like `OfOverload`, for an overload whose argument at this index is a list: anything else there ends the
    /// whole expression, as it does upstream.
    OfList(usize, CostOf),
    /// Like `OfList`, for an argument that is an int.
    OfInt(usize, CostOf),
}

/// Computes a cost from the arguments and the result. An argument or result that failed has the size of a number.
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
        let parameters = parameters.into();
        let is_generic = has_parameters(&result) || parameters.iter().any(has_parameters);
        Self {
            id,
            name,
            member: false,
            sorts: parameters.iter().map(ValueSorts::of).collect(),
            is_generic,
            parameters,
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

    /// This overload with the given cost.
    pub(crate) fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// Whether the overload accepts `arguments`.
    pub(crate) fn takes(&self, arguments: &[Value<'_>]) -> bool {
        let mut are_told = true;
        self.sorts.len() == arguments.len()
            && self.sorts.iter().zip(arguments).all(|(sorts, argument)| {
                are_told &= sorts.tell;
                sorts.contain(argument)
            })
            && (are_told || self.takes_contents(arguments))
    }

    /// Whether the overload accepts `arguments`, if that depends on the contents of lists and maps.
    fn takes_contents(&self, arguments: &[Value<'_>]) -> bool {
        let mut pairs = self.parameters.iter().zip(arguments);
        pairs.all(|(parameter, argument)| is_a(parameter, argument))
    }
}

/// The sorts of values that belong to a type, as a bit set: finding an overload checks many of them in turn.
#[derive(Debug, Clone, Copy)]
struct ValueSorts {
    /// A bit for each sort.
    bits: u16,
    /// Whether the sort is enough to decide. It is not for lists and maps of certain types, and for the opaque
    /// types of libraries.
    tell: bool,
}

impl ValueSorts {
    const ALL: u16 = u16::MAX;

    fn of(of: &Type) -> Self {
        let (bits, tell) = match of {
            Type::Null => (1 << 0, true),
            Type::Bool => (1 << 1, true),
            Type::Int => (1 << 2, true),
            Type::Uint => (1 << 3, true),
            Type::Double => (1 << 4, true),
            Type::String => (1 << 5, true),
            Type::Bytes => (1 << 6, true),
            Type::Duration => (1 << 7, true),
            Type::Timestamp => (1 << 8, true),
            Type::List(item) => (1 << 9, is_any(item)),
            Type::Map(entry) => (1 << 10, is_any(&entry.0) && is_any(&entry.1)),
            Type::Object(_) => (1 << 10, true),
            Type::Optional(_) => (1 << 11, true),
            Type::Type(_) => (1 << 12, true),
            Type::Opaque(_) => (1 << 13, false),
            Type::Dyn | Type::Param(_) => (Self::ALL, true),
        };
        Self { bits, tell }
    }

    const fn contain(self, value: &Value<'_>) -> bool {
        let sort = match value {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int(_) => 2,
            Value::Uint(_) => 3,
            Value::Double(_) => 4,
            Value::String(_) => 5,
            Value::Bytes(_) => 6,
            Value::Duration(_) => 7,
            Value::Timestamp(_) => 8,
            Value::List(_) => 9,
            Value::Map(_) => 10,
            Value::Optional(_) => 11,
            Value::Type(_) => 12,
            Value::Opaque(_) => 13,
        };
        self.bits & (1 << sort) != 0
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

/// Whether a type parameter is in it.
fn has_parameters(of: &Type) -> bool {
    match of {
        Type::Param(_) => true,
        Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => has_parameters(inner),
        Type::Map(entry) => has_parameters(&entry.0) || has_parameters(&entry.1),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::value::{Entries, Key, Opaque, Text};

    /// A value of each sort, and several of those whose contents matter.
    fn values() -> Vec<Value<'static>> {
        let map = |value| Value::map(Entries::from_iter([(Key::String(Text::Borrowed("k")), value)]));
        vec![
            Value::Null,
            Value::Bool(true),
            Value::Int(1),
            Value::Uint(1),
            Value::Double(1.0),
            Value::str("text"),
            Value::Bytes(b"bytes".to_vec().into()),
            Value::list(Vec::new()),
            Value::list(vec![Value::Int(1)]),
            Value::list(vec![Value::str("text")]),
            Value::map(Entries::new()),
            map(Value::Int(1)),
            map(Value::str("text")),
            Value::none(),
            Value::some(Value::Int(1)),
            Value::Type(Arc::new(Type::Int)),
            Value::Opaque(Opaque::Cidr([10, 0, 0, 0].into(), 8)),
        ]
    }

    fn types() -> Vec<Type> {
        let opaque = |value: &Value<'_>| match value {
            Value::Opaque(opaque) => opaque.type_name(),
            _ => "other",
        };
        let mut types = vec![
            Type::Dyn,
            Type::Null,
            Type::Bool,
            Type::Int,
            Type::Uint,
            Type::Double,
            Type::String,
            Type::Bytes,
            Type::Duration,
            Type::Timestamp,
            A,
        ];
        let within = types.clone();
        types.extend(within.iter().cloned().map(Type::list));
        types.extend(within.iter().cloned().map(|value| Type::map(Type::String, value)));
        types.extend([
            Type::map(A, B),
            Type::optional(Type::Int),
            Type::of_type(Type::Dyn),
            Type::object("Object", []),
        ]);
        types.extend(values().iter().map(opaque).map(Type::Opaque));
        types
    }

    /// The sorts are a short cut to [`is_a`]: they must never say anything else.
    #[test]
    fn an_overload_takes_the_values_of_its_types_and_no_others() {
        for of in types() {
            let unused: Apply = |_, _, _| Err(EvalError::no_such_overload());
            let overload = Overload::global("one", "one", [of.clone()], Type::Dyn, unused);
            for value in values() {
                let arguments = std::slice::from_ref(&value);
                assert_eq!(overload.takes(arguments), is_a(&of, &value), "{of}: {value:?}");
            }
            assert!(!overload.takes(&[]) && !overload.takes(&[Value::Null, Value::Null]));
        }
    }
}
