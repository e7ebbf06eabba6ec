//! Free ports of the loopback interface.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Below the range from which the system picks ports for outgoing
/// connections, so that none of those takes a port between its choice and its
/// use.
const RANGE: std::ops::Range<u16> = 18_000..32_000;

static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// An address on which nothing listens and which this process hands out once.
pub(crate) fn free() -> SocketAddr {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let random = RandomState::new().hash_one(taken.len());
        let port = RANGE.start + (random % RANGE.len() as u64) as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if !taken.contains(&port) && TcpListener::bind(address).is_ok() {
            taken.insert(port);
            return address;
        }
    }
}
