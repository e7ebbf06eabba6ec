//! The values that queries are made of, and the names that stand for them.

use std::cell::Cell;

use serde_json::Value;

use crate::conversion::Refusal;
use crate::kyverno::expression::literal;
use portcullis_cel::Type;

/// Which types a value may have.
pub(crate) type Shape = u8;
pub(crate) const NULL: Shape = 1;
pub(crate) const BOOL: Shape = 2;
pub(crate) const NUMBERS: Shape = 4;
pub(crate) const TEXT: Shape = 8;
pub(crate) const LIST: Shape = 16;
pub(crate) const MAP: Shape = 32;
pub(crate) const ANY: Shape = NULL | BOOL | NUMBERS | TEXT | LIST | MAP;

/// An expression that always has an error.
pub(crate) const FAILS: &str = "dyn([])[0]";
/// A value of the object or of the request, or what is made of one.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    /// Its CEL, which is null where there is no such key.
    pub(crate) value: String,
    /// Its CEL, which has an error where there is no such key; none: each key is there.
    pub(crate) strict: Option<String>,
    /// A path of fields as an optional value, and as one that has an error.
    pub(crate) path: Option<(String, String)>,
    /// What is null besides, where it is null.
    pub(crate) null_root: Option<String>,
    /// Its CEL, which is an empty list where it is null.
    pub(crate) or_empty: Option<String>,
    /// Its CEL, which is null where `value` has an error.
    pub(crate) without_error: Option<String>,
    pub(crate) shape: Shape,
    pub(crate) constant: Option<Value>,
    /// Whether `value` may have an error.
    pub(crate) is_fallible: bool,
    /// Whether its text has no wildcards.
    pub(crate) is_plain: bool,
    /// Whether elements of it may be lists.
    pub(crate) is_nested: bool,
    /// Whether its elements are texts.
    pub(crate) has_texts: bool,
    /// Whether it is not null, where it is there.
    pub(crate) is_never_null: bool,
    pub(crate) known: Known,
    /// What it may be by the types that Kubernetes serves; none: anything.
    pub(crate) types: Vec<Type>,
}

/// What Kubernetes guarantees of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    Object,
    Metadata,
    /// A map of texts.
    Texts,
    /// A part of the request.
    Request,
    /// A ConfigMap.
    ConfigMap,
}

/// Where names of a query lead.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// The CEL of `request.object` and `request.oldObject`.
    pub(crate) object: String,
    pub(crate) old_object: String,
    /// The operation, if there is one alone.
    pub(crate) operation: Option<String>,
    /// Whether all objects are of types that Kubernetes itself serves.
    pub(crate) is_typed: bool,
    /// Group, version and kind of the objects; none: one that Kubernetes itself does not serve.
    pub(crate) kinds: Vec<Option<[String; 3]>>,
    /// The types of the objects, if all are known.
    pub(crate) types: Vec<Type>,
    /// Whether Kyverno keeps integers apart from other numbers, as it does in old objects.
    pub(crate) has_integers: bool,
    /// The variables of the rule, and the elements of loops.
    pub(crate) names: Vec<(String, Result<Term, String>)>,
    /// What stands for the texts of a query in which variables stand.
    pub(crate) texts: Vec<Term>,
    /// How many names were made.
    pub(crate) made: Cell<usize>,
}

// === impl Term ===

impl Term {
    pub(crate) fn new(value: impl Into<String>, shape: Shape) -> Self {
        Self {
            value: value.into(),
            strict: None,
            path: None,
            null_root: None,
            or_empty: None,
            without_error: None,
            shape,
            constant: None,
            is_fallible: false,
            is_plain: false,
            is_nested: shape & LIST != 0,
            has_texts: false,
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
        term.has_texts = value
            .as_array()
            .is_some_and(|items| items.iter().all(Value::is_string));
        term.constant = Some(value.clone());
        term
    }

    /// A name of CEL whose value may be anything.
    pub(crate) fn named(name: &str) -> Self {
        let mut term = Self::new(name, ANY);
        term.path = Some((name.to_owned(), name.to_owned()));
        term
    }

    /// An element of this list under the name `name`.
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

    /// A list of these.
    pub(crate) fn list_of(items: &[Self]) -> Self {
        let values: Vec<String> = items.iter().map(|item| item.whole().to_owned()).collect();
        let mut term = Self::new(listed(&values), LIST);
        term.is_fallible = items.iter().any(Self::may_fail);
        term.has_texts = items.iter().all(|item| item.is_only(TEXT));
        term
    }

    /// The same under the name `name`, which has no error.
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
        term.has_texts = self.has_texts;
        term
    }

