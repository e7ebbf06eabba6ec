//! The differences that are meant to be: `differences.txt`.

use std::path::Path;

use portcullis_cel::Version;
use portcullis_cel::regex::Regex;

use crate::outcome::Outcome;

/// Differences for one reason.
pub(crate) struct Difference {
    pub(crate) reason: String,
    /// An expression that shows it.
    pub(crate) example: String,
    /// The versions that have it; none: all.
    versions: Vec<String>,
    /// What alone differs: the `cost`, or the `words` of a failure.
    only: Option<String>,
    expression: Option<Regex>,
    kubernetes: Option<Regex>,
    here: Option<Regex>,
}

// === impl Difference ===

impl Difference {
    /// Those of the table that `version` has.
    ///
    /// # Panics
    /// Where the table is not as its head says.
    pub(crate) fn all_of(version: Version) -> Vec<Self> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/differences.txt");
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        lines
            .split(|line| line.is_empty())
            .filter(|block| !block.is_empty())
            .map(Self::read)
            .filter(|difference| difference.is_of(version))
            .collect()
    }

    fn is_of(&self, version: Version) -> bool {
        self.versions.is_empty() || self.versions.contains(&version.to_string())
    }

    fn read(block: &[&str]) -> Self {
        let field = |name: &str| {
            let mut of_name = block.iter().filter_map(|line| {
                let (own, text) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
                (own == name).then_some(text)
            });
            let text = of_name.next();
            assert_eq!(of_name.next(), None, "{name} twice in {block:?}");
            text
        };
        let required = |name: &str| {
            field(name)
                .unwrap_or_else(|| panic!("no {name} in {block:?}"))
                .to_owned()
        };
        let pattern = |name: &str| {
            let pattern = field(name)?;
            let regex = Regex::new(pattern, &mut |_| true);
            Some(regex.unwrap_or_else(|fault| panic!("{pattern}: {fault:?}")))
        };
        Self {
            reason: required("reason"),
            example: required("example"),
            versions: field("versions")
                .into_iter()
                .flat_map(|versions| versions.split(' '))
                .map(str::to_owned)
                .collect(),
            only: field("only").map(|only| match only {
                "cost" | "words" => only.to_owned(),
                other => panic!("{other}, not cost or words, in {block:?}"),
            }),
            expression: pattern("expression"),
            kubernetes: pattern("kubernetes"),
            here: pattern("here"),
        }
    }

    /// Whether this is why the outcomes of `expression` differ.
    pub(crate) fn explains(&self, expression: &str, kubernetes: &Outcome, here: &Outcome) -> bool {
        let fits = |pattern: &Option<Regex>, text: &str| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(text, &mut |_| true).unwrap())
        };
        let alone = match self.only.as_deref() {
            Some("cost") => kubernetes.is_same_but_for_cost(here),
            Some(_) => kubernetes.is_same_but_for_words(here),
            None => true,
        };
        alone
            && fits(&self.expression, expression)
            && fits(&self.kubernetes, &kubernetes.to_string())
            && fits(&self.here, &here.to_string())
    }
}
