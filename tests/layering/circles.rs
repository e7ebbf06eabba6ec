//! No two files import each other, directly or around a corner.
//!
//! A name counts for the file that defines it, however many `pub use` it is
//! taken through. A module's own `pub use` of what is below it is no import, nor
//! is what tests take.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::source::CRATES;
use crate::{Source, sources};

#[test]
fn no_two_files_import_each_other() {
    let mut found = Vec::new();
    for root in CRATES {
        let files = Files::new(sources().into_iter().filter(|source| source.root == root));
        found.extend(circles(&files, root));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_circle_is_found_through_a_re_export() {
    let source = |path: &str, text: &str| Source {
        path: path.into(),
        root: "src",
        text: text.into(),
    };
    let files = |text: &str| {
        Files::new([
            source("src/a.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;"),
            source("src/a/b.rs", "use super::C;\npub struct B(C);"),
            source("src/a/c.rs", text),
        ])
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(circles(&files("pub(in crate::a::b) struct C;"), "src"), none);
    assert_eq!(
        circles(
            &files("#[cfg(test)]\nmod tests {\n    use super::super::B;\n}\n"),
            "src"
        ),
        none
    );
    let found = ["src/a/b.rs -> src/a/c.rs", "src/a/c.rs -> src/a/b.rs"];
    for text in [
        "use crate::a::B;\npub struct C;",
        "use super::{B};",
        "fn c() { super::B::new(); }",
        "use super::b;\nfn c() { b::B::new(); }",
        "pub(in crate::a) fn c() { super::b::d() }",
    ] {
        assert_eq!(circles(&files(text), "src"), found, "{text}");
    }
}

type Path = Vec<String>;

/// A file's imports.
struct File {
    path: String,
    uses: Vec<Use>,
    /// Paths within the code, as written.
    inline: Vec<Path>,
}

/// A name and what it stands for.
struct Use {
    name: String,
    path: Path,
    is_public: bool,
}

/// The files of a crate by module.
pub(crate) struct Files(BTreeMap<Path, File>);

/// The imports that are part of a circle: what is imported leads back to the importer.
fn circles(files: &Files, folder: &str) -> Vec<String> {
    let mut imports: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in files.arrows() {
        if from.starts_with(folder) && to.starts_with(folder) {
            imports.entry(from).or_default().push(to);
        }
    }
    let leads_to = |start, end| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(file) = open.pop() {
            if file == end {
                return true;
            }
            if seen.insert(file) {
                open.extend(imports.get(file).into_iter().flatten());
            }
        }
        false
    };
    let arrows = imports
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
    arrows
        .filter(|(from, to)| leads_to(*to, *from))
        .map(|(from, to)| format!("{from} -> {to}"))
        .collect()
}

// === impl Files ===

impl Files {
    /// The files of one crate, without its tests.
    pub(crate) fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        let is_test = |path: &str| {
            ["/tests", "fixtures.rs", "hostile.rs"]
                .iter()
                .any(|part| path.contains(part))
        };
        let files = sources
            .into_iter()
            .filter(|source| !is_test(&source.path) && source.path != "src/main.rs");
        Self(
            files
                .map(|source| (source.module(), File::new(&source)))
                .collect(),
        )
    }

    /// Who imports whom.
    pub(crate) fn arrows(&self) -> BTreeSet<(&str, &str)> {
        let arrows = self.0.iter().flat_map(|(module, file)| {
            let targets = self.imports(module, file).into_iter();
            targets.map(|target| (file.path.as_str(), target))
        });
        arrows.collect()
    }

    /// The files that define what `file` names.
    fn imports(&self, module: &[String], file: &File) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        for one in &file.uses {
            let Some(path) = self.absolute(module, &one.path) else {
                continue;
            };
            let is_module = self.0.contains_key(&path);
            let is_re_export = one.is_public && path.starts_with(module);
            if !is_module && !is_re_export {
                found.extend(self.defining(&path, 0));
            }
        }
        for path in &file.inline {
            let path = self.absolute(module, path).or_else(|| {
                let first = file.uses.iter().find(|one| Some(&one.name) == path.first())?;
                let mut whole = self.absolute(module, &first.path)?;
                whole.extend(path[1..].iter().cloned());
                Some(whole)
            });
            found.extend(path.and_then(|path| self.defining(&path, 0)));
        }
        found.remove(file.path.as_str());
        found
    }

    /// The path from the crate down; `None` for what is no module of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Path> {
        let first = path.first()?.as_str();
        let (base, rest) = match first {
            "crate" => (&module[..0], &path[1..]),
            "self" => (module, &path[1..]),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                (module.get(..module.len().checked_sub(up)?)?, &path[up..])
            }
            _ => {
                let mut child = module.to_vec();
                child.push(first.to_owned());
                self.0.get(&child)?;
                (module, path)
            }
        };
        Some([base, rest].concat())
    }

    /// The file that defines what stands at a path.
    fn defining(&self, path: &[String], depth: usize) -> Option<&str> {
        let length = (0..=path.len())
            .rev()
            .find(|length| self.0.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(length);
        let file = &self.0[module];
        let Some(name) = rest.first() else {
            return Some(&file.path);
        };
        let Some(taken) = file.uses.iter().find(|one| one.name == *name && depth < 9) else {
            return Some(&file.path);
        };
        let mut further = self.absolute(module, &taken.path)?;
        further.extend(rest[1..].iter().cloned());
        self.defining(&further, depth + 1)
    }
}

