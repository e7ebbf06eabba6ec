//! `decisionLog`: where each decision is written.

use std::path::PathBuf;

use super::section::Section;

/// The log of decisions, one JSON object a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionLog {
    /// Where it goes.
    pub path: LogPath,
    /// What it says of decisions that nothing came to.
    pub trace: LogTrace,
}

/// What the log of decisions says besides the decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogTrace {
    /// Nothing.
    #[default]
    None,
    /// Without opinion, the rules that came nearest.
    NearMisses,
}

/// Where a log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPath {
    /// `-`: standard output.
    Stdout,
    /// A file, as an absolute path; lines are appended.
    File(PathBuf),
}

pub(crate) fn decision_log(root: &Section<'_>) -> Option<DecisionLog> {
    let section = root.optional("decisionLog", &["path", "trace"])?;
    let traces = [("none", LogTrace::None), ("nearMisses", LogTrace::NearMisses)];
    let trace = section.choice("trace", &traces).unwrap_or_default();
    let text = section.required_text("path", "a file, or `-` for standard output")?;
    let path = if text == "-" {
        LogPath::Stdout
    } else {
        LogPath::File(section.path("path")?)
    };
    Some(DecisionLog { path, trace })
}
