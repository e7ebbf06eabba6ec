//! `patchesJson6902`: operations as Kyverno applies them. It creates missing parents for `add`, and
//! ignores a `remove` of what is missing (`pkg/engine/mutate/patch/patchJSON6902.go` of Kyverno,
//! with the options of `evanphx/json-patch` that it sets).

use serde_json::Value;

use super::conditions::{self, TextPiece};
use super::edits::{self, Edit, MAX_DEPTH, PatchPart, PathStep};
use super::scope::{FAILS, NULL, Scope, TEXT};
use crate::conversion;
use crate::conversion::Refusal;
use crate::kyverno::expression::literal;
use portcullis_policy::document;

/// The most bytes of a patch.
const MAX_PATCH_BYTES: usize = 20_000;

/// The most operations of a patch.
const MAX_OPERATIONS: usize = 50;

/// A loop around a patch.
#[derive(Debug, Clone)]
pub(crate) struct PatchedElement {
    /// The path of the list. For an inner loop, it leads through an element of the outer one.
    pub(crate) list: Vec<PathStep>,
    /// The CEL variables for the index of an element and for the element.
    pub(crate) index: String,
    pub(crate) element: String,
    pub(crate) is_reversed: bool,
}

/// Encloses the number of a variable in a text. No policy contains this character.
const VARIABLE_MARK: char = '\u{e002}';

/// A patch that is being converted.
pub(crate) struct JsonPatch<'s> {
    pub(crate) scope: &'s Scope,
    pub(crate) loops: &'s [PatchedElement],
    /// The variables in the text in CEL, and whether each is between quotes.
    variables: Vec<(String, bool)>,
    pub(crate) fallible: Vec<String>,
    /// The paths that previous operations have created.
    made: Vec<Vec<PathStep>>,
    written: Vec<(bool, Vec<PathStep>)>,
    /// Changes that are made once, before the loop.
    pub(crate) before: Vec<Edit>,
}

// === impl JsonPatch ===

impl<'s> JsonPatch<'s> {
    pub(crate) const fn new(scope: &'s Scope, loops: &'s [PatchedElement]) -> Self {
        Self {
            scope,
            loops,
            variables: Vec::new(),
            fallible: Vec::new(),
            made: Vec::new(),
            written: Vec::new(),
            before: Vec::new(),
        }
    }

