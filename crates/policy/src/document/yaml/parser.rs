//! Parses tokens into a tree, following libyaml's grammar.

use std::collections::HashMap;

use super::super::MAX_DEPTH;
use super::scanner::{LocatedToken, Mark, YamlScanner, YamlToken};
use crate::document::layout::{Layout, Unreadable, too_many_values};

type Result<T> = std::result::Result<T, Unreadable>;

pub(crate) struct YamlParser<'t> {
    pub(crate) scanner: YamlScanner<'t>,
    pub(crate) tree: ParsedTree,
    max_values: usize,
    anchors: HashMap<String, usize>,
    /// The prefix of each tag handle.
    handles: HashMap<String, String>,
    /// The open collections, innermost last.
    pub(crate) open: Vec<OpenCollection>,
}

/// The anchor and tag before a value.
#[derive(Default)]
struct Properties {
    anchor: Option<String>,
    tag: Option<(String, String, Mark)>,
}

/// A collection that is not closed yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenCollection {
    pub(crate) value: usize,
    pub(crate) style: CollectionStyle,
    pub(crate) at: CollectionState,
    pub(crate) mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollectionStyle {
    BlockSequence,
    /// A block sequence whose items are in the column of its key.
    IndentlessSequence,
    BlockMapping,
    FlowSequence,
    FlowMapping,
    /// A mapping of one entry within a flow sequence: `[a: b]`.
    FlowPair,
}

/// What comes next in a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollectionState {
    First,
    Next,
    Value,
    /// The value of a key that has no `:` after it.
    NoValue,
    End,
}

// === impl YamlParser ===

impl<'t> YamlParser<'t> {
    /// A parser for a document of at most `max_values` values.
    pub(crate) fn new(text: &'t str, max_values: usize) -> Self {
        Self {
            scanner: YamlScanner::new(text),
            max_values,
            tree: ParsedTree::default(),
            anchors: HashMap::new(),
            handles: HashMap::new(),
            open: Vec::new(),
        }
    }

    /// Parses the one document; `None` if the stream has none.
    pub(crate) fn document(mut self) -> Result<Option<ParsedTree>> {
        if self.next_is(&[YamlToken::StreamEnd])? {
            return Ok(None);
        }
        let is_explicit = self.directives()?;
        let is_empty = is_explicit && self.is_content_missing()?;
        let root = if is_empty {
            let mark = self.scanner.peek()?.mark;
            Some(self.empty(mark))
        } else {
            self.node(true, false)?
        };
        let root = match root {
            Some(root) => root,
            None => self.collections()?,
        };
        self.tree.root = root;
        self.end_of_document()?;
        Ok(Some(self.tree))
    }

    // --- tokens ---

    pub(crate) fn next_is(&mut self, tokens: &[YamlToken]) -> Result<bool> {
        let next = &self.scanner.peek()?.token;
        Ok(tokens.contains(next))
    }

    /// Consumes the next token if it is `token`.
    pub(crate) fn take_if(&mut self, token: &YamlToken) -> Result<Option<Mark>> {
        if self.scanner.peek()?.token != *token {
            return Ok(None);
        }
        self.scanner.take().map(|taken| Some(taken.mark))
    }

    pub(crate) fn refuse<T>(&mut self, message: &str) -> Result<T> {
        Err(self.scanner.peek()?.mark.error(message))
    }

    // --- documents ---

