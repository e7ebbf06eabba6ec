//! IP addresses and networks (apiserver `pkg/cel/library/{ip,cidr}.go`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::standard::{Computed, no_such_overload};
use super::strings::first_size;
use crate::evaluate::Evaluation;
use crate::function::{Apply, Cost, Overload};
use crate::go_format::Quoted;
use crate::program::Call;
use crate::types::Type::{self, Bool, Int, String as Str};
use crate::value::{Opaque, Text, Value};
use crate::{EvalError, cost};

/// The type of an IP address.
pub(crate) const IP: Type = Type::Opaque("net.IP");
/// The type of a network.
pub(crate) const CIDR: Type = Type::Opaque("net.CIDR");

pub(crate) fn functions() -> Vec<Overload> {
    let nominal = Cost::OfFunction(|_, _| 1);
    let read = Cost::OfFunction(|arguments, _| first_size(arguments, cost::traverse));
    let compared = Cost::OfFunction(|arguments, _| first_size(arguments, cost::rewrite));
    let asked = |id, name, apply: Apply| Overload::member(id, name, [IP], Bool, apply).cost(nominal);
    vec![
        Overload::global("string_to_ip", "ip", [Str], IP, ip).cost(read),
        Overload::global("is_ip", "isIP", [Str], Bool, is_ip).cost(read),
        Overload::global("ip_is_canonical", "ip.isCanonical", [Str], Bool, is_canonical).cost(compared),
        Overload::global("ip_to_string", "string", [IP], Str, to_string),
        Overload::member("ip_family", "family", [IP], Int, family).cost(nominal),
        asked("ip_is_unspecified", "isUnspecified", is_unspecified),
        asked("ip_is_loopback", "isLoopback", is_loopback),
        asked(
            "ip_is_link_local_multicast",
            "isLinkLocalMulticast",
            is_link_local_multicast,
        ),
        asked(
            "ip_is_link_local_unicast",
            "isLinkLocalUnicast",
            is_link_local_unicast,
        ),
        asked("ip_is_global_unicast", "isGlobalUnicast", is_global_unicast),
        Overload::global("string_to_cidr", "cidr", [Str], CIDR, cidr).cost(read),
        Overload::global("is_cidr", "isCIDR", [Str], Bool, is_cidr).cost(read),
        Overload::global("cidr_to_string", "string", [CIDR], Str, to_string),
        Overload::member(
            "cidr_contains_ip_string",
            "containsIP",
            [CIDR, Str],
            Bool,
            contains_ip,
        )
        .cost(Cost::OfOverload(|arguments, _| contained(arguments, true, false))),
        Overload::member("cidr_contains_ip_ip", "containsIP", [CIDR, IP], Bool, contains_ip).cost(
            Cost::OfFunction(|arguments, _| contained(arguments, false, false)),
        ),
        Overload::member(
            "cidr_contains_cidr_string",
            "containsCIDR",
            [CIDR, Str],
            Bool,
            contains_cidr,
        )
        .cost(Cost::OfOverload(|arguments, _| contained(arguments, true, true))),
        Overload::member(
            "cidr_contains_cidr",
            "containsCIDR",
            [CIDR, CIDR],
            Bool,
            contains_cidr,
        )
        .cost(Cost::OfFunction(|arguments, _| contained(arguments, false, true))),
        Overload::member("cidr_ip", "ip", [CIDR], IP, cidr_ip).cost(nominal),
        Overload::member("cidr_prefix_length", "prefixLength", [CIDR], Int, prefix_length).cost(nominal),
        Overload::member("cidr_masked", "masked", [CIDR], CIDR, masked).cost(nominal),
    ]
}

