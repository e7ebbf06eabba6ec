//! State of a connection on the worker that serves it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::connections::{ConnectionStage, TrackedConnection};
use crate::authentication::PeerCertificate;

/// How long the head of a request may take from its first byte to its last.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    tracked: TrackedConnection,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The certificate that the client sent. What it is worth is judged for each request.
    pub(crate) certificate: Option<PeerCertificate>,
    /// How long a head may take.
    head: Duration,
    /// Requests that are being answered.
    answering: Cell<usize>,
}

/// A request that is being answered until this is dropped.
#[derive(Debug)]
pub(crate) struct AnsweringRequest(Rc<Connection>);

// === impl Connection ===

impl Connection {
    /// A connection whose handshake, if it has any, is complete.
    pub(crate) fn new(
        tracked: TrackedConnection,
        peer: SocketAddr,
        certificate: Option<PeerCertificate>,
        head: Duration,
    ) -> Rc<Self> {
        Rc::new(Self {
            tracked,
            peer,
            certificate,
            head,
            answering: Cell::new(0),
        })
    }

    /// The client is a caller of `cluster`: the connection no longer counts for the limits
    /// of unauthenticated ones.
    pub(crate) fn prove(&self, cluster: &Arc<str>) {
        self.tracked.prove(cluster);
    }

    /// Whether it has.
    pub(crate) fn is_proven(&self) -> bool {
        self.tracked.status().is_proven()
    }

    /// How far the connection's end has come.
    pub(crate) fn stage(&self) -> ConnectionStage {
        self.tracked.status().stage()
    }

    /// Bytes of a head have arrived, and more must follow.
    pub(crate) fn head_began(&self) {
        self.tracked.expect(self.head);
    }

    /// The head is there.
    pub(crate) fn head_ended(&self) {
        self.tracked.reached();
    }

    /// Whether a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering.get() > 0
    }

    /// A request is being answered from now on.
    pub(crate) fn answer(self: &Rc<Self>) -> AnsweringRequest {
        self.answering.set(self.answering.get() + 1);
        AnsweringRequest(Rc::clone(self))
    }
}

// === impl AnsweringRequest ===

impl Drop for AnsweringRequest {
    fn drop(&mut self) {
        self.0.answering.set(self.0.answering.get().saturating_sub(1));
    }
}

/// The connection of somebody who has proven nothing.
#[cfg(test)]
pub(crate) fn stranger() -> Rc<Connection> {
    use super::connections::Connections;
    use crate::config::ConnectionLimits;

    let limits = ConnectionLimits {
        max: 10,
        per_address: 10,
        authentication_timeout: Duration::from_secs(3600),
    };
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let tracked = Connections::new(None).add(peer.ip(), limits).unwrap();
    Connection::new(tracked, peer, None, Duration::from_secs(3600))
}
