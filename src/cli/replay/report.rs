//! The result of a replay: text, JSON, JUnit.

use std::fmt;

use regex_automata::hybrid::regex::Regex;
use serde::Serialize;

use super::flips::FlipExample;
use crate::cli::Error;
use crate::cli::output::{self, Format};
use crate::cli::test::junit::escaped;
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

    pub(super) fn print(&self, format: Format) -> Result<(), Error> {
        for file in &self.cut {
            super::note(format_args!(
                "the last line of `{file}` is cut off, as when a process is killed: it is left out"
            ));
        }
        match format {
            Format::Junit => output::print(Format::Text, self.junit(), &()),
            format => output::print(format, self, self),
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
            let text = escaped(&flip.to_string());
            xml.push_str(&format!(
                ">\n      <failure message=\"{} flipped\">{text}</failure>\n    </testcase>\n",
                flip.count
            ));
        }
        xml + "  </testsuite>\n</testsuites>\n"
    }

    fn as_before(&self) -> u64 {
        self.decided - self.flips.iter().map(|flip| flip.count).sum::<u64>()
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for flip in &self.flips {
            writeln!(f, "{flip}")?;
        }
        if !self.unknown_because.is_empty() {
            writeln!(f, "unknown, since")?;
            for UnknownReason { reason, count } in &self.unknown_because {
                writeln!(f, "  {reason}: {count}")?;
            }
            writeln!(f)?;
        }
        let flips: u64 = self.flips.iter().map(|flip| flip.count).sum();
        let (as_before, unknown) = (self.as_before(), self.unknown);
        writeln!(f, "{as_before} as before, {flips} flipped, {unknown} unknown")
    }
}

impl fmt::Display for FlipReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlipGroup {
            from,
            to,
            cause,
            is_gone,
        } = &self.group;
        match (cause.as_str(), is_gone) {
            ("patch", _) => write!(f, "{from}, with another patch: {}", self.count)?,
            ("", _) => write!(f, "{from} -> {to}: {}", self.count)?,
            (cause, true) => write!(f, "{from} -> {to}, no longer by {cause}: {}", self.count)?,
            (cause, false) => write!(f, "{from} -> {to} by {cause}: {}", self.count)?,
        }
        writeln!(f, "{}", if self.allowed { " (allowed)" } else { "" })?;
        let Some(example) = &self.example else {
            return Ok(());
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
        writeln!(f, "  {user}: {request} ({endpoint}, {time}, {file}:{line})")?;
        for (when, reason) in [("before", before), ("now", now)] {
            if !reason.is_empty() {
                writeln!(f, "    {when}: {reason}")?;
            }
        }
        considered.iter().try_for_each(|line| writeln!(f, "      {line}"))
    }
}