    /// Reads directives (`%` lines). Returns whether a `---` follows.
    fn directives(&mut self) -> Result<bool> {
        let mut version = false;
        let mut found = false;
        loop {
            match self.scanner.peek()?.token {
                YamlToken::Version { major, minor } => {
                    if version || (major, minor) != (1, 1) {
                        return self.refuse("only YAML 1.1 is supported; remove the directive");
                    }
                    version = true;
                }
                YamlToken::TagDirective { .. } => {}
                _ => break,
            }
            found = true;
            let LocatedToken { token, mark } = self.scanner.take()?;
            if let YamlToken::TagDirective { handle, prefix } = token
                && self.handles.insert(handle, prefix).is_some()
            {
                return Err(mark.error("the same tag handle is declared twice"));
            }
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            self.handles
                .entry(handle.to_owned())
                .or_insert_with(|| prefix.to_owned());
        }
        let is_explicit = self.take_if(&YamlToken::DocumentStart)?.is_some();
        if found && !is_explicit {
            return self.refuse("no document follows the directive (`%…`); remove the directive");
        }
        Ok(is_explicit)
    }

    fn is_content_missing(&mut self) -> Result<bool> {
        Ok(matches!(
            self.scanner.peek()?.token,
            YamlToken::Version { .. }
                | YamlToken::TagDirective { .. }
                | YamlToken::DocumentStart
                | YamlToken::DocumentEnd
                | YamlToken::StreamEnd
        ))
    }

    /// Rejects anything after the document, because it would be lost.
    fn end_of_document(&mut self) -> Result<()> {
        let next = loop {
            match self.scanner.peek() {
                Ok(LocatedToken { token, .. }) if *token == YamlToken::DocumentEnd => self.scanner.take()?,
                Ok(LocatedToken { token, .. }) if *token == YamlToken::StreamEnd => return Ok(()),
                next => break next,
            };
        };
        Err(match next {
            Ok(LocatedToken { mark, .. }) => mark.error("").trailing(),
            Err(error) => error.trailing(),
        })
    }

    // --- values ---

    /// Parses the value at this position. Returns `None` if it is a collection, which is then open.
    pub(crate) fn node(&mut self, is_block: bool, may_be_indentless: bool) -> Result<Option<usize>> {
        let start = self.scanner.peek()?.mark;
        if let YamlToken::Alias(_) = self.scanner.peek()?.token {
            return self.alias().map(Some);
        }
        let properties = self.properties()?;
        let tag = self.tag(properties.tag.as_ref())?;
        let mark = self.scanner.peek()?.mark;
        let style = match self.scanner.peek()?.token {
            YamlToken::Scalar { .. } => {
                let scalar = self.scalar(tag)?;
                return Ok(Some(self.anchored(
                    properties.anchor,
                    mark,
                    NodeKind::Scalar(scalar),
                )));
            }
            YamlToken::BlockEntry if may_be_indentless => CollectionStyle::IndentlessSequence,
            YamlToken::FlowSequenceStart => CollectionStyle::FlowSequence,
            YamlToken::FlowMappingStart => CollectionStyle::FlowMapping,
            YamlToken::BlockSequenceStart if is_block => CollectionStyle::BlockSequence,
            YamlToken::BlockMappingStart if is_block => CollectionStyle::BlockMapping,
            _ if properties.anchor.is_some() || !tag.is_empty() => {
                let scalar = Scalar {
                    implicit: tag.is_empty(),
                    tag,
                    ..Scalar::default()
                };
                return Ok(Some(self.anchored(
                    properties.anchor,
                    start,
                    NodeKind::Scalar(scalar),
                )));
            }
            _ => return self.refuse("a value is missing here, or the indentation is wrong"),
        };
        if style != CollectionStyle::IndentlessSequence {
            self.scanner.take()?;
        }
        self.open(style, properties.anchor, mark)?;
        Ok(None)
    }

    fn alias(&mut self) -> Result<usize> {
        let LocatedToken { token, mark } = self.scanner.take()?;
        let YamlToken::Alias(name) = token else {
            return Err(mark.error("an alias is missing"));
        };
        let Some(target) = self.anchors.get(&name).copied() else {
            return Err(mark.error(format!("unknown alias: there is no anchor `&{name}` above")));
        };
        Ok(self.anchored(None, mark, NodeKind::Alias(name, target)))
    }

