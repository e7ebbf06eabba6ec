//! Who is calling us.