    /// The ConfigMap that is the parameter of a policy.
    pub(crate) fn parameter() -> Self {
        let mut term = Self::named("params");
        term.known = Known::ConfigMap;
        term.shape = MAP;
        term
    }

    /// The value, or where there is none `default`, or else an error.
    pub(crate) fn or_default(&self, default: Option<&Self>, scope: &Scope) -> Self {
        let default_value = default.map_or(FAILS, |default| default.whole());
        let value = scope.bound(&self.value, |name| {
            format!("({name} == null ? dyn({default_value}) : dyn({name}))")
        });
        let shape = default.map_or(0, |default| default.shape) | self.shape & !NULL;
        let mut term = Self::new(value, shape);
        term.is_fallible = self.is_fallible || default.is_none_or(Self::may_fail);
        term.has_texts = self.has_texts;
        term.is_nested = self.is_nested;
        if !self.may_be(NULL) {
            term = self.clone();
        }
        term
    }

    /// Its CEL as a list of elements that are not null: none where it is null.
    pub(crate) fn elements(&self, scope: &Scope) -> String {
        if let Some(or_empty) = &self.or_empty {
            return or_empty.clone();
        }
        if self.is_only(LIST) {
            return self.value.clone();
        }
        scope.bound(&self.value, |name| match self.is_only(LIST | NULL) {
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

    /// The same where each error is null, as `[]` and `[?]` have it.
    pub(crate) fn without_error(mut self) -> Result<Self, Refusal> {
        if self.is_fallible {
            self.value = self.without_error.take().ok_or_else(|| {
                Refusal::here("Kyverno takes an error before `[]` and `[?]` for null, which CEL cannot: take `to_array(@)` first")
            })?;
            self.is_fallible = false;
            self.shape |= NULL;
        }
        Ok(self)
    }

    /// Its CEL as Kyverno takes it for a whole: an error where there is no such key.
    pub(crate) fn whole(&self) -> &str {
        self.strict.as_deref().unwrap_or(&self.value)
    }

    /// Whether `whole` may have an error.
    pub(crate) const fn may_fail(&self) -> bool {
        self.strict.is_some() || self.is_fallible
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

/// What values of these types are where they are there; none, if that is not known.
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

/// Whether all of these are lists of texts, and there are some.
pub(crate) fn is_of_texts(types: &[Type]) -> bool {
    !types.is_empty() && types.iter().all(|of| *of == Type::list(Type::String))
}

/// A JSON value as CEL.
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

/// A list of items that may have different types.
pub(crate) fn listed(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("dyn({item})")).collect();
    format!("[{}]", items.join(", "))
}

/// Whether the text may stand several times.
pub(crate) fn is_short(value: &str) -> bool {
    value.len() <= 60 && !value.contains(' ')
}

/// Whether `name` is a number.
pub(crate) fn is_number(name: &str) -> String {
    format!("(type({name}) == int || type({name}) == double)")
}

// === impl Scope ===

impl Scope {
    /// A new name.
    pub(crate) fn fresh(&self, letter: &str) -> String {
        self.made.set(self.made.get() + 1);
        format!("{letter}{}", self.made.get())
    }

    /// What `body` makes of the value, which is evaluated once.
    pub(crate) fn bound(&self, value: &str, body: impl FnOnce(&str) -> String) -> String {
        if is_short(value) {
            return body(value);
        }
        let name = self.fresh("v");
        let body = body(&name);
        format!("[{value}].map({name}, {body})[0]")
    }

    /// `letter`, a number, and what `body` makes of them, for a macro.
    pub(crate) fn each(&self, body: impl FnOnce(&str) -> String) -> (String, String) {
        let name = self.fresh("e");
        let body = body(&name);
        (name, body)
    }
}
