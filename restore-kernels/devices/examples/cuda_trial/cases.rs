//! The test programs' kernels with arguments that fill a large GPU for some milliseconds.

/// One argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A buffer of so many random words.
    Words(u64),
    /// A buffer of so many floats between 0 and 1.
    Floats(u64),
    /// A buffer of so many zero bytes.
    Zeros(u64),
    U32(u32),
    U64(u64),
    F32(f32),
    /// Number of iterations, chosen so that the kernel takes a while; its size in bytes.
    Iterations(u32),
}

/// One kernel.
#[derive(Clone, Debug)]
pub struct Case {
    pub file: &'static str,
    /// Part of the kernel's name.
    pub kernel: &'static str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared_bytes: u32,
    pub args: Vec<Arg>,
}

fn case(file: &'static str, kernel: &'static str, blocks: u32, threads: u32, args: Vec<Arg>) -> Case {
    Case {
        file,
        kernel,
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        args,
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    use Arg::{F32, Floats, Iterations, U32, U64, Words, Zeros};
    let big = 1 << 24;
    let word = u64::from(big);
    let tiled = |file, kernel, n: u32, args| Case {
        grid: [n.div_ceil(16), n.div_ceil(16), 1],
        block: [16, 16, 1],
        ..case(file, kernel, 1, 1, args)
    };
    vec![
        case(
            "vector_add",
            "vector_add",
            1056,
            256,
            vec![Words(word), Words(word), U32(big), Iterations(4)],
        ),
        case(
            "saxpy",
            "saxpy",
            big / 256,
            256,
            vec![F32(0.5), Floats(word), Floats(word), U32(big), Iterations(4)],
        ),
        tiled(
            "matmul",
            "matmul",
            1024,
            vec![
                Floats(1 << 20),
                Floats(1 << 20),
                Zeros(8 << 20),
                U32(1024),
                Iterations(4),
            ],
        ),
        Case {
            dynamic_shared_bytes: 2048,
            ..case(
                "reduction",
                "reduce_values",
                1056,
                256,
                vec![Words(1 << 22), Zeros(8 * 1056), U32(1 << 22), Iterations(4)],
            )
        },
        Case {
            dynamic_shared_bytes: 2048,
            ..case(
                "reduction",
                "reduce_partial",
                1,
                256,
                vec![Words(2 << 16), Zeros(8), U32(1 << 16)],
            )
        },
        case(
            "scan",
            "scan_tiles",
            4096,
            256,
            vec![
                Words(1 << 20),
                Zeros(4 << 20),
                Zeros(4 * 4096),
                U32(1 << 20),
                Iterations(4),
            ],
        ),
        case("scan", "scan_tile_sums", 1, 256, vec![Words(1 << 16), U32(1 << 16)]),
        case(
            "scan",
            "add_offsets",
            big / 256,
            256,
            vec![Words(word), Words(u64::from(big / 256)), U32(big)],
        ),
        case(
            "bit_count",
            "bit_count",
            1056,
            256,
            vec![
                Words(1056 * 256),
                Zeros(4 * 1056 * 256),
                Zeros(4 * 1056 * 8),
                U32(1056 * 256),
                Iterations(4),
            ],
        ),
        case(
            "monte_carlo_pi",
            "monte_carlo_pi",
            1056,
            256,
            vec![Zeros(4 * 1056 * 256), Iterations(64)],
        ),
        case(
            "neural_layer",
            "dense_relu",
            4096,
            128,
            vec![Floats(1 << 24), Floats(4096), Floats(4096), Zeros(4 * 4096), U32(4096)],
        ),
        case(
            "persistent",
            "persistent",
            528,
            256,
            vec![Words(256 * 8192), Zeros(4 * 256 * 8192), U32(8192), Iterations(4)],
        ),
        tiled(
            "stencil",
            "heat_step",
            4096,
            vec![Floats(4098 * 4098), Zeros(4 * 4098 * 4098), U32(4096), F32(0.2)],
        ),
        tiled(
            "stencil",
            "peak_bits",
            4096,
            vec![Floats(4098 * 4098), U32(4096), Zeros(4)],
        ),
        case(
            "stencil",
            "heat_up",
            big / 256,
            256,
            vec![Floats(word), U32(big), F32(0.999)],
        ),
        case("late_cuda", "add_one", big / 256, 256, vec![Words(word), U32(big)]),
        case(
            "memory_hog",
            "fill",
            1056,
            256,
            vec![Zeros(8 << 24), U64(0), U64(1 << 24)],
        ),
        case(
            "memory_hog",
            "verify",
            1056,
            256,
            vec![Words(2 << 24), U64(0), U64(1 << 24), Zeros(16)],
        ),
        case("spin", "spin", 1056, 256, vec![Words(1056 * 256), Iterations(256)]),
    ]
}
