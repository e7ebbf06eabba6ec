//! Amounts of a resource: `500m`, `1.5Gi`, `12e6` (apimachinery
//! `pkg/api/resource/quantity.go`).

use std::cmp::Ordering;

/// Digits that a small amount may have.
const SMALL_DIGITS: i32 = 18;

/// Amounts are rounded up to a billionth.
const SMALLEST: i64 = -9;

/// The most digits that two amounts are lined up to.
const MOST_DIGITS: i64 = 100_000;

/// An amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quantity {
    /// `value` × 10^`scale`.
    #[doc(hidden)]
    Small { value: i64, scale: i64 },
    /// Any other; only those that are small can be integers, as upstream.
    #[doc(hidden)]
    Large(Decimal),
}

/// ±`digits` × 10^`scale`, without leading zeros; none at all for zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// From the first, each below 10.
    digits: Vec<u8>,
    scale: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Decimal(i64),
    Binary(u32),
}

/// Why a text is no amount, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityFault {
    /// Something stands behind the suffix, or nothing is there at all.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// There is no digit.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is none that is known.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The parts of a written amount.
struct Parts<'t> {
    negative: bool,
    /// Without leading zeros.
    whole: &'t str,
    fraction: &'t str,
    /// Whether there is a digit, be it a zero.
    has_digits: bool,
    suffix: Suffix,
}

// === impl Quantity ===

impl Quantity {
    /// A whole amount.
    #[must_use]
    pub const fn from_int(value: i64) -> Self {
        Self::Small { value, scale: 0 }
    }

    /// Reads an amount.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, QuantityFault> {
        let parts = split(text)?;
        parts
            .small()
            .or_else(|| parts.large())
            .ok_or(QuantityFault::Number)
    }

    /// How two amounts compare.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        self.decimal().compare(&other.decimal())
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn sign(&self) -> i64 {
        let decimal = self.decimal();
        match (decimal.digits.is_empty(), decimal.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    /// The integer it is, if it is one that fits and was small from the start.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Small { value: 0, .. } => Some(0),
            Self::Small { value, scale } if *scale >= 0 => shifted(*value, *scale),
            _ => None,
        }
    }

    /// The nearest double, more or less.
    #[must_use]
    pub fn as_double(&self) -> f64 {
        let (base, scale) = match self {
            Self::Small { value, scale } => (value.to_string(), *scale),
            Self::Large(decimal) => (decimal.written(), decimal.scale),
        };
        let base: f64 = base.parse().unwrap_or_default();
        let power: f64 = format!("1e{scale}").parse().unwrap_or_default();
        if scale == 0 { base } else { base * power }
    }

    /// The sum; none if it has too many digits.
    #[must_use]
    pub fn add(&self, other: &Self) -> Option<Self> {
        if let (
            Self::Small { value, scale },
            Self::Small {
                value: other_value,
                scale: other_scale,
            },
        ) = (self, other)
            && let Some(sum) = add_small((*value, *scale), (*other_value, *other_scale))
        {
            return Some(sum);
        }
        self.decimal().add(&other.decimal()).map(Self::Large)
    }

    /// The difference; none if it has too many digits.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Option<Self> {
        let negated = match other {
            Self::Small { value, scale } if *value != i64::MIN => Self::Small {
                value: -value,
                scale: *scale,
            },
            other => {
                let decimal = other.decimal();
                Self::Large(Decimal {
                    negative: !decimal.negative,
                    ..decimal
                })
            }
        };
        self.add(&negated)
    }

    fn decimal(&self) -> Decimal {
        match self {
            Self::Small { value, scale } => {
                Decimal::new(*value < 0, &value.unsigned_abs().to_string(), *scale)
            }
            Self::Large(decimal) => decimal.clone(),
        }
    }
}

