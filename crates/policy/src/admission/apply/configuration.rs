//! The value of an `ApplyConfiguration` expression as JSON (apiserver
//! `pkg/cel/mutation/dynamic/objects.go`).

use super::error::{WrongName, noted_path};
use super::{ApplyError, FieldMismatch, FieldMismatches, MAX_CONFIGURATION, MAX_LEVELS};
use portcullis_cel::json::write_string;
use portcullis_cel::{Key, List, Map, Value};

/// The value of an expression as JSON text, if it is an `Object{…}` in which
/// every object bears the name of its field: that of `spec` is `Object.spec{…}`,
/// and so are those in its lists and maps.
///
/// As in Kubernetes, lists and maps that an expression writes hold scalars and
/// objects alone; what it takes from `object` may be anything. `null` can be no
/// part of what an expression writes.
///
/// # Errors
///
/// [`ApplyError::TypeNames`], [`ApplyError::Value`], and [`ApplyError::TooLarge`].
pub fn configuration(value: &Value<'_>) -> Result<String, ApplyError> {
    let mut writer = ConfigurationWriter {
        out: String::new(),
        path: String::new(),
        name: "Object".to_owned(),
        depth: 0,
        wrong: Vec::new(),
    };
    let Value::Map(map) = value else {
        return Err(writer.unfit(value));
    };
    if map.object_type().is_none() {
        return Err(writer.unfit(value));
    }
    writer.map(map)?;
    if writer.wrong.is_empty() {
        Ok(writer.out)
    } else {
        Err(ApplyError::TypeNames(writer.wrong))
    }
}

struct ConfigurationWriter {
    out: String,
    /// Where in the object.
    path: String,
    /// What an object type is called here.
    name: String,
    depth: usize,
    wrong: Vec<WrongName>,
}

// === impl ConfigurationWriter ===

impl ConfigurationWriter {
    fn value(&mut self, value: &Value<'_>) -> Result<(), ApplyError> {
        match value {
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Int(int) => self.out.push_str(&int.to_string()),
            // Display writes a double as JSON does, unless it is none of JSON's.
            Value::Double(double) if double.is_finite() => self.out.push_str(&double.to_string()),
            // As JSON a text is several times as long as it is.
            Value::String(text) if text.len() > MAX_CONFIGURATION => return Err(ApplyError::TooLarge),
            Value::String(text) => write_string(&mut self.out, text),
            Value::List(list) => self.list(list)?,
            Value::Map(map) => self.map(map)?,
            other => return Err(self.unfit(other)),
        }
        if self.out.len() > MAX_CONFIGURATION {
            return Err(ApplyError::TooLarge);
        }
        Ok(())
    }

    fn list(&mut self, list: &List<'_>) -> Result<(), ApplyError> {
        if let List::Json(node) = list {
            self.out.push_str(node.raw());
            return Ok(());
        }
        self.open('[')?;
        for (place, item) in list.iter().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            self.within(&format!("[{place}]"), &item)?;
        }
        self.close(']');
        Ok(())
    }

    fn map(&mut self, map: &Map<'_>) -> Result<(), ApplyError> {
        if let Map::Json(node) = map {
            self.out.push_str(node.raw());
            return Ok(());
        }
        let of = map.object_type();
        if let Some(of) = of
            && of.name() != self.name
            && self.wrong.len() < FieldMismatches::MAX_MISMATCHES
        {
            self.wrong.push(WrongName {
                found: of.name().to_owned(),
                expected: noted_path(&self.name),
            });
        }
        self.open('{')?;
        for (place, (key, value)) in map.entries().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            let Some(Key::String(key)) = Key::new(&key) else {
                return Err(self.wrong_key(&key));
            };
            if key.len() > MAX_CONFIGURATION {
                return Err(ApplyError::TooLarge);
            }
            write_string(&mut self.out, &key);
            self.out.push(':');
            if of.is_some() {
                self.field(&key, &value)?;
            } else {
                self.within(&format!(".{}", &*key), &value)?;
            }
        }
        self.close('}');
        Ok(())
    }

    fn field(&mut self, field: &str, value: &Value<'_>) -> Result<(), ApplyError> {
        let (path, name) = (self.path.len(), self.name.len());
        for text in [&mut self.path, &mut self.name] {
            text.push('.');
            text.push_str(field);
        }
        self.value(value)?;
        self.path.truncate(path);
        self.name.truncate(name);
        Ok(())
    }

    /// A value in a list or map that the expression writes itself.
    fn within(&mut self, step: &str, value: &Value<'_>) -> Result<(), ApplyError> {
        let back = self.path.len();
        self.path.push_str(step);
        if is_bare(value) {
            return Err(self.unfit(value));
        }
        self.value(value)?;
        self.path.truncate(back);
        Ok(())
    }

    fn open(&mut self, bracket: char) -> Result<(), ApplyError> {
        self.depth += 1;
        if self.depth > MAX_LEVELS {
            return Err(ApplyError::TooLarge);
        }
        self.out.push(bracket);
        Ok(())
    }

    fn close(&mut self, bracket: char) {
        self.depth -= 1;
        self.out.push(bracket);
    }

    fn unfit(&self, value: &Value<'_>) -> ApplyError {
        self.error(format!("a value of type {} is not allowed here", value.type_of()))
    }

    fn wrong_key(&self, key: &Value<'_>) -> ApplyError {
        self.error(format!("map key is of type {}, not string", key.type_of()))
    }

    fn error(&self, message: String) -> ApplyError {
        let path = noted_path(&self.path);
        ApplyError::Value(FieldMismatch { path, message })
    }
}

/// Whether it is a list or a map that the expression writes and names no type of.
fn is_bare(value: &Value<'_>) -> bool {
    match value {
        Value::List(list) => !matches!(list, List::Json(_)),
        Value::Map(map @ (Map::Borrowed(_) | Map::Shared(_))) => map.object_type().is_none(),
        _ => false,
    }
}

// Checks that objects in an expression have the type names of their fields
// (`CheckTypeNamesMatchFieldPathNames` of apiserver
// `pkg/cel/mutation/dynamic/objects.go`).

/// Checks the objects within `value`, the value of a JSON Patch operation, if it is an
/// object: that of the field `f` of an `Object.spec{…}` is an `Object.spec.f{…}`, in
/// lists and maps too.
///
/// # Errors
///
/// [`ApplyError::TypeNames`].
pub fn type_names(value: &Value<'_>) -> Result<(), ApplyError> {
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
        Err(ApplyError::TypeNames(names.wrong))
    }
}

struct TypeNames {
    expected: String,
    wrong: Vec<WrongName>,
}

impl TypeNames {
    /// What was read from an object is not checked: nothing in it is of a type.
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
            && self.wrong.len() < FieldMismatches::MAX_MISMATCHES
        {
            self.wrong.push(WrongName {
                found: of.name().to_owned(),
                expected: noted_path(&self.expected),
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
