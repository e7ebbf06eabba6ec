//! Faults on a terminal, with the line of the file and the part in question.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::config::files;
use portcullis_policy::explain::Lines;
use portcullis_policy::explain::lines::{is_escaped, one_line};
use portcullis_policy::field::{Fault, Faults, Severity};

/// Renders faults, each with its line where there is one.
pub(crate) struct Snippets {
    renderer: Renderer,
    files: HashMap<Arc<str>, String>,
}

impl Snippets {
    /// With colours.
    pub(crate) fn styled() -> Self {
        Self::with(Renderer::styled())
    }

    fn with(renderer: Renderer) -> Self {
        Self {
            renderer,
            files: HashMap::new(),
        }
    }

    /// All of them, one below the other.
    pub(crate) fn render(&mut self, faults: &Faults) -> Lines {
        let mut lines = Lines::new();
        for fault in faults.iter() {
            lines.rendered(&self.fault(fault));
            lines.rendered("\n");
        }
        lines
    }

    fn fault(&mut self, fault: &Fault) -> String {
        let level = match fault.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let place = &fault.place;
        let shown = place
            .file
            .as_ref()
            .and_then(|file| Some((file, self.line(file, place.line)?)));
        let Some((file, line)) = shown else {
            let text = fault.to_string();
            let title = Group::with_title(level.primary_title(one_line(&text)));
            return self.renderer.render(&[title]);
        };
        let title = format!("{}: {}", fault.kind.as_str(), one_line(&fault.message));
        let within = [place.object.clone(), place.path.to_string()];
        let within: Vec<String> = within.into_iter().filter(|part| !part.is_empty()).collect();
        let annotation = AnnotationKind::Primary
            .span(marked(&line, fault))
            .label(one_line(&within.join(": ")).into_owned());
        let snippet = Snippet::source(line)
            .line_start(place.line as usize)
            .path(one_line(file))
            .annotation(annotation);
        self.renderer
            .render(&[level.primary_title(title).element(snippet)])
    }

    fn line(&mut self, file: &Arc<str>, line: u32) -> Option<String> {
        let text = self.files.entry(Arc::clone(file)).or_insert_with(|| read(file));
        let line = text.lines().nth((line as usize).checked_sub(1)?)?;
        // The renderer replaces tabs.
        let visible = |c: char| if c != '\t' && is_escaped(c) { '\u{fffd}' } else { c };
        (!line.trim().is_empty()).then(|| line.chars().map(visible).collect())
    }
}

/// What cannot be read is shown without its line.
fn read(file: &str) -> String {
    files::read_text(Path::new(file), files::CONFIGURATION_BYTES).unwrap_or_default()
}

/// What of `line` the fault is about.
fn marked(line: &str, fault: &Fault) -> std::ops::Range<usize> {
    let at = (fault.place.column as usize).checked_sub(1);
    let start = at.and_then(|at| line.char_indices().nth(at)).map(|(at, _)| at);
    start.map_or_else(|| meant(line, &fault.message), |start| word(line, start))
}

/// The word that begins at `start`, or the one character there.
fn word(line: &str, start: usize) -> std::ops::Range<usize> {
    let rest = line.get(start..).unwrap_or_default();
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
    let first = rest.chars().next().map_or(0, char::len_utf8);
    start..start + end.max(first)
}

/// Where in `line` the value stands that `message` quotes first; else all of the line but blanks.
fn meant(line: &str, message: &str) -> std::ops::Range<usize> {
    let quoted = message.split('`').skip(1).step_by(2);
    for value in quoted.filter(|value| !value.is_empty()) {
        if let Some(start) = line.find(value) {
            return start..start + value.len();
        }
    }
    let start = line.len() - line.trim_start().len();
    start..line.trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::field::{FaultKind, FieldPath, Place};

    #[test]
    fn the_line_is_shown_and_what_is_meant_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("role.yaml");
        std::fs::write(&path, "kind: Role\nrules:\n- verbs: [gett]\n").unwrap();
        let place = Place {
            file: Some(path.display().to_string().into()),
            line: 3,
            column: 0,
            object: "Role/r".into(),
            path: FieldPath::root().field("rules").index(0).field("verbs").index(0),
        };
        let mut faults = Faults::new();
        faults.push(Fault::warning(
            place,
            FaultKind::Suspicious,
            "Kubernetes has no verb `gett`",
        ));
        let text = Snippets::with(Renderer::plain()).render(&faults);
        let text = text.as_str();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "warning: Suspicious: Kubernetes has no verb `gett`");
        assert!(lines[1].ends_with("role.yaml:3:11"), "{text}");
        assert!(lines.contains(&"3 | - verbs: [gett]"), "{text}");
        assert!(text.contains("^^^^ Role/r: rules[0].verbs[0]"), "{text}");
    }

    #[test]
    fn a_place_within_a_line_is_marked_up_to_the_end_of_its_word() {
        let mut fault = Fault::error(Place::default(), FaultKind::Invalid, "`(`");
        fault.place.column = 7;
        assert_eq!(marked("  é || has(x)", &fault), 7..8);
        fault.place.column = 8;
        assert_eq!(marked("  é || has_(x)", &fault), 8..12);
        fault.place.column = 90;
        assert_eq!(marked("  (", &fault), 2..3);
    }

    #[test]
    fn a_fault_without_a_file_is_a_line() {
        let mut faults = Faults::new();
        faults.push(Fault::error(
            Place::default(),
            FaultKind::Required,
            "name a caller",
        ));
        let text = Snippets::with(Renderer::plain()).render(&faults);
        assert_eq!(text.as_str(), "error: Required value: name a caller\n");
    }
}
