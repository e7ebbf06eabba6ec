//! What stands between two programs: it passes bytes on, until it is cut.

use super::ports;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Passes connections on to a server that may come and go.
pub(crate) struct Relay {
    address: SocketAddr,
    wires: Arc<Mutex<Wires>>,
}

#[derive(Default)]
struct Wires {
    target: Option<SocketAddr>,
    open: Vec<TcpStream>,
    /// Connections that led somewhere.
    count: usize,
}

impl Relay {
    /// A relay that leads nowhere yet: every client that connects is cut off.
    pub(crate) fn new() -> Self {
        let address = ports::free();
        let listener = TcpListener::bind(address).unwrap();
        let wires = Arc::new(Mutex::new(Wires::default()));
        let shared = Arc::clone(&wires);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A server that is not there is as good as none.
                let _ = connect(stream, &shared);
            }
        });
        Self { address, wires }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads to this server from now on.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner).target = Some(target);
    }

    /// How many connections have led somewhere.
    pub(crate) fn connections(&self) -> usize {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Ends every connection, and leads nowhere.
    pub(crate) fn cut(&self) {
        let mut wires = self.wires.lock().unwrap_or_else(PoisonError::into_inner);
        wires.target = None;
        for stream in wires.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn connect(near: TcpStream, wires: &Mutex<Wires>) -> io::Result<()> {
    let mut wires = wires.lock().unwrap_or_else(PoisonError::into_inner);
    let target = wires.target.ok_or(io::ErrorKind::ConnectionRefused)?;
    let far = TcpStream::connect(target)?;
    for (mut from, mut to) in [
        (near.try_clone()?, far.try_clone()?),
        (far.try_clone()?, near.try_clone()?),
    ] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    wires.open.extend([near, far]);
    wires.count += 1;
    Ok(())
}
