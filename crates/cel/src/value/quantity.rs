//! Resource quantities: `500m`, `1.5Gi`, `12e6` (apimachinery
//! `pkg/api/resource/quantity.go`).

mod decimal;
mod text;

use std::cmp::Ordering;

use decimal::Decimal;
pub use text::QuantityFault;

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
        text::quantity(text)
    }

    /// The amount in `text` as Kubernetes writes it: `1` of `1000m`, `1536Mi` of `1.5Gi`.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn canonical(text: &str) -> Result<String, QuantityFault> {
        let amount = Self::parse(text)?;
        Ok(text::written(&amount, text).unwrap_or_else(|| text.to_owned()))
    }

    /// How many bytes its digits take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Small { .. } => 0,
            Self::Large(decimal) => decimal.digits.len(),
        }
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
            Self::Small { value: 0, scale } if *scale >= 0 => Some(0),
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
        self.small_sum(other, false)
            .or_else(|| self.decimal().add(&other.decimal()).map(Self::Large))
    }

    /// The difference; none if it has too many digits.
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

    /// The sum or difference of two that are small, if it is small too. The
    /// smallest number is its own negative, as upstream.
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
