//! What a failed request to an API server says.

use openssl::error::ErrorStack;

use crate::upstream::client::ClientHandshakeError;

/// An error of a request.
type RequestFailure<'e> = &'e (dyn std::error::Error + Send + Sync + 'static);

/// What a failure says: the innermost cause, since those around it quote it, or print it for
/// debugging.
pub(crate) fn in_words(error: RequestFailure<'_>) -> String {
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    words(innermost)
}

/// What a cause says, without lines of OpenSSL's sources and numbers of the system.
fn words(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    match cause.downcast_ref() {
        Some(ClientHandshakeError::Untrusted(reason)) => return distrust(reason),
        Some(ClientHandshakeError::Failed(reason)) => return format!("tls: {}", without_number(reason)),
        None => {}
    }
    let Some(stack) = cause.downcast_ref::<ErrorStack>() else {
        return without_number(&text).to_owned();
    };
    let reason = stack.errors().first().and_then(|error| error.reason());
    reason.map_or(text, of_openssl)
}

fn without_number(text: &str) -> &str {
    text.rsplit_once(" (os error ").map_or(text, |(words, _)| words)
}

fn of_openssl(reason: &str) -> String {
    match reason {
        "certificate verify failed" => distrust("it cannot be verified"),
        reason => format!("tls: {reason}"),
    }
}

fn distrust(reason: &str) -> String {
    format!(
        "tls: the certificate of the API server is not signed by the kubeconfig's \
         `certificate-authority`, is not for the host of `server`, or has expired: {reason}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_and_openssl_say_is_told_without_numbers_and_lines() {
        let refused = std::io::Error::from_raw_os_error(111);
        let message = in_words(&kube::Error::Service(refused.into()));
        assert_eq!(message, "Connection refused");
        let stack = openssl::x509::X509::from_pem(b"none").unwrap_err();
        let message = in_words(&kube::Error::Service(stack.into()));
        assert_eq!(message, "tls: no start line");
        let distrust = of_openssl("certificate verify failed");
        assert!(distrust.contains("`certificate-authority`"), "{distrust}");
    }
}
