//! Values as text that tells any two apart; as `written.go` writes them.

use portcullis_cel::Value;

pub(crate) fn written(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => format!("{uint}u"),
        Value::Double(double) if double.is_nan() => "NaN".into(),
        Value::Double(double) => format!("double({:016x})", double.to_bits()),
        Value::String(text) => quoted(text),
        Value::Bytes(bytes) => bytes
            .iter()
            .fold("b".into(), |text, byte| format!("{text}{byte:02x}")),
        Value::Duration(duration) => format!("duration({})", duration.nanoseconds()),
        Value::Timestamp(time) => format!("timestamp({},{})", time.seconds(), time.nanoseconds()),
        Value::List(list) => {
            let items: Vec<String> = list.iter().map(|item| written(&item)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(map) => {
            let entry =
                |(key, value): (Value<'_>, Value<'_>)| format!("{}:{}", written(&key), written(&value));
            let mut entries: Vec<String> = map.entries().map(entry).collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(inner)) => format!("optional({})", written(inner)),
        // When it runs, a type knows no parameters.
        Value::Type(of) => {
            let name = of.to_string();
            format!("type({})", name.split('(').next().unwrap_or_default())
        }
        Value::Opaque(opaque) => opaque.type_name().into(),
        other => panic!("{other:?}"),
    }
}

fn quoted(text: &str) -> String {
    let plain = |character: char| matches!(character, ' '..='~') && !matches!(character, '"' | '\\');
    let escaped = text.chars().map(|character| match character {
        character if plain(character) => character.to_string(),
        character => format!("\\u{{{:x}}}", u32::from(character)),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
