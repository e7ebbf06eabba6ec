//! Numbers of any length, by their decimal digits.

use std::cmp::Ordering;

/// Amounts are rounded up to a billionth.
pub(crate) const SMALLEST: i64 = -9;

/// The most digits that two amounts are lined up to.
const MAX_ALIGNED_DIGITS: i64 = 100_000;

/// ±`digits` × 10^`scale`, without leading zeros; none at all for zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    pub(crate) negative: bool,
    /// From the first, each below 10.
    pub(crate) digits: Vec<u8>,
    pub(crate) scale: i64,
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

    /// The digits as text, with the sign.
    pub(crate) fn written(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        if digits.is_empty() {
            "0".into()
        } else {
            format!("{sign}{digits}")
        }
    }

    /// The same without zeros at the end.
    pub(crate) fn shortest(mut self) -> Self {
        while self.digits.pop_if(|digit| *digit == 0).is_some() {
            self.scale += 1;
        }
        self
    }

    /// It, if it is whole and fits.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        let power = 10_i64.checked_pow(u32::try_from(self.scale).ok()?)?;
        self.written().parse::<i64>().ok()?.checked_mul(power)
    }

    /// × 2^`exponent`.
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

    /// Drops what is smaller than a billionth, and adds one if that was anything.
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

    /// How many digits stand before the point.
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

    /// The digits down to `scale`, last one first.
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
