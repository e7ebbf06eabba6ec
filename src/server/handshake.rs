//! TLS handshakes of accepted connections.

use std::io;
use std::pin::Pin;

use openssl::ssl::{Ssl, SslContext};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use crate::authentication::PeerCertificate;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Tcp(#[from] io::Error),
    #[error("{0}")]
    Setup(#[from] openssl::error::ErrorStack),
    #[error("{0}")]
    Tls(#[from] openssl::ssl::Error),
}

/// The stream of a connection whose handshake begins with `tls`.
pub(crate) async fn handshake(
    stream: TcpStream,
    tls: &SslContext,
) -> Result<SslStream<TcpStream>, HandshakeError> {
    stream.set_nodelay(true)?;
    let mut stream = SslStream::new(Ssl::new(tls)?, stream)?;
    Pin::new(&mut stream).accept().await?;
    Ok(stream)
}

/// The certificate that the client sent.
pub(crate) fn certificate(stream: &SslStream<TcpStream>) -> Option<PeerCertificate> {
    let leaf = stream.ssl().peer_certificate()?;
    let sent_with_it = stream.ssl().peer_cert_chain().into_iter().flatten();
    Some(PeerCertificate::new(leaf, sent_with_it.map(ToOwned::to_owned)))
}
