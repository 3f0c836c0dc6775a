//! Results kept in files: 64-bit words, little-endian, zstd-compressed, under the hash of what was computed.

use std::fs;
use std::path::{Path, PathBuf};

use hetckpt_abi::program::Program;
use hetckpt_ir::text::print;

const LEVEL: i32 = 19;

/// Names what is computed: the kernel, the block, the operands.
pub fn key(program: &Program, dimensions: [u32; 3], operands: &[u64]) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(print::kernel(&program.kernel).as_bytes());
    for word in dimensions.iter().map(|&d| u64::from(d)).chain(operands.iter().copied()) {
        hash.update(&word.to_le_bytes());
    }
    hash.finalize().to_hex()[..16].to_owned()
}

fn file(key: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu_results/data");
    Path::new(folder).join(format!("{key}.zst"))
}

/// What was recorded under `key`.
pub fn read(key: &str, output: &mut [u64]) {
    let file = file(key);
    let packed = fs::read(&file).unwrap_or_else(|e| {
        panic!(
            "{}: {e}\nno GPU's results are there for this kernel; tests/gpu_results/main.rs says how to record them",
            file.display()
        )
    });
    let bytes = zstd::decode_all(&*packed).unwrap();
    assert_eq!(bytes.len(), output.len() * 8, "{}", file.display());
    for (value, bytes) in output.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = u64::from_le_bytes(bytes.try_into().unwrap());
    }
}

/// Records results.
pub fn write(folder: &Path, key: &str, output: &[u64]) {
    let bytes: Vec<u8> = output.iter().flat_map(|v| v.to_le_bytes()).collect();
    fs::create_dir_all(folder).unwrap();
    fs::write(
        folder.join(format!("{key}.zst")),
        zstd::encode_all(&*bytes, LEVEL).unwrap(),
    )
    .unwrap();
}
