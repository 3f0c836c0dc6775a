//! Reference interpreter of hetIR, for tests.
