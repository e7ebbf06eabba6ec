//! The identity of list items (structured-merge-diff `typed/helpers.go`,
//! `fieldpath/element.go`).

use super::schema::{ListKey, Lists};
use portcullis_cel::json::{Kind, Node, write_string};

/// The name of an item within its list, as it stands in a path:
/// `[containerPort=80,protocol="TCP"]`, `[="a value of a set"]`. Two items of
/// the same name are one. `None` in an atomic list, whose items have no names.
///
/// # Errors
///
/// Why an item of a set or a map has none.
pub(crate) fn name(lists: &Lists<'_>, item: Node<'_>) -> Result<Option<String>, String> {
    match lists {
        Lists::Atomic => Ok(None),
        Lists::Set => of_set(item).map(Some).map_err(str::to_owned),
        Lists::Map(keys) => of_map(keys, item).map(Some),
    }
}

fn of_set(item: Node<'_>) -> Result<String, &'static str> {
    match item.kind() {
        Kind::Object => Err("associative list without keys has an element that's a map type"),
        Kind::Array => Err("not supported: associative list with lists as elements"),
        Kind::Null => Err("associative list without keys has an element that's an explicit null"),
        Kind::Bool | Kind::Number | Kind::String => {
            let mut name = String::from("[=");
            write(&mut name, item);
            name.push(']');
            Ok(name)
        }
    }
}

fn of_map(keys: &[ListKey<'_>], item: Node<'_>) -> Result<String, String> {
    match item.kind() {
        Kind::Null => return Err("associative list with keys may not have a null element".to_owned()),
        Kind::Object => {}
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    }
    let mut name = String::from("[");
    for key in keys {
        let value = item.get(key.name);
        if value.is_none() && key.default.is_none() {
            // An item without the key is another one than an item with any.
            continue;
        }
        if name.len() > 1 {
            name.push(',');
        }
        name.push_str(key.name);
        name.push('=');
        match value {
            Some(value) => write(&mut name, value),
            None => name.push_str(key.default.unwrap_or_default()),
        }
    }
    if name.len() == 1 {
        let names: Vec<String> = keys.iter().map(|key| format!("{:?}", key.name)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    name.push(']');
    Ok(name)
}

/// Writes a value such that equal values are written the same: `1` and `1.0`
/// are, `1` and `"1"` are not.
fn write(name: &mut String, value: Node<'_>) {
    match value.kind() {
        Kind::String => write_string(name, &value.as_str().unwrap_or_default()),
        Kind::Number => name.push_str(&number(value)),
        Kind::Null | Kind::Bool | Kind::Array | Kind::Object => name.push_str(value.raw()),
    }
}

fn number(value: Node<'_>) -> String {
    match value.as_i64() {
        Some(int) => int.to_string(),
        // Adding zero makes `-0.0` the `0` that it equals.
        None => (value.as_f64().unwrap_or(f64::NAN) + 0.0).to_string(),
    }
}
