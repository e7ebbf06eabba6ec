//! YAML as Kubernetes' clients read it: YAML 1.1 as converted to JSON by `sigs.k8s.io/yaml`.
//!
//! ```text
//! text --Cursor--> characters --YamlScanner--> tokens --Parser--> Tree --Builder--> Node
//!                                                     anchors, tags     aliases, merge keys,
//!                                                                       what scalars mean
//! ```
//!
//! That library is based on a port of libyaml, whose scanner accepts more than the specification in
//! some places and less in others. This reader accepts what that scanner accepts, so that a
//! manifest means the same to kubectl and to Portcullis; a differential test ensures this
//! (`tests/oracle/yaml.rs`). It is stricter where that library would silently lose text: text after
//! the end of a document, and duplicate keys.
//!
//! Time and memory are linear in the length of the text: parsing does not recurse over nesting
//! levels ([`MAX_DEPTH`](super::MAX_DEPTH) limits the depth of the tree), and the repetition by
//! aliases is limited.
//!
//! The last step is in this module: the builder makes JSON values from the tree. It follows
//! aliases, applies merge keys (`<<`), resolves scalars, and converts keys of other types to
//! strings.

mod parser;
mod property;
mod resolve;
mod scalar;
mod scanner;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::mem::{self, Discriminant};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

pub(crate) use resolve::{ResolvedScalar, normal, resolve};

use super::layout::{Reason, Unreadable, too_many_values};
use super::{Entry, MAX_DEPTH, Node, Value, column_number};

use parser::{NodeKind, ParsedTree, ParsedValue, Scalar};

/// The most bytes of strings that aliases may repeat.
const MAX_REPEATED_BYTES: usize = 8 << 20;

/// A mapping with more keys than this gets an index; most mappings of manifests have fewer.
const MAX_UNINDEXED_KEYS: usize = 16;

const BINARY: &str = "tag:yaml.org,2002:binary";
const MERGE: &str = "tag:yaml.org,2002:merge";

/// Parses the one document in `text`; `None` if there are only comments. `line` is the line on
/// which the text begins. More than `max_values` values are an error.
pub(crate) fn parse(text: &str, line: u32, max_values: usize) -> Result<Option<Node>, Unreadable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.starts_with('\u{feff}') {
        // After two byte order marks, kubectl's reader loses the first character of every line.
        let message = "the file begins with two byte order marks: remove one";
        let error = Unreadable::new(0, 1, Reason::Syntax, message);
        return Err(error.moved_down(line - 1));
    }
    let read = match scanner::forbidden(text) {
        None => read(text, max_values),
        Some((at, error)) => match read(text.get(..at).unwrap_or_default(), max_values) {
            Err(earlier) if earlier.reason == Reason::Trailing => Err(earlier),
            _ => Err(error),
        },
    };
    match read {
        Ok(mut node) => {
            if let Some(node) = node.as_mut().filter(|_| line > 1) {
                node.move_down(line - 1);
            }
            Ok(node)
        }
        Err(error) => Err(error.moved_down(line - 1)),
    }
}

fn read(text: &str, max_values: usize) -> Result<Option<Node>, Unreadable> {
    match parser::YamlParser::new(text, max_values).document()? {
        Some(tree) => build(&tree, max_values).map(Some),
        None => Ok(None),
    }
}

/// Builds the document from its tree.
fn build(tree: &ParsedTree, max_values: usize) -> Result<Node, Unreadable> {
    let mut builder = DocumentBuilder {
        tree,
        followed: Vec::new(),
        max_values,
        values: 1,
        repeated_values: 0,
        repeated_bytes: 0,
    };
    builder.node(tree.root, 0)
}

struct DocumentBuilder<'t> {
    tree: &'t ParsedTree,
    /// The aliases that are being followed, outermost first.
    followed: Vec<usize>,
    max_values: usize,
    /// The number of values built so far, including those that were reached through aliases.
    values: usize,
    repeated_values: usize,
    repeated_bytes: usize,
}

/// A mapping being built.
#[derive(Default)]
struct MappingEntries {
    entries: Vec<Entry>,
    /// The origin of each entry.
    origins: Vec<EntryOrigin>,
    /// The position of each key, once there are more than [`MAX_UNINDEXED_KEYS`].
    index: HashMap<String, usize>,
}