/// The sum, if it is small too.
fn add_small(left: (i64, i64), right: (i64, i64)) -> Option<Quantity> {
    let ((value, scale), (other, other_scale)) = (left, right);
    let (value, scale) = match scale.cmp(&other_scale) {
        _ if other == 0 => (value, scale),
        _ if value == 0 => (other, other_scale),
        Ordering::Equal => (value.checked_add(other)?, scale),
        Ordering::Greater => (
            shifted(value, scale - other_scale)?.checked_add(other)?,
            other_scale,
        ),
        Ordering::Less => (shifted(other, other_scale - scale)?.checked_add(value)?, scale),
    };
    Some(Quantity::Small { value, scale })
}

/// `value` × 10^`places`.
fn shifted(value: i64, places: i64) -> Option<i64> {
    let power = 10i64.checked_pow(u32::try_from(places).ok()?)?;
    value.checked_mul(power)
}

/// Reads sign, digits and suffix.
fn split(text: &str) -> Result<Parts<'_>, QuantityFault> {
    if text.is_empty() {
        return Err(QuantityFault::Format);
    }
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, mut rest) = leading(rest, |byte| byte.is_ascii_digit());
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        (fraction, rest) = leading(after, |byte| byte.is_ascii_digit());
    }
    if !is_suffix(rest) {
        return Err(QuantityFault::Format);
    }
    Ok(Parts {
        negative,
        whole: whole.trim_start_matches('0'),
        fraction,
        // A sign alone is zero.
        has_digits: !whole.is_empty() || !fraction.is_empty() || text.len() == 1 && rest.is_empty(),
        suffix: suffix(rest).ok_or(QuantityFault::Suffix)?,
    })
}

/// The bytes of ASCII at the start of `text` for which `fits` holds, and the rest.
fn leading(text: &str, fits: impl Fn(u8) -> bool) -> (&str, &str) {
    let length = text.bytes().take_while(|byte| fits(*byte)).count();
    text.split_at_checked(length).unwrap_or((text, ""))
}

/// Whether `text` has the form of a suffix, known or not.
fn is_suffix(text: &str) -> bool {
    let (_, rest) = leading(text, |byte| b"eEinumkKMGTP".contains(&byte));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    rest.bytes().all(|byte| byte.is_ascii_digit())
}

fn suffix(text: &str) -> Option<Suffix> {
    Some(match text {
        "" => Suffix::Decimal(0),
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        exponent => {
            let exponent = exponent.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
            Suffix::Decimal(i64::from(wrapped(exponent)))
        }
    })
}

/// Upstream keeps the low half of an exponent that is too large.
#[expect(clippy::cast_possible_truncation, reason = "as upstream")]
const fn wrapped(exponent: i64) -> i32 {
    exponent as i32
}

impl Parts<'_> {
    /// The amount, if it has few digits: what upstream keeps as an int64.
    fn small(&self) -> Option<Quantity> {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let length = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
        let (scale, factor, room) = match self.suffix {
            Suffix::Decimal(scale) => (
                scale,
                1,
                SMALL_DIGITS
                    .saturating_sub(length(whole))
                    .saturating_sub(length(self.fraction)),
            ),
            Suffix::Binary(exponent) if self.fraction.is_empty() => {
                let digits = i32::try_from(exponent * 3 / 10).unwrap_or_default();
                (0, 1i64 << exponent, 15 - length(whole).min(1000) - digits - 1)
            }
            Suffix::Binary(_) => return None,
        };
        let scale = scale - i64::try_from(self.fraction.len()).ok()?;
        if room < 0 || scale < SMALLEST {
            return None;
        }
        let value: i64 = format!("{whole}{}", self.fraction).parse().ok()?;
        let value = value.checked_mul(factor)?;
        Some(Quantity::Small {
            value: if self.negative { -value } else { value },
            scale,
        })
    }

    /// The amount, if there is a digit.
    fn large(&self) -> Option<Quantity> {
        if !self.has_digits {
            return None;
        }
        let places = i64::try_from(self.fraction.len()).ok()?;
        let digits = format!("{}{}", self.whole, self.fraction);
        let mut decimal = match self.suffix {
            Suffix::Decimal(scale) => Decimal::new(false, &digits, scale - places),
            Suffix::Binary(exponent) => Decimal::new(false, &digits, -places).doubled(exponent),
        };
        decimal.round_up();
        if matches!(self.suffix, Suffix::Binary(_)) {
            let most = Decimal::new(false, &i64::MAX.to_string(), 0);
            if decimal.compare(&most).is_gt() {
                decimal = most;
            }
        }
        decimal.negative = self.negative;
        Some(Quantity::Large(decimal))
    }
}

