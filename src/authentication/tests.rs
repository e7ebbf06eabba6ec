mod certificates;
mod files;
pub(crate) mod fixtures;
mod order;
mod replacement;
mod tokens;
