//! Parsing of the request header `Authorization`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::caller::{AuthenticationMethod, CredentialFault};

/// No credential is longer: a service account's token has some 1,500 bytes.
pub(crate) const MAX_CREDENTIAL_BYTES: usize = 32 * 1024;

/// What the header holds.
#[derive(PartialEq, Eq)]
pub(crate) enum AuthorizationHeader<'h> {
    /// A token.
    Bearer(&'h [u8]),
    /// `username:password`.
    Basic(Zeroizing<Vec<u8>>),
}

/// What is wrong with a header, and with which sort of credential.
pub(crate) type Complaint = (AuthenticationMethod, CredentialFault);

/// Reads the header's value: a scheme, whose case does not matter, and a
/// credential. White space around the two means nothing, within the credential
/// it is an error.
pub(crate) fn parse(header: &[u8]) -> Result<AuthorizationHeader<'_>, Complaint> {
    let header = header.trim_ascii();
    if header.is_empty() {
        return Err((AuthenticationMethod::None, CredentialFault::Absent));
    }
    let end = header
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(header.len());
    let (scheme, credential) = header.split_at_checked(end).unwrap_or((header, &[]));
    let credential = credential.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        checked(credential)
            .map(AuthorizationHeader::Bearer)
            .ok_or((AuthenticationMethod::Bearer, CredentialFault::Malformed))
    } else if scheme.eq_ignore_ascii_case(b"basic") {
        basic(credential)
            .map(AuthorizationHeader::Basic)
            .ok_or((AuthenticationMethod::Basic, CredentialFault::Malformed))
    } else {
        Err((AuthenticationMethod::None, CredentialFault::UnsupportedScheme))
    }
}

/// Whether a header can carry `credential` after its scheme.
pub(crate) fn is_credential(credential: &[u8]) -> bool {
    !credential.is_empty()
        && credential.len() <= MAX_CREDENTIAL_BYTES
        && !credential
            .iter()
            .any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control())
}

fn checked(credential: &[u8]) -> Option<&[u8]> {
    is_credential(credential).then_some(credential)
}

fn basic(credential: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let decoded = Zeroizing::new(STANDARD.decode(checked(credential)?).ok()?);
    decoded.contains(&b':').then_some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `Bearer TOKEN`, `Basic NAME:PASSWORD`, or what is wrong.
    fn reported(header: &[u8]) -> String {
        match parse(header) {
            Ok(AuthorizationHeader::Bearer(token)) => format!("Bearer {}", String::from_utf8_lossy(token)),
            Ok(AuthorizationHeader::Basic(pair)) => format!("Basic {}", String::from_utf8_lossy(&pair)),
            Err((method, cause)) => format!("{} {cause}", method.as_str()),
        }
    }

    #[test]
    fn reads_a_scheme_and_a_credential() {
        let table: [(&[u8], &str); 21] = [
            (b"Bearer abc", "Bearer abc"),
            (b"bearer abc", "Bearer abc"),
            (b"BEARER  \t abc  ", "Bearer abc"),
            (b"Bearer", "bearer malformed credential"),
            (b"Bearer ", "bearer malformed credential"),
            (b"Bearer a b", "bearer malformed credential"),
            (b"Bearer a\0b", "bearer malformed credential"),
            (b"Bearer \xff", "Bearer \u{fffd}"),
            (b"Bearera", "none unsupported authorization scheme"),
            (b"Basic bjpw", "Basic n:p"),
            (b"basic bjpwOnA=", "Basic n:p:p"),
            (b"Basic bjo=", "Basic n:"),
            (b"Basic Ojo=", "Basic ::"),
            (b"Basic bg==", "basic malformed credential"),
            (b"Basic bjpw=", "basic malformed credential"),
            (b"Basic n:p", "basic malformed credential"),
            (b"Basic", "basic malformed credential"),
            (b"Digest username=n", "none unsupported authorization scheme"),
            (b"\xff\xfe", "none unsupported authorization scheme"),
            (b"", "none no credential"),
            (b"  ", "none no credential"),
        ];
        for (header, expected) in table {
            assert_eq!(reported(header), expected, "{}", String::from_utf8_lossy(header));
        }
    }

    #[test]
    fn a_credential_has_a_greatest_length() {
        let longest = [b"Bearer ".as_slice(), &[b'a'; MAX_CREDENTIAL_BYTES]].concat();
        assert!(parse(&longest).is_ok());
        assert_eq!(
            reported(&[longest.as_slice(), b"a"].concat()),
            "bearer malformed credential"
        );
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(header in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&header);
        }

        #[test]
        fn no_credential_makes_it_panic(
            scheme in "(?i:bearer|basic)[ \t]{0,3}",
            credential in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let header = [scheme.as_bytes(), &credential].concat();
            if let Ok(AuthorizationHeader::Bearer(token)) = parse(&header) {
                prop_assert!(!token.is_empty() && !token.contains(&b' '));
            }
        }
    }
}
