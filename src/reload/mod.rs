//! Files that change, noticed and swapped whole.
