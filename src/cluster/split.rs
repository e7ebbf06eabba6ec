//! Splits a response of an API server into its objects while it arrives.
//!
//! ```text
//! {"kind":"RoleList","metadata":{…},"items":[{…},{…}]}     a page of a list
//! {"type":"MODIFIED","object":{…}}                         events of a watch, one after the other
//!  '------------- envelope -------'         '- objects
//! ```
//!
//! No tree is built, so memory is bounded by the maximum size of an object. Of a larger object only
//! the head is kept, which identifies it. Only strings and brackets are parsed here; whether an
//! object is valid JSON is checked when it is decoded.

use memchr::memchr2;

/// The maximum size of everything around the objects, in bytes.
const MAX_ENVELOPE_BYTES: usize = 64 << 10;

/// The maximum length of a string in a head, as written: a name of 253 bytes, all of them escaped.
const MAX_WORD_BYTES: usize = 2 << 10;

/// Splits one response.
#[derive(Debug)]
pub(crate) struct Splitter {
    envelope_of: Envelope,
    max_object_bytes: usize,
    depth: usize,
    text: TextState,
    /// The last string, if it may be a key, or a value in a head.
    last_string: Vec<u8>,
    is_value: bool,
    /// Whether the current field of the envelope is the one with the objects.
    is_in_objects_field: bool,
    envelope: Vec<u8>,
    open: Option<OpenObject>,
}

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Envelope {
    /// The objects are in the list `items`.
    List,
    /// Each document has one object, in `object`.
    Event,
}

/// The next part of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// An object.
    Object(SplitObject),
    /// The end of a document, with everything but its objects.
    End(Vec<u8>),
}

/// An object in a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SplitObject {
    pub(crate) head: ObjectHead,
    /// As JSON; `None` if it is too large.
    pub(crate) text: Option<Vec<u8>>,
    /// The size of the object as written.
    pub(crate) bytes: usize,
}

/// The identity of an object. Fields that it does not have are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectHead {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource_version: String,
}

/// Why a response cannot be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SplitError {
    /// The response does not have the expected form.
    #[error("the response is not valid for an API server: {0}")]
    Malformed(&'static str),
    /// The envelope is too large.
    #[error("the response has more than {MAX_ENVELOPE_BYTES} bytes besides its objects")]
    EnvelopeTooLarge,
}

/// Whether the next byte is within a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextState {
    Outside,
    Inside,
    /// Within a string, after a backslash.
    Escaped,
}

/// An object whose end has not been read.
#[derive(Debug)]
struct OpenObject {
    /// The depth at which it begins.
    depth: usize,
    /// `None` once the object is too large.
    text: Option<Vec<u8>>,
    bytes: usize,
    head: ObjectHead,
    /// The last key at the top level of the object.
    key: HeadKey,
    /// The last key one level below.
    inner_key: HeadKey,
}

/// A key whose value belongs to the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadKey {
    ApiVersion,
    Kind,
    Metadata,
    Namespace,
    Name,
    ResourceVersion,
    Other,
}

// === impl Splitter ===

impl Splitter {
    /// A splitter for objects of at most this many bytes.
    pub(crate) const fn new(envelope_of: Envelope, max_object_bytes: usize) -> Self {
        Self {
            envelope_of,
            max_object_bytes,
            depth: 0,
            text: TextState::Outside,
            last_string: Vec::new(),
            is_value: false,
            is_in_objects_field: false,
            envelope: Vec::new(),
            open: None,
        }
    }

    /// Whether a document has begun and not ended.
    pub(crate) const fn is_within(&self) -> bool {
        self.depth > 0
    }

