//! Small launches of the test programs' kernels: PTX, inputs, and what memory must hold afterwards.
//!
//! The texts are nvcc 13.0's for `e2e/programs`. The same cases serve every device: whole, and paused at each resume
//! point in turn, memory must be equal. What is expected is computed here from the programs' sources, not by running
//! their PTX.

mod buffer;
mod expected;

use hetckpt_ir::types::Dim3;

pub use buffer::{Arg, params};
use buffer::{address, f32s, f64s, floats, seeds, u32s, u64s};

/// One launch.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kernel's name in the source.
    pub name: &'static str,
    /// PTX that defines it.
    pub ptx: &'static str,
    /// Its mangled name.
    pub kernel: &'static str,
    /// The grid.
    pub grid: Dim3,
    /// A block.
    pub block: Dim3,
    /// Dynamic shared memory.
    pub dynamic_shared_bytes: u32,
    /// The parameter buffer.
    pub params: Vec<u8>,
    /// Device memory before: addresses and bytes; module variables are among it.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// Where module variables are.
    pub globals: Vec<(&'static str, u64)>,
    /// What parts of the memory must hold afterwards.
    pub expected: Vec<(u64, Vec<u8>)>,
}

/// Every case.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        vector_add(),
        saxpy(),
        matmul(),
        reduce_values(),
        scan_tiles(),
        scan_tile_sums(),
        bit_count(),
        monte_carlo_pi(),
        dense_relu(),
        persistent(),
        heat_step(),
        peak_bits(),
    ]
}

fn plane(x: u32, y: u32) -> Dim3 {
    Dim3 { x, y, z: 1 }
}

fn vector_add() -> Case {
    let (n, passes) = (75, 9);
    let (sum, addend) = (seeds(0, n), seeds(1000, n));
    let result: Vec<u32> = sum
        .iter()
        .zip(&addend)
        .map(|(s, a)| s.wrapping_add(a.wrapping_mul(passes)))
        .collect();
    Case {
        name: "vector_add",
        ptx: include_str!("vector_add.ptx"),
        kernel: "_Z10vector_addPjPKjjj",
        grid: plane(2, 1),
        block: plane(16, 1),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U32(75),
            Arg::U32(passes),
        ]),
        memory: vec![(address(0), u32s(&sum)), (address(1), u32s(&addend))],
        globals: vec![],
        expected: vec![(address(0), u32s(&result))],
    }
}

fn saxpy() -> Case {
    let (n, passes, a) = (50, 11, 0.5f32);
    let (x, y) = (floats(0, n), floats(100, n));
    let result: Vec<f32> = x
        .iter()
        .zip(&y)
        .map(|(x, y)| (0..passes).fold(*y, |y, _| a.mul_add(*x, y)))
        .collect();
    Case {
        name: "saxpy",
        ptx: include_str!("saxpy.ptx"),
        kernel: "_Z5saxpyfPKfPfjj",
        grid: plane(2, 1),
        block: plane(32, 1),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::F32(a),
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U32(50),
            Arg::U32(passes),
        ]),
        memory: vec![(address(0), f32s(&x)), (address(1), f32s(&y))],
        globals: vec![],
        expected: vec![(address(1), f32s(&result))],
    }
}

fn matmul() -> Case {
    let (n, passes) = (20, 2);
    let (a, b) = (floats(0, n * n), floats(5000, n * n));
    Case {
        name: "matmul",
        ptx: include_str!("matmul.ptx"),
        kernel: "_Z6matmulPKfS0_Pdjj",
        grid: plane(2, 2),
        block: plane(16, 16),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U64(address(2)),
            Arg::U32(20),
            Arg::U32(passes),
        ]),
        memory: vec![
            (address(0), f32s(&a)),
            (address(1), f32s(&b)),
            (address(2), vec![0; 8 * n * n]),
        ],
        globals: vec![],
        expected: vec![(address(2), f64s(&expected::matmul(&a, &b, n, passes)))],
    }
}

fn reduce_values() -> Case {
    let (n, passes, threads) = (150, 3, 32);
    let values = seeds(7, n);
    Case {
        name: "reduce_values",
        ptx: include_str!("reduction.ptx"),
        kernel: "_Z13reduce_valuesPKjPyjj",
        grid: plane(2, 1),
        block: plane(threads, 1),
        dynamic_shared_bytes: threads * 8,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U32(150),
            Arg::U32(passes),
        ]),
        memory: vec![(address(0), u32s(&values)), (address(1), vec![0; 16])],
        globals: vec![],
        expected: vec![(
            address(1),
            u64s(&expected::reduce(&values, passes, 2, threads as usize)),
        )],
    }
}

fn scan_tiles() -> Case {
    let (n, passes) = (300, 2);
    let input = seeds(3, n);
    let (out, sums) = expected::scan(&input, passes);
    Case {
        name: "scan_tiles",
        ptx: include_str!("scan.ptx"),
        kernel: "_Z10scan_tilesPKjPjS1_jj",
        grid: plane(2, 1),
        block: plane(256, 1),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U64(address(2)),
            Arg::U32(300),
            Arg::U32(passes),
        ]),
        memory: vec![
            (address(0), u32s(&input)),
            (address(1), vec![0; 4 * n]),
            (address(2), vec![0; 8]),
        ],
        globals: vec![],
        expected: vec![(address(1), u32s(&out)), (address(2), u32s(&sums))],
    }
}

