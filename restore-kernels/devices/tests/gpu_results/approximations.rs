//! How far results may be apart where PTX only bounds an instruction's error.

/// True if two results of `form` are as near each other as PTX's bounds are wide: `tanh` and what is made of halves is
/// bounded loosest, functions of one number absolutely where they are small.
pub fn are_close(form: &str, ours: u64, theirs: u64) -> bool {
    let ty = form
        .split([' ', '.'])
        .find(|part| part.contains("f16") || *part == "f32" || *part == "f64");
    match ty {
        Some("f64") => near(f64::from_bits(ours), f64::from_bits(theirs), 1e-5),
        Some("f32") => {
            let single = |bits: u64| f64::from(f32::from_bits(bits as u32));
            let bound = if form.starts_with("tanh") { 1e-3 } else { 1e-4 };
            near(single(ours), single(theirs), bound)
        }
        Some("f16") => near(half(ours as u16), half(theirs as u16), 4e-3),
        Some("bf16") => near(brain(ours as u16), brain(theirs as u16), 2e-2),
        Some("f16x2") => (0..2).all(|at| {
            near(
                half((ours >> (16 * at)) as u16),
                half((theirs >> (16 * at)) as u16),
                4e-3,
            )
        }),
        _ => (0..2).all(|at| {
            near(
                brain((ours >> (16 * at)) as u16),
                brain((theirs >> (16 * at)) as u16),
                2e-2,
            )
        }),
    }
}

fn near(a: f64, b: f64, bound: f64) -> bool {
    if a.is_nan() || b.is_nan() || a.is_infinite() || b.is_infinite() {
        return a.is_nan() && b.is_nan() || a == b;
    }
    (a - b).abs() <= bound * a.abs().max(b.abs()).max(0.02)
}

fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

fn brain(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}
