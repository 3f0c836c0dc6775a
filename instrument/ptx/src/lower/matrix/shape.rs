//! How large matrices are.

/// `m` rows of the first one, `n` columns of the second one, `k` products for each element of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
}

const fn shape(m: u32, n: u32, k: u32) -> Shape {
    Shape { m, n, k }
}

/// Those of `mma`, by name.
pub(crate) const OF_MMA: [(&str, Shape); 11] = [
    ("m8n8k4", shape(8, 8, 4)),
    ("m8n8k16", shape(8, 8, 16)),
    ("m8n8k32", shape(8, 8, 32)),
    ("m8n8k128", shape(8, 8, 128)),
    ("m16n8k4", shape(16, 8, 4)),
    ("m16n8k8", shape(16, 8, 8)),
    ("m16n8k16", shape(16, 8, 16)),
    ("m16n8k32", shape(16, 8, 32)),
    ("m16n8k64", shape(16, 8, 64)),
    ("m16n8k128", shape(16, 8, 128)),
    ("m16n8k256", shape(16, 8, 256)),
];

/// Those of `wmma`, by name.
pub(crate) const OF_WMMA: [(&str, Shape); 7] = [
    ("m16n16k16", shape(16, 16, 16)),
    ("m8n32k16", shape(8, 32, 16)),
    ("m32n8k16", shape(32, 8, 16)),
    ("m16n16k8", shape(16, 16, 8)),
    ("m8n8k4", shape(8, 8, 4)),
    ("m8n8k32", shape(8, 8, 32)),
    ("m8n8k128", shape(8, 8, 128)),
];

/// Lanes of a warp.
pub(crate) const LANES: u32 = 32;
