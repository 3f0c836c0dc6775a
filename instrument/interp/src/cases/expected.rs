//! What the programs' sources say their kernels compute.

fn xorshift32(mut state: u32) -> u32 {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    state
}

/// Sums over the passes of each element of the product; all of it is exact.
pub(super) fn matmul(a: &[f32], b: &[f32], n: usize, passes: u32) -> Vec<f64> {
    let element = |row: usize, column: usize| -> f64 {
        (0..n)
            .map(|k| f64::from(a[row * n + k]) * f64::from(b[k * n + column]))
            .sum()
    };
    let weight: f64 = (0..passes).map(|_| 1.0).sum();
    (0..n * n).map(|i| weight * element(i / n, i % n)).collect()
}

pub(super) fn reduce(values: &[u32], passes: u32, blocks: usize, threads: usize) -> Vec<u64> {
    let sum = |block: usize| -> u64 {
        let mine = values.iter().enumerate().filter(|(i, _)| i / threads % blocks == block);
        mine.map(|(_, v)| u64::from(*v)).sum()
    };
    let weight: u64 = (0..passes).map(|pass| 2 * u64::from(pass) + 1).sum();
    (0..blocks).map(|block| sum(block) * weight).collect()
}

/// Prefix sums within tiles of 256, taken again and again; the last of each tile, where missing elements count as 0.
pub(super) fn scan(input: &[u32], passes: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut out, mut sums) = (vec![], vec![]);
    for tile in input.chunks(256) {
        let mut tile = tile.to_vec();
        tile.resize(256, 0);
        for _ in 0..passes {
            let mut sum = 0u32;
            for value in &mut tile {
                sum = sum.wrapping_add(*value);
                *value = sum;
            }
        }
        sums.push(tile[255]);
        out.extend(tile);
    }
    out.truncate(input.len());
    (out, sums)
}

pub(super) fn bit_count(words: &[u32], passes: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut ones, mut generations) = (vec![], vec![]);
    for warp in words.chunks(32) {
        let mut warp = warp.to_vec();
        let (mut counts, mut marked) = (vec![0; 32], 0);
        for _ in 0..passes {
            warp.iter_mut().for_each(|w| *w = xorshift32(*w));
            for (bit, count) in counts.iter_mut().enumerate() {
                *count += warp.iter().map(|w| *w >> bit & 1).sum::<u32>();
            }
            marked += u32::from(warp.iter().any(|w| w % 32 == 0));
            marked += u32::from(warp.iter().all(|w| w % 32 != 1)) << 16;
        }
        ones.extend(counts);
        generations.push(marked);
    }
    (ones, generations)
}

/// Sums of exact products, so their order does not matter.
pub(super) fn dense_relu(weights: &[f32], bias: &[f32], input: &[f32]) -> Vec<f32> {
    let row = |(weights, bias): (&[f32], &f32)| {
        let sum: f32 = weights.iter().zip(input).map(|(w, x)| w * x).sum();
        (sum + bias).max(0.0)
    };
    weights.chunks(input.len()).zip(bias).map(row).collect()
}

pub(super) fn persistent(input: &[u32], keys: &[u32], rounds: u32) -> Vec<u32> {
    let mix = |value: u32, left: u32, right: u32, key: u32| {
        left.rotate_left(7) ^ right.wrapping_mul(0x9e37_79b1).wrapping_add(value).wrapping_add(key)
    };
    let mut out = Vec::new();
    for item in input.chunks(256) {
        let mut words = item.to_vec();
        for key in keys.iter().cycle().take(rounds as usize) {
            let next = |i: usize| mix(words[i], words[(i + 255) % 256], words[(i + 1) % 256], *key);
            words = (0..256).map(next).collect();
        }
        out.extend(words);
    }
    out
}

/// The greatest inner value.
pub(super) fn peak(now: &[f32], n: usize) -> f32 {
    let inner = |i: &usize| (1..=n).contains(&(i % (n + 2))) && (1..=n).contains(&(i / (n + 2)));
    (0..now.len()).filter(inner).map(|i| now[i]).fold(0.0, f32::max)
}