#[derive(Clone, Copy)]
struct EntryOrigin {
    scalar_type: Discriminant<ResolvedScalar>,
    /// Whether the entry was merged from another mapping.
    merged: bool,
}

/// A key as a string, and the type it was written with: `1` and `"1"` are the same string.
struct MappingKey {
    text: String,
    scalar_type: Discriminant<ResolvedScalar>,
}

// === impl DocumentBuilder ===

impl<'t> DocumentBuilder<'t> {
    /// Builds the value at `at`, which is `depth` levels down. Recursion ends at [`MAX_DEPTH`].
    fn node(&mut self, at: usize, depth: usize) -> Result<Node, Unreadable> {
        let value = self.visit(at)?;
        let line = value.line.saturating_add(1);
        let built = match &value.kind {
            NodeKind::Scalar(scalar) => {
                let mut node = Node::new(line, self.scalar(value, scalar)?).at_column(value.column);
                // The characters of a decoded string are not in the file.
                if node.as_str().is_some() && scalar.tag != BINARY {
                    node.layout = scalar.layout.clone();
                    self.count(node.layout.values(), value)?;
                }
                return Ok(node);
            }
            NodeKind::Sequence(items) => {
                let depth = deeper(value, depth)?;
                let items = items.iter().map(|item| self.node(*item, depth));
                let mut items: Vec<_> = items.collect::<Result<_, _>>()?;
                items.shrink_to_fit();
                Value::List(items)
            }
            NodeKind::Mapping(children) => {
                let depth = deeper(value, depth)?;
                let mut entries = MappingEntries::default();
                self.mapping(children, &mut entries, false, depth)?;
                entries.entries.shrink_to_fit();
                Value::Map(entries.entries)
            }
            NodeKind::Alias(name, target) => {
                let node = self.follow(at, value, name, |builder| builder.node(*target, depth))?;
                let layout = node.layout.apart_from(node.line);
                let own = Node { line, layout, ..node };
                return Ok(own.at_column(value.column));
            }
        };
        Ok(Node::new(line, built).at_column(value.column))
    }