    /// Returns the next part, and removes what was read from `bytes`. `None` if more bytes are
    /// needed.
    ///
    /// # Errors
    ///
    /// The response does not have the expected form. Nothing more can be read from it.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Part>, SplitError> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.text == TextState::Inside {
                let end = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                if end > 0 {
                    let (run, rest) = bytes.split_at(end);
                    self.note_word(run);
                    self.keep(run)?;
                    *bytes = rest;
                    continue;
                }
            }
            *bytes = rest;
            if let Some(part) = self.take(byte)? {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    fn take(&mut self, byte: u8) -> Result<Option<Part>, SplitError> {
        match (self.text, byte) {
            (TextState::Escaped, _) => {
                self.text = TextState::Inside;
                self.note_word(&[byte]);
            }
            (TextState::Inside, b'"') => {
                self.text = TextState::Outside;
                self.string_ended();
            }
            (TextState::Inside, _) => {
                self.text = TextState::Escaped;
                self.note_word(&[byte]);
            }
            (TextState::Outside, _) => return self.take_outside(byte),
        }
        self.keep(&[byte])?;
        Ok(None)
    }

    /// Reads a byte outside of strings.
    fn take_outside(&mut self, byte: u8) -> Result<Option<Part>, SplitError> {
        if byte.is_ascii_whitespace() {
            if self.open.is_some() {
                self.keep(&[byte])?;
            }
            return Ok(None);
        }
        if self.depth == 0 && byte != b'{' {
            return Err(SplitError::Malformed("it is not a JSON object"));
        }
        if self.is_among_items() && !matches!(byte, b'{' | b',' | b']') {
            return Err(SplitError::Malformed("an item of its list is not an object"));
        }
        match byte {
            b'"' => {
                self.text = TextState::Inside;
                self.last_string.clear();
            }
            b'{' | b'[' => self.opened(byte),
            b':' => self.key_ended(),
            b',' => self.is_value = false,
            _ => {}
        }
        self.keep(&[byte])?;
        match byte {
            b'}' | b']' => self.closed(),
            _ => Ok(None),
        }
    }

    /// Whether the next value is an item of the list.
    fn is_among_items(&self) -> bool {
        self.envelope_of == Envelope::List
            && self.depth == 2
            && self.is_in_objects_field
            && self.open.is_none()
    }

    fn opened(&mut self, byte: u8) {
        let is_object = self.open.is_none()
            && byte == b'{'
            && self.is_in_objects_field
            && self.depth == self.envelope_of.depth_of_objects();
        if is_object {
            self.open = Some(OpenObject::new(self.depth));
        }
        self.depth += 1;
        self.is_value = false;
    }

    fn closed(&mut self) -> Result<Option<Part>, SplitError> {
        self.depth = self
            .depth
            .checked_sub(1)
            .ok_or(SplitError::Malformed("a closing bracket has no opening bracket"))?;
        self.is_value = false;
        if let Some(open) = self.open.take_if(|open| open.depth == self.depth) {
            if self.envelope_of == Envelope::Event {
                self.envelope.extend_from_slice(b"null");
            }
            return Ok(Some(Part::Object(SplitObject {
                head: open.head,
                text: open.text,
                bytes: open.bytes,
            })));
        }
        if self.depth == 0 {
            self.is_in_objects_field = false;
            return Ok(Some(Part::End(std::mem::take(&mut self.envelope))));
        }
        Ok(None)
    }

    /// Adds these bytes to the open object, or to the envelope.
    fn keep(&mut self, run: &[u8]) -> Result<(), SplitError> {
        if let Some(open) = &mut self.open {
            open.keep(run, self.max_object_bytes);
            return Ok(());
        }
        if self.is_among_items() && run == b"," {
            return Ok(());
        }
        if self.envelope.len() + run.len() > MAX_ENVELOPE_BYTES {
            return Err(SplitError::EnvelopeTooLarge);
        }
        self.envelope.extend_from_slice(run);
        Ok(())
    }

    /// The depth of the next value in the open object, or in the document.
    fn level(&self) -> usize {
        self.depth - self.open.as_ref().map_or(0, |open| open.depth)
    }

    /// Whether a string here may belong to the head, or be the key of the field with the objects.
    fn is_word(&self) -> bool {
        match &self.open {
            None => self.depth == 1,
            Some(open) => match self.level() {
                1 => true,
                2 => open.key == HeadKey::Metadata,
                _ => false,
            },
        }
    }

    fn note_word(&mut self, run: &[u8]) {
        // One byte more than the maximum shows that the string is too long.
        let room = (MAX_WORD_BYTES + 1).saturating_sub(self.last_string.len());
        if room > 0 && self.is_word() {
            self.last_string.extend_from_slice(run.get(..room).unwrap_or(run));
        }
    }

    fn string_ended(&mut self) {
        if !self.is_value || !self.is_word() {
            return;
        }
        let level = self.level();
        let Some(open) = &mut self.open else { return };
        let key = if level == 1 { open.key } else { open.inner_key };
        if let Some(field) = open.head.field(key) {
            *field = unescaped(&self.last_string);
        }
    }

    /// Handles the end of a key, which is the last string.
    fn key_ended(&mut self) {
        self.is_value = true;
        if !self.is_word() {
            return;
        }
        let level = self.level();
        match &mut self.open {
            None => self.is_in_objects_field = self.last_string == self.envelope_of.member().as_bytes(),
            Some(open) if level == 1 => open.key = HeadKey::of_object(&self.last_string),
            Some(open) => open.inner_key = HeadKey::of_metadata(&self.last_string),
        }
    }
}

// === impl Envelope ===

impl Envelope {
    const fn member(self) -> &'static str {
        match self {
            Self::List => "items",
            Self::Event => "object",
        }
    }

    const fn depth_of_objects(self) -> usize {
        match self {
            Self::List => 2,
            Self::Event => 1,
        }
    }
}

// === impl OpenObject ===

impl OpenObject {
    fn new(depth: usize) -> Self {
        Self {
            depth,
            text: Some(Vec::new()),
            bytes: 0,
            head: ObjectHead::default(),
            key: HeadKey::Other,
            inner_key: HeadKey::Other,
        }
    }

    fn keep(&mut self, run: &[u8], max: usize) {
        self.bytes = self.bytes.saturating_add(run.len());
        if self.bytes > max {
            self.text = None;
        }
        if let Some(text) = &mut self.text {
            text.extend_from_slice(run);
        }
    }
}

// === impl ObjectHead ===

impl ObjectHead {
    fn field(&mut self, key: HeadKey) -> Option<&mut String> {
        match key {
            HeadKey::ApiVersion => Some(&mut self.api_version),
            HeadKey::Kind => Some(&mut self.kind),
            HeadKey::Namespace => Some(&mut self.namespace),
            HeadKey::Name => Some(&mut self.name),
            HeadKey::ResourceVersion => Some(&mut self.resource_version),
            HeadKey::Metadata | HeadKey::Other => None,
        }
    }
}

// === impl HeadKey ===

impl HeadKey {
    fn of_object(word: &[u8]) -> Self {
        match word {
            b"apiVersion" => Self::ApiVersion,
            b"kind" => Self::Kind,
            b"metadata" => Self::Metadata,
            _ => Self::Other,
        }
    }

    fn of_metadata(word: &[u8]) -> Self {
        match word {
            b"namespace" => Self::Namespace,
            b"name" => Self::Name,
            b"resourceVersion" => Self::ResourceVersion,
            _ => Self::Other,
        }
    }
}

/// The value of a string without its quotes; empty if it is invalid or too long.
fn unescaped(word: &[u8]) -> String {
    if word.len() > MAX_WORD_BYTES {
        return String::new();
    }
    let quoted = [b"\"", word, b"\""].concat();
    serde_json::from_slice(&quoted).unwrap_or_default()
}

#[cfg(test)]
mod tests;
