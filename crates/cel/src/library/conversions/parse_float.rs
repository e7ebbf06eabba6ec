//! Text to a double as Go's `strconv.ParseFloat(text, 64)` reads it (`strconv/atof.go`), which is
//! what `double(string)` is upstream: decimal and hexadecimal numbers, digits parted by single
//! underscores, and names of what is infinite or no number.

use std::borrow::Cow;

/// Bits of a mantissa, without the first.
const MANTISSA_BITS: u32 = 52;

/// What is added to an exponent where it is kept.
const BIAS: i64 = 1023;

/// More digits than this of an exponent, Go does not read.
const EXPONENT_DIGITS: usize = 5;

/// A number as it is written.
struct Written<'t> {
    negative: bool,
    is_hexadecimal: bool,
    /// Digits, a point and underscores.
    mantissa: &'t str,
    exponent: i64,
    /// Whether Go reads `exponent` of what may say more.
    is_exponent_cut: bool,
}

/// The double nearest to what `text` says; none if that is no number, or one beyond any double.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    if let Some(special) = special(text) {
        return Some(special);
    }
    let written = read(text)?;
    if text.contains('_') && !are_underscores_right(text) {
        return None;
    }
    let double = match written.is_hexadecimal {
        true => hexadecimal(&written),
        false => decimal(text, &written)?,
    };
    double.is_finite().then_some(double)
}

fn special(text: &str) -> Option<f64> {
    if text.eq_ignore_ascii_case("nan") {
        // What is no number has no sign.
        return Some(f64::NAN);
    }
    let (sign, name) = match text.strip_prefix('-') {
        Some(name) => (-1.0, name),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let is_infinite = name.eq_ignore_ascii_case("inf") || name.eq_ignore_ascii_case("infinity");
    is_infinite.then_some(sign * f64::INFINITY)
}

/// Reads all of `text`, wherever underscores stand.
fn read(text: &str) -> Option<Written<'_>> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let (is_hexadecimal, digits) = (digits.is_some(), digits.unwrap_or(rest));
    let is_digit = |byte: u8| byte.is_ascii_digit() || is_hexadecimal && byte.is_ascii_hexdigit();
    let mut points = 0;
    let length = digits.bytes().take_while(|byte| {
        points += usize::from(*byte == b'.');
        is_digit(*byte) || *byte == b'_' || *byte == b'.' && points == 1
    });
    let (mantissa, rest) = digits.split_at_checked(length.count())?;
    if !mantissa.bytes().any(is_digit) {
        return None;
    }
    let (exponent, is_exponent_cut) = match (rest, is_hexadecimal) {
        ("", false) => (0, false),
        (rest, false) => exponent(rest.strip_prefix(['e', 'E'])?)?,
        (rest, true) => exponent(rest.strip_prefix(['p', 'P'])?)?,
    };
    Some(Written {
        negative,
        is_hexadecimal,
        mantissa,
        exponent,
        is_exponent_cut,
    })
}

/// The exponent, and whether it has more digits than are read for certain.
fn exponent(text: &str) -> Option<(i64, bool)> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut exponent: i64 = 0;
    for byte in digits.bytes().filter(|byte| *byte != b'_') {
        let digit = char::from(byte).to_digit(10)?;
        if exponent < 10_000 {
            exponent = exponent * 10 + i64::from(digit);
        }
    }
    let exponent = if text.starts_with('-') {
        -exponent
    } else {
        exponent
    };
    Some((exponent, digits.len() > EXPONENT_DIGITS))
}

/// Whether each underscore stands between two digits, or a prefix and one.
fn are_underscores_right(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
    let (mut before, rest) = match digits.get(2..).filter(|_| is_hexadecimal) {
        Some(rest) => (b'0', rest),
        None => (b'!', digits),
    };
    for byte in rest.bytes() {
        let is_digit = byte.is_ascii_digit() || is_hexadecimal && byte.is_ascii_hexdigit();
        before = match (byte, before) {
            _ if is_digit => b'0',
            (b'_', b'0') => b'_',
            (b'_', _) | (_, b'_') => return false,
            _ => b'!',
        };
    }
    before != b'_'
}

/// As Rust reads it, which is exact, too.
fn decimal(text: &str, written: &Written<'_>) -> Option<f64> {
    let mut plain = Cow::Borrowed(text);
    if written.is_exponent_cut || text.contains('_') {
        let sign = if written.negative { "-" } else { "" };
        let mantissa = written.mantissa.replace('_', "");
        plain = Cow::Owned(format!("{sign}{mantissa}e{}", written.exponent));
    }
    plain.parse().ok()
}

