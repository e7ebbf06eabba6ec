//! The values in queries, and the names that refer to them.

use std::cell::Cell;

use serde_json::Value;

use crate::conversion::Refusal;
use crate::kyverno::expression::literal;
use portcullis_cel::Type;

/// The types that a value may have, one bit each.
pub(crate) type Shape = u8;
pub(crate) const NULL: Shape = 1;
pub(crate) const BOOL: Shape = 2;
pub(crate) const NUMBERS: Shape = 4;
pub(crate) const TEXT: Shape = 8;
pub(crate) const LIST: Shape = 16;
pub(crate) const MAP: Shape = 32;
pub(crate) const ANY: Shape = NULL | BOOL | NUMBERS | TEXT | LIST | MAP;

/// An expression that always fails.
pub(crate) const FAILS: &str = "dyn([])[0]";
/// A value of the object or of the request, or a result made from one, in CEL.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    /// The value, which is null if a key is missing.
    pub(crate) or_null: String,
    /// The value, which fails if a key is missing; `None` if no key can be missing.
    pub(crate) or_error: Option<String>,
    /// The path of fields as an optional, and as a selection that fails.
    pub(crate) path: Option<(String, String)>,
    /// The root of the path, if it may be null.
    pub(crate) null_root: Option<String>,
    /// The value, which is an empty list instead of null.
    pub(crate) or_empty: Option<String>,
    /// The value, which is null where `value` fails.
    pub(crate) without_error: Option<String>,
    pub(crate) shape: Shape,
    pub(crate) constant: Option<Value>,
    /// Whether `value` may fail.
    pub(crate) is_fallible: bool,
    /// Whether the string contains no wildcards.
    pub(crate) is_plain: bool,
    /// Whether elements may be lists.
    pub(crate) is_nested: bool,
    /// Whether the elements are strings.
    pub(crate) has_strings: bool,
    /// Whether the value is not null if it is present.
    pub(crate) is_never_null: bool,
    pub(crate) known: Known,
    /// The possible types of the value, if Kubernetes serves it; empty if it may be anything.
    pub(crate) types: Vec<Type>,
}

/// What Kubernetes guarantees about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    Object,
    Metadata,
    /// A map of strings.
    Texts,
    /// A part of the request.
    Request,
    /// A ConfigMap.
    ConfigMap,
}

/// The values to which names in a query refer.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// `request.object` and `request.oldObject` in CEL.
    pub(crate) object: String,
    pub(crate) old_object: String,
    /// The operation, if there is only one.
    pub(crate) operation: Option<String>,
    /// Whether Kubernetes serves the types of all objects.
    pub(crate) is_typed: bool,
    /// The group, version and kind of the objects; `None` for each that Kubernetes does not serve.
    pub(crate) kinds: Vec<Option<[String; 3]>>,
    /// The types of the objects, if all are known.
    pub(crate) types: Vec<Type>,
    /// Whether Kyverno distinguishes integers from other numbers, as it does in old objects.
    pub(crate) has_integers: bool,
    /// The variables of the rule, and the elements of loops.
    pub(crate) names: Vec<(String, Result<Term, String>)>,
    /// The terms for the strings in a query that contain variables.
    pub(crate) texts: Vec<Term>,
    /// The number of names that were generated.
    pub(crate) made: Cell<usize>,
}

// === impl Term ===

impl Term {
    pub(crate) fn new(value: impl Into<String>, shape: Shape) -> Self {
        Self {
            or_null: value.into(),
            or_error: None,
            path: None,
            null_root: None,
            or_empty: None,
            without_error: None,
            shape,
            constant: None,
            is_fallible: false,
            is_plain: false,
            is_nested: shape & LIST != 0,
            has_strings: false,
            is_never_null: false,
            known: Known::Nothing,
            types: Vec::new(),
        }
    }

