//! What an API server calls the user of a kubeconfig, as far as its credentials say so.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::nid::Nid;
use openssl::x509::X509;
use serde::Deserialize;

use crate::config::kubeconfig::client::{ClientUser, Context};

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

/// The common name of its certificate, the subject of its token, or the name that comes with its
/// password; `None` where the API server alone knows, as with a token that says nothing.
pub(crate) fn of_context(context: &Context) -> Option<String> {
    let user = context.user.as_ref()?;
    // In the order in which an API server looks at them.
    of_certificate(user).or_else(|| of_password_or_token(user))
}

fn of_certificate(user: &ClientUser) -> Option<String> {
    let certificate = X509::from_pem(&user.certificate.as_ref()?.certificate).ok()?;
    let mut names = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    names.next()?.data().to_string().ok()
}

fn of_password_or_token(user: &ClientUser) -> Option<String> {
    let Some(bearer) = &user.bearer else {
        return Some(user.basic.as_ref()?.username.clone());
    };
    let payload = bearer.token.reveal().split(|byte| *byte == b'.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let Claims { sub } = serde_json::from_slice(&payload).ok()?;
    Some(sub)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::PKey;
    use openssl::x509::X509NameBuilder;

    use super::*;
    use crate::config::Disk;
    use crate::config::kubeconfig::client::of_context as read;

    /// The user of a kubeconfig whose user has this field.
    fn own_user(user: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: 'https://localhost'}}}}]
users: [{{name: u, user: {{{user}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"
        );
        std::fs::write(&path, text).unwrap();
        of_context(&context(&path))
    }

    fn context(path: &Path) -> Context {
        let (context, _, faults) = read(&Disk, path);
        context.unwrap_or_else(|| panic!("{faults}"))
    }

    /// A certificate and key, in base64 of PEM.
    fn identity(name: &str) -> [String; 2] {
        let key = PKey::ec_gen("P-256").unwrap();
        let mut subject = X509NameBuilder::new().unwrap();
        subject.append_entry_by_text("O", "system:masters").unwrap();
        subject.append_entry_by_text("CN", name).unwrap();
        let mut certificate = X509::builder().unwrap();
        certificate.set_subject_name(&subject.build()).unwrap();
        certificate.set_pubkey(&key).unwrap();
        let [begin, end] = [0, 1].map(|days| Asn1Time::days_from_now(days).unwrap());
        certificate.set_not_before(&begin).unwrap();
        certificate.set_not_after(&end).unwrap();
        certificate.sign(&key, MessageDigest::sha256()).unwrap();
        let pem = [
            certificate.build().to_pem().unwrap(),
            key.private_key_to_pem_pkcs8().unwrap(),
        ];
        pem.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem))
    }

    #[test]
    fn the_credentials_name_the_user() {
        let payload =
            URL_SAFE_NO_PAD.encode(r#"{"sub":"system:serviceaccount:portcullis:gateway","aud":["a"]}"#);
        let [certificate, key] = identity("gateway");
        for (user, expected) in [
            (
                format!("client-certificate-data: {certificate}, client-key-data: {key}"),
                Some("gateway"),
            ),
            (
                format!("token: e30.{payload}.c2ln"),
                Some("system:serviceaccount:portcullis:gateway"),
            ),
            ("username: joe, password: secret".to_owned(), Some("joe")),
            ("token: opaque".to_owned(), None),
            ("token: a.b.c".to_owned(), None),
        ] {
            assert_eq!(own_user(&user).as_deref(), expected, "{user}");
        }
    }
}
