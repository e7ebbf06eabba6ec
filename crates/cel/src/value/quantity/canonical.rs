//! How Kubernetes writes an amount (`CanonicalizeBytes` of apimachinery
//! `pkg/api/resource/quantity.go`).

use super::Quantity;
use super::decimal::Decimal;

/// What follows the number, as `Format` upstream.
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

/// Below this, amounts are written in decimal.
const SMALLEST_BINARY: i64 = 1024;

/// `amount`, which was read from `text`, in as few digits as possible and with the sort of suffix
/// that it has; `None` if Kubernetes has no suffix for it.
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

/// The number and its power of ten, which is one of a thousand.
fn in_thousands(decimal: &Decimal) -> (String, i64) {
    let zeros = decimal.scale.rem_euclid(3);
    let mut number = decimal.written();
    (0..zeros).for_each(|_| number.push('0'));
    (number, decimal.scale - zeros)
}
