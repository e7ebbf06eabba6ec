//! Checks that objects in an expression have the type names of their fields
//! (`CheckTypeNamesMatchFieldPathNames` of apiserver
//! `pkg/cel/mutation/dynamic/objects.go`).

use super::error::WrongName;
use super::{Error, FieldMismatches};
use portcullis_cel::{Key, List, Map, Value};

/// Checks the objects within `value`, the value of a JSON Patch operation, if it is an
/// object: that of the field `f` of an `Object.spec{…}` is an `Object.spec.f{…}`, in
/// lists and maps too.
///
/// # Errors
///
/// [`Error::TypeNames`].
pub fn type_names(value: &Value<'_>) -> Result<(), Error> {
    let Value::Map(map) = value else {
        return Ok(());
    };
    let Some(of) = map.object_type() else {
        return Ok(());
    };
    let mut names = TypeNames {
        expected: of.name().to_owned(),
        wrong: Vec::new(),
    };
    names.map(map);
    if names.wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::TypeNames(names.wrong))
    }
}

struct TypeNames {
    expected: String,
    wrong: Vec<WrongName>,
}

impl TypeNames {
    /// What was read from an object is not looked at: nothing in it is of a type.
    fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Map(Map::Json(_)) | Value::List(List::Json(_)) => {}
            Value::Map(map) => self.map(map),
            Value::List(list) => list.iter().for_each(|item| self.value(&item)),
            _ => {}
        }
    }

    fn map(&mut self, map: &Map<'_>) {
        let of = map.object_type();
        if let Some(of) = of
            && of.name() != self.expected
            && self.wrong.len() < FieldMismatches::MOST
        {
            self.wrong.push(WrongName {
                found: of.name().to_owned(),
                expected: self.expected.clone(),
            });
        }
        for (key, value) in map.entries() {
            let back = self.expected.len();
            if let (Some(_), Some(Key::String(field))) = (of, Key::new(&key)) {
                self.expected.push('.');
                self.expected.push_str(&field);
            }
            self.value(&value);
            self.expected.truncate(back);
        }
    }
}
