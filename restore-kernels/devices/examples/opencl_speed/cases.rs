//! The launches that are timed: some 10 ms to 50 ms each on two cores.

/// One launch, of the kernel by hand and of those generated from PTX.
pub struct Case {
    /// Name of the kernel by hand, and in the table.
    pub name: &'static str,
    /// OpenCL C by hand.
    pub by_hand: &'static str,
    /// The kernel's name in PTX.
    pub mangled: &'static str,
    pub grid: [u32; 2],
    pub block: [u32; 2],
    pub dynamic_shared_bytes: u32,
    pub args: Vec<Arg>,
    /// Variables of the module and the buffers that they are; by hand they are further arguments.
    pub globals: Vec<(&'static str, usize)>,
    /// Memory before the launch.
    pub buffers: Vec<Vec<u8>>,
    /// How buffers are compared.
    pub compared_as: Element,
}

/// An argument.
#[derive(Clone, Copy)]
pub enum Arg {
    Buffer(usize),
    U32(u32),
    F32(f32),
}

/// What buffers hold: integers must be equal, others nearly.
#[derive(Clone, Copy)]
pub enum Element {
    U32,
    F32,
    F64,
}

use Arg::{Buffer, F32, U32};

macro_rules! by_hand {
    ($file:literal) => {
        include_str!(concat!("by_hand/", $file, ".cl"))
    };
}

/// All of them.
pub fn all() -> Vec<Case> {
    let cases = [
        elementwise(),
        matmul(),
        reduction(),
        scan(),
        bit_count(),
        rest(),
        stencil(),
    ];
    cases.into_iter().flatten().collect()
}

fn elementwise() -> Vec<Case> {
    let n = 1 << 20;
    vec![
        Case {
            name: "vector_add",
            by_hand: by_hand!("vector_add"),
            mangled: "_Z10vector_addPjPKjjj",
            grid: [1024, 1],
            block: [256, 1],
            dynamic_shared_bytes: 0,
            args: vec![Buffer(0), Buffer(1), U32(n), U32(50)],
            globals: vec![],
            buffers: vec![seeds(0, n), seeds(1000, n)],
            compared_as: Element::U32,
        },
        Case {
            name: "saxpy",
            by_hand: by_hand!("saxpy"),
            mangled: "_Z5saxpyfPKfPfjj",
            grid: [n / 256, 1],
            block: [256, 1],
            dynamic_shared_bytes: 0,
            args: vec![F32(0.5), Buffer(0), Buffer(1), U32(n), U32(50)],
            globals: vec![],
            buffers: vec![floats(0, n), floats(100, n)],
            compared_as: Element::F32,
        },
    ]
}

fn matmul() -> Vec<Case> {
    let n = 256;
    vec![Case {
        name: "matmul",
        by_hand: by_hand!("matmul"),
        mangled: "_Z6matmulPKfS0_Pdjj",
        grid: [n / 16, n / 16],
        block: [16, 16],
        dynamic_shared_bytes: 0,
        args: vec![Buffer(0), Buffer(1), Buffer(2), U32(n), U32(8)],
        globals: vec![],
        buffers: vec![floats(0, n * n), floats(9000, n * n), zeros(8 * n * n)],
        compared_as: Element::F64,
    }]
}

fn reduction() -> Vec<Case> {
    let (n, count) = (1 << 20, 1 << 21);
    vec![
        Case {
            name: "reduce_values",
            by_hand: by_hand!("reduction"),
            mangled: "_Z13reduce_valuesPKjPyjj",
            grid: [256, 1],
            block: [256, 1],
            dynamic_shared_bytes: 256 * 8,
            args: vec![Buffer(0), Buffer(1), U32(n), U32(40)],
            globals: vec![],
            buffers: vec![seeds(7, n), zeros(256 * 8)],
            compared_as: Element::U32,
        },
        Case {
            name: "reduce_partial",
            by_hand: by_hand!("reduction"),
            mangled: "_Z14reduce_partialPKyPyj",
            grid: [1, 1],
            block: [256, 1],
            dynamic_shared_bytes: 256 * 8,
            args: vec![Buffer(0), Buffer(1), U32(count)],
            globals: vec![],
            buffers: vec![seeds(9, 2 * count), zeros(8)],
            compared_as: Element::U32,
        },
    ]
}

fn scan() -> Vec<Case> {
    let (n, tiles) = (1 << 18, 1 << 20);
    let case = |name, mangled, grid, args, buffers| Case {
        name,
        by_hand: by_hand!("scan"),
        mangled,
        grid: [grid, 1],
        block: [256, 1],
        dynamic_shared_bytes: 0,
        args,
        globals: vec![],
        buffers,
        compared_as: Element::U32,
    };
    vec![
        case(
            "scan_tiles",
            "_Z10scan_tilesPKjPjS1_jj",
            n / 256,
            vec![Buffer(0), Buffer(1), Buffer(2), U32(n), U32(10)],
            vec![seeds(3, n), zeros(4 * n), zeros(n / 64)],
        ),
        case(
            "scan_tile_sums",
            "_Z14scan_tile_sumsPjj",
            1,
            vec![Buffer(0), U32(tiles)],
            vec![seeds(11, tiles)],
        ),
        case(
            "add_offsets",
            "_Z11add_offsetsPjPKjj",
            1 << 15,
            vec![Buffer(0), Buffer(1), U32(1 << 23)],
            vec![seeds(5, 1 << 23), seeds(6, 1 << 15)],
        ),
    ]
}

fn bit_count() -> Vec<Case> {
    let n = 1 << 15;
    vec![Case {
        name: "bit_count",
        by_hand: by_hand!("bit_count"),
        mangled: "_Z9bit_countPKjPjS1_jj",
        grid: [n / 128, 1],
        block: [128, 1],
        dynamic_shared_bytes: 0,
        args: vec![Buffer(0), Buffer(1), Buffer(2), U32(n), U32(10)],
        globals: vec![],
        buffers: vec![seeds(5, n), zeros(4 * n), zeros(n / 8)],
        compared_as: Element::U32,
    }]
}

fn rest() -> Vec<Case> {
    let (rows, width, items) = (2048, 2048, 256);
    vec![
        Case {
            name: "monte_carlo_pi",
            by_hand: by_hand!("monte_carlo_pi"),
            mangled: "_Z14monte_carlo_piPjj",
            grid: [64, 1],
            block: [256, 1],
            dynamic_shared_bytes: 0,
            args: vec![Buffer(0), U32(200)],
            globals: vec![("ring_totals", 1), ("pull_total", 2)],
            buffers: vec![zeros(64 * 256 * 4), zeros(64), zeros(8)],
            compared_as: Element::U32,
        },
        Case {
            name: "dense_relu",
            by_hand: by_hand!("neural_layer"),
            mangled: "_Z10dense_reluPKfS0_S0_Pfj",
            grid: [rows, 1],
            block: [128, 1],
            dynamic_shared_bytes: 0,
            args: vec![Buffer(0), Buffer(1), Buffer(2), Buffer(3), U32(width)],
            globals: vec![],
            buffers: vec![
                floats(0, rows * width),
                floats(9000, rows),
                floats(8000, width),
                zeros(4 * rows),
            ],
            compared_as: Element::F32,
        },
        Case {
            name: "persistent",
            by_hand: by_hand!("persistent"),
            mangled: "_Z10persistentPKjPjjj",
            grid: [8, 1],
            block: [256, 1],
            dynamic_shared_bytes: 0,
            args: vec![Buffer(0), Buffer(1), U32(items), U32(200)],
            globals: vec![("round_keys", 2), ("next_item", 3), ("items_done", 4)],
            buffers: vec![
                seeds(17, items * 256),
                zeros(items * 1024),
                seeds(40_000, 32),
                zeros(4),
                zeros(4),
            ],
            compared_as: Element::U32,
        },
    ]
}

fn stencil() -> Vec<Case> {
    let n = 2046;
    let points = (n + 2) * (n + 2);
    let case = |name, mangled, grid, block, args, buffers, compared_as| Case {
        name,
        by_hand: by_hand!("stencil"),
        mangled,
        grid,
        block,
        dynamic_shared_bytes: 0,
        args,
        globals: vec![],
        buffers,
        compared_as,
    };
    vec![
        case(
            "heat_step",
            "_Z9heat_stepPKfPfjf",
            [128, 128],
            [16, 16],
            vec![Buffer(0), Buffer(1), U32(n), F32(0.125)],
            vec![floats(50, points), zeros(4 * points)],
            Element::F32,
        ),
        case(
            "peak_bits",
            "_Z9peak_bitsPKfjPj",
            [128, 128],
            [16, 16],
            vec![Buffer(0), U32(n), Buffer(1)],
            vec![
                seeds(60, points).into_iter().map(|byte| byte & 0x3f).collect(),
                zeros(4),
            ],
            Element::U32,
        ),
        case(
            "heat_up",
            "_Z7heat_upPfjf",
            [points / 256, 1],
            [256, 1],
            vec![Buffer(0), U32(points), F32(1.25)],
            vec![floats(70, points)],
            Element::F32,
        ),
    ]
}

fn zeros(bytes: u32) -> Vec<u8> {
    vec![0; bytes as usize]
}

/// The programs' seeds (`xorshift32_seed`).
fn seeds(first: u32, n: u32) -> Vec<u8> {
    (first..first + n).flat_map(|i| seed(i).to_le_bytes()).collect()
}

fn seed(index: u32) -> u32 {
    let x = index.wrapping_add(0x9e37_79b9);
    let x = ((x ^ 61) ^ (x >> 16)).wrapping_mul(9);
    let x = (x ^ (x >> 4)).wrapping_mul(0x27d4_eb2d);
    (x ^ (x >> 15)) | 1
}

/// Floats in [−1, 1) of 8 bits.
fn floats(first: u32, n: u32) -> Vec<u8> {
    let small = |i| f32::from(i16::from(seed(i).to_le_bytes()[3].cast_signed())) / 128.0;
    (first..first + n).flat_map(|i| small(i).to_le_bytes()).collect()
}
