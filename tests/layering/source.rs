//! The source files of the crate, and which names they take from where.

use std::path::{Path, PathBuf};

pub(crate) struct Source {
    /// From the package's folder, with `/`.
    pub(crate) path: String,
    /// The module directly below the crate.
    pub(crate) module: String,
    pub(crate) text: String,
}

impl Source {
    /// The lines that are no comments, from 1.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// The names directly below the crate that are named, with their lines.
    pub(crate) fn uses(&self) -> Vec<(usize, String)> {
        let root = "super::".repeat(depth(&self.path));
        let mut found = Vec::new();
        let mut group: Option<Group> = None;
        for (line, text) in self.code() {
            if let Some(open) = &mut group {
                found.extend(open.read(text).into_iter().map(|name| (line, name)));
            }
            group = group.filter(|open| open.depth > 0);
            for start in ["crate::", root.as_str()] {
                for rest in after(text, start) {
                    if let Some(rest) = rest.strip_prefix('{') {
                        let mut open = Group {
                            depth: 1,
                            expected: true,
                        };
                        found.extend(open.read(rest).into_iter().map(|name| (line, name)));
                        group = Some(open).filter(|open| open.depth > 0);
                    } else {
                        found.extend(name(rest).map(|name| (line, name)));
                    }
                }
            }
        }
        found
    }
}

/// A `{…}` after `crate::`, perhaps over several lines.
struct Group {
    depth: usize,
    /// Whether a name directly below the crate comes next.
    expected: bool,
}

impl Group {
    fn read(&mut self, text: &str) -> Vec<String> {
        let mut names = Vec::new();
        for (index, char) in text.char_indices() {
            match char {
                '{' => self.depth += 1,
                '}' => self.depth -= 1,
                ',' => self.expected = self.depth == 1,
                _ if self.expected && !char.is_whitespace() => {
                    names.extend(name(&text[index..]));
                    self.expected = false;
                }
                _ => {}
            }
            if self.depth == 0 {
                break;
            }
        }
        names
    }
}

fn name(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|char| char.is_alphanumeric() || *char == '_')
        .collect();
    Some(name).filter(|name| !name.is_empty())
}

/// What follows each `start` that is no part of a longer path.
fn after<'t>(text: &'t str, start: &'t str) -> impl Iterator<Item = &'t str> {
    text.match_indices(start).filter_map(move |(index, _)| {
        let before = text[..index].chars().next_back();
        let whole =
            before.is_none_or(|char| !(char.is_alphanumeric() || char == '_' || char == ':' || char == '$'));
        whole.then(|| &text[index + start.len()..])
    })
}

/// Each place where the crate `name` begins a path.
pub(crate) fn paths<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let start = format!("{name}::");
    let found: Vec<_> = after(text, &start)
        .map(|rest| &text[text.len() - rest.len()..])
        .collect();
    found.into_iter()
}

/// How many modules a file is below the crate.
fn depth(path: &str) -> usize {
    let path = path
        .trim_start_matches("src/")
        .trim_end_matches(".rs")
        .trim_end_matches("/mod");
    path.split('/').count()
}

pub(crate) fn module(path: &Path) -> String {
    let first = path.iter().next().unwrap_or_default().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

pub(crate) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join("src"), &mut found);
    found
        .into_iter()
        .map(|path| Source {
            path: path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/"),
            module: module(path.strip_prefix(root.join("src")).unwrap()),
            text: std::fs::read_to_string(&path).unwrap(),
        })
        .collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
