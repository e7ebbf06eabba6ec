//! Pieces of CEL, as text.

/// A text as CEL writes it: in single quotes where that needs no escapes.
pub(crate) fn text(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('\'');
    for character in value.chars() {
        match character {
            '\'' => quoted.push_str("\\'"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            character if character.is_control() => {
                quoted.push_str(&format!("\\U{:08x}", u32::from(character)));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('\'');
    quoted
}

/// A list of texts.
pub(crate) fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> String {
    let values: Vec<String> = values.into_iter().map(text).collect();
    format!("[{}]", values.join(", "))
}

/// `value` is one of `values`: `value == 'a'`, `value in ['a', 'b']`.
pub(crate) fn is_one_of(value: &str, values: &[&str]) -> String {
    match values {
        [one] => format!("{value} == {}", text(one)),
        several => format!("{value} in {}", texts(several.iter().copied())),
    }
}

/// Any of them holds. Each is without `||` and `? :` outside of brackets.
pub(crate) fn any(alternatives: &[String]) -> String {
    match alternatives {
        [] => "false".to_owned(),
        several => several.join(" || "),
    }
}

/// The same, to stand within another expression.
pub(crate) fn bracketed(expression: &str) -> String {
    format!("({expression})")
}