    /// The changes by the operations in `text`.
    pub(crate) fn edits(&mut self, text: &Value) -> Result<Vec<Edit>, Refusal> {
        let Some(text) = text.as_str().filter(|text| text.len() <= MAX_PATCH_BYTES) else {
            return Err(Refusal::whole(format!(
                "it is no text of at most {MAX_PATCH_BYTES} bytes"
            )));
        };
        let text = self.with_marks(text)?;
        let operations = operations(&text)?;
        if operations.len() > MAX_OPERATIONS {
            return Err(Refusal::whole(format!(
                "a patch has at most {MAX_OPERATIONS} operations"
            )));
        }
        let mut edits = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            let of_one = self.of_operation(operation);
            edits.extend(of_one.map_err(|refusal| refusal.within_index(index))?);
        }
        Ok(edits::fail_if_failing(&self.fallible, edits))
    }

    /// The text with marks in place of its variables. Kyverno inserts their values before it parses
    /// the YAML, so they may end a string or change its type.
    fn with_marks(&mut self, text: &str) -> Result<String, Refusal> {
        if text.contains(VARIABLE_MARK) {
            return Err(Refusal::whole("a character of private use stands in it"));
        }
        let mut marked = String::new();
        for piece in conditions::pieces(text)? {
            let query = match piece {
                TextPiece::Text(text) => {
                    marked.push_str(text);
                    continue;
                }
                TextPiece::Variable(query) => query,
            };
            let line = marked.rsplit('\n').next().unwrap_or_default();
            let index = self.index_of(query);
            let is_quoted = line.matches('"').count() % 2 == 1 && !line.contains(['\\', '\'', '#']);
            if index.is_none() && !is_quoted {
                return Err(Refusal::whole(format!(
                    "`{}` may be read as another type or end the text: write it in double quotes, on one line",
                    query.trim()
                )));
            }
            let value = match index {
                Some(index) => format!("string({index})"),
                None => self.plain_text(query)?,
            };
            marked.push_str(&format!("{VARIABLE_MARK}{}{VARIABLE_MARK}", self.variables.len()));
            self.variables.push((value, is_quoted));
        }
        Ok(marked)
    }

    /// The index that `elementIndex` and the like refer to.
    fn index_of(&self, query: &str) -> Option<&str> {
        let number = query.trim().strip_prefix("elementIndex")?;
        let of_loop = match number {
            "" => self.loops.last()?,
            number => self.loops.get(number.parse::<usize>().ok()?)?,
        };
        Some(&of_loop.index)
    }

    /// The value of a variable, which fails unless it is a string that needs no escapes between
    /// double quotes in YAML.
    fn plain_text(&mut self, query: &str) -> Result<String, Refusal> {
        let term = conditions::variable(query, self.scope)?;
        if !(term.is_only(TEXT) || term.is_never_null && term.is_only(TEXT | NULL)) {
            return Err(Refusal::whole(format!(
                "`{}` may not be there, or be no text: end its query with `|| ''`",
                query.trim()
            )));
        }
        let value = self.scope.evaluated_once(term.as_whole_query(), |value| {
            let plain = literal(r#"^[^"\\\x00-\x1f\x7f-\x{10ffff}]*$"#);
            format!("({value}.matches({plain}) && !{value}.contains('{{{{') ? {value} : {FAILS})")
        });
        if !self.fallible.contains(&value) {
            self.fallible.push(value.clone());
        }
        Ok(value)
    }

    /// A text with marks in CEL.
    fn to_cel(&self, text: &str) -> Result<String, Refusal> {
        let parts = text
            .split(VARIABLE_MARK)
            .enumerate()
            .filter(|(_, part)| !part.is_empty());
        let parts: Option<Vec<String>> = parts
            .map(|(index, part)| match index % 2 {
                0 => Some(literal(part)),
                _ => self.variable(part).map(|(value, _)| value.clone()),
            })
            .collect();
        match parts.as_deref() {
            Some([]) => Ok("''".to_owned()),
            Some([part]) => Ok(part.clone()),
            Some(parts) => Ok(format!("({})", parts.join(" + "))),
            None => Err(Refusal::whole("a variable ends elsewhere")),
        }
    }

    fn variable(&self, mark: &str) -> Option<&(String, bool)> {
        self.variables.get(mark.parse::<usize>().ok()?)
    }

    fn value(&self, value: &Value) -> Result<String, Refusal> {
        Ok(match value {
            Value::String(text) => {
                let mut marks = text.split(VARIABLE_MARK).skip(1).step_by(2);
                if !marks.all(|mark| self.variable(mark).is_some_and(|(_, is_quoted)| *is_quoted)) {
                    return Err(Refusal::whole(
                        "a variable that is no text has no counterpart: quote it",
                    ));
                }
                self.to_cel(text)?
            }
            Value::Array(items) => {
                let items: Vec<String> = items
                    .iter()
                    .map(|item| self.value(item))
                    .collect::<Result<_, _>>()?;
                super::scope::listed(&items)
            }
            Value::Object(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| match key.contains(VARIABLE_MARK) {
                        true => conversion::of("value", "a variable in a key has no counterpart"),
                        false => Ok(format!("{}: dyn({})", literal(key), self.value(value)?)),
                    });
                format!("{{{}}}", entries.collect::<Result<Vec<_>, _>>()?.join(", "))
            }
            scalar => super::scope::cel(scalar),
        })
    }

    fn of_operation(&mut self, operation: &Value) -> Result<Vec<Edit>, Refusal> {
        conversion::unknown(operation, &["op", "path", "value"])?;
        let written = operation["path"].as_str().unwrap_or_default();
        let path = self.path(written).map_err(|refusal| refusal.within("path"))?;
        let name = operation["op"].as_str().unwrap_or_default();
        let names: Vec<&str> = path.iter().filter_map(PathStep::key).collect();
        let end = PathStep::Index("-".to_owned());
        let may_end = usize::from(name == "add" && path.last() == Some(&end));
        if path.iter().rev().skip(may_end).any(|step| *step == end) {
            return conversion::of("path", "`-` is the end of a list, to which `add` alone adds");
        }
        self.check_order(name, &path)
            .map_err(|refusal| refusal.within("path"))?;
        let edits = match name {
            "add" | "replace" => {
                let known = edits::check_known(self.scope, &names);
                known.map_err(|refusal| refusal.within("path"))?;
                let value = &operation["value"];
                if value.is_null() {
                    return conversion::of("value", "null has no counterpart: remove what is to be left out");
                }
                let known = edits::check_known_value(self.scope, &names, value);
                known.map_err(|refusal| refusal.within("value"))?;
                let value = self.value(value)?;
                match name {
                    "add" => self.added(&path, value)?,
                    _ => self.replaced(&path, value)?,
                }
            }
            "remove" => self.removed(&path)?,
            _ => return conversion::of("op", format!("`{name}` has no counterpart: write preconditions")),
        };
        self.written.push((name == "add", path));
        Ok(edits)
    }

    fn path(&self, written: &str) -> Result<Vec<PathStep>, Refusal> {
        let refused = |reason: &str| Err(Refusal::whole(reason));
        let Some(steps) = written.strip_prefix('/') else {
            return refused("a path begins with `/`");
        };
        let steps: Vec<&str> = steps.split('/').collect();
        if steps.len() > MAX_DEPTH {
            return refused("it is too deep");
        }
        let mut path = Vec::new();
        for step in steps {
            let is_number = step
                .strip_prefix('-')
                .unwrap_or(step)
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            let marks: Vec<&str> = step.split(VARIABLE_MARK).collect();
            path.push(match marks.as_slice() {
                [""] => return refused("an empty step has no counterpart"),
                [_] if is_number => PathStep::Index(step.to_owned()),
                [plain] => PathStep::Key(plain.replace("~1", "/").replace("~0", "~")),
                ["", variable, ""] => {
                    let value = self.variable(variable);
                    let index = value.and_then(|(value, _)| value.strip_prefix("string(")?.strip_suffix(')'));
                    match index.filter(|index| self.loops.iter().any(|one| one.index == *index)) {
                        Some(index) => PathStep::Index(index.to_owned()),
                        None => {
                            return refused("a variable in a path has no counterpart, but `elementIndex`");
                        }
                    }
                }
                _ if marks.iter().skip(1).step_by(2).all(|mark| self.is_index(mark)) => {
                    PathStep::ComputedKey(self.to_cel(&step.replace("~1", "/").replace("~0", "~"))?)
                }
                _ => return refused("a variable in a path has no counterpart, but `elementIndex`"),
            });
        }
        Ok(path)
    }

    fn is_index(&self, mark: &str) -> bool {
        let value = self.variable(mark);
        value.is_some_and(|(value, _)| {
            self.loops
                .iter()
                .any(|one| *value == format!("string({})", one.index))
        })
    }

    /// Refuses an operation on what a previous one changed: all operations are generated for the
    /// original object.
    fn check_order(&self, name: &str, path: &[PathStep]) -> Result<(), Refusal> {
        let begins = |path: &[PathStep], with: &[PathStep]| path.starts_with(with);
        for (is_add, written) in &self.written {
            let appends = matches!(written.last(), Some(PathStep::Index(index)) if index == "-");
            let both_append = appends && name == "add" && written == path;
            let list = written.split_last().map_or(&[][..], |(_, list)| list);
            let shifts = matches!(written.last(), Some(PathStep::Index(_)))
                && begins(path, list)
                && !(appends && *is_add && name == "add");
            if !both_append && (begins(path, written) || begins(written, path) || shifts) {
                return Err(Refusal::whole(
                    "an operation before it changes the same: write one, or a rule each",
                ));
            }
        }
        Ok(())
    }

    /// The part at a path, which may lead through the elements of the loops.
    fn part(&self, path: &[PathStep]) -> Result<PatchPart, Refusal> {
        let mut part = PatchPart::object(self.scope);
        for (index, step) in path.iter().enumerate() {
            let before = path.get(..index).unwrap_or_default();
            part = match step {
                PathStep::Key(name) => part.child(name),
                PathStep::ComputedKey(key) => part.computed(key),
                PathStep::Index(name) if step.is_named_index() => {
                    let looped = self
                        .loops
                        .iter()
                        .find(|one| one.index == *name && one.list == before);
                    let looped = looped.ok_or_else(|| {
                        Refusal::whole("`elementIndex` does not count the elements of this list")
                            .within("path")
                    })?;
                    part.item(name, &looped.element)
                }
                PathStep::Index(place) => part.place(place),
            };
            if self.made.iter().any(|made| path.get(..=index) == Some(made)) {
                part = part.made();
            }
        }
        Ok(part)
    }

    fn added(&mut self, path: &[PathStep], value: String) -> Result<Vec<Edit>, Refusal> {
        if path.last().is_some_and(PathStep::is_named_index) {
            return conversion::of(
                "path",
                "what is added at the place of an element moves the others: append with `-`",
            );
        }
        // Parents that do not belong to an element are created once.
        let shared = path
            .iter()
            .rposition(PathStep::is_named_index)
            .map_or(0, |place| place + 1);
        let mut edits = vec![self.part(path)?.operation("add", Some(value.clone()))];
        for length in (shared.max(1)..path.len()).rev() {
            let (prefix, rest) = path.split_at(length);
            let (parent, part) = (
                self.part(prefix.split_last().map_or(&[], |(_, rest)| rest))?,
                self.part(prefix)?,
            );
            let there = parent.has(&part);
            if there.is(true)
                || prefix.last().is_some_and(PathStep::is_named_index)
                || self.made.contains(&prefix.to_vec())
            {
                continue;
            }
            let is_in_loop = !self.loops.is_empty() && shared == 0;
            match is_in_loop {
                true => {
                    let empty = if is_index(rest.first()) { "[]" } else { "{}" };
                    self.before.splice(
                        0..0,
                        Edit::only_if(there.not(), vec![part.operation("add", Some(empty.to_owned()))]),
                    );
                }
                false => {
                    let whole = part.operation("add", Some(nested(rest, &value)?));
                    edits = vec![Edit::Choice(there, edits, vec![whole])];
                }
            }
        }
        for length in 1..path.len() {
            self.made.extend(path.get(..length).map(<[PathStep]>::to_vec));
        }
        if !self.loops.is_empty() && shared == 0 {
            edits = vec![self.part(path)?.operation("add", Some(value))];
        }
        Ok(edits)
    }

    /// The edits if everything on the path is present, otherwise `otherwise`.
    fn if_present(
        &self,
        path: &[PathStep],
        mut edits: Vec<Edit>,
        otherwise: &[Edit],
    ) -> Result<Vec<Edit>, Refusal> {
        for length in (1..=path.len()).rev() {
            let prefix = path.get(..length).unwrap_or_default();
            let parent = prefix.split_last().map_or(&[][..], |(_, rest)| rest);
            let is_element = prefix.last().is_some_and(PathStep::is_named_index);
            let there = self.part(parent)?.has(&self.part(prefix)?);
            if !is_element && !there.is(true) {
                edits = vec![Edit::Choice(there, edits, otherwise.to_vec())];
            }
        }
        Ok(edits)
    }

    /// Replacing a missing value fails.
    fn replaced(&self, path: &[PathStep], value: String) -> Result<Vec<Edit>, Refusal> {
        let part = self.part(path)?;
        let fails = part.operation("replace", Some(FAILS.to_owned()));
        self.if_present(path, vec![part.operation("replace", Some(value))], &[fails])
    }

    fn removed(&self, path: &[PathStep]) -> Result<Vec<Edit>, Refusal> {
        let edits = vec![self.part(path)?.operation("remove", None)];
        let Some(last) = path.last().filter(|last| last.is_named_index()) else {
            return self.if_present(path, edits, &[]);
        };
        let innermost = self.loops.last();
        match innermost.is_some_and(|one| PathStep::Index(one.index.clone()) == *last && one.is_reversed) {
            true => Ok(edits),
            false => conversion::of(
                "path",
                "elements that are removed move the others: set `order: Descending`",
            ),
        }
    }
}

