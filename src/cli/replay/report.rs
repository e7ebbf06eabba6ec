//! The result of a replay: text, JSON, JUnit.

use regex_automata::hybrid::regex::Regex;
use serde::Serialize;

use super::ReplayFormat;
use super::flips::FlipExample;
use crate::cli::Error;
use crate::cli::output;
use crate::cli::test::junit::escaped;
use portcullis_policy::explain::Lines;
use portcullis_policy::explain::replayed::{FlipGroup, Replayed, UnknownReason};

/// What is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReplayReport {
    /// Reviews that were decided.
    decided: u64,
    /// Reviews whose decision depends on what is not known.
    unknown: u64,
    flips: Vec<FlipReport>,
    /// Why, and how many for each reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_because: Vec<UnknownReason>,
    /// Files whose last line was not whole, and not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// Flips of one cause.
#[derive(Debug, Serialize)]
struct FlipReport {
    #[serde(flatten)]
    group: FlipGroup,
    count: u64,
    /// Whether `--allow-flips` allows them.
    allowed: bool,
    example: Option<Box<FlipExample>>,
}

// === impl ReplayReport ===

impl ReplayReport {
    /// `cut` names the files whose last line is not whole.
    pub(super) fn new(
        replayed: Replayed<Box<FlipExample>>,
        cut: Vec<String>,
        allowed: Option<&Regex>,
    ) -> Self {
        let unknown_because = replayed.unknown_reasons();
        let is_allowed = |group: &FlipGroup| {
            allowed.is_some_and(|allowed| allowed.is_match(&mut allowed.create_cache(), &*group.key()))
        };
        let mut flips: Vec<FlipReport> = replayed
            .flips
            .into_iter()
            .map(|(group, (count, example))| FlipReport {
                allowed: is_allowed(&group),
                group,
                count,
                example,
            })
            .collect();
        flips.sort_by_key(|flip| std::cmp::Reverse(flip.count));
        Self {
            decided: replayed.decided,
            unknown: replayed.unknown,
            flips,
            unknown_because,
            cut,
        }
    }

    /// Whether something flips that may not.
    pub(super) fn is_failure(&self) -> bool {
        self.flips.iter().any(|flip| !flip.allowed)
    }

    pub(super) fn print(&self, format: ReplayFormat) -> Result<(), Error> {
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

    /// A case for each group of flips, and one for all that is as before.
    fn junit(&self) -> String {
        let failed = self.flips.iter().filter(|flip| !flip.allowed).count();
        let counts = format!(
            "tests=\"{}\" failures=\"{failed}\" errors=\"0\"",
            self.flips.len() + 1
        );
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"portcullis\" {counts}>\n  \
             <testsuite name=\"replay\" {counts}>\n    \
             <testcase name=\"{} as before, {} unknown\" classname=\"replay\"/>\n",
            self.as_before(),
            self.unknown
        );
        for flip in &self.flips {
            let name = escaped(&flip.group.key());
            xml.push_str(&format!("    <testcase name=\"{name}\" classname=\"replay\""));
            if flip.allowed {
                xml.push_str("/>\n");
                continue;
            }
            let text = escaped(flip.in_words().as_str());
            xml.push_str(&format!(
                ">\n      <failure message=\"{} flipped\">{text}</failure>\n    </testcase>\n",
                flip.count
            ));
        }
        xml + "  </testsuite>\n</testsuites>\n"
    }

    fn as_before(&self) -> u64 {
        self.decided.saturating_sub(self.flipped())
    }

    /// How many are decided otherwise.
    fn flipped(&self) -> u64 {
        let flips = self.flips.iter().filter(|flip| !flip.group.is_lost());
        flips.map(|flip| flip.count).sum()
    }

    /// Whether no review was decided.
    pub(super) const fn is_empty(&self) -> bool {
        self.decided == 0
    }
}

impl ReplayReport {
    fn in_words(&self) -> Lines {
        let mut lines = Lines::new();
        for flip in &self.flips {
            lines.append(&flip.in_words());
            lines.line("");
        }
        if !self.unknown_because.is_empty() {
            lines.line("unknown, since");
            for UnknownReason { reason, count } in &self.unknown_because {
                lines.line(format_args!("  {reason}: {count}"));
            }
            lines.line("");
        }
        let (as_before, flipped, unknown) = (self.as_before(), self.flipped(), self.unknown);
        lines.line(format_args!(
            "{as_before} as before, {flipped} flipped, {unknown} unknown"
        ));
        lines
    }
}

impl FlipReport {
    fn in_words(&self) -> Lines {
        let mut lines = Lines::from_iter([self.heading()]);
        let Some(example) = &self.example else {
            return lines;
        };
        let FlipExample {
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
        let FlipGroup {
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
