//! What is known of a connection from its beginning: the client's certificate.

use actix_tls::accept::openssl::TlsStream;
use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;

use crate::authentication::PeerCertificate;

/// Keeps the certificate that a client showed with its connection. Whether it
/// is worth anything is judged for each request.
pub(super) fn remember_peer(stream: &TlsStream<TcpStream>, data: &mut Extensions) {
    let Some(leaf) = stream.ssl().peer_certificate() else {
        return;
    };
    let sent_with_it = stream.ssl().peer_cert_chain().into_iter().flatten();
    data.insert(PeerCertificate::new(leaf, sent_with_it.map(ToOwned::to_owned)));
}