// === impl Decimal ===

impl Decimal {
    fn new(negative: bool, digits: &str, scale: i64) -> Self {
        let digits = digits
            .trim_start_matches('0')
            .bytes()
            .map(|digit| digit - b'0')
            .collect();
        Self {
            negative,
            digits,
            scale,
        }
    }

    /// The digits as text, with the sign.
    fn written(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        if digits.is_empty() {
            "0".into()
        } else {
            format!("{sign}{digits}")
        }
    }

    /// × 2^`exponent`.
    fn doubled(mut self, exponent: u32) -> Self {
        for _ in 0..exponent {
            let mut carry = 0;
            for digit in self.digits.iter_mut().rev() {
                let double = *digit * 2 + carry;
                *digit = double % 10;
                carry = double / 10;
            }
            if carry > 0 {
                self.digits.insert(0, carry);
            }
        }
        self
    }

    /// Drops what is smaller than a billionth, and adds one if that was anything.
    fn round_up(&mut self) {
        let Ok(extra) = usize::try_from(SMALLEST - self.scale) else {
            return;
        };
        if extra == 0 || self.digits.is_empty() {
            return;
        }
        let kept = self.digits.len().saturating_sub(extra);
        let lost = self.digits.split_off(kept);
        self.scale = SMALLEST;
        if lost.iter().any(|digit| *digit != 0) {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// How many digits stand before the point.
    fn magnitude(&self) -> i64 {
        i64::try_from(self.digits.len())
            .unwrap_or(i64::MAX)
            .saturating_add(self.scale)
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => {
                return if other.negative {
                    Ordering::Greater
                } else {
                    Ordering::Less
                };
            }
            (false, true) => {
                return if self.negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                };
            }
            (false, false) => {}
        }
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
        }
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        self.magnitude().cmp(&other.magnitude()).then_with(|| {
            let length = self.digits.len().max(other.digits.len());
            let padded = |digits: &[u8]| {
                digits
                    .iter()
                    .copied()
                    .chain(std::iter::repeat(0))
                    .take(length)
                    .collect::<Vec<u8>>()
            };
            padded(&self.digits).cmp(&padded(&other.digits))
        })
    }

    fn add(&self, other: &Self) -> Option<Self> {
        if self.digits.is_empty() {
            return Some(other.clone());
        }
        if other.digits.is_empty() {
            return Some(self.clone());
        }
        let scale = self.scale.min(other.scale);
        let (left, right) = (self.lined_up(scale)?, other.lined_up(scale)?);
        let (negative, digits) = if self.negative == other.negative {
            (self.negative, sum(&left, &right))
        } else if self.compare_size(other).is_ge() {
            (self.negative, difference(&left, &right))
        } else {
            (other.negative, difference(&right, &left))
        };
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        Some(Self {
            negative,
            digits: digits.get(zeros..)?.to_vec(),
            scale,
        })
    }

    /// The digits down to `scale`, last one first.
    fn lined_up(&self, scale: i64) -> Option<Vec<u8>> {
        let zeros = self.scale - scale;
        if zeros > MOST_DIGITS {
            return None;
        }
        let mut digits = vec![0; usize::try_from(zeros).ok()?];
        digits.extend(self.digits.iter().rev());
        Some(digits)
    }
}