    pub(crate) fn constant(value: &Value) -> Self {
        let shape = match value {
            Value::Null => NULL,
            Value::Bool(_) => BOOL,
            Value::Number(_) => NUMBERS,
            Value::String(_) => TEXT,
            Value::Array(_) => LIST,
            Value::Object(_) => MAP,
        };
        let mut term = Self::new(cel(value), shape);
        term.has_strings = value
            .as_array()
            .is_some_and(|items| items.iter().all(Value::is_string));
        term.constant = Some(value.clone());
        term
    }

    /// A CEL variable whose value may be anything.
    pub(crate) fn named(name: &str) -> Self {
        let mut term = Self::new(name, ANY);
        term.path = Some((name.to_owned(), name.to_owned()));
        term
    }

    /// An element of this list, as the CEL variable `name`.
    pub(crate) fn element(&self, name: &str) -> Self {
        let mut term = Self::named(name);
        term.types = self.types.iter().map(item_type).collect();
        if let Some(shape) = shape_of(&term.types) {
            term.shape = shape;
        }
        term
    }

    pub(crate) fn text(value: &str, may_fail: bool) -> Self {
        let mut term = Self::new(value, TEXT);
        term.is_fallible = may_fail;
        term
    }

    /// A list of terms.
    pub(crate) fn list_of(items: &[Self]) -> Self {
        let values: Vec<String> = items
            .iter()
            .map(|item| item.as_whole_query().to_owned())
            .collect();
        let mut term = Self::new(listed(&values), LIST);
        term.is_fallible = items.iter().any(Self::may_fail);
        term.has_strings = items.iter().all(|item| item.is_only(TEXT));
        term
    }

    /// The same value as a CEL variable `name`, whose evaluation cannot fail.
    pub(crate) fn renamed(&self, name: char) -> Self {
        let mut term = Self::new(
            name,
            if self.is_never_null {
                self.shape & !NULL
            } else {
                self.shape
            },
        );
        term.is_plain = self.is_plain;
        term.has_strings = self.has_strings;
        term
    }

    /// The ConfigMap that is the parameter of the policy.
    pub(crate) fn parameter() -> Self {
        let mut term = Self::named("params");
        term.known = Known::ConfigMap;
        term.shape = MAP;
        term
    }

    /// The value, or `default` if it is null. Without a default, null is an error.
    pub(crate) fn or_default(&self, default: Option<&Self>, scope: &Scope) -> Self {
        let default_value = default.map_or(FAILS, |default| default.as_whole_query());
        let value = scope.evaluated_once(&self.or_null, |name| {
            format!("({name} == null ? dyn({default_value}) : dyn({name}))")
        });
        let shape = default.map_or(0, |default| default.shape) | self.shape & !NULL;
        let mut term = Self::new(value, shape);
        term.is_fallible = self.is_fallible || default.is_none_or(Self::may_fail);
        term.has_strings = self.has_strings;
        term.is_nested = self.is_nested;
        if !self.may_be(NULL) {
            term = self.clone();
        }
        term
    }

    /// The elements that are not null as a list, which is empty for null.
    pub(crate) fn elements(&self, scope: &Scope) -> String {
        if let Some(or_empty) = &self.or_empty {
            return or_empty.clone();
        }
        if self.is_only(LIST) {
            return self.or_null.clone();
        }
        scope.evaluated_once(&self.or_null, |name| match self.is_only(LIST | NULL) {
            true => format!("({name} == null ? dyn([]) : dyn({name}))"),
            false => {
                format!("(type({name}) == list ? dyn({name}) : {name} == null ? dyn([]) : dyn([{name}]))")
            }
        })
    }

    pub(crate) fn fallible(mut self) -> Self {
        self.is_fallible = true;
        self
    }

    /// The same value with null for each error, as before `[]` and `[?]`.
    pub(crate) fn without_error(mut self) -> Result<Self, Refusal> {
        if self.is_fallible {
            self.or_null = self.without_error.take().ok_or_else(|| {
                Refusal::whole("Kyverno takes an error before `[]` and `[?]` for null, which CEL cannot: take `to_array(@)` first")
            })?;
            self.is_fallible = false;
            self.shape |= NULL;
        }
        Ok(self)
    }