    /// Reads an anchor and a tag, in either order.
    fn properties(&mut self) -> Result<Properties> {
        let mut properties = Properties::default();
        loop {
            match &self.scanner.peek()?.token {
                YamlToken::Anchor(_) if properties.anchor.is_none() => {
                    if let YamlToken::Anchor(name) = self.scanner.take()?.token {
                        properties.anchor = Some(name);
                    }
                }
                YamlToken::Tag { .. } if properties.tag.is_none() => {
                    let LocatedToken { token, mark } = self.scanner.take()?;
                    if let YamlToken::Tag { handle, suffix } = token {
                        properties.tag = Some((handle, suffix, mark));
                    }
                }
                _ => return Ok(properties),
            }
        }
    }

    /// The tag in full form.
    fn tag(&self, tag: Option<&(String, String, Mark)>) -> Result<String> {
        match tag {
            None => Ok(String::new()),
            Some((handle, suffix, _)) if handle.is_empty() => Ok(suffix.clone()),
            Some((handle, suffix, mark)) => match self.handles.get(handle) {
                Some(prefix) => Ok(format!("{prefix}{suffix}")),
                None => Err(mark.error(format!("no `%TAG` directive declares `{handle}`"))),
            },
        }
    }

    fn scalar(&mut self, tag: String) -> Result<Scalar> {
        let LocatedToken { token, mark } = self.scanner.take()?;
        let YamlToken::Scalar { text, plain, layout } = token else {
            return Err(mark.error("a scalar is missing"));
        };
        let implicit = (tag.is_empty() && plain) || tag == "!";
        Ok(Scalar {
            text,
            tag,
            implicit,
            layout,
        })
    }

    /// # Errors
    ///
    /// The document has more values than allowed.
    pub(crate) fn check_values(&mut self) -> Result<()> {
        if self.tree.values.len() > self.max_values {
            return self.refuse(&too_many_values(self.max_values));
        }
        Ok(())
    }

    pub(crate) fn anchored(&mut self, anchor: Option<String>, mark: Mark, kind: NodeKind) -> usize {
        let value = self.tree.push(ParsedValue {
            line: mark.line,
            column: mark.column,
            kind,
        });
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, value);
        }
        value
    }

    /// An empty value, which is `null`.
    pub(crate) fn empty(&mut self, mark: Mark) -> usize {
        let scalar = Scalar {
            implicit: true,
            ..Scalar::default()
        };
        self.anchored(None, mark, NodeKind::Scalar(scalar))
    }
}

// The syntax tree of a document, before aliases, merge keys and scalars are resolved.

/// The values of a document. They refer to each other by index, so that deep nesting needs no deep
/// stack.
#[derive(Debug, Default)]
pub(crate) struct ParsedTree {
    values: Vec<ParsedValue>,
    pub(crate) root: usize,
}

#[derive(Debug)]
pub(crate) struct ParsedValue {
    /// The line, from 0.
    pub(crate) line: u32,
    pub(crate) column: usize,
    pub(crate) kind: NodeKind,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Scalar(Scalar),
    Sequence(Vec<usize>),
    /// Keys and values alternate.
    Mapping(Vec<usize>),
    /// The name and the target of the anchor.
    Alias(String, usize),
}

#[derive(Debug, Default)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// The full form, such as `tag:yaml.org,2002:int`; empty if there is no tag.
    pub(crate) tag: String,
    /// Whether the type is resolved from the text: the scalar is plain, or its tag is `!`.
    pub(crate) implicit: bool,
    /// The positions of the text's characters.
    pub(crate) layout: Layout,
}

// === impl ParsedTree ===

impl ParsedTree {
    pub(crate) fn push(&mut self, value: ParsedValue) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    pub(crate) fn value(&self, at: usize) -> Option<&ParsedValue> {
        self.values.get(at)
    }

