//! The syntax of label keys and values (`apimachinery/pkg/api/validate/content`).

const MOST_NAME_BYTES: usize = 63;
const MOST_PREFIX_BYTES: usize = 253;

/// What is wrong with a label key: `[prefix/]name`.
pub(super) fn key_faults(key: &str) -> impl Iterator<Item = &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        return ["a valid label key has at most one `/`"]
            .map(Some)
            .into_iter()
            .chain([None; 3])
            .flatten();
    }
    let prefix_fault = match prefix {
        Some("") => Some("prefix part must be non-empty"),
        Some(prefix) if !is_dns_subdomain(prefix) => {
            Some("prefix part must be a lower case DNS subdomain of at most 253 characters")
        }
        _ => None,
    };
    let length_fault = match name.len() {
        0 => Some("name part must be non-empty"),
        length if length > MOST_NAME_BYTES => Some("name part must be no more than 63 bytes"),
        _ => None,
    };
    let form_fault = (!is_name(name)).then_some(
        "name part must consist of alphanumeric characters, '-', '_' or '.', \
         and must start and end with an alphanumeric character",
    );
    [prefix_fault]
        .into_iter()
        .chain([length_fault, form_fault, None])
        .flatten()
}

/// What is wrong with a label value.
pub(super) fn value_faults(value: &str) -> impl Iterator<Item = &'static str> {
    let length_fault = (value.len() > MOST_NAME_BYTES).then_some("must be no more than 63 bytes");
    let form_fault = (!value.is_empty() && !is_name(value)).then_some(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
         and must start and end with an alphanumeric character",
    );
    [length_fault, form_fault].into_iter().flatten()
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Lower-case RFC 1123 labels joined by dots; the length of a label is not limited, as upstream.
fn is_dns_subdomain(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &[u8]| {
        label.first().is_some_and(is_alphanumeric)
            && label.last().is_some_and(is_alphanumeric)
            && label.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
    };
    text.len() <= MOST_PREFIX_BYTES && text.as_bytes().split(|byte| *byte == b'.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let long = "a".repeat(64);
        let sound = ["a", "app.kubernetes.io/name", "A_b-c.D", "0", "x.y-z/1"];
        let faulty: &[(&str, usize)] = &[
            ("", 2),
            ("/a", 1),
            ("a/", 2),
            ("a/b/c", 1),
            ("-a", 1),
            ("a.", 1),
            ("UPPER/a", 1),
            ("a..b/c", 1),
            ("-/é", 2),
            (&long, 1),
        ];
        for key in sound {
            assert_eq!(key_faults(key).count(), 0, "{key}");
        }
        for (key, count) in faulty {
            assert_eq!(key_faults(key).count(), *count, "{key}");
        }
    }

    #[test]
    fn values() {
        for value in ["", "a", "A.b_c-9"] {
            assert_eq!(value_faults(value).count(), 0, "{value}");
        }
        for value in ["-", "a b", "é", "a/b", &"a".repeat(64)] {
            assert_eq!(value_faults(value).count(), 1, "{value}");
        }
    }
}