/// The cost of comparing the bytes of a network's prefix. Parsing the other operand is added if it
/// is a string (`text`), and masking it if it is a network.
fn contained(arguments: &[Value<'_>], text: bool, network: bool) -> u64 {
    let [own, other] = arguments else { return 1 };
    let own = cost::plain_size(own);
    let masking = if network { cost::traverse(own) + 1 } else { 0 };
    let reading = if text {
        cost::traverse(cost::plain_size(other))
    } else {
        0
    };
    cost::traverse(own + own) + masking + reading
}

/// Why a string is not an IP address. The message is only written when it is displayed, because the
/// string may be long.
#[derive(Debug, thiserror::Error)]
enum IpFault<'t> {
    #[error(
        "IP Address {} parse error during conversion from string: {fault}",
        Quoted(text)
    )]
    Unread { text: &'t str, fault: AddressFault<'t> },
    #[error("IP address {} with zone value is not allowed", Quoted(.0))]
    Zone(&'t str),
    #[error("IPv4-mapped IPv6 address {} is not allowed", Quoted(.0))]
    Mapped(&'t str),
}

/// Why a string is not a network.
#[derive(Debug, thiserror::Error)]
enum CidrFault<'t> {
    #[error(
        "network address parse error during conversion from string: netip.ParsePrefix({}): {fault}",
        Quoted(text)
    )]
    Unread { text: &'t str, fault: PrefixFault<'t> },
    #[error("IPv4-mapped IPv6 address {} is not allowed", Quoted(.0))]
    Mapped(&'t str),
}

fn parse_ip(text: &str) -> Result<IpAddr, IpFault<'_>> {
    match address(text).map_err(|fault| IpFault::Unread { text, fault })? {
        (_, zone) if !zone.is_empty() => Err(IpFault::Zone(text)),
        (ip, _) if is_mapped(ip) => Err(IpFault::Mapped(text)),
        (ip, _) => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), CidrFault<'_>> {
    let (ip, bits) = prefix(text).map_err(|fault| CidrFault::Unread { text, fault })?;
    if is_mapped(ip) {
        return Err(CidrFault::Mapped(text));
    }
    Ok((ip, bits))
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Parses a network. As upstream, the error of `cidr` repeats its prefix.
fn converted_cidr(text: &str) -> Result<(IpAddr, u8), EvalError> {
    parse_cidr(text).map_err(|fault| {
        EvalError::failed(format_args!(
            "network address parse error during conversion from string: {fault}"
        ))
    })
}

/// Returns the only argument, which must be a string, after charging for reading it.
fn text_to_read<'l, 'a>(
    own: &mut Evaluation<'_, 'a>,
    arguments: &'l [Value<'a>],
) -> Result<&'l str, EvalError> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::no_such_overload());
    };
    own.work(text.len())?;
    Ok(text)
}

fn ip<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let ip = parse_ip(text_to_read(own, arguments)?).map_err(EvalError::failed)?;
    Ok(Value::Opaque(Opaque::Ip(ip)))
}

fn is_ip<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let text = text_to_read(own, arguments)?;
    Ok(Value::Bool(parse_ip(text).is_ok()))
}

fn is_canonical<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let text = text_to_read(own, arguments)?;
    let ip = parse_ip(text).map_err(EvalError::failed)?;
    Ok(Value::Bool(ip.to_string() == text))
}

fn to_string<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Ip(ip))] => Ok(Value::String(Text::from(ip.to_string()))),
        [Value::Opaque(Opaque::Cidr(ip, bits))] => Ok(Value::String(Text::from(format!("{ip}/{bits}")))),
        _ => no_such_overload(),
    }
}

fn asked<'a>(arguments: &[Value<'a>], asked: impl FnOnce(&IpAddr) -> bool) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Ip(ip))] => Ok(Value::Bool(asked(ip))),
        _ => no_such_overload(),
    }
}

fn family<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Ip(ip))] => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        _ => no_such_overload(),
    }
}

fn is_unspecified<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    asked(arguments, IpAddr::is_unspecified)
}

fn is_loopback<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    asked(arguments, IpAddr::is_loopback)
}

fn is_link_local_multicast<'a>(
    _: &mut Evaluation<'_, 'a>,
    _: &'a Call,
    arguments: &[Value<'a>],
) -> Computed<'a> {
    asked(arguments, |ip| match ip {
        IpAddr::V4(ip) => ip.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(ip) => ip.is_multicast() && ip.octets().get(1).is_some_and(|scope| scope & 0x0f == 2),
    })
}

fn link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_link_local_unicast<'a>(
    _: &mut Evaluation<'_, 'a>,
    _: &'a Call,
    arguments: &[Value<'a>],
) -> Computed<'a> {
    asked(arguments, link_local)
}

