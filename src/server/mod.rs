//! The listeners; actix-web lives here and nowhere else.
