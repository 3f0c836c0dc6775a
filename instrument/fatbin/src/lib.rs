//! Finds PTX in CUDA fat binaries.
