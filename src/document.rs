//! YAML and JSON documents that remember where each value stands.
//!
//! Manifests, configuration, kubeconfigs and test suites all come through
//! here, so that a fault in any of them can name file, line and field:
//!
//! ```text
//! text --parse--> Document (values with lines) --decode--> a serde type
//!                                 |                            |
//!                                 '------ line of a path <-----' faults
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod decode;
mod node;
#[cfg(feature = "server")]
mod write;

use std::sync::Arc;

pub use node::{Entry, Node, Value};
#[cfg(feature = "server")]
pub use write::to_yaml;

use crate::field::{Fault, FaultKind, Faults, FieldPath, Place, Step};

/// One document of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    file: Option<Arc<str>>,
    root: Node,
}

/// Reads every document of a YAML stream or JSON text. `file` is only for messages.
///
/// Empty documents are left out. Duplicate keys, aliases that multiply, and
/// nesting past the parser's bounds are faults.
///
/// # Errors
///
/// The first place at which the text is neither YAML nor JSON.
pub fn parse(file: Option<&str>, text: &str) -> Result<Vec<Document>, Fault> {
    let file: Option<Arc<str>> = file.map(Into::into);
    let roots = node::parse(text).map_err(|(line, message)| {
        let place = Place {
            file: file.clone(),
            line,
            ..Place::default()
        };
        Fault::error(place, FaultKind::Unreadable, message)
    })?;
    Ok(roots
        .into_iter()
        .filter(|root| root.value != Value::Null)
        .map(|root| Document {
            file: file.clone(),
            root,
        })
        .collect())
}

impl Document {
    /// The document `root`, as if it had been read from `file`.
    #[must_use]
    pub const fn new(file: Option<Arc<str>>, root: Node) -> Self {
        Self { file, root }
    }

    /// The file that it was read from.
    #[must_use]
    pub const fn file(&self) -> Option<&Arc<str>> {
        self.file.as_ref()
    }

    /// Its outermost value.
    #[must_use]
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// Its outermost value, to take apart.
    #[must_use]
    pub fn into_root(self) -> Node {
        self.root
    }