    /// Returns the value at `at`, and counts it.
    fn visit(&mut self, at: usize) -> Result<&'t ParsedValue, Unreadable> {
        let value = self.tree.value(at).ok_or_else(|| {
            // The positions in a tree always refer to values of the tree.
            Unreadable::new(0, 0, Reason::Syntax, "a value is missing")
        })?;
        self.count(1, value)?;
        if !self.followed.is_empty() {
            self.repeated_values += 1;
        }
        if self.repeats_too_much() {
            return Err(error(value, "aliases (`*name`) repeat too much"));
        }
        Ok(value)
    }

    /// Counts `values` more values, which are at `value`.
    fn count(&mut self, values: usize, value: &ParsedValue) -> Result<(), Unreadable> {
        self.values += values;
        if self.values > self.max_values {
            return Err(error(value, &too_many_values(self.max_values)));
        }
        Ok(())
    }

    /// The limit of go-yaml (`allowedAliasRatio` in `decode.go`): nearly all values may come from
    /// aliases if there are few, but a tenth if there are many.
    fn repeats_too_much(&self) -> bool {
        const SMALL_VALUES: usize = 400_000;
        const LARGE_VALUES: usize = 4_000_000;
        if self.repeated_values <= 100 || self.values <= 1000 {
            return self.repeated_bytes > MAX_REPEATED_BYTES;
        }
        #[expect(clippy::cast_precision_loss, reason = "it is a ratio")]
        let allowed = match self.values {
            ..=SMALL_VALUES => 0.99,
            LARGE_VALUES.. => 0.10,
            values => 0.99 - 0.89 * ((values - SMALL_VALUES) as f64 / (LARGE_VALUES - SMALL_VALUES) as f64),
        };
        #[expect(clippy::cast_precision_loss, reason = "it is a ratio")]
        let ratio = self.repeated_values as f64 / self.values as f64;
        ratio > allowed || self.repeated_bytes > MAX_REPEATED_BYTES
    }

    fn follow<T>(
        &mut self,
        at: usize,
        value: &ParsedValue,
        name: &str,
        build: impl FnOnce(&mut Self) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        if self.followed.contains(&at) {
            return Err(error(value, &format!("the anchor `&{name}` contains itself")));
        }
        self.followed.push(at);
        let built = build(self);
        self.followed.pop();
        built
    }

    // --- scalars ---

    fn scalar(&mut self, value: &ParsedValue, scalar: &Scalar) -> Result<Value, Unreadable> {
        Ok(match self.meaning(value, scalar)? {
            ResolvedScalar::Null => Value::Null,
            ResolvedScalar::Bool(value) => Value::Bool(value),
            ResolvedScalar::Int(integer) => Value::Number(integer.into()),
            ResolvedScalar::Uint(integer) => Value::Number(integer.into()),
            ResolvedScalar::Float(float) => match resolve::normal(float) {
                Some(number) => Value::Number(number),
                None => return Err(error(value, "infinity and `.nan` cannot be represented in JSON")),
            },
            ResolvedScalar::Text | ResolvedScalar::Timestamp => Value::String(self.text(value, scalar)?),
        })
    }

    fn meaning(&self, value: &ParsedValue, scalar: &Scalar) -> Result<ResolvedScalar, Unreadable> {
        if scalar.tag.is_empty() && !scalar.implicit {
            return Ok(ResolvedScalar::Text);
        }
        resolve::resolve(&scalar.tag, &scalar.text).map_err(|message| error(value, &message))
    }

    fn text(&mut self, value: &ParsedValue, scalar: &Scalar) -> Result<String, Unreadable> {
        if !self.followed.is_empty() {
            self.repeated_bytes = self.repeated_bytes.saturating_add(scalar.text.len());
        }
        if scalar.tag != BINARY {
            return Ok(scalar.text.clone());
        }
        decode(&scalar.text).ok_or_else(|| error(value, "`!!binary` text is not valid base64"))
    }

    // --- mappings ---

    /// Adds the entries of a mapping to `into`.
    fn mapping(
        &mut self,
        children: &[usize],
        into: &mut MappingEntries,
        merged: bool,
        depth: usize,
    ) -> Result<(), Unreadable> {
        for pair in children.chunks_exact(2) {
            let [key, value] = *pair else { continue };
            if self.is_merge(key) {
                self.merge(value, into, depth)?;
                continue;
            }
            let place = self.place(key);
            let key = self.key(key)?;
            let node = self.node(value, depth)?;
            into.add(key, place, node, merged)?;
        }
        Ok(())
    }

    fn place(&self, at: usize) -> (u32, usize) {
        self.tree
            .value(at)
            .map_or((0, 0), |value| (value.line, value.column))
    }

    fn is_merge(&self, key: usize) -> bool {
        match self.tree.value(key).map(|value| &value.kind) {
            Some(NodeKind::Scalar(key)) => key.text == "<<" && (key.implicit || key.tag == MERGE),
            _ => false,
        }
    }

    /// Merges the mapping at `at`, or each mapping in the list there; the first one with a key
    /// determines its value.
    fn merge(&mut self, at: usize, into: &mut MappingEntries, depth: usize) -> Result<(), Unreadable> {
        let Some(value) = self.tree.value(at) else {
            return Ok(());
        };
        match &value.kind {
            NodeKind::Sequence(items) => items
                .iter()
                .rev()
                .try_for_each(|item| self.merge_one(*item, into, depth)),
            _ => self.merge_one(at, into, depth),
        }
    }

    fn merge_one(&mut self, at: usize, into: &mut MappingEntries, depth: usize) -> Result<(), Unreadable> {
        let value = self.visit(at)?;
        match &value.kind {
            NodeKind::Mapping(children) => {
                let depth = deeper(value, depth)?;
                self.mapping(children, into, true, depth)
            }
            NodeKind::Alias(name, target) => {
                let Some(NodeKind::Mapping(_)) = self.tree.value(*target).map(|value| &value.kind) else {
                    return Err(not_merged(value));
                };
                self.follow(at, value, name, |builder| builder.merge_one(*target, into, depth))
            }
            NodeKind::Scalar(_) | NodeKind::Sequence(_) => Err(not_merged(value)),
        }
    }

    /// A key as a string.
    fn key(&mut self, at: usize) -> Result<MappingKey, Unreadable> {
        let value = self.visit(at)?;
        match &value.kind {
            NodeKind::Scalar(scalar) => self.scalar_key(value, scalar),
            NodeKind::Alias(name, target) => self.follow(at, value, name, |builder| builder.key(*target)),
            NodeKind::Sequence(_) | NodeKind::Mapping(_) => Err(error(
                value,
                "a list or mapping cannot be a key; put text in quotes",
            )),
        }
    }

    fn scalar_key(&mut self, value: &ParsedValue, scalar: &Scalar) -> Result<MappingKey, Unreadable> {
        let meaning = self.meaning(value, scalar)?;
        let text = match meaning {
            ResolvedScalar::Text | ResolvedScalar::Timestamp => self.text(value, scalar)?,
            ResolvedScalar::Bool(value) => value.to_string(),
            ResolvedScalar::Int(integer) => integer.to_string(),
            ResolvedScalar::Float(float) => resolve::key(float),
            ResolvedScalar::Null => return Err(error(value, "`null` cannot be a key; put text in quotes")),
            ResolvedScalar::Uint(_) => {
                return Err(error(value, "the key is a number beyond 2^63; put it in quotes"));
            }
        };
        Ok(MappingKey {
            text,
            scalar_type: mem::discriminant(&meaning),
        })
    }
}

