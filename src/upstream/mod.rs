//! Other webhooks, called as the API server would call them.

pub mod client;
#[cfg(test)]
mod fixtures;
