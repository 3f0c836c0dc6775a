//! Single instructions, barriers and warp-level operations on a real NVIDIA GPU against the reference interpreter; and
//! forms of PTX as the GPU has them against what the front end makes of them.
//!
//! The GPU's results lie in `data`, so that no GPU is needed. `HETCKPT_TEST_CUDA=N` takes those of GPU `N` instead, and
//! `HETCKPT_RECORD=FOLDER` keeps them there: do that, with an empty `data` for the folder, where the tests have
//! changed. The results of forms are kept as `forms.txt` there; its place is beside this file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod run;
mod recorded;
mod gpu;
mod matrices;
mod bulk_copies;
mod approximations;
mod forms;

use run::GpuResults;

// Contended atomics and `directed` are not recorded.
hetckpt_conformance::tests!(
    GpuResults,
    integer,
    float,
    convert,
    edges,
    predicate,
    memory,
    barriers_and_warps
);
