//! Rebuilds a kernel for the resume points of a snapshot.
