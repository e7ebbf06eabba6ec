//! Secret text, which is never printed.

use super::super::*;

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
