//! The syntax of label keys and values, each fault in the words of Kubernetes
//! (`apimachinery/pkg/api/validate/content/kube.go`).

const MOST_NAME_BYTES: usize = 63;
const MOST_PREFIX_BYTES: usize = 253;

const TOO_MANY_PARTS: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
     regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') \
     with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const NO_PREFIX: &str = "prefix part must be non-empty";
const LONG_PREFIX: &str = "prefix part must be no more than 253 bytes";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
     characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
     regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NO_NAME: &str = "name part must be non-empty";
const LONG_NAME: &str = "name part must be no more than 63 bytes";
const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
     regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LONG_VALUE: &str = "must be no more than 63 bytes";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
     or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
     '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with a label key, which is also what Kubernetes calls a qualified
/// name: `[prefix/]name` (`IsLabelKey`).
pub(crate) fn label_key_faults(key: &str) -> impl Iterator<Item = &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let faults = if name.contains('/') {
        [Some(TOO_MANY_PARTS), None, None, None]
    } else {
        let [long_prefix, bad_prefix] = prefix.map_or([None; 2], prefix_faults);
        let length = match name.len() {
            0 => Some(NO_NAME),
            length => (length > MOST_NAME_BYTES).then_some(LONG_NAME),
        };
        [long_prefix, bad_prefix, length, (!is_name(name)).then_some(NAME)]
    };
    faults.into_iter().flatten()
}

/// What is wrong with a label value (`IsLabelValue`).
pub(crate) fn label_value_faults(value: &str) -> impl Iterator<Item = &'static str> {
    let length = (value.len() > MOST_NAME_BYTES).then_some(LONG_VALUE);
    let form = (!value.is_empty() && !is_name(value)).then_some(VALUE);
    [length, form].into_iter().flatten()
}

/// Whether it is a label key, or a qualified name.
pub(crate) fn is_label_key(key: &str) -> bool {
    label_key_faults(key).next().is_none()
}

/// Whether it is a label value.
pub(crate) fn is_label_value(value: &str) -> bool {
    label_value_faults(value).next().is_none()
}

fn prefix_faults(prefix: &str) -> [Option<&'static str>; 2] {
    if prefix.is_empty() {
        return [Some(NO_PREFIX), None];
    }
    let length = (prefix.len() > MOST_PREFIX_BYTES).then_some(LONG_PREFIX);
    [length, (!is_dns_subdomain(prefix)).then_some(PREFIX)]
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
    text.as_bytes().split(|byte| *byte == b'.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let long = "a".repeat(64);
        let long_prefix = format!("{}/a", "a".repeat(254));
        let valid = ["a", "app.kubernetes.io/name", "A_b-c.D", "0", "x.y-z/1"];
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
            (&long_prefix, 1),
        ];
        for key in valid {
            assert_eq!(label_key_faults(key).count(), 0, "{key}");
        }
        for (key, count) in faulty {
            assert_eq!(label_key_faults(key).count(), *count, "{key}");
        }
    }

    #[test]
    fn values() {
        for value in ["", "a", "A.b_c-9"] {
            assert_eq!(label_value_faults(value).count(), 0, "{value}");
        }
        for value in ["-", "a b", "é", "a/b", &"a".repeat(64)] {
            assert_eq!(label_value_faults(value).count(), 1, "{value}");
        }
    }
}
