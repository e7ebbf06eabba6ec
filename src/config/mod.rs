//! The server's configuration, as written and as resolved.
