//! What a stopped job is.
