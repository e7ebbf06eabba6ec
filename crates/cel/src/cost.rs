//! The cost of an evaluation, calculated exactly as in Kubernetes (cel-go
//! `interpreter/runtimecost.go`, apiserver `pkg/cel/library/cost.go`), and the limits of an
//! evaluation: cost, memory and time.
//!
//! The calculation uses floating point, as upstream: 30 characters cost 4 units instead of 3,
//! because 30 × 0.1 is slightly more than 3.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;

use super::EvalError;
use super::value::{List, MapEntries, Opaque, Value, Work, address_bytes};
use crate::{CompileError, CompileErrorKind};

/// The cost limit of one expression.
pub const PER_EXPRESSION: u64 = 1_000_000;

/// The cost limit of all expressions of a policy and its binding in one review.
pub const PER_BINDING: u64 = 10_000_000;

/// The cost limit of all match conditions of a webhook or policy in one review.
pub const PER_MATCH_CONDITIONS: u64 = 2_500_000;

/// The cost of creating a list.
pub(crate) const LIST: u64 = 10;

/// The cost of creating a map.
pub(crate) const MAP: u64 = 30;

/// The cost of creating an object.
pub(crate) const OBJECT: u64 = 40;

/// The cost of one authorizer check, of which an expression can afford two.
pub(crate) const AUTHORIZER_CHECK: u64 = 350_000;

/// The cost of reading a character of a string once.
const TRAVERSAL: f64 = 0.1;

/// The cost of matching a regular expression, for each character of the expression.
const REGEX: f64 = 0.25;

/// The size of a value: its characters, bytes, items or keys; 1 for values of other types.
pub(crate) fn size(value: &Value<'_>) -> u64 {
    let size = match value {
        Value::String(text) if text.is_ascii() => text.len(),
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        Value::Optional(Some(inner)) => return size(inner),
        Value::Opaque(opaque) => return opaque_size(opaque),
        _ => 1,
    };
    size as u64
}

/// Like [`size`], but 1 for an optional, as in Kubernetes' own estimates.
pub(crate) fn plain_size(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(_) => 1,
        other => size(other),
    }
}

/// The size of an address is its bytes.
fn opaque_size(opaque: &Opaque<'_>) -> u64 {
    match opaque {
        Opaque::Ip(ip) => address_bytes(ip),
        Opaque::Cidr(_, bits) => u64::from(bits.div_ceil(8)),
        _ => 1,
    }
}

/// The cost of reading `size` characters at `factor` each, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The cost of reading a string of this size once.
pub(crate) fn traverse(size: u64) -> u64 {
    scaled(size, TRAVERSAL)
}

/// The cost of reading a string of this size and writing it again.
pub(crate) fn rewrite(size: u64) -> u64 {
    scaled(size, 2.0 * TRAVERSAL)
}

/// The cost of `==`, which reads the smaller value.
pub(crate) fn equality(left: &Value<'_>, right: &Value<'_>) -> u64 {
    if matches!(left, Value::Opaque(_)) {
        return 1;
    }
    cost_of_smaller(left, right)
}

/// The cost of `!=`, and of `<` and the like on strings and bytes. Strings of 1 to 10 bytes, the
/// usual case, cost the same, so their characters are not counted.
pub(crate) fn cost_of_smaller(left: &Value<'_>, right: &Value<'_>) -> u64 {
    if let (Value::String(left), Value::String(right)) = (left, right) {
        let shorter = left.len().min(right.len());
        if shorter <= 10 {
            return u64::from(shorter > 0);
        }
    }
    traverse(size(left).min(size(right)))
}

/// The cost of matching a string against a regular expression.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
pub(crate) fn regex(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * TRAVERSAL).ceil() as u64;
    text.saturating_mul(scaled(pattern, REGEX))
}

/// The cost of visiting every leaf of a value. `work` is called for each list and map before its
/// contents are visited.
///
/// # Errors
///
/// The error of `work`.
pub(crate) fn traverse_tree(value: &Value<'_>, work: Work<'_>) -> Result<u64, EvalError> {
    let mut open = Vec::new();
    let mut sum = enter(value.clone(), &mut open, work)?;
    while let Some(container) = open.last_mut() {
        match container.next() {
            Some(value) => sum = sum.saturating_add(enter(value, &mut open, work)?),
            None => drop(open.pop()),
        }
    }
    Ok(sum)
}