    /// The value as the result of a whole query, which fails if a key is missing.
    pub(crate) fn as_whole_query(&self) -> &str {
        self.or_error.as_deref().unwrap_or(&self.or_null)
    }

    /// Whether `whole` may fail.
    pub(crate) const fn may_fail(&self) -> bool {
        self.or_error.is_some() || self.is_fallible
    }

    pub(crate) const fn may_be(&self, shape: Shape) -> bool {
        self.shape & shape != 0
    }

    pub(crate) const fn is_only(&self, shape: Shape) -> bool {
        self.shape & !shape == 0
    }
}

/// The type of a field or key of a value.
pub(crate) fn field_type(of: &Type, name: &str) -> Type {
    match of {
        Type::Object(object) => object.field(name).unwrap_or(Type::Dyn),
        Type::Map(entry) => entry.1.clone(),
        _ => Type::Dyn,
    }
}

/// The type of the elements of a list.
pub(crate) fn item_type(of: &Type) -> Type {
    match of {
        Type::List(item) => (**item).clone(),
        _ => Type::Dyn,
    }
}

/// The shape of present values of these types; `None` if it is not known.
pub(crate) fn shape_of(types: &[Type]) -> Option<Shape> {
    let shapes = types.iter().map(|of| match of {
        Type::String => Some(TEXT),
        Type::Bool => Some(BOOL),
        Type::Int => Some(NUMBERS),
        Type::List(_) => Some(LIST),
        Type::Map(_) | Type::Object(_) => Some(MAP),
        _ => None,
    });
    let all: Shape = shapes
        .collect::<Option<Vec<Shape>>>()?
        .into_iter()
        .fold(0, |all, one| all | one);
    (all != 0).then_some(all)
}

/// Whether there are types, and all are lists of strings.
pub(crate) fn is_of_texts(types: &[Type]) -> bool {
    !types.is_empty() && types.iter().all(|of| *of == Type::list(Type::String))
}

/// A JSON value in CEL.
pub(crate) fn cel(value: &Value) -> String {
    match value {
        Value::String(text) => literal(text),
        Value::Array(items) => {
            let is_of_texts = items.iter().all(Value::is_string);
            let items: Vec<String> = items.iter().map(cel).collect();
            match is_of_texts {
                true => format!("[{}]", items.join(", ")),
                false => listed(&items),
            }
        }
        Value::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: dyn({})", literal(key), cel(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 1e15 => format!("{whole:.0}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// A CEL list of items of possibly different types.
pub(crate) fn listed(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("dyn({item})")).collect();
    format!("[{}]", items.join(", "))
}

/// Whether an expression is short enough to be repeated.
pub(crate) fn is_short(value: &str) -> bool {
    value.len() <= 60 && !value.contains(' ')
}

/// The condition that `name` is a number.
pub(crate) fn is_number(name: &str) -> String {
    format!("(type({name}) == int || type({name}) == double)")
}

// === impl Scope ===

impl Scope {
    /// Generates a new name.
    pub(crate) fn fresh(&self, letter: &str) -> String {
        self.made.set(self.made.get() + 1);
        format!("{letter}{}", self.made.get())
    }

    /// The result of `body` for the value, which is evaluated once.
    pub(crate) fn evaluated_once(&self, value: &str, body: impl FnOnce(&str) -> String) -> String {
        if is_short(value) {
            return body(value);
        }
        let name = self.fresh("v");
        let body = body(&name);
        format!("[{value}].map({name}, {body})[0]")
    }

    /// Generates the variable of a macro, and returns it with the result of `body` for it.
    pub(crate) fn with_loop_variable(&self, body: impl FnOnce(&str) -> String) -> (String, String) {
        let name = self.fresh("e");
        let body = body(&name);
        (name, body)
    }
}
