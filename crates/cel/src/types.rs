//! The types of the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What the checker knows of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// Any type, which is checked when the value is known.
    Dyn,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A floating point number of 64 bits.
    Double,
    /// A string.
    String,
    /// A sequence of bytes.
    Bytes,
    /// A length of time.
    Duration,
    /// A point in time.
    Timestamp,
    /// A list whose items all have this type.
    List(Arc<Type>),
    /// A map of keys and values of these types.
    Map(Arc<(Type, Type)>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// A type as a value.
    Type(Arc<Type>),
    /// An object whose fields are declared.
    Object(Arc<ObjectType>),
    /// A library type, such as a quantity.
    Opaque(&'static str),
    /// A type yet to be inferred: a parameter of an overload, or a type variable, which only the
    /// checker makes.
    Param(u32),
}

/// An object type and the fields that it may have.
///
/// Two object types are the same if their names are, as in Kubernetes.
#[derive(Debug, Clone)]
pub struct ObjectType {
    name: Arc<str>,
    fields: FieldTypes,
}

#[derive(Debug, Clone)]
enum FieldTypes {
    Declared(BTreeMap<Arc<str>, Type>),
    /// Any field with any value: the objects in mutations, whose schema is not known at compile
    /// time.
    Any,
}

// === impl Type ===

impl Type {
    /// The type of a list of `item`.
    #[must_use]
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// The type of a map from `key` to `value`.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// The type of an optional with a value of type `inner`.
    #[must_use]
    pub fn optional(inner: Self) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// The type of `inner` as a value.
    #[must_use]
    pub(crate) fn of_type(inner: Self) -> Self {
        Self::Type(Arc::new(inner))
    }

    /// The type of an object with exactly these fields.
    #[must_use]
    pub fn object<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, Self)>) -> Self {
        let fields = fields
            .into_iter()
            .map(|(field, of)| (Arc::from(field), of))
            .collect();
        Self::Object(Arc::new(ObjectType {
            name: Arc::from(name),
            fields: FieldTypes::Declared(fields),
        }))
    }

    /// The type of an object that may have any field.
    #[must_use]
    pub(crate) fn open_object(name: &str) -> Self {
        Self::Object(Arc::new(ObjectType {
            name: Arc::from(name),
            fields: FieldTypes::Any,
        }))
    }

    /// The name of the type as a value, which has no parameters.
    pub(crate) fn runtime_name(&self) -> String {
        match self {
            Self::List(_) => "list".into(),
            Self::Map(_) => "map".into(),
            Self::Optional(_) => "optional_type".into(),
            Self::Type(_) => "type".into(),
            other => other.to_string(),
        }
    }

    pub(crate) const fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }
}

/// In CEL's notation: `list(string)`, `map(string, dyn)`, `kubernetes.Quantity`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null_type"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Type(inner) => write!(f, "type({inner})"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Opaque(name) => f.write_str(name),
            Self::Param(number) => write!(f, "_{number}"),
        }
    }
}

// === impl ObjectType ===

impl ObjectType {
    /// The name, such as `kubernetes.UserInfo`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of `field`, if objects of this type may have it.
    #[must_use]
    pub fn field(&self, field: &str) -> Option<Type> {
        match &self.fields {
            FieldTypes::Declared(fields) => fields.get(field).cloned(),
            FieldTypes::Any => Some(Type::Dyn),
        }
    }

    /// The names of the declared fields, and of those of the object types in them, at any depth.
    #[must_use]
    pub fn field_names(&self) -> BTreeSet<Arc<str>> {
        let mut names = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut add = |object: &Self| {
            if let FieldTypes::Declared(fields) = &object.fields {
                names.extend(fields.keys().cloned());
            }
            seen.insert(Arc::clone(&object.name))
        };
        add(self);
        self.visit(&mut add);
        names
    }

    /// Whether an expression may construct such an object: only those of mutations.
    pub(crate) fn is_constructible(&self) -> bool {
        matches!(self.fields, FieldTypes::Any) || &*self.name == "JSONPatch"
    }

    /// Visits the object types of the declared fields, at any depth. `found` returns whether to
    /// descend into the type that it is called with.
    pub(crate) fn visit(&self, found: &mut impl FnMut(&Self) -> bool) {
        if let FieldTypes::Declared(fields) = &self.fields {
            for of in fields.values() {
                visit(of, found);
            }
        }
    }
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ObjectType {}

fn visit(of: &Type, found: &mut impl FnMut(&ObjectType) -> bool) {
    match of {
        Type::Object(object) if found(object) => object.visit(found),
        Type::List(item) => visit(item, found),
        Type::Map(entry) => {
            visit(&entry.0, found);
            visit(&entry.1, found);
        }
        _ => {}
    }
}