/// Returns the cost of a leaf, or opens a list or a map.
fn enter<'a>(value: Value<'a>, open: &mut Vec<Container<'a>>, work: Work<'_>) -> Result<u64, EvalError> {
    match value {
        Value::List(list) => {
            work(list.len())?;
            open.push(Container::List(list, 0));
        }
        Value::Map(map) => {
            work(2 * map.len())?;
            open.push(Container::Map(map.entries(), None));
        }
        leaf => return Ok(traverse_leaf(&leaf)),
    }
    Ok(0)
}

/// The rest of a list from an index on; or the rest of a map, and the value of the key returned
/// last.
enum Container<'a> {
    List(List<'a>, usize),
    Map(MapEntries<'a>, Option<Value<'a>>),
}

impl<'a> Container<'a> {
    /// Returns the next item, key or value.
    fn next(&mut self) -> Option<Value<'a>> {
        match self {
            Self::List(list, next) => {
                *next += 1;
                list.get(*next - 1)
            }
            Self::Map(entries, value) => value.take().or_else(|| {
                let (key, next) = entries.next()?;
                *value = Some(next);
                Some(key)
            }),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
fn traverse_leaf(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        _ => 1,
    }
}

/// The bytes that the expressions sharing a budget may allocate unless it sets a lower limit. All
/// lists, maps and strings that are made count, even those that are not kept.
pub const MAX_EVALUATION_BYTES: usize = 64 << 20;

/// The rest of a budget that several expressions share, and the deadline.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    pub(crate) remaining: u64,
    pub(crate) per_expression: u64,
    /// The bytes that may still be allocated.
    pub(crate) bytes: usize,
    /// In an attempt, set to `true` when more bytes are needed.
    pub(crate) needs_more: Option<&'b AtomicBool>,
    pub(crate) expired: Option<&'b dyn Fn() -> bool>,
    /// The steps until the deadline is checked again.
    pub(crate) steps_until_check: u64,
}

/// The steps between two checks of the deadline: one or a few tenths of a millisecond.
pub(crate) const STEPS_BETWEEN_DEADLINE_CHECKS: u64 = 50_000;

/// The steps counted for a round of a loop.
pub(crate) const STEPS_PER_ROUND: u64 = STEPS_BETWEEN_DEADLINE_CHECKS / 100;

/// The steps that a unit of cost pays for. If an expression takes more steps than its cost pays
/// for, the difference is added to the cost. So the cost limit bounds the work even where
/// Kubernetes' own count does not reflect it.
pub(crate) const STEPS_PER_UNIT: u64 = 250;

/// The bytes of a string that count as one step when it is only read.
pub(crate) const BYTES_PER_STEP: usize = 4;

/// The length in bytes from which on reading a string counts as work.
pub(crate) const LONG_STRING_BYTES: usize = 1024;

/// The steps counted for each evaluation of a node.
pub(crate) const STEPS_PER_NODE: usize = 4;

/// The steps of an expression that cost nothing.
pub(crate) const FREE_STEPS: u64 = 1_000_000;

impl<'b> Budget<'b> {
    /// A budget of `cost` units, with the usual limit of each expression.
    #[must_use]
    pub const fn new(cost: u64) -> Self {
        Self {
            remaining: cost,
            per_expression: PER_EXPRESSION,
            bytes: MAX_EVALUATION_BYTES,
            needs_more: None,
            expired: None,
            steps_until_check: STEPS_BETWEEN_DEADLINE_CHECKS,
        }
    }

    /// The same budget with a deadline. `expired` is called now and then, at least once in 100
    /// rounds of loops, counted over all expressions.
    #[must_use]
    pub const fn until(self, expired: &'b dyn Fn() -> bool) -> Self {
        Self {
            expired: Some(expired),
            ..self
        }
    }

    /// The same budget, of which at most `bytes` may be allocated.
    #[must_use]
    pub const fn allocating(self, bytes: usize) -> Self {
        Self {
            bytes: if bytes < self.bytes { bytes } else { self.bytes },
            ..self
        }
    }

    /// The same budget for an attempt, in which at most `bytes` may be allocated. If more are
    /// needed, it sets `needs_more` and ends as at a deadline.
    #[must_use]
    pub const fn attempt(self, bytes: usize, needs_more: &'b AtomicBool) -> Self {
        Self {
            needs_more: Some(needs_more),
            ..self.allocating(bytes)
        }
    }

