mod certificates;
mod files;
mod order;
mod replacement;
mod tokens;