fn is_index(step: Option<&PathStep>) -> bool {
    matches!(step, Some(PathStep::Index(_)))
}

/// The value within the missing parents that Kyverno creates.
fn nested(path: &[PathStep], value: &str) -> Result<String, Refusal> {
    let mut made = value.to_owned();
    for step in path.iter().rev() {
        made = match step {
            PathStep::Key(name) => format!("{{{}: dyn({made})}}", literal(name)),
            PathStep::ComputedKey(key) => format!("{{{key}: dyn({made})}}"),
            PathStep::Index(place) if ["0", "-", "-1"].contains(&place.as_str()) => format!("[dyn({made})]"),
            PathStep::Index(_) => FAILS.to_owned(),
        };
    }
    Ok(made)
}

/// Parses the list of operations in YAML or JSON.
fn operations(text: &str) -> Result<Vec<Value>, Refusal> {
    let whole = match text.starts_with('[') {
        true => format!("{{\"patches\": {text}}}"),
        false => text.lines().fold("patches:\n".to_owned(), |whole, line| {
            format!("{whole}  {line}\n")
        }),
    };
    let documents = document::parse(None, &whole)
        .map_err(|fault| Refusal::whole(format!("it cannot be read: {}", fault.message)))?;
    match documents.as_slice() {
        [document] => match document.root().to_json()["patches"].take() {
            Value::Array(operations) if !operations.is_empty() => Ok(operations),
            _ => Err(Refusal::whole("it lists no operations")),
        },
        _ => Err(Refusal::whole("it lists no operations")),
    }
}
