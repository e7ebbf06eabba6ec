//! Reports for people and programs: what decides a request, who may do something, what a manifest
//! becomes. The command line prints them and the console shows them, so both agree.
//!
//! ```text
//! question --> the engine's own functions --> a report --> JSON (`serde::Serialize`) | text (`Lines`)
//! ```
//!
//! Nothing here reads arguments or files, or makes calls.

pub mod access;
pub mod admission;
pub mod authorization;
pub mod difference;
pub mod escalation_admission;
pub mod escalations;
pub mod invariants;
pub mod logged;
pub mod objects;
pub mod recorded;
pub mod request;
pub mod sentences;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Write as _};
use std::sync::Arc;

use crate::admission::{AdmissionPolicies, AdmissionSettings, Phase};
use crate::authorization::authorizer::Authorizer;
use crate::authorization::{ClusterPolicySets, PolicySet, RoleKind};
use crate::document::{begins_command, is_before_command};
use crate::manifest;
use objects::KnownKinds;
use portcullis_cel::Version;

pub use crate::document::is_escaped;

/// Everything that decisions depend on.
pub struct LoadedPolicies {
    pub policies: ClusterPolicySets,
    /// The authorizers of `authorization.webhooks`.
    pub authorizers: Vec<Authorizer>,
    pub admission: AdmissionPolicies,
    /// The namespace in the context of the kubeconfig.
    pub namespace: Option<String>,
    /// The kinds of the cluster that the policies were read from.
    pub kinds: KnownKinds,
}

/// A note that the RBAC objects of `cluster`, whose requests `set` decides, are missing. Assumed if
/// there is no binding at all, because each API server creates some by default; otherwise `None`.
#[must_use]
pub fn unknown_rbac(set: &PolicySet, cluster: &str) -> Option<String> {
    let is_known = set.bindings().next().is_some();
    (!is_known).then(|| {
        format!(
            "no RBAC object of the cluster `{cluster}` is known here, so permissions granted by its RBAC \
            are missing"
        )
    })
}

impl LoadedPolicies {
    /// The policies of `manifests`, without a configuration.
    pub fn of_manifests(manifests: manifest::Manifests) -> Self {
        Self::of_manifests_for(manifests, Version::default())
    }

    /// Like [`of_manifests`](Self::of_manifests), with expressions compiled for `cel_version`.
    pub fn of_manifests_for(manifests: manifest::Manifests, cel_version: Version) -> Self {
        let settings = AdmissionSettings {
            cel_version,
            ..AdmissionSettings::default()
        };
        Self {
            admission: manifests.admission(&settings),
            policies: manifests.policies,
            authorizers: Vec::new(),
            namespace: None,
            kinds: KnownKinds::default(),
        }
    }

    /// The sets of all clusters. The first is for clusters without manifests of their own.
    pub fn sets(&self) -> impl Iterator<Item = (Option<&str>, &PolicySet)> {
        let clusters = self.policies.clusters.iter();
        let own = clusters.map(|(cluster, set)| (Some(cluster.as_str()), &**set));
        std::iter::once((None, &*self.policies.shared)).chain(own)
    }

    /// Adds the default ClusterRoles of an API server to each set that does not have them.
    pub fn add_default_roles(&mut self) {
        let roles = manifest::default_roles();
        let sets = [&mut self.policies.shared].into_iter();
        for set in sets.chain(self.policies.clusters.values_mut()) {
            *set = Arc::new(set.with_roles(roles));
        }
    }

    /// The names of default ClusterRoles of an API server that bindings of `cluster` refer to and
    /// its set does not have.
    #[must_use]
    pub fn lacking_default_roles(&self, cluster: &str) -> BTreeSet<String> {
        let set = self.policies.for_cluster(cluster);
        let is_known = |name: &str| {
            let mut roles = set.roles().iter();
            roles.any(|role| role.namespace.is_empty() && role.name == name)
        };
        let bound = set
            .bindings()
            .filter(|binding| binding.role.kind == RoleKind::ClusterRole);
        let mut lacking: BTreeSet<String> = bound
            .map(|binding| binding.role.name.clone())
            .filter(|name| !is_known(name))
            .collect();
        if !lacking.is_empty() {
            let defaults = manifest::default_roles();
            lacking.retain(|name| {
                defaults
                    .iter()
                    .any(|role| role.namespace.is_empty() && role.name == *name)
            });
        }
        lacking
    }

    /// Whether one of the phases has a policy or webhook configuration of this name.
    pub fn has_policy(&self, cluster: &str, phases: &[Phase], name: &str) -> bool {
        let policies = self.admission.for_cluster(cluster);
        phases
            .iter()
            .any(|phase| policies.has_policy_or_configuration(*phase, name))
    }
}

/// Lines of text. Added text cannot break out of its line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    text: String,
}

// === impl Lines ===

impl Lines {
    /// Creates an empty list of lines.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: String::new() }
    }

    /// Adds one line; see [`one_line`].
    pub fn line(&mut self, text: impl Display) {
        self.text.push_str(&one_line(&text.to_string()));
        self.text.push('\n');
    }

    /// Adds each line of `text`, prefixed by `before`.
    pub fn each(&mut self, before: &str, text: &str) {
        text.lines()
            .for_each(|line| self.line(format_args!("{before}{line}")));
    }

    /// Appends the lines of `other`.
    pub fn append(&mut self, other: &Self) {
        self.text.push_str(&other.text);
    }

    /// Adds the output of a renderer verbatim, with its styles. All of its parts must be escaped
    /// already.
    pub fn rendered(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// All lines, each with a line break.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<T: Display> FromIterator<T> for Lines {
    fn from_iter<I: IntoIterator<Item = T>>(lines: I) -> Self {
        let mut all = Self::new();
        lines.into_iter().for_each(|line| all.line(line));
        all
    }
}

