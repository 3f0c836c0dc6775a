//! The test programs, and how their length is set.

use std::ffi::OsString;

use anyhow::{Context, Result};

use crate::installation::Installation;

/// A test program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its file's name.
    pub name: &'static str,
    /// Arguments besides the one that sets its length.
    pub arguments: &'static [&'static str],
    /// The same where `HETCKPT_E2E_SMALL` is set: a few blocks only, so that a GPU has no great advantage over a CPU.
    pub small: &'static [&'static str],
    /// The argument that sets its length.
    pub length: &'static str,
    /// Length to start from when a good one is sought.
    pub shortest: u64,
    /// Largest length it takes.
    pub longest: u64,
    /// How many times as long as others its kernels are in flight: more than one where tests do not care in which
    /// moment they find it at work, but it must be at work, on a busy machine too.
    pub lasts: u32,
    /// What its time goes into.
    pub pace: Pace,
    /// True if it computes in floating point, so that its digest may differ between device kinds.
    pub is_float: bool,
}

/// What a program's time goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Its kernels compute.
    Computing,
    /// Its kernels sleep most of the time, so that their time is in proportion to its length and does not depend on
    /// other work, and stop sleeping when it gets SIGUSR1 ([`crate::early_end`]).
    KernelsSleep,
    /// Its host sleeps for so many milliseconds between kernels that are too short to be found at work.
    HostSleeps(u64),
}

const fn program(name: &'static str, length: &'static str, shortest: u64) -> Program {
    Program {
        name,
        arguments: &[],
        small: &[],
        length,
        shortest,
        longest: u32::MAX as u64,
        lasts: 1,
        pace: Pace::Computing,
        is_float: false,
    }
}

const fn float(program: Program) -> Program {
    Program {
        is_float: true,
        ..program
    }
}

const fn with(program: Program, arguments: &'static [&'static str]) -> Program {
    Program { arguments, ..program }
}

const fn small(program: Program, small: &'static [&'static str]) -> Program {
    Program { small, ..program }
}

/// The ten programs that every acceptance run goes through.
pub const TEN: [Program; 10] = [
    small(
        program("vector_add", "iterations", 50),
        &["--n", "2048", "--blocks", "2"],
    ),
    Program {
        longest: 4_000_000,
        ..float(small(program("saxpy", "iterations", 50), &["--n", "131072"]))
    },
    float(small(program("matmul", "iterations", 4), &["--n", "32"])),
    small(
        program("reduction", "iterations", 40),
        &["--n", "4096", "--blocks", "2"],
    ),
    small(program("scan", "iterations", 10), &["--n", "1024"]),
    small(program("bit_count", "iterations", 20), &["--n", "1024"]),
    small(program("monte_carlo_pi", "iterations", 200), &["--blocks", "2"]),
    float(small(
        program("neural_layer", "steps", 64),
        &["--width", "64", "--streams", "2"],
    )),
    small(
        program("persistent", "iterations", 500),
        &["--items", "8", "--blocks", "2"],
    ),
    float(small(program("stencil", "steps", 500), &["--n", "16"])),
];

/// One kernel of integer arithmetic without barriers. Of its blocks, more than a CPU runs at once.
pub const SPIN: Program = Program {
    longest: u64::MAX,
    lasts: 2,
    ..program("spin", "iterations", 10_000)
};

/// One kernel whose threads sleep between their steps: it takes as long beside other work as by itself, and leaves the
/// processor to that. For tests that want a kernel in flight, and do not care what it computes.
pub const PACED: Program = Program {
    longest: u64::MAX,
    lasts: 20,
    pace: Pace::KernelsSleep,
    ..program("paced", "iterations", 20)
};

/// Kernels like that of [`PACED`] in more streams than GPUs have queues for by default.
pub const MANY_STREAMS: Program = Program {
    lasts: 4,
    arguments: &["--streams", "12", "--blocks", "2"],
    small: &["--streams", "12", "--blocks", "2"],
    ..PACED
};

/// A kernel like that of [`PACED`] beside a little device memory.
pub const MEMORY_HOG: Program = with(
    Program {
        longest: u64::MAX,
        lasts: 20,
        pace: Pace::KernelsSleep,
        ..program("memory_hog", "iterations", 20)
    },
    &["--mib", "8", "--sleeps", "1"],
);

/// Kernels that print.
pub const DEVICE_PRINTF: Program = Program {
    longest: u64::MAX,
    lasts: 2,
    ..program("device_printf", "iterations", 10_000)
};

/// Kernels that wait for a time to pass. What they print does not depend on its length.
pub const CLOCKS: Program = program("clocks", "milliseconds", 10);

/// Work recorded as graphs, with functions of the host and copies to it between kernels.
pub const GRAPHS: Program = Program {
    longest: u64::MAX,
    lasts: 2,
    ..program("graphs", "rounds", 1000)
};

/// Virtual memory that the program manages, and a memory pool.
pub const GROWING: Program = Program {
    longest: u64::MAX,
    lasts: 2,
    ..program("growing", "rounds", 10)
};

/// Managed memory, which host and kernels use by turns.
pub const MANAGED: Program = Program {
    longest: u64::MAX,
    lasts: 2,
    ..small(program("managed", "rounds", 100), &["--n", "4096"])
};

/// Memory of the program's own that it registers, which host and kernels use by turns.
pub const REGISTERED: Program = Program {
    longest: u64::MAX,
    lasts: 2,
    ..small(program("registered", "rounds", 100), &["--n", "4096"])
};

