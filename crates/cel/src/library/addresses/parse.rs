//! Addresses as Go reads them, with its words for what is none (`net/netip`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::quote::Quoted;

/// Why a text is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressFault<'t> {
    text: &'t str,
    message: &'static str,
    /// The rest of the text that was not read, if that is said.
    rest: &'t str,
}

/// Why a text is no network address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrefixFault<'t> {
    /// It has no `/`.
    NoSlash,
    /// What stands before the `/` is no address.
    Address(AddressFault<'t>),
    /// The address has a zone.
    Zone,
    /// What stands behind the `/` is no number.
    Bits(&'t str),
    /// No such address has so many bits.
    OutOfRange,
}

/// Reads an address, and the zone it may have.
pub(crate) fn address(text: &str) -> Result<(IpAddr, &str), AddressFault<'_>> {
    let fault = |message| Err(AddressFault::new(text, message, ""));
    match text.find(['.', ':', '%']).and_then(|at| text.as_bytes().get(at)) {
        Some(b'.') => Ok((IpAddr::V4(Ipv4Addr::from(octets(text, text)?)), "")),
        Some(b':') => {
            let (before, zone) = match text.split_once('%') {
                Some((_, "")) => return fault("zone must be a non-empty string"),
                Some((before, zone)) => (before, zone),
                None => (text, ""),
            };
            Ok((IpAddr::V6(groups(text, before)?), zone))
        }
        Some(_) => fault("missing IPv6 address"),
        None => fault("unable to parse IP"),
    }
}

/// Reads an address and how many of its first bits count.
pub(crate) fn prefix(text: &str) -> Result<(IpAddr, u8), PrefixFault<'_>> {
    let (before, bits) = text.rsplit_once('/').ok_or(PrefixFault::NoSlash)?;
    let (ip, zone) = address(before).map_err(PrefixFault::Address)?;
    if !zone.is_empty() {
        return Err(PrefixFault::Zone);
    }
    let is_plain = bits.len() < 2 || bits.starts_with(|first| matches!(first, '1'..='9'));
    // As many digits as an int of Go has.
    let number: Option<i64> = bits.parse().ok().filter(|_| is_plain);
    let number = number.ok_or(PrefixFault::Bits(bits))?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let number = u8::try_from(number).ok().filter(|number| *number <= most);
    Ok((ip, number.ok_or(PrefixFault::OutOfRange)?))
}

/// The four numbers of `part`, with which `text` ends.
fn octets<'t>(text: &'t str, part: &'t str) -> Result<[u8; 4], AddressFault<'t>> {
    let fault = |message, rest| Err(AddressFault::new(text, message, rest));
    let mut octets = [0; 4];
    let mut position = 0;
    let (mut value, mut digits) = (0u16, 0);
    let mut before = '.';
    for (at, character) in part.char_indices() {
        let rest = part.get(at..).unwrap_or_default();
        match (character, character.to_digit(10)) {
            (_, Some(digit)) => {
                if digits == 1 && value == 0 {
                    return fault("IPv4 field has octet with leading zero", "");
                }
                value = value * 10 + u16::try_from(digit).unwrap_or_default();
                digits += 1;
                if value > 255 {
                    return fault("IPv4 field has value >255", "");
                }
            }
            ('.', None) => {
                if before == '.' || rest.len() == 1 {
                    return fault("IPv4 field must have at least one digit", rest);
                }
                if position == 3 {
                    return fault("IPv4 address too long", "");
                }
                put(&mut octets, position, value);
                position += 1;
                (value, digits) = (0, 0);
            }
            (_, None) => return fault("unexpected character", rest),
        }
        before = character;
    }
    if position < 3 {
        return fault("IPv4 address too short", "");
    }
    put(&mut octets, 3, value);
    Ok(octets)
}

fn put(octets: &mut [u8; 4], position: usize, value: u16) {
    if let Some(octet) = octets.get_mut(position) {
        *octet = u8::try_from(value).unwrap_or(u8::MAX);
    }
}

