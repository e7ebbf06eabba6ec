//! What a failed request to an API server says.

use kube::core::Status;
use openssl::error::ErrorStack;

use crate::upstream::client::ClientHandshakeError;

/// An error of a request.
type RequestFailure<'e> = &'e (dyn std::error::Error + Send + Sync + 'static);

/// What a failure says.
pub(super) fn in_words(error: RequestFailure<'_>) -> String {
    let (innermost, _) = innermost(error);
    words(innermost)
}

/// Whether it is the API server that says it.
pub(super) fn is_answer(error: RequestFailure<'_>) -> bool {
    innermost(error).1
}

/// The innermost cause, since those around it quote it, or print it for debugging; and
/// whether one of them is what an API server answered.
fn innermost<'e>(error: RequestFailure<'e>) -> (&'e (dyn std::error::Error + 'static), bool) {
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    let mut is_answer = false;
    while let Some(source) = innermost.source() {
        innermost = source;
        is_answer |= innermost.is::<Status>() || innermost.is::<Box<Status>>();
    }
    (innermost, is_answer)
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
    use kube::runtime::watcher;

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

    #[test]
    fn what_the_api_server_answers_is_told_from_what_it_could_not_be_asked() {
        let status = Status::failure("roles is forbidden", "Forbidden").with_code(403);
        let answer = watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()));
        let words = in_words(&answer);
        assert!(
            is_answer(&answer) && words.contains("roles is forbidden"),
            "{words}"
        );
        let silence = std::io::Error::other("connection refused");
        assert!(!is_answer(&kube::Error::Service(silence.into())));
    }
}