/// Of digits with the last one first, to digits with the first one first.
fn sum(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut digits: Vec<u8> = pairs(left, right)
        .map(|(left, right)| {
            let sum = left + right + carry;
            carry = sum / 10;
            sum % 10
        })
        .collect();
    digits.push(carry);
    digits.reverse();
    digits
}

/// Of digits with the last one first, the larger number first.
fn difference(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let mut digits: Vec<u8> = pairs(left, right)
        .map(|(left, right)| {
            let difference = 10 + left - right - borrow;
            borrow = u8::from(difference < 10);
            difference % 10
        })
        .collect();
    digits.reverse();
    digits
}

fn pairs<'d>(left: &'d [u8], right: &'d [u8]) -> impl Iterator<Item = (u8, u8)> + 'd {
    let digit = |digits: &[u8], position: usize| digits.get(position).copied().unwrap_or_default();
    (0..left.len().max(right.len())).map(move |position| (digit(left, position), digit(right, position)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(left: &str, right: &str) -> Ordering {
        Quantity::parse(left)
            .unwrap()
            .compare(&Quantity::parse(right).unwrap())
    }

    #[test]
    fn the_same_amount_can_be_written_in_many_ways() {
        for (left, right) in [
            ("1", "1000m"),
            ("1Ki", "1024"),
            ("1.5Gi", "1536Mi"),
            ("12e6", "12M"),
            ("0.5", ".5"),
            ("100000000000000000000", "1e20"),
            ("1E", "1e18"),
            ("-0", "0"),
            ("0.0000000001", "1n"),
            ("99999999999Ei", "9223372036854775807"),
        ] {
            assert_eq!(compare(left, right), Ordering::Equal, "{left} {right}");
        }
        for (less, more) in [
            ("999m", "1"),
            ("-1", "0"),
            ("-2Gi", "-1Gi"),
            ("1e100", "1e101"),
            ("9e30", "1e31"),
        ] {
            assert_eq!(compare(less, more), Ordering::Less, "{less} {more}");
            assert_eq!(compare(more, less), Ordering::Greater, "{less} {more}");
        }
    }

    #[test]
    fn what_is_no_amount_is_told_in_upstreams_words() {
        for (texts, fault) in [
            (
                &["", "1.2.3", "1MiB", "1 Gi", "0x1", "1Ki+1.", "1KI", "1e1e1", "1é"][..],
                QuantityFault::Format,
            ),
            (
                &["e", "1e", "1Kk", "--1", "1Mi5", "1-1", "1mm"][..],
                QuantityFault::Suffix,
            ),
            (&["Ei", ".Pi", "-e-10"][..], QuantityFault::Number),
        ] {
            for text in texts {
                assert_eq!(Quantity::parse(text), Err(fault), "{text}");
            }
        }
    }

    #[test]
    fn without_a_digit_it_may_be_zero() {
        for text in ["Mi", "+", "-", ".", "e5", "0Ei", "0e-10"] {
            assert_eq!(Quantity::parse(text).map(|zero| zero.sign()), Ok(0), "{text}");
        }
    }

    #[test]
    fn amounts_add_up() {
        let add = |left, right| {
            Quantity::parse(left)
                .unwrap()
                .add(&Quantity::parse(right).unwrap())
                .unwrap()
        };
        assert_eq!(
            add("50k", "20"),
            Quantity::Small {
                value: 50_020,
                scale: 0
            }
        );
        assert_eq!(add("1", "-1").sign(), 0);
        let sum = add("99999999999999999999", "1");
        assert_eq!(sum.compare(&Quantity::parse("1e20").unwrap()), Ordering::Equal);
        let difference = Quantity::parse("1e20")
            .unwrap()
            .subtract(&Quantity::parse("1n").unwrap())
            .unwrap();
        assert_eq!(
            difference.compare(&Quantity::parse("1e20").unwrap()),
            Ordering::Less
        );
    }
}