/// The eight numbers of an address that is `before` in `text`, where a zone may follow.
fn groups<'t>(text: &'t str, before: &'t str) -> Result<Ipv6Addr, AddressFault<'t>> {
    let fault = |message, rest| Err(AddressFault::new(text, message, rest));
    let mut groups: Vec<u16> = Vec::with_capacity(8);
    let mut rest = before;
    let mut gap = None;
    if let Some(after) = rest.strip_prefix("::") {
        gap = Some(0);
        rest = after;
    }
    while groups.len() < 8 && !(rest.is_empty() && gap == Some(groups.len())) {
        let (group, length) = group(text, rest)?;
        let after = rest.get(length..).unwrap_or_default();
        if after.starts_with('.') {
            if gap.is_none() && groups.len() != 6 {
                let message = "embedded IPv4 address must replace the final 2 fields of the address";
                return fault(message, rest);
            }
            if groups.len() > 6 {
                let message = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return fault(message, rest);
            }
            let [one, two, three, four] = octets(text, rest)?;
            groups.push(u16::from_be_bytes([one, two]));
            groups.push(u16::from_be_bytes([three, four]));
            rest = "";
            break;
        }
        groups.push(group);
        if after.is_empty() {
            rest = after;
            break;
        }
        let Some(next) = after.strip_prefix(':') else {
            return fault("unexpected character, want colon", after);
        };
        if next.is_empty() {
            return fault("colon must be followed by more characters", after);
        }
        rest = next;
        if let Some(after) = next.strip_prefix(':') {
            if gap.is_some() {
                return fault("multiple :: in address", next);
            }
            gap = Some(groups.len());
            rest = after;
        }
    }
    if !rest.is_empty() {
        return fault("trailing garbage after address", rest);
    }
    match (gap, 8 - groups.len()) {
        (None, 0) => {}
        (None, _) => return fault("address string too short", ""),
        (Some(_), 0) => return fault("the :: must expand to at least one field of zeros", ""),
        (Some(gap), missing) => drop(groups.splice(gap..gap, std::iter::repeat_n(0, missing))),
    }
    let groups: [u16; 8] = groups.try_into().unwrap_or_default();
    Ok(Ipv6Addr::from(groups))
}

/// The number at the beginning of `rest`, and how many digits it has.
fn group<'t>(text: &'t str, rest: &'t str) -> Result<(u16, usize), AddressFault<'t>> {
    let fault = |message| Err(AddressFault::new(text, message, rest));
    let length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    match length {
        0 => fault("each colon-separated field must have at least one digit"),
        1..=4 => {
            let digits = rest.get(..length).unwrap_or_default();
            Ok((u16::from_str_radix(digits, 16).unwrap_or_default(), length))
        }
        _ => fault("each group must have 4 or less digits"),
    }
}

// === impl AddressFault ===

impl<'t> AddressFault<'t> {
    const fn new(text: &'t str, message: &'static str, rest: &'t str) -> Self {
        Self { text, message, rest }
    }
}

impl fmt::Display for AddressFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParseAddr({}): {}", Quoted(self.text), self.message)?;
        if self.rest.is_empty() {
            return Ok(());
        }
        write!(f, " (at {})", Quoted(self.rest))
    }
}

// === impl PrefixFault ===

impl fmt::Display for PrefixFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlash => f.write_str("no '/'"),
            Self::Address(fault) => fault.fmt(f),
            Self::Zone => f.write_str("IPv6 zones cannot be present in a prefix"),
            Self::Bits(bits) => write!(f, "bad bits after slash: {}", Quoted(bits)),
            Self::OutOfRange => f.write_str("prefix length out of range"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_zone_is_told_apart() {
        let (ip, zone) = address("fe80::1%eth0.1").unwrap();
        assert_eq!((ip.to_string().as_str(), zone), ("fe80::1", "eth0.1"));
        assert_eq!(prefix("fe80::1%eth0/64"), Err(PrefixFault::Zone));
    }

    #[test]
    fn what_is_wrong_is_quoted() {
        assert_eq!(
            address("1.2.\"é").unwrap_err().to_string(),
            r#"ParseAddr("1.2.\"é"): unexpected character (at "\"é")"#
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Rust's own reader takes the same texts, but for zones.
        #[test]
        fn the_same_addresses_are_read_as_by_rust(text in "[0-9a-f:.]{0,6}(:|::|\\.)[0-9a-fA-F:.]{0,12}(::|1\\.2\\.3\\.4|%)?[0-9f:]{0,4}") {
            let here = address(&text).ok().filter(|(_, zone)| zone.is_empty()).map(|(ip, _)| ip);
            prop_assert_eq!(here, text.parse::<IpAddr>().ok());
        }

        #[test]
        fn the_same_numbers_are_read_as_by_rust(groups in prop::collection::vec(0..=0xffffu16, 7..=9), gap in 0..9usize, has_gap: bool) {
            let mut parts: Vec<String> = groups.iter().map(|group| format!("{group:x}")).collect();
            if has_gap {
                parts.drain(gap.min(6)..(gap + 2).min(7));
                parts.insert(gap.min(parts.len()), String::new());
            }
            let text = parts.join(":");
            let here = address(&text).ok().map(|(ip, _)| ip);
            prop_assert_eq!(here, text.parse::<IpAddr>().ok());
        }
    }
}
