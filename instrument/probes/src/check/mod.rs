//! Independent checker of a probed kernel.
