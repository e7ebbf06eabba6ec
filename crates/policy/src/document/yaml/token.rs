//! The tokens of a YAML text.

use super::super::layout::Layout;
use super::cursor::Mark;

/// A token and the place where it begins.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) token: Token,
    pub(crate) mark: Mark,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    StreamEnd,
    /// `%YAML 1.1`
    Version {
        major: u8,
        minor: u8,
    },
    /// `%TAG !h! prefix`
    TagDirective {
        handle: String,
        prefix: String,
    },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag {
        handle: String,
        suffix: String,
    },
    Scalar {
        text: String,
        /// Whether it is neither quoted nor a block.
        plain: bool,
        /// Where its characters stand.
        layout: Layout,
    },
}
