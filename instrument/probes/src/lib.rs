//! Inserts pause probes into kernels.