    /// Adds the value `child` to the sequence or mapping `parent`.
    pub(crate) fn add(&mut self, parent: usize, child: usize) {
        if let Some(value) = self.values.get_mut(parent)
            && let NodeKind::Sequence(children) | NodeKind::Mapping(children) = &mut value.kind
        {
            children.push(child);
        }
    }
}

// === impl YamlParser ===

impl YamlParser<'_> {
    /// Parses until the outermost collection is closed.
    pub(crate) fn collections(&mut self) -> Result<usize> {
        let mut outermost = 0;
        while let Some(open) = self.open.last().copied() {
            outermost = open.value;
            self.check_values()?;
            let child = match open.style {
                CollectionStyle::BlockSequence => self.block_sequence(open)?,
                CollectionStyle::IndentlessSequence => self.indentless_sequence(open)?,
                CollectionStyle::BlockMapping => self.block_mapping(open)?,
                CollectionStyle::FlowSequence => self.flow_sequence(open)?,
                CollectionStyle::FlowMapping => self.flow_mapping(open)?,
                CollectionStyle::FlowPair => self.flow_pair(open)?,
            };
            if let Some(child) = child {
                self.tree.add(open.value, child);
            }
        }
        Ok(outermost)
    }

    pub(crate) fn open(&mut self, style: CollectionStyle, anchor: Option<String>, mark: Mark) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(mark.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let kind = match style {
            CollectionStyle::BlockSequence
            | CollectionStyle::IndentlessSequence
            | CollectionStyle::FlowSequence => NodeKind::Sequence(Vec::new()),
            CollectionStyle::BlockMapping | CollectionStyle::FlowMapping | CollectionStyle::FlowPair => {
                NodeKind::Mapping(Vec::new())
            }
        };
        let value = self.anchored(anchor, mark, kind);
        // Added to its parent now, because its index is not at hand when it closes.
        if let Some(parent) = self.open.last() {
            let parent = parent.value;
            self.tree.add(parent, value);
        }
        self.open.push(OpenCollection {
            value,
            style,
            at: CollectionState::First,
            mark,
        });
        Ok(())
    }

    fn close(&mut self) {
        self.open.pop();
    }

    fn set_state(&mut self, at: CollectionState) {
        if let Some(open) = self.open.last_mut() {
            open.at = at;
        }
    }

    /// Parses the value at this position. If the next token is one of `ends`, the value is empty
    /// and at `mark`.
    fn node_unless(
        &mut self,
        ends: &[YamlToken],
        mark: Mark,
        is_block: bool,
        may_be_indentless: bool,
    ) -> Result<Option<usize>> {
        if self.next_is(ends)? {
            return Ok(Some(self.empty(mark)));
        }
        self.node(is_block, may_be_indentless)
    }

    // --- collections: each function parses one step, and returns the value that it added ---

    fn block_sequence(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        if let Some(mark) = self.take_if(&YamlToken::BlockEntry)? {
            return self.node_unless(&[YamlToken::BlockEntry, YamlToken::BlockEnd], mark, true, false);
        }
        if self.take_if(&YamlToken::BlockEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        let begun = open.mark.line + 1;
        self.refuse(&format!(
            "expected `- ` for another item of the list that begins on line {begun}, or the \
             indentation is wrong"
        ))
    }

    fn indentless_sequence(&mut self, _: OpenCollection) -> Result<Option<usize>> {
        if let Some(mark) = self.take_if(&YamlToken::BlockEntry)? {
            let ends = [
                YamlToken::BlockEntry,
                YamlToken::Key,
                YamlToken::Value,
                YamlToken::BlockEnd,
            ];
            return self.node_unless(&ends, mark, true, false);
        }
        self.close();
        Ok(None)
    }

    fn block_mapping(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        let ends = [YamlToken::Key, YamlToken::Value, YamlToken::BlockEnd];
        if open.at == CollectionState::Value {
            self.set_state(CollectionState::Next);
            if let Some(mark) = self.take_if(&YamlToken::Value)? {
                return self.node_unless(&ends, mark, true, true);
            }
            let mark = self.scanner.peek()?.mark;
            return Ok(Some(self.empty(mark)));
        }
        if let Some(mark) = self.take_if(&YamlToken::Key)? {
            self.set_state(CollectionState::Value);
            return self.node_unless(&ends, mark, true, true);
        }
        if self.take_if(&YamlToken::BlockEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        let begun = open.mark.line + 1;
        self.refuse(&format!(
            "expected another `key:` of the mapping that begins on line {begun}, or the indentation is wrong"
        ))
    }

    fn flow_sequence(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        self.flow_separator(
            open,
            &YamlToken::FlowSequenceEnd,
            "expected `,` or `]` in the list `[…]`",
        )?;
        if self.take_if(&YamlToken::FlowSequenceEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        self.set_state(CollectionState::Next);
        if let Some(mark) = self.take_if(&YamlToken::Key)? {
            self.open(CollectionStyle::FlowPair, None, mark)?;
            return Ok(None);
        }
        self.node(false, false)
    }

    /// Consumes a comma, if one is due here.
    fn flow_separator(&mut self, open: OpenCollection, end: &YamlToken, message: &str) -> Result<()> {
        let is_due = open.at != CollectionState::First && self.scanner.peek()?.token != *end;
        if is_due && self.take_if(&YamlToken::FlowEntry)?.is_none() {
            return self.refuse(message);
        }
        Ok(())
    }

    fn flow_pair(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        let ends = [YamlToken::FlowEntry, YamlToken::FlowSequenceEnd];
        match open.at {
            CollectionState::First => {
                self.set_state(CollectionState::Value);
                if self.next_is(&[YamlToken::Value, YamlToken::FlowEntry, YamlToken::FlowSequenceEnd])? {
                    // libyaml consumes the token that ends the missing key.
                    let mark = self.scanner.take()?.mark;
                    return Ok(Some(self.empty(mark)));
                }
                self.node(false, false)
            }
            CollectionState::Value => {
                self.set_state(CollectionState::End);
                let mark = self.scanner.peek()?.mark;
                match self.take_if(&YamlToken::Value)? {
                    Some(_) => self.node_unless(&ends, mark, false, false),
                    None => Ok(Some(self.empty(mark))),
                }
            }
            CollectionState::Next | CollectionState::NoValue | CollectionState::End => {
                self.close();
                Ok(None)
            }
        }
    }

    fn flow_mapping(&mut self, open: OpenCollection) -> Result<Option<usize>> {
        let mark = self.scanner.peek()?.mark;
        match open.at {
            CollectionState::NoValue => {
                self.set_state(CollectionState::Next);
                return Ok(Some(self.empty(mark)));
            }
            CollectionState::Value => {
                self.set_state(CollectionState::Next);
                let ends = [YamlToken::FlowEntry, YamlToken::FlowMappingEnd];
                return match self.take_if(&YamlToken::Value)? {
                    Some(_) => self.node_unless(&ends, mark, false, false),
                    None => Ok(Some(self.empty(mark))),
                };
            }
            CollectionState::First | CollectionState::Next | CollectionState::End => {}
        }
        self.flow_separator(
            open,
            &YamlToken::FlowMappingEnd,
            "expected `,` or `}` in the mapping `{…}`",
        )?;
        if self.take_if(&YamlToken::FlowMappingEnd)?.is_some() {
            self.close();
            return Ok(None);
        }
        if !self.next_is(&[YamlToken::Key])? {
            self.set_state(CollectionState::NoValue);
            return self.node(false, false);
        }
        let mark = self.scanner.take()?.mark;
        self.set_state(CollectionState::Value);
        let ends = [YamlToken::Value, YamlToken::FlowEntry, YamlToken::FlowMappingEnd];
        self.node_unless(&ends, mark, false, false)
    }
}
