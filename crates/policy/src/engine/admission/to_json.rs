//! CEL values as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use portcullis_cel::json::write_string;
use portcullis_cel::{List, Map, Value};

/// The most bytes that are written, as the API server bounds a request: few
/// values of an expression, shared many times, can be far more as text.
const MAX_JSON: usize = 3 << 20;

/// Writes `value`; JSON that was read comes out as it was written.
///
/// Upstream passes values through floating point numbers and makes text of
/// integers beyond 2^53; here they stay what they are.
pub(crate) fn write(out: &mut String, value: &Value<'_>) -> Result<(), String> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Uint(value) => out.push_str(&value.to_string()),
        Value::Double(value) if value.is_finite() => out.push_str(&value.to_string()),
        Value::String(text) => write_string(out, text),
        // As protobuf writes them.
        Value::Timestamp(time) => write_string(out, &time.to_string()),
        Value::Duration(duration) => write_string(out, &duration.to_string()),
        Value::Optional(Some(value)) => write(out, value)?,
        Value::Bytes(bytes) => write_string(out, &STANDARD.encode(&**bytes)),
        Value::List(List::Json(node)) => out.push_str(node.raw()),
        Value::List(list) => write_list(out, list)?,
        Value::Map(Map::Json(node)) => out.push_str(node.raw()),
        Value::Map(map) => write_map(out, map)?,
        other => return Err(format!("a value of type {} is not JSON", other.type_of())),
    }
    check(out)
}

/// Whether so much may be written.
pub(crate) fn check(out: &str) -> Result<(), String> {
    if out.len() > MAX_JSON {
        return Err(format!("more than {MAX_JSON} bytes"));
    }
    Ok(())
}

fn write_list(out: &mut String, list: &List<'_>) -> Result<(), String> {
    out.push('[');
    for (position, item) in list.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, &item)?;
    }
    out.push(']');
    Ok(())
}

fn write_map(out: &mut String, map: &Map<'_>) -> Result<(), String> {
    out.push('{');
    for (position, (key, value)) in map.entries().into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        match key {
            Value::String(text) => write_string(out, &text),
            other => return Err(format!("a key of type {} is not JSON", other.type_of())),
        }
        out.push(':');
        write(out, &value)?;
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_many_times_is_not_written_without_bound() {
        let text = Value::str("0123456789");
        let shared = |levels: usize| (0..levels).fold(text.clone(), |value, _| Value::list(vec![value; 10]));
        let mut out = String::new();
        assert_eq!(write(&mut out, &shared(4)), Ok(()));
        assert!(write(&mut String::new(), &shared(30)).is_err());
    }
}