// === impl File ===

impl File {
    fn new(source: &Source) -> Self {
        let code = without_tests(source);
        let (mut uses, mut inline, mut rest) = (Vec::new(), Vec::new(), code.as_str());
        while let Some((before, after, is_public)) = next_use(rest) {
            inline.extend(paths(before));
            let (tree, behind) = after.split_once(';').unwrap_or((after, ""));
            read_tree(tree, &Vec::new(), is_public, &mut uses);
            rest = behind;
        }
        inline.extend(paths(rest));
        Self {
            path: source.path.clone(),
            uses,
            inline,
        }
    }
}

/// The code without comments and without what tests alone compile.
fn without_tests(source: &Source) -> String {
    let (mut code, mut is_test, mut is_skipped) = (String::new(), false, false);
    for (_, line) in source.code() {
        let line = without_visibility(line.split(" // ").next().unwrap_or(line));
        if is_skipped {
            is_skipped = !line.starts_with('}');
            continue;
        }
        if is_test {
            is_skipped = line.ends_with('{');
            is_test = false;
            continue;
        }
        is_test = line.trim() == "#[cfg(test)]";
        if !is_test {
            code.push_str(&line);
            code.push('\n');
        }
    }
    code
}

/// The line without `pub(in …)`, whose path is no import.
fn without_visibility(line: &str) -> Cow<'_, str> {
    let found = line.split_once("pub(in ");
    let parts = found.and_then(|(before, after)| Some((before, after.split_once(')')?.1)));
    parts.map_or(Cow::Borrowed(line), |(before, after)| {
        Cow::Owned(format!("{before}pub{after}"))
    })
}

/// What stands before the next `use`, what after it, and whether it is public.
fn next_use(text: &str) -> Option<(&str, &str, bool)> {
    let starts = text
        .match_indices("use ")
        .filter(|(at, _)| text[..*at].chars().next_back().is_none_or(char::is_whitespace));
    for (at, word) in starts {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line..at].trim();
        if before.is_empty() || before.starts_with("pub") {
            return Some((&text[..line], &text[at + word.len()..], !before.is_empty()));
        }
    }
    None
}

/// The names that a `use` binds.
fn read_tree(tree: &str, prefix: &Path, is_public: bool, uses: &mut Vec<Use>) {
    let tree = tree.trim();
    if let Some((start, group)) = tree.split_once('{') {
        let mut prefix = prefix.clone();
        prefix.extend(parts(start));
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        for item in items(group) {
            read_tree(item, &prefix, is_public, uses);
        }
        return;
    }
    let (path, alias) = match tree.split_once(" as ") {
        Some((path, alias)) => (path, Some(alias.trim().to_owned())),
        None => (tree, None),
    };
    let mut whole = prefix.clone();
    whole.extend(parts(path));
    if whole.last().is_some_and(|last| last == "self") {
        whole.pop();
    }
    if let Some(name) = alias.or_else(|| whole.last().cloned()) {
        uses.push(Use {
            name,
            path: whole,
            is_public,
        });
    }
}

/// The items of a group, at its own commas.
fn items(group: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(group[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(group[start..].trim());
    found.retain(|item| !item.is_empty());
    found
}

/// Each `a::b::C` of some code.
fn paths(code: &str) -> Vec<Path> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
    let words = code.split(|char: char| !is_word(char));
    words
        .filter(|word| word.contains("::") && !word.starts_with(':'))
        .map(parts)
        .collect()
}

fn parts(path: &str) -> Path {
    path.split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}