fn scan_tile_sums() -> Case {
    let n = 300;
    let sums = seeds(11, n);
    let mut total = 0u32;
    let result: Vec<u32> = sums
        .iter()
        .map(|s| {
            total = total.wrapping_add(*s);
            total
        })
        .collect();
    Case {
        name: "scan_tile_sums",
        ptx: include_str!("scan.ptx"),
        kernel: "_Z14scan_tile_sumsPjj",
        grid: plane(1, 1),
        block: plane(256, 1),
        dynamic_shared_bytes: 0,
        params: params(&[Arg::U64(address(0)), Arg::U32(300)]),
        memory: vec![(address(0), u32s(&sums))],
        globals: vec![],
        expected: vec![(address(0), u32s(&result))],
    }
}

fn bit_count() -> Case {
    let (n, passes) = (96, 3);
    let words = seeds(5, n);
    let (ones, generations) = expected::bit_count(&words, passes);
    Case {
        name: "bit_count",
        ptx: include_str!("bit_count.ptx"),
        kernel: "_Z9bit_countPKjPjS1_jj",
        grid: plane(2, 1),
        block: plane(64, 1),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U64(address(2)),
            Arg::U32(96),
            Arg::U32(passes),
        ]),
        memory: vec![
            (address(0), u32s(&words)),
            (address(1), vec![0; 4 * n]),
            (address(2), vec![0; 12]),
        ],
        globals: vec![],
        expected: vec![(address(1), u32s(&ones)), (address(2), u32s(&generations))],
    }
}

fn monte_carlo_pi() -> Case {
    Case {
        name: "monte_carlo_pi",
        ptx: include_str!("monte_carlo_pi.ptx"),
        kernel: "_Z14monte_carlo_piPjj",
        grid: plane(2, 1),
        block: plane(40, 1),
        dynamic_shared_bytes: 0,
        params: params(&[Arg::U64(address(0)), Arg::U32(40)]),
        memory: vec![
            (address(0), vec![0; 320]),
            (address(1), vec![0; 64]),
            (address(2), vec![0; 8]),
        ],
        globals: vec![("ring_totals", address(1)), ("pull_total", address(2))],
        expected: vec![],
    }
}

fn dense_relu() -> Case {
    let (rows, width) = (3, 200);
    let (weights, bias, input) = (floats(0, rows * width), floats(9000, rows), floats(8000, width));
    Case {
        name: "dense_relu",
        ptx: include_str!("neural_layer.ptx"),
        kernel: "_Z10dense_reluPKfS0_S0_Pfj",
        grid: plane(3, 1),
        block: plane(128, 1),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U64(address(2)),
            Arg::U64(address(3)),
            Arg::U32(200),
        ]),
        memory: vec![
            (address(0), f32s(&weights)),
            (address(1), f32s(&bias)),
            (address(2), f32s(&input)),
            (address(3), vec![0; 4 * rows]),
        ],
        globals: vec![],
        expected: vec![(address(3), f32s(&expected::dense_relu(&weights, &bias, &input)))],
    }
}

fn persistent() -> Case {
    let (items, rounds) = (3, 5);
    let (input, keys) = (seeds(17, items * 256), seeds(40_000, 32));
    Case {
        name: "persistent",
        ptx: include_str!("persistent.ptx"),
        kernel: "_Z10persistentPKjPjjj",
        grid: plane(2, 1),
        block: plane(256, 1),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U32(3),
            Arg::U32(rounds),
        ]),
        memory: vec![
            (address(0), u32s(&input)),
            (address(1), vec![0; 4 * input.len()]),
            (address(2), u32s(&keys)),
            (address(3), vec![0; 4]),
            (address(4), vec![0; 4]),
        ],
        globals: vec![
            ("round_keys", address(2)),
            ("next_item", address(3)),
            ("items_done", address(4)),
        ],
        expected: vec![
            (address(1), u32s(&expected::persistent(&input, &keys, rounds))),
            (address(3), u32s(&[5])),
            (address(4), u32s(&[3])),
        ],
    }
}

fn heat_step() -> Case {
    let n = 20;
    let now = floats(50, (n + 2) * (n + 2));
    Case {
        name: "heat_step",
        ptx: include_str!("stencil.ptx"),
        kernel: "_Z9heat_stepPKfPfjf",
        grid: plane(2, 2),
        block: plane(16, 16),
        dynamic_shared_bytes: 0,
        params: params(&[
            Arg::U64(address(0)),
            Arg::U64(address(1)),
            Arg::U32(20),
            Arg::F32(0.125),
        ]),
        memory: vec![(address(0), f32s(&now)), (address(1), vec![0; 4 * now.len()])],
        globals: vec![],
        expected: vec![],
    }
}

fn peak_bits() -> Case {
    let n = 20;
    let now: Vec<f32> = floats(60, (n + 2) * (n + 2)).into_iter().map(f32::abs).collect();
    Case {
        name: "peak_bits",
        ptx: include_str!("stencil.ptx"),
        kernel: "_Z9peak_bitsPKfjPj",
        grid: plane(2, 2),
        block: plane(16, 16),
        dynamic_shared_bytes: 0,
        params: params(&[Arg::U64(address(0)), Arg::U32(20), Arg::U64(address(1))]),
        memory: vec![(address(0), f32s(&now)), (address(1), vec![0; 4])],
        globals: vec![],
        expected: vec![(address(1), f32s(&[expected::peak(&now, n)]))],
    }
}
