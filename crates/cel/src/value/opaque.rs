//! Values of the libraries.

use std::net::IpAddr;
use std::sync::Arc;

use super::quantity::Quantity;
use super::semver::Semver;
use super::url::UrlValue;
use crate::authorize::{AccessAnswer, AccessCheck};
use crate::library::formats::NamedFormat;

/// A value of a library.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Opaque<'a> {
    /// An amount of a resource.
    Quantity(Arc<Quantity>),
    /// An amount that `add` or `sub` made. Kubernetes holds it by a pointer, and so
    /// finds nothing equal to it.
    ComputedQuantity(Arc<Quantity>),
    /// A URL.
    Url(Arc<UrlValue>),
    /// An IP address.
    Ip(IpAddr),
    /// A network address: an address and how many of its first bits count.
    Cidr(IpAddr, u8),
    /// A version.
    Semver(Arc<Semver>),
    /// A named format of text.
    Format(&'static NamedFormat),
    /// A question to the authorizer, as far as it is put.
    Check(Arc<AccessCheck<'a>>),
    /// The authorizer's answer.
    Decision(Arc<AccessAnswer>),
}

// === impl Opaque ===

impl<'a> Opaque<'a> {
    /// How many bytes one takes, beside its text.
    pub(crate) const BYTES: usize = 256;

    /// The name of its type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) | Self::ComputedQuantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Check(check) => check.type_name(),
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// The same value with nothing borrowed; none if it cannot be without.
    pub(crate) fn into_owned(self) -> Option<Opaque<'static>> {
        Some(match self {
            Self::Quantity(quantity) => Opaque::Quantity(quantity),
            Self::ComputedQuantity(quantity) => Opaque::ComputedQuantity(quantity),
            Self::Url(url) => Opaque::Url(url),
            Self::Ip(ip) => Opaque::Ip(ip),
            Self::Cidr(ip, bits) => Opaque::Cidr(ip, bits),
            Self::Semver(semver) => Opaque::Semver(semver),
            Self::Format(format) => Opaque::Format(format),
            Self::Decision(answer) => Opaque::Decision(answer),
            Self::Check(_) => return None,
        })
    }

    /// The amount that it is, if it is one.
    pub(crate) fn quantity(&self) -> Option<&Quantity> {
        match self {
            Self::Quantity(quantity) | Self::ComputedQuantity(quantity) => Some(quantity),
            _ => None,
        }
    }

    /// Whether both are equal; none if such values cannot be compared.
    pub(crate) fn equals(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Quantity(own) | Self::ComputedQuantity(own), Self::Quantity(other)) => {
                Some(own.compare(other).is_eq())
            }
            (Self::Url(own), Self::Url(other)) => Some(own == other),
            (Self::Ip(own), Self::Ip(other)) => Some(own == other),
            (Self::Cidr(own, bits), Self::Cidr(other, other_bits)) => {
                Some(own == other && bits == other_bits)
            }
            (Self::Semver(own), Self::Semver(other)) => Some(own.compare(other).is_eq()),
            (Self::Format(own), Self::Format(other)) => Some(own.name == other.name),
            _ => None,
        }
    }
}

/// Bytes of an address.
pub(crate) const fn address_bytes(ip: &IpAddr) -> u64 {
    match ip {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 16,
    }
}
