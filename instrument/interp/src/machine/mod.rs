//! Threads, blocks and grids in motion.

pub(crate) mod grid;
mod pause;
mod thread;
mod block;
mod world;
mod step;
mod access;
mod atomic;
mod special;
mod warp;
mod barrier;
mod capture;
mod round;
