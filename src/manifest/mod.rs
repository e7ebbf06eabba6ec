//! Policies as users write them, to policies as the engine decides by them.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
