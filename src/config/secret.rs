//! Secret text, which is never printed.

use std::fmt;

use zeroize::Zeroizing;

/// A token or password. It prints as `[redacted]`, compares in a time that
/// depends on the lengths alone, and is wiped from memory when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

// === impl Secret ===

impl Secret {
    /// Keeps `secret`.
    #[must_use]
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(secret.into()))
    }

    /// The secret itself. The caller must not write it anywhere.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && openssl::memcmp::eq(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_nothing_of_itself() {
        let secret = Secret::new("hunter2");
        assert_eq!(
            format!("{secret:?} {:?}", Some(&secret)),
            "[redacted] Some([redacted])"
        );
        assert_eq!(secret.reveal(), b"hunter2");
    }

    #[test]
    fn equals_the_same_secret_alone() {
        let secret = Secret::new("hunter2");
        assert_eq!(secret, Secret::new("hunter2"));
        for other in ["", "hunter", "hunter22", "Hunter2"] {
            assert_ne!(secret, Secret::new(other), "{other}");
        }
    }
}