    /// The text at the field `name` of the outermost mapping.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.root.get(name)?.as_str()
    }

    /// `Kind/name` or `Kind/namespace/name`, as far as the document says them.
    #[must_use]
    pub fn object(&self) -> String {
        let metadata = |name| self.root.get("metadata")?.get(name)?.as_str();
        let parts = [self.text("kind"), metadata("namespace"), metadata("name")];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }

    /// The value at `path`, or the nearest one around it.
    #[must_use]
    pub fn nearest(&self, path: &FieldPath) -> &Node {
        let mut node = &self.root;
        for step in path.steps() {
            let next = match step {
                Step::Field(name) | Step::Key(name) => node.get(name),
                Step::Index(index) => node.item(*index),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    /// The place of `path`, for a fault. The line is that of the nearest value there is.
    #[must_use]
    pub fn place(&self, path: FieldPath) -> Place {
        let line = self.nearest(&path).line;
        Place {
            file: self.file.clone(),
            line,
            object: self.object(),
            path,
        }
    }

    /// Reads the document as a `T`. Unknown fields and values of a wrong type
    /// are faults that name their place; with any of them there is no `T`.
    pub fn decode<T: serde::de::DeserializeOwned>(&self, faults: &mut Faults) -> Option<T> {
        self.decode_at(&FieldPath::root(), faults)
    }

    /// Like [`Document::decode`], for the part at `path`.
    pub fn decode_at<T: serde::de::DeserializeOwned>(
        &self,
        path: &FieldPath,
        faults: &mut Faults,
    ) -> Option<T> {
        decode::decode(self, path, faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Sample {
        name: String,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Item {
        count: u32,
    }

    fn one(text: &str) -> Document {
        parse(Some("f.yaml"), text).unwrap().remove(0)
    }

    #[test]
    fn decodes_a_document() {
        let mut faults = Faults::new();
        let sample: Option<Sample> = one("name: a\nitems:\n- count: 3\n").decode(&mut faults);
        assert_eq!(faults.to_string(), "");
        assert_eq!(
            sample,
            Some(Sample {
                name: "a".into(),
                items: vec![Item { count: 3 }]
            })
        );
    }

    #[test]
    fn reads_json_and_several_documents() {
        assert_eq!(
            parse(None, "{\"a\": [1, 2.5, null, true, \"x\"]}").unwrap().len(),
            1
        );
        assert_eq!(parse(None, "a: 1\n---\n---\nb: 2\n").unwrap().len(), 2);
    }

    #[test]
    fn an_unknown_field_is_a_fault_with_its_line() {
        let mut faults = Faults::new();
        let sample: Option<Sample> = one("name: a\nitems:\n- count: 3\n  cuont: 4\n").decode(&mut faults);
        assert_eq!(sample, None);
        assert_eq!(
            faults.to_string(),
            "f.yaml:4: items[0].cuont: Unsupported value: unknown field `cuont`"
        );
    }

    #[test]
    fn a_value_of_a_wrong_type_is_a_fault_with_its_line() {
        let mut faults = Faults::new();
        let sample: Option<Sample> = one("name: a\nitems:\n- count: many\n").decode(&mut faults);
        assert_eq!(sample, None);
        assert!(
            faults
                .to_string()
                .starts_with("f.yaml:3: items[0].count: Invalid type: "),
            "{faults}"
        );
    }

    #[derive(serde::Deserialize, Debug, Default, PartialEq)]
    #[serde(default)]
    struct Lenient {
        name: String,
        items: Vec<LenientItem>,
        words: Vec<String>,
    }

    #[derive(serde::Deserialize, Debug, Default, PartialEq)]
    #[serde(default)]
    struct LenientItem {
        count: u32,
    }

    #[test]
    fn every_value_of_a_wrong_type_is_told() {
        let text =
            "name: [a]\nwords: [a, 1, b]\nitems:\n- count: many\n- count: 1\n- count: -1\n  other: 1\n";
        let mut faults = Faults::new();
        assert_eq!(one(text).decode::<Lenient>(&mut faults), None);
        let places: Vec<String> = faults.iter().map(|fault| fault.place.to_string()).collect();
        assert_eq!(
            places,
            [
                "f.yaml:7: items[2].other",
                "f.yaml:1: name",
                "f.yaml:2: words[1]",
                "f.yaml:4: items[0].count",
                "f.yaml:6: items[2].count",
            ],
            "{faults}"
        );
    }

    #[test]
    fn a_missing_field_is_a_fault_that_names_it() {
        let mut faults = Faults::new();
        let sample: Option<Sample> = one("items: []\n").decode(&mut faults);
        assert_eq!(sample, None);
        assert!(faults.to_string().contains("missing field `name`"), "{faults}");
    }

    #[test]
    fn text_that_is_no_yaml_names_its_line() {
        let fault = parse(Some("f.yaml"), "a: 1\nb: [1\nc: }\n").unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unreadable);
        assert!(fault.place.line >= 2, "{fault}");
    }

    #[test]
    fn a_key_that_stands_twice_is_a_fault() {
        let fault = parse(Some("f.yaml"), "a: 1\na: 2\n").unwrap_err();
        assert_eq!(fault.place.line, 2, "{fault}");
    }

    #[test]
    fn hostile_text_is_a_fault_and_no_crash() {
        // An unoptimised build needs more stack than a test's thread has.
        let roomy = std::thread::Builder::new().stack_size(16 << 20);
        roomy.spawn(refuse_hostile_texts).unwrap().join().unwrap();
    }

    fn refuse_hostile_texts() {
        let laughs = (1..12).fold(
            "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(),
            |text, n| {
                let item = format!("*a{}", n - 1);
                text + &format!("a{n}: &a{n} [{}]\n", [item.as_str(); 10].join(", "))
            },
        );
        for text in [
            "[".repeat(10_000),
            "{a: ".repeat(10_000),
            "- ".repeat(10_000),
            "{\"a\":".repeat(10_000),
            format!("{}{}", "[".repeat(150), "]".repeat(150)),
            laughs,
            "a: &a [*a]".to_owned(),
            "\u{0}".to_owned(),
        ] {
            let start: String = text.chars().take(20).collect();
            assert!(parse(None, &text).is_err(), "{start}");
        }
        let deep = format!("{}{}", "[".repeat(90), "]".repeat(90));
        assert!(parse(None, &deep).is_ok());
    }
}
