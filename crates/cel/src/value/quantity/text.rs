//! Parses and writes quantities.

use super::{Decimal, Quantity, SMALLEST};

/// The most digits of a small quantity.
const SMALL_DIGITS: i32 = 18;

/// Why a string is not a quantity, with upstream's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityFault {
    /// The string is empty, or what follows the number does not have the form of a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// There is no digit.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Decimal(i64),
    Binary(u32),
}

/// The parts of a quantity.
struct Parts<'t> {
    negative: bool,
    /// The integer part, without leading zeros.
    whole: &'t str,
    fraction: &'t str,
    /// Whether there is a digit, even if it is a zero.
    has_digits: bool,
    suffix: Suffix,
}

/// Parses a quantity.
pub(crate) fn quantity(text: &str) -> Result<Quantity, QuantityFault> {
    let parts = split(text)?;
    parts
        .small()
        .or_else(|| parts.large())
        .ok_or(QuantityFault::Number)
}

/// Splits a quantity into sign, digits and suffix.
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
        // A lone sign or point is zero.
        has_digits: !whole.is_empty() || !fraction.is_empty() || text.len() == 1 && rest.is_empty(),
        suffix: suffix(rest).ok_or(QuantityFault::Suffix)?,
    })
}

/// Splits `text` after the leading bytes for which `fits` holds, which are ASCII.
fn leading(text: &str, fits: impl Fn(u8) -> bool) -> (&str, &str) {
    let length = text.bytes().take_while(|byte| fits(*byte)).count();
    text.split_at_checked(length).unwrap_or((text, ""))
}

/// Whether `text` has the form of a suffix, whether known or not.
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

/// Upstream keeps the low 32 bits of an exponent that is too large.
#[expect(clippy::cast_possible_truncation, reason = "as upstream")]
const fn wrapped(exponent: i64) -> i32 {
    exponent as i32
}

impl Parts<'_> {
    /// The quantity, if it has few digits: one that upstream stores as an int64.
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

    /// The quantity, if it has a digit.
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

// Writes quantities as Kubernetes does (`CanonicalizeBytes` of apimachinery
// `pkg/api/resource/quantity.go`).

/// The kind of suffix, as upstream's `Format`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// `k`, `M`
    Decimal,
    /// `Ki`, `Mi`
    Binary,
    /// `e3`, `e6`
    Exponent,
}

const DECIMAL: [(i64, &str); 10] = [
    (-9, "n"),
    (-6, "u"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
    (15, "P"),
    (18, "E"),
];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Quantities below this are not written with binary suffixes.
const SMALLEST_BINARY: i64 = 1024;

/// Writes `amount`, which was parsed from `text`, with as few digits as possible and the same kind
/// of suffix; `None` if Kubernetes has no suffix for it.
pub(crate) fn written(amount: &Quantity, text: &str) -> Option<String> {
    let decimal = amount.decimal().shortest();
    if decimal.digits.is_empty() {
        return Some("0".to_owned());
    }
    let notation = notation(text);
    let binary = decimal.as_i64().filter(|whole| {
        notation == Notation::Binary && whole.unsigned_abs() >= SMALLEST_BINARY.unsigned_abs()
    });
    match (binary, notation) {
        (Some(whole), _) => Some(in_binary(whole)),
        (None, Notation::Exponent) => {
            let (number, exponent) = in_thousands(&decimal);
            Some(match exponent {
                0 => number,
                exponent => format!("{number}e{exponent}"),
            })
        }
        (None, _) => {
            let (number, exponent) = in_thousands(&decimal);
            let (_, suffix) = DECIMAL.into_iter().find(|(of, _)| *of == exponent)?;
            Some(number + suffix)
        }
    }
}

fn notation(text: &str) -> Notation {
    let suffix = text.trim_start_matches(|one: char| one.is_ascii_digit() || "+-.".contains(one));
    match suffix {
        binary if binary.ends_with('i') => Notation::Binary,
        "E" => Notation::Decimal,
        exponent if exponent.starts_with(['e', 'E']) => Notation::Exponent,
        _ => Notation::Decimal,
    }
}

fn in_binary(mut whole: i64) -> String {
    let mut suffixes = BINARY.into_iter().peekable();
    let mut suffix = suffixes.next().unwrap_or_default();
    while whole % SMALLEST_BINARY == 0 && suffixes.peek().is_some() {
        whole /= SMALLEST_BINARY;
        suffix = suffixes.next().unwrap_or_default();
    }
    format!("{whole}{suffix}")
}

/// The digits and the power of ten, which is a multiple of three.
fn in_thousands(decimal: &Decimal) -> (String, i64) {
    let zeros = decimal.scale.rem_euclid(3);
    let mut number = decimal.written();
    (0..zeros).for_each(|_| number.push('0'));
    (number, decimal.scale - zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
