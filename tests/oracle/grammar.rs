//! Expressions that a grammar makes at random: well-typed, as a rule.

use std::collections::BTreeMap;
use std::path::Path;

use crate::random::Random;

/// How deep expressions are nested at most; from there on only leaves follow.
const DEPTH: usize = 4;

/// One in how many holes is filled by an expression of any type.
const MISFITS: usize = 60;

/// What `grammar.txt` says.
pub(crate) struct Grammar {
    text: &'static str,
    types: Vec<&'static str>,
    all: BTreeMap<&'static str, Vec<Template>>,
    leaves: BTreeMap<&'static str, Vec<Template>>,
}

/// Text and holes, in turn.
type Template = Vec<Part>;

enum Part {
    Text(&'static str),
    /// A variable of the template, by its letter.
    Name(char),
    Hole {
        of: &'static str,
        /// Which variables are known in it, and of which types.
        binds: Vec<(char, &'static str)>,
    },
}

/// The variables in scope: name and type.
type Scope = Vec<(String, &'static str)>;

// === impl Grammar ===

impl Grammar {
    pub(crate) fn read() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/grammar.txt");
        let text: &'static str = std::fs::read_to_string(file).unwrap().leak();
        let mut grammar = Self {
            text,
            types: Vec::new(),
            all: BTreeMap::new(),
            leaves: BTreeMap::new(),
        };
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (of, text) = line.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
            let leaf = !template(text)
                .iter()
                .any(|part| matches!(part, Part::Hole { .. }));
            grammar.all.entry(of).or_default().push(template(text));
            if leaf {
                grammar.leaves.entry(of).or_default().push(template(text));
            }
        }
        grammar.types = grammar.all.keys().copied().collect();
        grammar
    }

    /// Whether `part` stands in it anywhere.
    pub(crate) fn has(&self, part: &str) -> bool {
        self.text.contains(part)
    }

    /// An expression of any type.
    pub(crate) fn expression(&self, random: &mut Random) -> String {
        let of = self.types[random.below(self.types.len())];
        let mut out = String::new();
        let depth = random.below(DEPTH) + 1;
        self.write(random, of, depth, &mut Scope::new(), &mut out);
        out
    }

    fn write(
        &self,
        random: &mut Random,
        of: &'static str,
        depth: usize,
        scope: &mut Scope,
        out: &mut String,
    ) {
        let of = if random.below(MISFITS) == 0 {
            self.types[random.below(self.types.len())]
        } else {
            of
        };
        let known: Vec<usize> = (0..scope.len()).filter(|at| scope[*at].1 == of).collect();
        if !known.is_empty() && random.below(3) > 0 {
            out.push_str(&scope[known[random.below(known.len())]].0);
            return;
        }
        let leaves = self.leaves.get(of).filter(|_| depth == 0 || random.below(4) == 0);
        let templates = leaves
            .or_else(|| self.all.get(of))
            .unwrap_or_else(|| panic!("{of}"));
        let template = &templates[random.below(templates.len())];
        self.fill(random, template, depth.saturating_sub(1), scope, out);
    }

    fn fill(
        &self,
        random: &mut Random,
        template: &[Part],
        depth: usize,
        scope: &mut Scope,
        out: &mut String,
    ) {
        // A name of the scope is hidden now and then.
        let base = if random.below(8) == 0 { 0 } else { scope.len() };
        let name = |letter: char| format!("{letter}{base}");
        for part in template {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Name(letter) => out.push_str(&name(*letter)),
                Part::Hole { of, binds } => {
                    let before = scope.len();
                    scope.extend(binds.iter().map(|(letter, of)| (name(*letter), *of)));
                    let composed = binds.is_empty() && template.len() > 1;
                    let mut inner = String::new();
                    self.write(random, of, depth, scope, &mut inner);
                    scope.truncate(before);
                    // An operator inside another keeps to itself.
                    if composed && inner.contains(' ') {
                        out.push('(');
                        out.push_str(&inner);
                        out.push(')');
                    } else {
                        out.push_str(&inner);
                    }
                }
            }
        }
    }
}

fn template(text: &'static str) -> Template {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '$']) {
        if at > 0 {
            parts.push(Part::Text(&rest[..at]));
        }
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix('$') {
            parts.push(Part::Name(after.chars().next().unwrap()));
            rest = &after[1..];
            continue;
        }
        match hole(rest) {
            Some((part, after)) => {
                parts.push(part);
                rest = after;
            }
            // The brace of a map.
            None => {
                parts.push(Part::Text(&rest[..1]));
                rest = &rest[1..];
            }
        }
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}

/// `{int}` or `{x:int|bool}` at the start of `text`, and what follows.
fn hole(text: &'static str) -> Option<(Part, &'static str)> {
    let (inner, after) = text[1..].split_once('}')?;
    let (binds, of) = inner.split_once('|').unwrap_or(("", inner));
    let is_type = |of: &str| !of.is_empty() && of.bytes().all(|byte| byte.is_ascii_lowercase());
    if !is_type(of) {
        return None;
    }
    let bind = |bind: &'static str| {
        let (name, of) = bind.split_once(':').filter(|(_, of)| is_type(of))?;
        Some((name.chars().next()?, of))
    };
    let binds = binds.split(',').filter(|bind| !bind.is_empty());
    let binds = binds.map(bind).collect::<Option<_>>()?;
    Some((Part::Hole { of, binds }, after))
}
