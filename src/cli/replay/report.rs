//! The result of a replay: text, JSON, JUnit.

use regex_automata::hybrid::regex::Regex;
use serde::Serialize;

use super::ReplayFormat;
use super::changes::ChangeExample;
use crate::cli::Error;
use crate::cli::output;
use crate::cli::test::junit::escaped;
use portcullis_policy::explain::Lines;
use portcullis_policy::explain::replayed::{ChangeGroup, Replayed, UnknownReason};

/// What is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayReport {
    /// Reviews that were decided.
    decided: u64,
    /// Reviews whose decision depends on what is not known.
    unknown: u64,
    changes: Vec<ChangeReport>,
    /// Why, and how many for each reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_because: Vec<UnknownReason>,
    /// Files whose last line was not whole, and not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// Changes of one cause.
#[derive(Debug, Serialize)]
struct ChangeReport {
    #[serde(flatten)]
    group: ChangeGroup,
    count: u64,
    /// Whether `--allow-changes` allows them.
    allowed: bool,
    example: Option<Box<ChangeExample>>,
}

// === impl ReplayReport ===

impl ReplayReport {
    /// `cut` names the files whose last line is not whole.
    pub(crate) fn new(
        replayed: Replayed<Box<ChangeExample>>,
        cut: Vec<String>,
        allowed: Option<&Regex>,
    ) -> Self {
        let unknown_because = replayed.unknown_reasons();
        let is_allowed = |group: &ChangeGroup| {
            allowed.is_some_and(|allowed| allowed.is_match(&mut allowed.create_cache(), &*group.key()))
        };
        let mut changes: Vec<ChangeReport> = replayed
            .changes
            .into_iter()
            .map(|(group, (count, example))| ChangeReport {
                allowed: is_allowed(&group),
                group,
                count,
                example,
            })
            .collect();
        changes.sort_by_key(|change| std::cmp::Reverse(change.count));
        Self {
            decided: replayed.decided,
            unknown: replayed.unknown,
            changes,
            unknown_because,
            cut,
        }
    }

    /// Whether something changes that may not.
    pub(crate) fn is_failure(&self) -> bool {
        self.changes.iter().any(|change| !change.allowed)
    }

    pub(crate) fn print(&self, format: ReplayFormat) -> Result<(), Error> {
        for file in &self.cut {
            super::note(format_args!(
                "the last line of `{file}` is cut off, as when a process is killed: it is left out"
            ));
        }
        match format {
            ReplayFormat::Text => output::write(self.in_words().as_str()),
            ReplayFormat::Json => output::print_json(self),
            ReplayFormat::Junit => output::write(&self.junit()),
        }
    }

    /// A case for each group of changes, and one for all that is as before.
    fn junit(&self) -> String {
        let failed = self.changes.iter().filter(|change| !change.allowed).count();
        let counts = format!(
            "tests=\"{}\" failures=\"{failed}\" errors=\"0\"",
            self.changes.len() + 1
        );
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"portcullis\" {counts}>\n  \
             <testsuite name=\"replay\" {counts}>\n    \
             <testcase name=\"{} as before, {} unknown\" classname=\"replay\"/>\n",
            self.as_before(),
            self.unknown
        );
        for change in &self.changes {
            let name = escaped(&change.group.key());
            xml.push_str(&format!("    <testcase name=\"{name}\" classname=\"replay\""));
            if change.allowed {
                xml.push_str("/>\n");
                continue;
            }
            let text = escaped(change.in_words().as_str());
            xml.push_str(&format!(
                ">\n      <failure message=\"{} changed\">{text}</failure>\n    </testcase>\n",
                change.count
            ));
        }
        xml + "  </testsuite>\n</testsuites>\n"
    }

    fn as_before(&self) -> u64 {
        self.decided.saturating_sub(self.changed())
    }

    /// How many are decided otherwise.
    fn changed(&self) -> u64 {
        let changes = self.changes.iter().filter(|change| !change.group.is_lost());
        changes.map(|change| change.count).sum()
    }

    /// Whether no review was decided.
    pub(crate) const fn is_empty(&self) -> bool {
        self.decided == 0
    }
}

impl ReplayReport {
    fn in_words(&self) -> Lines {
        let mut lines = Lines::new();
        for change in &self.changes {
            lines.append(&change.in_words());
            lines.line("");
        }
        if !self.unknown_because.is_empty() {
            lines.line("unknown, since");
            for UnknownReason { reason, count } in &self.unknown_because {
                lines.line(format_args!("  {reason}: {count}"));
            }
            lines.line("");
        }
        let (as_before, changed, unknown) = (self.as_before(), self.changed(), self.unknown);
        lines.line(format_args!(
            "{as_before} as before, {changed} changed, {unknown} unknown"
        ));
        lines
    }
}

impl ChangeReport {
    fn in_words(&self) -> Lines {
        let mut lines = Lines::from_iter([self.heading()]);
        let Some(example) = &self.example else {
            return lines;
        };
        let ChangeExample {
            file,
            line,
            time,
            endpoint,
            user,
            request,
            before,
            now,
            considered,
            ..
        } = &**example;
        lines.line(format_args!(
            "  {user}: {request} ({endpoint}, {time}, {file}:{line})"
        ));
        for (when, reason) in [("before", before), ("now", now)] {
            if !reason.is_empty() {
                lines.line(format_args!("    {when}: {reason}"));
            }
        }
        considered
            .iter()
            .for_each(|line| lines.line(format_args!("      {line}")));
        lines
    }

    fn heading(&self) -> String {
        let ChangeGroup {
            from,
            to,
            cause,
            is_gone,
        } = &self.group;
        let change = match (cause.as_str(), is_gone) {
            ("patch", _) => format!("{from}, with another patch"),
            ("", _) => format!("{from} -> {to}"),
            (cause, true) => format!("{from} -> {to}, no longer by {cause}"),
            (cause, false) => format!("{from} -> {to} by {cause}"),
        };
        let allowed = if self.allowed { " (allowed)" } else { "" };
        format!("{change}: {}{allowed}", self.count)
    }
}
