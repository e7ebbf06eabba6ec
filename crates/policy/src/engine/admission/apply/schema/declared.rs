//! The built-in types as CEL's checker knows types.

use std::collections::HashMap;

use super::{Scalar, SchemaType, Schemas};
use crate::engine::admission::GroupVersionKind;

/// Declares each struct once; one that contains itself may be anything there.
struct Declarations<'t, 's> {
    schemas: &'t Schemas<'s>,
    done: HashMap<usize, portcullis_cel::Type>,
}

impl<'s> Schemas<'s> {
    /// The type of objects of `kind`, as far as it is known: which fields there are, which of them
    /// are lists and maps, text, truth values and whole numbers. Everything else may be anything.
    ///
    /// `None` where the kind is not built in.
    #[must_use]
    pub fn declared(&self, kind: &GroupVersionKind<'_>) -> Option<portcullis_cel::Type> {
        let of = self.of(kind).ok()?;
        let mut declarations = Declarations {
            schemas: self,
            done: HashMap::new(),
        };
        Some(declarations.declare(of))
    }
}

impl<'s> Declarations<'_, 's> {
    fn declare(&mut self, of: &SchemaType<'s>) -> portcullis_cel::Type {
        match of {
            SchemaType::Scalar(Scalar::String) => portcullis_cel::Type::String,
            SchemaType::Scalar(Scalar::Int32 | Scalar::Int64) => portcullis_cel::Type::Int,
            SchemaType::Scalar(Scalar::Boolean) => portcullis_cel::Type::Bool,
            SchemaType::List(item, _) => portcullis_cel::Type::list(self.declare(item)),
            SchemaType::Map(value, _) => {
                portcullis_cel::Type::map(portcullis_cel::Type::String, self.declare(value))
            }
            SchemaType::Struct(place, _) => self.declare_struct(*place),
            // Numbers that need not be whole, and what OpenAPI has other words for than Go.
            SchemaType::Scalar(_) | SchemaType::Deduced | SchemaType::Untyped => portcullis_cel::Type::Dyn,
        }
    }

    fn declare_struct(&mut self, place: usize) -> portcullis_cel::Type {
        if let Some(done) = self.done.get(&place) {
            return done.clone();
        }
        let Some(own) = self.schemas.structs.get(place) else {
            return portcullis_cel::Type::Dyn;
        };
        self.done.insert(place, portcullis_cel::Type::Dyn);
        let fields: Vec<_> = own
            .fields
            .iter()
            .map(|field| (field.name, self.declare(&field.of)))
            .collect();
        let declared = portcullis_cel::Type::object(own.name, fields);
        self.done.insert(place, declared.clone());
        declared
    }
}
