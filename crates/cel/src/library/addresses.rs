//! IP addresses and networks (apiserver `pkg/cel/library/{ip,cidr}.go`).

mod parse;

use std::net::{IpAddr, Ipv4Addr};

use parse::{AddressFault, PrefixFault};

use super::standard::{Computed, mismatched};
use super::strings::first_size;
use crate::cost;
use crate::error::EvalError;
use crate::evaluate::Evaluation;
use crate::function::{Apply, Cost, Overload};
use crate::program::Call;
use crate::quote::Quoted;
use crate::types::Type::{self, Bool, Int, String as Str};
use crate::value::{Opaque, Text, Value};

/// The type of an address.
pub(crate) const IP: Type = Type::Opaque("net.IP");
/// The type of a network address.
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

/// Comparing the bytes that a network's prefix has, after reading the other
/// address if it is `text`, and masking it if it is a `network`.
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

/// Why a text is no address. What it says is written when it is read: the text may be long.
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

/// Why a text is no network address.
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
    match parse::address(text).map_err(|fault| IpFault::Unread { text, fault })? {
        (_, zone) if !zone.is_empty() => Err(IpFault::Zone(text)),
        (ip, _) if is_mapped(ip) => Err(IpFault::Mapped(text)),
        (ip, _) => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), CidrFault<'_>> {
    let (ip, bits) = parse::prefix(text).map_err(|fault| CidrFault::Unread { text, fault })?;
    if is_mapped(ip) {
        return Err(CidrFault::Mapped(text));
    }
    Ok((ip, bits))
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// What `cidr` says of a text that is no network address: what is wrong, twice.
fn converted_cidr(text: &str) -> Result<(IpAddr, u8), EvalError> {
    parse_cidr(text).map_err(|fault| {
        EvalError::failed(format_args!(
            "network address parse error during conversion from string: {fault}"
        ))
    })
}

/// The only argument, a text, all of which may have to be read.
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
        _ => mismatched(),
    }
}

fn asked<'a>(arguments: &[Value<'a>], asked: impl FnOnce(&IpAddr) -> bool) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Ip(ip))] => Ok(Value::Bool(asked(ip))),
        _ => mismatched(),
    }
}

fn family<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Ip(ip))] => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        _ => mismatched(),
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
        _ => mismatched(),
    }
}

fn prefix_length<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Cidr(_, bits))] => Ok(Value::Int(i64::from(*bits))),
        _ => mismatched(),
    }
}

/// The first `bits` of an address, the others zero.
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
        _ => mismatched(),
    }
}

/// Whether the network `own`/`bits` has the address `other`.
fn has(own: IpAddr, bits: u8, other: IpAddr) -> bool {
    own.is_ipv4() == other.is_ipv4() && mask(own, bits) == mask(other, bits)
}

fn contains_ip<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Opaque(Opaque::Cidr(ip, bits)), other] = arguments else {
        return mismatched();
    };
    let other = match other {
        Value::Opaque(Opaque::Ip(ip)) => *ip,
        // Upstream does not say why the text is no address (`cel/library/cidr.go`).
        Value::String(text) => {
            own.work(text.len())?;
            parse_ip(text).map_err(|_| EvalError::no_such_overload())?
        }
        _ => return mismatched(),
    };
    Ok(Value::Bool(has(*ip, *bits, other)))
}

fn contains_cidr<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Opaque(Opaque::Cidr(ip, bits)), other] = arguments else {
        return mismatched();
    };
    let (other, other_bits) = match other {
        Value::Opaque(Opaque::Cidr(ip, bits)) => (*ip, *bits),
        Value::String(text) => {
            own.work(text.len())?;
            converted_cidr(text)?
        }
        _ => return mismatched(),
    };
    Ok(Value::Bool(*bits <= other_bits && has(*ip, *bits, other)))
}
