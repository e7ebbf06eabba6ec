mod certificates;
mod files;
pub(crate) mod fixtures;
mod order;
mod path_tokens;
mod replacement;
mod tokens;
