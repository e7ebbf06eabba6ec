//! The console's listener: a page for people, apart from reviews and probes.
//!
//! ```text
//! accept ─▶ TLS, where configured ─▶ HTTP/1.1 ─▶ guard: Host, method, origin, caller
//!                                                  └─▶ assets
//!                                                  └─▶ views, on threads of their own
//! ```
//!
//! It has a thread of its own for connections and two for views, of which one at a time
//! makes a view that may take long: nothing that is asked here delays a review or a probe.
//! `console` makes the pages; here is who may see them, and how they are sent.

mod answer;
mod costly;
mod guard;
mod listener;
mod live;
mod send;
mod unread;

pub(crate) use listener::start;