    /// The same deadline with the cost and memory of `full`, for an expression that shares nothing
    /// else with those before it.
    #[must_use]
    pub const fn refilled(self, full: &Self) -> Self {
        Self {
            remaining: full.remaining,
            bytes: full.bytes,
            ..self
        }
    }

    /// The same budget with another limit of each expression.
    #[must_use]
    pub const fn per_expression(self, cost: u64) -> Self {
        Self {
            per_expression: cost,
            ..self
        }
    }

    /// The bytes that may still be allocated.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The units of cost that are left.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("remaining", &self.remaining)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// The limits of compilation: work, memory and time.

/// The steps that compiling the expressions of one object may take: some tenths of a second.
pub const MAX_COMPILE_STEPS: u64 = 16_000_000;

/// The bytes that the programs of one object may take.
pub const MAX_COMPILED_BYTES: usize = 32 << 20;

/// The rest of a budget for compiling the expressions of one object, and the deadline.
///
/// All expressions are charged to it. Once a limit is reached, no further expression compiles.
pub struct CompileBudget<'b> {
    steps: Cell<u64>,
    bytes: Cell<usize>,
    steps_until_check: Cell<u64>,
    expired: Option<&'b dyn Fn() -> bool>,
}

/// Why a compilation was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhaustion {
    Steps,
    Bytes,
    /// A type became too large.
    Type,
    Deadline,
}

// === impl CompileBudget ===

impl<'b> CompileBudget<'b> {
    /// A budget for all expressions of one object, without a deadline.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            steps: Cell::new(MAX_COMPILE_STEPS),
            bytes: Cell::new(MAX_COMPILED_BYTES),
            steps_until_check: Cell::new(STEPS_BETWEEN_DEADLINE_CHECKS),
            expired: None,
        }
    }

    /// The same budget with a deadline. `expired` is called at once and then about once a
    /// millisecond.
    #[must_use]
    pub fn until(self, expired: &'b dyn Fn() -> bool) -> Self {
        Self {
            expired: Some(expired),
            steps_until_check: Cell::new(0),
            ..self
        }
    }

    /// The steps that are left.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// The bytes that are left.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Charges `steps` before the work is done.
    pub(crate) fn charge_steps(&self, steps: u64) -> Result<(), Exhaustion> {
        let Some(left) = self.steps.get().checked_sub(steps) else {
            self.steps.set(0);
            return Err(Exhaustion::Steps);
        };
        self.steps.set(left);
        match self.steps_until_check.get().checked_sub(steps) {
            Some(left) if left > 0 => self.steps_until_check.set(left),
            _ => return self.check_deadline(),
        }
        Ok(())
    }

    fn check_deadline(&self) -> Result<(), Exhaustion> {
        self.steps_until_check.set(STEPS_BETWEEN_DEADLINE_CHECKS);
        if self.expired.is_some_and(|expired| expired()) {
            // Makes every further compilation end at once.
            self.steps_until_check.set(0);
            return Err(Exhaustion::Deadline);
        }
        Ok(())
    }

    /// Charges the memory of a part of a program.
    pub(crate) fn charge_bytes(&self, bytes: usize) -> Result<(), Exhaustion> {
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes.set(left.unwrap_or_default());
        left.map(drop).ok_or(Exhaustion::Bytes)
    }
}

impl Default for CompileBudget<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for CompileBudget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompileBudget")
            .field("steps", &self.steps)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// === impl Exhaustion ===

impl From<Exhaustion> for CompileError {
    fn from(exhaustion: Exhaustion) -> Self {
        let message = match exhaustion {
            Exhaustion::Steps => {
                "compiling takes too long, this expression and those before it in the object together: \
                 simplify them, or spread them over several objects"
            }
            Exhaustion::Bytes => {
                "takes too much memory, this expression and those before it in the object together: \
                 simplify them, their regular expressions above all, or spread them over several objects"
            }
            Exhaustion::Type => {
                "its type is too large: lists and maps in one another, many times the same, need `dyn()` around \
                 what is repeated"
            }
            Exhaustion::Deadline => "compiling was interrupted by the deadline",
        };
        let kind = match exhaustion {
            Exhaustion::Deadline => CompileErrorKind::Interrupted,
            _ => CompileErrorKind::TooLarge,
        };
        Self::unplaced(kind, message)
    }
}