// === impl MappingEntries ===

impl MappingEntries {
    fn add(
        &mut self,
        key: MappingKey,
        place: (u32, usize),
        value: Node,
        merged: bool,
    ) -> Result<(), Unreadable> {
        let (line, column) = place;
        let MappingKey {
            text,
            scalar_type: sort,
        } = key;
        let origin = EntryOrigin {
            scalar_type: sort,
            merged,
        };
        let Some(at) = self.find(&text) else {
            self.push(text, place, value, origin);
            return Ok(());
        };
        let (Some(old), Some(known)) = (self.entries.get_mut(at), self.origins.get_mut(at)) else {
            return Ok(());
        };
        // A merged entry is replaced by a later one.
        if !known.merged {
            let message = duplicate(&text, old.line, merged, known.scalar_type == sort);
            return Err(Unreadable::new(line, column, Reason::Content, message));
        }
        (old.line, old.column) = (line.saturating_add(1), column_number(column));
        old.value = value;
        *known = origin;
        Ok(())
    }

    fn find(&self, key: &str) -> Option<usize> {
        if self.entries.len() > MAX_UNINDEXED_KEYS {
            return self.index.get(key).copied();
        }
        self.entries.iter().position(|entry| entry.key == key)
    }

    fn push(&mut self, key: String, (line, column): (u32, usize), value: Node, origin: EntryOrigin) {
        let at = self.entries.len();
        if at == MAX_UNINDEXED_KEYS {
            let keys = self.entries.iter().map(|entry| entry.key.clone());
            self.index = keys.zip(0..).collect();
        }
        if at >= MAX_UNINDEXED_KEYS {
            self.index.insert(key.clone(), at);
        }
        self.entries.push(Entry {
            key,
            line: line.saturating_add(1),
            column: column_number(column),
            value,
        });
        self.origins.push(origin);
    }
}

fn duplicate(key: &str, first: u32, merged: bool, same_sort: bool) -> String {
    match (merged, same_sort) {
        (true, _) => {
            format!("`<<` would replace `{key}` on line {first}; write `<<` above it")
        }
        (false, true) => format!("duplicate key `{key}`, also on line {first}"),
        (false, false) => {
            format!("duplicate key `{key}`, also on line {first} with another type")
        }
    }
}

fn deeper(value: &ParsedValue, depth: usize) -> Result<usize, Unreadable> {
    if depth >= MAX_DEPTH {
        return Err(error(value, &format!("nested deeper than {MAX_DEPTH} levels")));
    }
    Ok(depth + 1)
}

fn error(value: &ParsedValue, message: &str) -> Unreadable {
    Unreadable::new(value.line, value.column, Reason::Syntax, message)
}

fn not_merged(value: &ParsedValue) -> Unreadable {
    error(value, "`<<` needs a mapping, or a list of mappings")
}

/// Decodes base64 as Go's `encoding/base64` does, ignoring line breaks. Bytes that are not valid
/// UTF-8 are replaced, as in JSON.
fn decode(text: &str) -> Option<String> {
    const LIKE_GO: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical);
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = GeneralPurpose::new(&STANDARD, LIKE_GO).decode(text).ok()?;
    let mut decoded = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        decoded.push_str(chunk.valid());
        // One replacement for each byte, as in Go.
        decoded.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Some(decoded)
}
