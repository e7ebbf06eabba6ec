//! Rotation: replaced credentials are accepted for a while.
//!
//! The API server re-reads its kubeconfig, certificate and token about once a minute, the
//! gateway at once. So a credential that was replaced by a newer one of the same user is
//! accepted for [`GRACE`] longer. A credential that was removed without a successor, or
//! with its user, is rejected at once: to revoke a credential, remove or rename its user.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::digest::Digest;

/// How long a replaced credential stays good.
pub(crate) const GRACE: Duration = Duration::from_secs(600);

/// What one user can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A certificate.
    Certificate(Digest),
    /// A bearer token.
    Token(Digest),
    /// A name and password.
    Basic(Digest),
}

/// The credentials of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeldCredentials {
    /// Those that its kubeconfig holds.
    pub(crate) current: Vec<Credential>,
    /// Those that were replaced, and until when they are good.
    pub(crate) replaced: Vec<(Credential, SystemTime)>,
}

/// The users of all kubeconfigs, by file and name.
pub(crate) type Users = HashMap<(PathBuf, String), HeldCredentials>;

// === impl HeldCredentials ===

impl HeldCredentials {
    /// What a user holds whose kubeconfig now has `current`, and who held `before`.
    pub(crate) fn succeed(current: Vec<Credential>, before: Option<&Self>, now: SystemTime) -> Self {
        let Some(before) = before else {
            return Self {
                current,
                replaced: Vec::new(),
            };
        };
        let gone = |credential: &Credential| !current.contains(credential);
        let mut replaced: Vec<_> = before
            .replaced
            .iter()
            .filter(|(credential, until)| gone(credential) && now <= *until)
            .copied()
            .collect();
        if current
            .iter()
            .any(|credential| !before.current.contains(credential))
        {
            let fresh = before.current.iter().filter(|credential| gone(credential));
            replaced.extend(fresh.map(|credential| (*credential, now + GRACE)));
        }
        Self { current, replaced }
    }

    /// Each credential and until when it is good, if not for good.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = (Credential, Option<SystemTime>)> {
        let current = self.current.iter().map(|credential| (*credential, None));
        current.chain(
            self.replaced
                .iter()
                .map(|(credential, until)| (*credential, Some(*until))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::digest::{Digester, Purpose};
    use super::*;

    fn at(minutes: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes)
    }

    #[test]
    fn a_replaced_credential_stays_good_for_ten_minutes() {
        let digester = Digester::new().unwrap();
        let token = |text: &str| Credential::Token(digester.digest(Purpose::Token, text.as_bytes()));
        let (a, b, c) = (token("a"), token("b"), token("c"));

        let first = HeldCredentials::succeed(vec![a], None, at(0));
        assert_eq!(first.replaced, []);
        let second = HeldCredentials::succeed(vec![b], Some(&first), at(1));
        assert_eq!(second.replaced, [(a, at(11))]);
        let same = HeldCredentials::succeed(vec![b], Some(&second), at(2));
        assert_eq!(
            same.replaced,
            [(a, at(11))],
            "a reload that changes nothing changes nothing"
        );
        let third = HeldCredentials::succeed(vec![c], Some(&same), at(3));
        assert_eq!(third.replaced, [(a, at(11)), (b, at(13))]);
        let later = HeldCredentials::succeed(vec![c], Some(&third), at(12));
        assert_eq!(later.replaced, [(b, at(13))]);
        let back = HeldCredentials::succeed(vec![b], Some(&later), at(12));
        assert_eq!((back.current, back.replaced), (vec![b], vec![(c, at(22))]));
    }

    #[test]
    fn what_has_no_successor_is_gone_at_once() {
        let digester = Digester::new().unwrap();
        let token = Credential::Token(digester.digest(Purpose::Token, b"a"));
        let certificate = Credential::Certificate(digester.digest(Purpose::Certificate, b"a"));
        let both = HeldCredentials::succeed(vec![certificate, token], None, at(0));
        assert_eq!(
            HeldCredentials::succeed(vec![certificate], Some(&both), at(1)).replaced,
            []
        );
        assert_eq!(HeldCredentials::succeed(vec![], Some(&both), at(1)).replaced, []);
    }

    #[test]
    fn a_credential_of_another_sort_is_a_successor_too() {
        let digester = Digester::new().unwrap();
        let token = Credential::Token(digester.digest(Purpose::Token, b"a"));
        let certificate = Credential::Certificate(digester.digest(Purpose::Certificate, b"a"));
        let before = HeldCredentials::succeed(vec![token], None, at(0));
        assert_eq!(
            HeldCredentials::succeed(vec![certificate], Some(&before), at(1)).replaced,
            [(token, at(11))]
        );
    }
}
