//! Templates and what fills them.
//!
//! `{{name}}` stands for a value, `{{path:FILE}}` for the absolute path of a file of
//! the set-up, quoted for YAML.

use std::path::Path;

/// Fills the templates of one set-up.
pub(crate) struct Filling<'a> {
    directory: &'a Path,
    values: Vec<(&'static str, String)>,
}

impl<'a> Filling<'a> {
    /// `values`: what each name stands for. A value is not itself a template, but those
    /// of names further back may stand in it.
    pub(crate) const fn new(directory: &'a Path, values: Vec<(&'static str, String)>) -> Self {
        Self { directory, values }
    }

    /// `template` without gaps.
    pub(crate) fn fill(&self, template: &str) -> String {
        let mut text = template.to_owned();
        for (name, value) in &self.values {
            text = text.replace(&format!("{{{{{name}}}}}"), value);
        }
        self.with_paths(&text)
    }

    fn with_paths(&self, text: &str) -> String {
        let mut parts = text.split("{{path:");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (path, rest) = part.split_once("}}").unwrap_or((part, ""));
            filled.push_str(&quoted(&self.directory.join(path)));
            filled.push_str(rest);
        }
        filled
    }
}

/// As a YAML double-quoted scalar: JSON's strings are a subset of those.
pub(crate) fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy()).to_string()
}
