//! A floor for the gateway's figures: a server of actix-web and OpenSSL with the gateway's settings, which gives a
//! fixed answer to a body that it only receives, or also decodes.

use std::fs::read;
use std::path::Path;
use std::time::Duration;

use actix_web::web::Bytes;
use actix_web::{App, HttpResponse, HttpServer, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::pkey::PKey;
use openssl::ssl::{AlpnError, SslAcceptor, SslMethod, SslVerifyMode, select_next_proto};
use openssl::x509::X509;

use super::review::Review;

/// The limit for bodies, larger than any that is sent.
const BODY_BYTES: usize = 8 << 20;

pub(crate) const PORT: u16 = 18_443;

/// The answer to a SubjectAccessReview.
pub(crate) const ANSWER: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{},"status":{"allowed":true,"reason":"RBAC: allowed by RoleBinding \"edit-7/team-7\" of ClusterRole \"edit\" to Group \"team-7\""}}"#;

const ADMITTED: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"6ad33789-9004-48ad-9d62-ccef2a30f486","allowed":true}}"#;

/// Serves with the certificates in the set-up's `folder`.
pub(crate) fn run(folder: &Path) {
    let acceptor = acceptor(folder);
    let served = actix_web::rt::System::new().block_on(async {
        HttpServer::new(|| {
            App::new()
                .app_data(web::PayloadConfig::new(BODY_BYTES))
                .route("/authorize", web::post().to(answer))
                .route("/validate", web::post().to(admit))
                .route("/decode", web::post().to(decode))
                .route("/hook/validate", web::post().to(allow))
                .route("/hook/mutate/{number}", web::post().to(label))
        })
        .workers(1)
        .keep_alive(Duration::from_secs(120))
        .bind_openssl(("127.0.0.1", PORT), acceptor)
        .expect("the port is free")
        .run()
        .await
    });
    served.expect("the floor serves");
}

async fn answer(body: Bytes) -> HttpResponse {
    std::hint::black_box(&body);
    HttpResponse::Ok().content_type("application/json").body(ANSWER)
}

async fn admit(body: Bytes) -> HttpResponse {
    std::hint::black_box(&body);
    HttpResponse::Ok().content_type("application/json").body(ADMITTED)
}

/// Decodes the fields that every webhook needs; the objects stay raw text.
async fn decode(body: Bytes) -> HttpResponse {
    match serde_json::from_slice::<Review<'_>>(&body) {
        Ok(review) => {
            std::hint::black_box(&review);
            HttpResponse::Ok().content_type("application/json").body(ADMITTED)
        }
        Err(error) => HttpResponse::BadRequest().body(error.to_string()),
    }
}

/// Answers as a webhook that allows everything.
async fn allow(body: Bytes) -> HttpResponse {
    reply(&body, "")
}

/// Answers as a mutating webhook that adds a label of its own.
async fn label(number: web::Path<u32>, body: Bytes) -> HttpResponse {
    let patch = format!(r#"[{{"op":"add","path":"/metadata/labels/hook-{number}","value":"x"}}]"#);
    let patch = STANDARD.encode(patch);
    reply(&body, &format!(r#","patch":"{patch}","patchType":"JSONPatch""#))
}

fn reply(review: &[u8], more: &str) -> HttpResponse {
    const UID: &[u8] = br#""uid":""#;
    let begin = review.windows(UID.len()).position(|window| window == UID);
    let uid = &review[begin.expect("a uid") + UID.len()..];
    let end = uid.iter().position(|byte| *byte == b'"').expect("its end");
    let uid = std::str::from_utf8(&uid[..end]).expect("a uid in ASCII");
    HttpResponse::Ok().content_type("application/json").body(format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{{"uid":"{uid}","allowed":true{more}}}}}"#
    ))
}

/// TLS with the gateway's settings.
pub(crate) fn acceptor(folder: &Path) -> openssl::ssl::SslAcceptorBuilder {
    let file = |name: &str| read(folder.join("pki").join(name)).expect("a file of the set-up");
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).expect("an acceptor");
    builder
        .set_private_key(&PKey::private_key_from_pem(&file("server.key")).expect("a key"))
        .expect("its key");
    builder
        .set_certificate(&X509::from_pem(&file("server.crt")).expect("a certificate"))
        .expect("it fits");
    builder
        .cert_store_mut()
        .add_cert(X509::from_pem(&file("ca.crt")).expect("a CA"))
        .expect("a store");
    builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    builder.set_read_ahead(true);
    builder.set_alpn_select_callback(|_, offered| {
        select_next_proto(b"\x02h2\x08http/1.1", offered).ok_or(AlpnError::NOACK)
    });
    builder
}