/// The first digits of a mantissa from the first that is not zero, as many as fit, and what they are
/// to be multiplied with as a power of two.
struct Digits {
    mantissa: u64,
    exponent: i64,
    /// Whether digits were left out that are not zero.
    is_cut: bool,
}

fn digits(written: &Written<'_>) -> Digits {
    const MAX_DIGITS: i64 = 16;
    let (mut mantissa, mut is_cut) = (0u64, false);
    let (mut seen, mut kept, mut point, mut has_point) = (0i64, 0i64, 0i64, false);
    for character in written.mantissa.chars() {
        match character.to_digit(16) {
            Some(0) if seen == 0 => point -= 1,
            Some(digit) => {
                seen += 1;
                if kept < MAX_DIGITS {
                    mantissa = mantissa << 4 | u64::from(digit);
                    kept += 1;
                } else {
                    is_cut |= digit != 0;
                }
            }
            None if character == '.' => (point, has_point) = (seen, true),
            None => {}
        }
    }
    let point = if has_point { point } else { seen };
    Digits {
        mantissa,
        exponent: 4 * (point - kept) + written.exponent,
        is_cut,
    }
}

/// Rounded to even, as everything else is.
fn hexadecimal(written: &Written<'_>) -> f64 {
    let Digits {
        mut mantissa,
        exponent,
        is_cut,
    } = digits(written);
    if mantissa == 0 {
        return if written.negative { -0.0 } else { 0.0 };
    }
    let mut exponent = exponent + i64::from(MANTISSA_BITS);
    let halve = |mantissa: u64| mantissa >> 1 | mantissa & 1;
    // Two bits more than a double has: one that decides, and one that says whether there is more.
    while mantissa >> (MANTISSA_BITS + 2) == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    mantissa |= u64::from(is_cut);
    while mantissa >> (MANTISSA_BITS + 3) != 0 {
        mantissa = halve(mantissa);
        exponent += 1;
    }
    while mantissa > 1 && exponent < 1 - BIAS - 2 {
        mantissa = halve(mantissa);
        exponent += 1;
    }
    let rounds_up = (mantissa & 3) | (mantissa >> 2 & 1) == 3;
    mantissa = (mantissa >> 2) + u64::from(rounds_up);
    exponent += 2;
    if mantissa >> (MANTISSA_BITS + 1) != 0 {
        mantissa >>= 1;
        exponent += 1;
    }
    if exponent > BIAS {
        return f64::INFINITY;
    }
    let is_normal = mantissa >> MANTISSA_BITS != 0;
    let kept = if is_normal { exponent + BIAS } else { 0 };
    let bits =
        mantissa & ((1 << MANTISSA_BITS) - 1) | u64::try_from(kept).unwrap_or_default() << MANTISSA_BITS;
    let double = f64::from_bits(bits);
    if written.negative { -double } else { double }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Go's `strconv.ParseFloat` makes of each, in bits; none where it is an error.
    const GO: &[(&str, Option<u64>)] = &[
        ("0x1p-2", Some(0x3fd0_0000_0000_0000)),
        ("0X1P+3", Some(0x4020_0000_0000_0000)),
        ("-0x1.8p1", Some(0xc008_0000_0000_0000)),
        ("0x.8p0", Some(0x3fe0_0000_0000_0000)),
        ("0x1.p0", Some(0x3ff0_0000_0000_0000)),
        ("0x1", None),
        ("0x1.8", None),
        ("0xp1", None),
        ("0x", None),
        ("0x_1p0", Some(0x3ff0_0000_0000_0000)),
        ("0x1_0p1_0", Some(0x40d0_0000_0000_0000)),
        ("0x1__0p1", None),
        ("0x1p_1", None),
        ("0x1p1_", None),
        ("_0x1p1", None),
        ("1_000.5", Some(0x408f_4400_0000_0000)),
        ("1__0", None),
        ("_1", None),
        ("1_", None),
        ("1_.5", None),
        ("1._5", None),
        ("1e1_0", Some(0x4202_a05f_2000_0000)),
        ("1e_1", None),
        ("+1_0", Some(0x4024_0000_0000_0000)),
        ("0_1", Some(0x3ff0_0000_0000_0000)),
        ("0x1.fffffffffffff8p0", Some(0x4000_0000_0000_0000)),
        ("0x1.fffffffffffff7p0", Some(0x3fff_ffff_ffff_ffff)),
        ("0x1.00000000000008p0", Some(0x3ff0_0000_0000_0000)),
        ("0x1.000000000000080000001p0", Some(0x3ff0_0000_0000_0001)),
        ("0x1.00000000000018p0", Some(0x3ff0_0000_0000_0002)),
        ("0x1p1023", Some(0x7fe0_0000_0000_0000)),
        ("0x1p1024", None),
        ("0x1.fffffffffffffp1023", Some(0x7fef_ffff_ffff_ffff)),
        ("0x1.fffffffffffff8p1023", None),
        ("0x1p-1074", Some(0x0000_0000_0000_0001)),
        ("0x1p-1075", Some(0x0000_0000_0000_0000)),
        ("0x1.8p-1075", Some(0x0000_0000_0000_0001)),
        ("0x1p-1076", Some(0x0000_0000_0000_0000)),
        ("0x0.0001p-1058", Some(0x0000_0000_0000_0001)),
        ("0x0p99999", Some(0x0000_0000_0000_0000)),
        ("0x0.0p0", Some(0x0000_0000_0000_0000)),
        ("-0x0p0", Some(0x8000_0000_0000_0000)),
        ("0x1p100000", None),
        ("0x1p-100000", Some(0x0000_0000_0000_0000)),
        ("0x00000000000000000000001p0", Some(0x3ff0_0000_0000_0000)),
        ("0x123456789abcdef01p0", Some(0x43f2_3456_789a_bcdf)),
        ("0x123456789abcdef00p-4", Some(0x43b2_3456_789a_bcdf)),
        (
            "0x0.00000000000000000000000000000000000001p152",
            Some(0x3ff0_0000_0000_0000),
        ),
        ("1e400", None),
        ("-1e400", None),
        ("1e-400", Some(0x0000_0000_0000_0000)),
        ("1e100000", None),
        ("0.1e0000001", Some(0x3ff0_0000_0000_0000)),
        ("1e", None),
        ("1e+", None),
        ("e1", None),
        (".", None),
        ("+", None),
        ("-", None),
        ("", None),
        (".5", Some(0x3fe0_0000_0000_0000)),
        ("5.", Some(0x4014_0000_0000_0000)),
        ("5.e1", Some(0x4049_0000_0000_0000)),
        ("+.5E-3", Some(0x3f40_624d_d2f1_a9fc)),
        ("1.2.3", None),
        ("0x1.2.3p0", None),
        ("Inf", Some(0x7ff0_0000_0000_0000)),
        ("+inf", Some(0x7ff0_0000_0000_0000)),
        ("-INFINITY", Some(0xfff0_0000_0000_0000)),
        ("infin", None),
        ("nan", Some(0x7ff8_0000_0000_0000)),
        ("NaN", Some(0x7ff8_0000_0000_0000)),
        ("+nan", None),
        ("-NaN", None),
        ("infinity ", None),
        (" 1", None),
        ("1 ", None),
        ("1f", None),
        ("0b1", None),
        ("0o7", None),
        ("1p3", None),
        ("0x1e3", None),
        ("0x1e3p0", Some(0x407e_3000_0000_0000)),
        ("0xap1", Some(0x4034_0000_0000_0000)),
        ("0xGp1", None),
        ("179769313486231580793e289", None),
        ("4.9e-324", Some(0x0000_0000_0000_0001)),
        ("2.4e-324", Some(0x0000_0000_0000_0000)),
        ("9007199254740993", Some(0x4340_0000_0000_0000)),
        (
            "0.000000000000000000000000000001e00000000030",
            Some(0x3ff0_0000_0000_0000),
        ),
        ("0e0000000000000000001", Some(0x0000_0000_0000_0000)),
        ("1e0_0", Some(0x3ff0_0000_0000_0000)),
        ("1_e1", None),
        ("1e1e1", None),
        ("0x1p0x1", None),
        ("١", None),
        ("0x1p+-1", None),
        ("+0x1p1", Some(0x4000_0000_0000_0000)),
        ("--1", None),
        ("1_000_000", Some(0x412e_8480_0000_0000)),
        ("0X_1P1", Some(0x4000_0000_0000_0000)),
        ("0x1_p1", None),
        ("0x1._8p0", None),
        ("0x1_.8p0", None),
    ];

    #[test]
    fn texts_are_read_as_go_reads_them() {
        for (text, bits) in GO {
            let read = parse_float(text);
            match bits.map(f64::from_bits) {
                Some(expected) if expected.is_nan() => assert!(read.is_some_and(f64::is_nan), "{text}"),
                _ => assert_eq!(read.map(f64::to_bits), *bits, "{text}"),
            }
        }
    }
}