impl Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `text` as one line. Escapes control characters, characters that change the direction of text,
/// line breaks, and what CI services interpret as commands (`::error …` at the start of a line,
/// `##[…` and `##vso[…` anywhere).
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    let command = begins_command(text);
    let acts = |c: char| is_escaped(c) || c == '[';
    if !command && !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let start = text.len() - text.trim_start().len();
    let mut line = String::with_capacity(text.len());
    for (position, c) in text.char_indices() {
        let before = text.get(..position).unwrap_or_default();
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            ':' if command && position == start => line.push_str("\\u{3a}"),
            '[' if is_before_command(before) => line.push_str("\\u{5b}"),
            c if is_escaped(c) => {
                // Writing to a string does not fail.
                let _ = write!(line, "\\u{{{:x}}}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    Cow::Owned(line)
}

// Text tables, with columns as wide as their longest cell and two spaces between them.

/// A text table with a heading.
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Adds a row. Each cell is [one line](one_line).
    pub fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| one_line(cell).into_owned());
        self.rows.push(cells.collect());
    }

    /// Breaks cells of more than 70 characters into several lines, after commas and semicolons.
    #[must_use]
    pub fn folded(self) -> Self {
        let mut rows = Vec::new();
        for row in self.rows {
            let cells: Vec<Vec<String>> = row.iter().map(|cell| folded(cell)).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            let line = |at: usize| {
                let cells = cells.iter().map(|cell| cell.get(at).cloned());
                cells.map(Option::unwrap_or_default).collect()
            };
            rows.extend((0..height).map(line));
        }
        Self { rows }
    }

    /// The rows as lines.
    #[must_use]
    pub fn in_words(&self) -> Lines {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths);
            let line: String = cells.map(|(cell, width)| format!("{cell:width$}  ")).collect();
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// The most characters in a line of a cell that can be broken.
const MAX_CELL_CHARS: usize = 70;

fn folded(cell: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in cell.split_inclusive([',', ';']) {
        let last = lines.last_mut();
        let has_room = |line: &&mut String| {
            line.is_empty() || line.chars().count() + part.trim_end().chars().count() <= MAX_CELL_CHARS
        };
        match last.filter(has_room) {
            Some(line) => line.push_str(part),
            None => lines.push(part.trim_start().to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_is_written_as_an_escape() {
        for (text, line) in [
            ("plain: text, é 🦀 [0] # x", "plain: text, é 🦀 [0] # x"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31mred\u{9b}m\u{7f}", "\\u{1b}[31mred\\u{9b}m\\u{7f}"),
            (
                "a\u{202e}b\u{2066}c\u{200f}\u{61c}",
                "a\\u{202e}b\\u{2066}c\\u{200f}\\u{61c}",
            ),
            ("\u{85}\u{2028}\u{2029}", "\\u{85}\\u{2028}\\u{2029}"),
            ("::error::x", "\\u{3a}:error::x"),
            ("  ::stop-commands::x", "  \\u{3a}:stop-commands::x"),
            ("a ::error::x, C::d", "a ::error::x, C::d"),
            ("see ##[error]x", "see ##\\u{5b}error]x"),
            ("##vso[task.setvariable]", "##vso\\u{5b}task.setvariable]"),
            ("#[a] ## [b]", "#[a] ## [b]"),
        ] {
            assert_eq!(one_line(text), line);
            // Escaped text is not escaped again.
            assert_eq!(one_line(line), line);
        }
    }

    #[test]
    fn a_line_that_is_added_is_one() {
        let mut lines = Lines::new();
        lines.line("a\n::error::b");
        lines.each("  ", "c\n::d\n");
        assert_eq!(lines.as_str(), "a\\n::error::b\n  c\n  \\u{3a}:d\n");
    }

    #[test]
    fn a_long_list_takes_several_lines_of_its_column() {
        let mut table = TextTable::new(&["A", "B"]);
        let names: Vec<String> = (10..40).map(|number| format!("resource-{number}")).collect();
        table.row(vec![names.join(","), "b".to_owned()]);
        table.row(vec!["x".repeat(100), "c, d".to_owned()]);
        let words = table.folded().in_words();
        let lines: Vec<&str> = words.as_str().lines().collect();
        let list: String = lines[1..7]
            .iter()
            .map(|line| line.trim_end_matches(" b").trim_end())
            .collect();
        assert_eq!((lines.len(), list), (8, names.join(",")), "{words:?}");
        assert!(
            lines[1].ends_with(" b") && lines[7].ends_with("  c, d"),
            "{words:?}"
        );
    }

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let mut table = TextTable::new(&["A", "LONG", "B"]);
        table.row(vec!["wide".to_owned(), "-".to_owned(), String::new()]);
        table.row(vec!["é".to_owned(), String::new(), "b".to_owned()]);
        assert_eq!(
            table.in_words().as_str(),
            "A     LONG  B\nwide  -\né           b\n"
        );
    }
}
