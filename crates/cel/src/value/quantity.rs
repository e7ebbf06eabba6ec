//! Resource quantities: `500m`, `1.5Gi`, `12e6` (apimachinery
//! `pkg/api/resource/quantity.go`).

mod text;

use std::cmp::Ordering;

pub use text::QuantityFault;

/// A quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quantity {
    /// `value` × 10^`scale`.
    #[doc(hidden)]
    Small { value: i64, scale: i64 },
    /// Any other quantity. Only small ones can be integers, as upstream.
    #[doc(hidden)]
    Large(Decimal),
}

/// The exponent of the smallest unit: quantities are rounded up to a billionth.
pub(crate) const SMALLEST: i64 = -9;

/// The most digits by which quantities are aligned for a sum.
const MAX_ALIGNED_DIGITS: i64 = 100_000;

/// ±`digits` × 10^`scale`, without leading zeros; for zero, there are no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    pub(crate) negative: bool,
    /// The digits, the most significant first.
    pub(crate) digits: Vec<u8>,
    pub(crate) scale: i64,
}

// === impl Quantity ===

impl Quantity {
    /// A quantity of a whole number.
    #[must_use]
    pub const fn from_int(value: i64) -> Self {
        Self::Small { value, scale: 0 }
    }

    /// Parses a quantity.
    ///
    /// # Errors
    ///
    /// Why the string is not a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityFault> {
        text::quantity(text)
    }

    /// The quantity in `text` as Kubernetes writes it: `1` for `1000m`, `1536Mi` for `1.5Gi`.
    ///
    /// # Errors
    ///
    /// Why the string is not a quantity.
    pub fn canonical(text: &str) -> Result<String, QuantityFault> {
        let amount = Self::parse(text)?;
        Ok(text::written(&amount, text).unwrap_or_else(|| text.to_owned()))
    }

    /// The bytes of memory of the digits.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Small { .. } => 0,
            Self::Large(decimal) => decimal.digits.len(),
        }
    }

    /// Compares two quantities.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        self.decimal().compare(&other.decimal())
    }

    /// The sign: -1, 0 or 1.
    #[must_use]
    pub fn sign(&self) -> i64 {
        let decimal = self.decimal();
        match (decimal.digits.is_empty(), decimal.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    /// The value as an integer. `None` if it is not whole, does not fit, or is not a small
    /// quantity.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Small { value: 0, scale } if *scale >= 0 => Some(0),
            Self::Small { value, scale } if *scale >= 0 => shifted(*value, *scale),
            _ => None,
        }
    }

    /// The value as a double, approximately.
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

    /// The sum; `None` if it would have too many digits.
    #[must_use]
    pub fn add(&self, other: &Self) -> Option<Self> {
        self.small_sum(other, false)
            .or_else(|| self.decimal().add(&other.decimal()).map(Self::Large))
    }

    /// The difference; `None` if it would have too many digits.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Option<Self> {
        let negated = || {
            let decimal = other.decimal();
            Decimal {
                negative: !decimal.negative,
                ..decimal
            }
        };
        self.small_sum(other, true)
            .or_else(|| self.decimal().add(&negated()).map(Self::Large))
    }

    /// The sum or difference of two small quantities, if it is small too. As upstream, negating the
    /// smallest `i64` wraps around.
    fn small_sum(&self, other: &Self, negated: bool) -> Option<Self> {
        match (self, other) {
            (
                Self::Small { value, scale },
                Self::Small {
                    value: other,
                    scale: other_scale,
                },
            ) => {
                let other = if negated { other.wrapping_neg() } else { *other };
                add_small((*value, *scale), (other, *other_scale))
            }
            _ => None,
        }
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

/// The sum, if it is small.
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

// === impl Decimal ===

impl Decimal {
    pub(crate) fn new(negative: bool, digits: &str, scale: i64) -> Self {
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

    /// The digits with the sign.
    pub(crate) fn written(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        if digits.is_empty() {
            "0".into()
        } else {
            format!("{sign}{digits}")
        }
    }

    /// The same number without trailing zeros.
    pub(crate) fn shortest(mut self) -> Self {
        while self.digits.pop_if(|digit| *digit == 0).is_some() {
            self.scale += 1;
        }
        self
    }

    /// The value, if it is a whole number that fits.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        let power = 10_i64.checked_pow(u32::try_from(self.scale).ok()?)?;
        self.written().parse::<i64>().ok()?.checked_mul(power)
    }

    /// The number multiplied by 2^`exponent`.
    pub(crate) fn doubled(mut self, exponent: u32) -> Self {
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

    /// Rounds up to a billionth: drops smaller digits, and adds one if any of them was not zero.
    pub(crate) fn round_up(&mut self) {
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

    /// The number of digits before the decimal point.
    fn magnitude(&self) -> i64 {
        i64::try_from(self.digits.len())
            .unwrap_or(i64::MAX)
            .saturating_add(self.scale)
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
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

    pub(crate) fn add(&self, other: &Self) -> Option<Self> {
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

    /// The digits down to `scale`, the least significant first.
    fn lined_up(&self, scale: i64) -> Option<Vec<u8>> {
        let zeros = self.scale - scale;
        if zeros > MAX_ALIGNED_DIGITS {
            return None;
        }
        let mut digits = vec![0; usize::try_from(zeros).ok()?];
        digits.extend(self.digits.iter().rev());
        Some(digits)
    }
}

/// Adds digits with the least significant first. The result has the most significant first.
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

/// Subtracts digits with the least significant first, of which `left` is the larger number. The
/// result has the most significant first.
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

    #[test]
    fn amounts_are_written_in_as_few_digits_as_possible() {
        for (text, expected) in [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("+.5k", "500"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("0.5Ki", "512"),
            ("1.0001Ki", "1024102400u"),
            ("100Ki", "100Ki"),
            ("-2048Ki", "-2Mi"),
            ("12e6", "12e6"),
            ("120e5", "12e6"),
            ("1E3", "1e3"),
            ("1E", "1E"),
            ("12000000", "12M"),
            ("1e-9", "1e-9"),
            ("1e-10", "1e-9"),
            ("0Gi", "0"),
            ("-0", "0"),
            ("99999999999Ei", "9223372036854775807"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }
}