/// Lists of nodes that kernels take from their heap, and give back.
pub const DEVICE_HEAP: Program = Program {
    lasts: 2,
    ..small(program("device_heap", "rounds", 100), &["--n", "64"])
};

/// Blocks of two halves that wait at barriers of their own.
pub const NAMED_BARRIERS: Program = Program {
    lasts: 2,
    ..program("named_barriers", "rounds", 100)
};

/// Blocks of two halves that hand words over at barriers where only who gets them waits.
pub const PRODUCERS: Program = Program {
    lasts: 2,
    ..program("producers", "rounds", 100)
};

/// Blocks that go round at a barrier of libcu++.
pub const MEMORY_BARRIERS: Program = Program {
    lasts: 2,
    ..program("memory_barriers", "rounds", 100)
};

/// Warps that multiply matrices, on tensor cores where there are some.
pub const TENSOR_CORES: Program = Program {
    lasts: 2,
    ..program("tensor_cores", "rounds", 100)
};

/// Virtual functions, and others that are called by address.
pub const VIRTUAL_CALLS: Program = Program {
    lasts: 2,
    ..program("virtual_calls", "rounds", 1000)
};

/// Lanes of warps that exchange values without barriers.
pub const LANES_IN_STEP: Program = Program {
    lasts: 2,
    arguments: &["--blocks", "2"],
    small: &["--blocks", "2"],
    ..program("lanes_in_step", "rounds", 10_000)
};

/// Pointers to shared, local and global memory, stored and followed.
pub const GENERIC_POINTERS: Program = Program {
    lasts: 2,
    arguments: &["--blocks", "2"],
    small: &["--blocks", "2"],
    ..program("generic_pointers", "rounds", 10_000)
};

/// Functions that call themselves.
pub const RECURSION: Program = Program {
    lasts: 2,
    arguments: &["--blocks", "2"],
    small: &["--blocks", "2"],
    ..program("recursion", "rounds", 100)
};

/// A kernel that reads textures of all kinds and adds to surfaces.
pub const SAMPLING: Program = Program {
    lasts: 2,
    ..program("sampling", "rounds", 100)
};

/// Reads through linear filters, and compares with what an H200 reads.
pub const FILTERING: Program = program("filtering", "hashes", 0);

/// Arrays, texture objects and surface objects, in many short kernels.
pub const TEXTURES: Program = Program {
    lasts: 4,
    pace: Pace::HostSleeps(10),
    ..program("textures", "rounds", 1)
};

/// Streams that wait for words of memory, most of the time.
pub const STREAM_WORDS: Program = Program {
    lasts: 2,
    pace: Pace::HostSleeps(10),
    ..program("stream_words", "rounds", 1)
};

/// A kernel of what is not modelled, which `arguments` choose.
#[must_use]
pub const fn unmodelled(arguments: &'static [&'static str]) -> Program {
    Program {
        arguments,
        ..Program {
            name: "unmodelled",
            ..TEXTURES
        }
    }
}

/// A program with machine code but no PTX.
pub const NO_PTX: Program = Program {
    longest: u64::MAX,
    ..program("no_ptx", "iterations", 10_000)
};

/// The OpenCL programs. In each, kernels run for most of the time.
pub const OPENCL: [Program; 5] = [
    Program {
        lasts: 2,
        ..float(small(program("cl_matmul", "iterations", 4), &["--tiles", "2"]))
    },
    Program {
        lasts: 2,
        ..small(
            program("cl_histogram", "iterations", 20),
            &["--n", "4096", "--groups", "2"],
        )
    },
    Program {
        lasts: 2,
        ..small(program("cl_pipeline", "iterations", 10_000), &["--n", "512"])
    },
    Program {
        lasts: 2,
        ..small(program("cl_printf", "iterations", 10_000), &["--n", "64"])
    },
    Program {
        lasts: 2,
        ..small(program("cl_api", "iterations", 10_000), &["--n", "256"])
    },
];

impl Program {
    /// Those of the ten that tests move between nodes: one, all if `HETCKPT_E2E_ALL_NODES` is set.
    pub fn between_nodes() -> impl Iterator<Item = Self> {
        let wants_all = std::env::var_os("HETCKPT_E2E_ALL_NODES").is_some();
        TEN.into_iter()
            .filter(move |program| wants_all || program.name == "reduction")
    }

    /// The one of the [`TEN`] with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_the_ten(name: &str) -> Result<Self> {
        let found = TEN.iter().find(|program| program.name == name);
        found
            .copied()
            .with_context(|| format!("none of the ten programs is called {name}"))
    }

    /// The command line for a length, its file first.
    #[must_use]
    pub fn command(&self, length: u64) -> Vec<OsString> {
        let mut command = vec![Installation::get().programs.join(self.name).into_os_string()];
        let is_small = std::env::var_os("HETCKPT_E2E_SMALL").is_some();
        let arguments = if is_small { self.small } else { self.arguments };
        command.extend(arguments.iter().map(OsString::from));
        command.extend([format!("--{}", self.length).into(), length.to_string().into()]);
        command
    }
}

/// The command line of any program of the folder.
#[must_use]
pub fn command(name: &str, arguments: &[&str]) -> Vec<OsString> {
    let mut command = vec![Installation::get().programs.join(name).into_os_string()];
    command.extend(arguments.iter().map(OsString::from));
    command
}