fn is_global_unicast<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    asked(arguments, |ip| {
        let is_broadcast = matches!(ip, IpAddr::V4(ip) if *ip == Ipv4Addr::BROADCAST);
        !(is_broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local(ip))
    })
}

fn cidr<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (ip, bits) = converted_cidr(text_to_read(own, arguments)?)?;
    Ok(Value::Opaque(Opaque::Cidr(ip, bits)))
}

fn is_cidr<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let text = text_to_read(own, arguments)?;
    Ok(Value::Bool(parse_cidr(text).is_ok()))
}

fn cidr_ip<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Cidr(ip, _))] => Ok(Value::Opaque(Opaque::Ip(*ip))),
        _ => no_such_overload(),
    }
}

fn prefix_length<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Cidr(_, bits))] => Ok(Value::Int(i64::from(*bits))),
        _ => no_such_overload(),
    }
}

/// The address with all but the first `bits` bits zero.
fn mask(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(bits.min(32)))
                .unwrap_or_default();
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(bits.min(128)))
                .unwrap_or_default();
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}

fn masked<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Cidr(ip, bits))] => Ok(Value::Opaque(Opaque::Cidr(mask(*ip, *bits), *bits))),
        _ => no_such_overload(),
    }
}

/// Whether the network `own`/`bits` contains the address `other`.
fn has(own: IpAddr, bits: u8, other: IpAddr) -> bool {
    own.is_ipv4() == other.is_ipv4() && mask(own, bits) == mask(other, bits)
}

fn contains_ip<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Opaque(Opaque::Cidr(ip, bits)), other] = arguments else {
        return no_such_overload();
    };
    let other = match other {
        Value::Opaque(Opaque::Ip(ip)) => *ip,
        // Upstream does not report why the string is not an address (`cel/library/cidr.go`).
        Value::String(text) => {
            own.work(text.len())?;
            parse_ip(text).map_err(|_| EvalError::no_such_overload())?
        }
        _ => return no_such_overload(),
    };
    Ok(Value::Bool(has(*ip, *bits, other)))
}

fn contains_cidr<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Opaque(Opaque::Cidr(ip, bits)), other] = arguments else {
        return no_such_overload();
    };
    let (other, other_bits) = match other {
        Value::Opaque(Opaque::Cidr(ip, bits)) => (*ip, *bits),
        Value::String(text) => {
            own.work(text.len())?;
            converted_cidr(text)?
        }
        _ => return no_such_overload(),
    };
    Ok(Value::Bool(*bits <= other_bits && has(*ip, *bits, other)))
}

/// Why a string is not an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressFault<'t> {
    text: &'t str,
    message: &'static str,
    /// The unread rest of the string, if the message quotes it.
    rest: &'t str,
}

/// Why a string is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrefixFault<'t> {
    /// It has no `/`.
    NoSlash,
    /// The part before the `/` is not an address.
    Address(AddressFault<'t>),
    /// The address has a zone.
    Zone,
    /// The part after the `/` is not a number.
    Bits(&'t str),
    /// The prefix is longer than the address.
    OutOfRange,
}

/// Parses an IP address with an optional zone.
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

/// Parses an address and the length of its prefix.
pub(crate) fn prefix(text: &str) -> Result<(IpAddr, u8), PrefixFault<'_>> {
    let (before, bits) = text.rsplit_once('/').ok_or(PrefixFault::NoSlash)?;
    let (ip, zone) = address(before).map_err(PrefixFault::Address)?;
    if !zone.is_empty() {
        return Err(PrefixFault::Zone);
    }
    let is_plain = bits.len() < 2 || bits.starts_with(|first| matches!(first, '1'..='9'));
    // Go parses an `int` before it checks the range.
    let number: Option<i64> = bits.parse().ok().filter(|_| is_plain);
    let number = number.ok_or(PrefixFault::Bits(bits))?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let number = u8::try_from(number).ok().filter(|number| *number <= most);
    Ok((ip, number.ok_or(PrefixFault::OutOfRange)?))
}

/// Parses `part`, the end of `text`, as four octets.
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

/// Parses `before`, the part of `text` without the zone, as eight groups.
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

/// The number at the beginning of `rest`, and the number of its digits.
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

        /// Rust's own parser accepts the same strings, except those with zones.
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
