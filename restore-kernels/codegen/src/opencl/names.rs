//! How OpenCL C writes registers, types, constants and labels.

use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

/// `r12`: the letter tells the width, the number is the register's id.
pub(super) fn register(kernel: &Kernel, reg: RegId) -> String {
    let letter = match kernel.width(reg) {
        Width::Pred => 'p',
        Width::W16 => 's',
        Width::W32 => 'r',
        Width::W64 => 'd',
    };
    format!("{letter}{}", reg.0)
}

/// The C type that holds a register.
pub(super) const fn width_type(width: Width) -> &'static str {
    match width {
        Width::Pred => "bool",
        Width::W16 => "ushort",
        Width::W32 => "uint",
        Width::W64 => "ulong",
    }
}

/// The unsigned C type of so many bytes.
pub(super) const fn unsigned(size_bytes: u32) -> &'static str {
    match size_bytes {
        1 => "uchar",
        2 => "ushort",
        4 => "uint",
        _ => "ulong",
    }
}

/// The signed C type of so many bytes.
pub(super) const fn signed(size_bytes: u32) -> &'static str {
    match size_bytes {
        1 => "char",
        2 => "short",
        4 => "int",
        _ => "long",
    }
}

/// The C type of an integer type.
pub(super) const fn integer(ty: Type) -> &'static str {
    if ty.is_signed() {
        signed(ty.size_bytes())
    } else {
        unsigned(ty.size_bytes())
    }
}

/// Bits as an unsigned constant of so many bytes.
pub(super) fn bits_constant(size_bytes: u32, bits: u64) -> String {
    let unused = 64 - 8 * size_bytes.clamp(1, 8);
    let bits = bits << unused >> unused;
    let digits = if bits < 4096 {
        bits.to_string()
    } else {
        format!("0x{bits:x}")
    };
    match size_bytes {
        8 => format!("{digits}ul"),
        4 => format!("{digits}u"),
        _ => format!("({}){digits}", unsigned(size_bytes)),
    }
}

/// Bits as a signed number, an `int` or a `long`.
pub(super) fn signed_constant(size_bytes: u32, bits: u64) -> String {
    let unused = 64 - 8 * size_bytes.clamp(1, 8);
    let number = (bits << unused).cast_signed() >> unused;
    let suffix = if size_bytes == 8 { "l" } else { "" };
    if number == i64::MIN || (size_bytes == 4 && number == i64::from(i32::MIN)) {
        return format!("as_{}({})", signed(size_bytes), bits_constant(size_bytes, bits));
    }
    if number < 0 {
        format!("({number}{suffix})")
    } else {
        format!("{number}{suffix}")
    }
}

/// An `f32` constant.
pub(super) fn float_constant(bits: u64) -> String {
    let bits = u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
    let value = f32::from_bits(bits);
    if value.is_finite() {
        parenthesised(format!("{value:?}f"))
    } else {
        format!("as_float(0x{bits:x}u)")
    }
}

/// An `f64` constant.
pub(super) fn double_constant(bits: u64) -> String {
    let value = f64::from_bits(bits);
    if value.is_finite() {
        parenthesised(format!("{value:?}"))
    } else {
        format!("as_double(0x{bits:x}ul)")
    }
}

fn parenthesised(number: String) -> String {
    if number.starts_with('-') {
        format!("({number})")
    } else {
        number
    }
}

/// A label of a basic block in a region.
pub(super) fn label(region: Option<ResumePointId>, id: BbId) -> String {
    match region {
        None => format!("bb{}", id.0),
        Some(region) => format!("bb{}_from_{}", id.0, region.0),
    }
}

/// The most characters of a PTX name in an identifier: PoCL names files by its kernels.
const MAX_CHARACTERS: usize = 64;

/// The beginning of a PTX name as a C identifier. Names of templates have thousands of characters; a program has one
/// kernel, so nothing depends on the rest.
pub(super) fn short_identifier(name: &str) -> String {
    name.chars()
        .take(MAX_CHARACTERS)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_constants_as_c_reads_them() {
        assert_eq!(bits_constant(4, 0xffff_ffff), "0xffffffffu");
        assert_eq!(bits_constant(2, 0x1_0005), "(ushort)5");
        assert_eq!(bits_constant(8, 7), "7ul");
        assert_eq!(signed_constant(4, 0xffff_ffff), "(-1)");
        assert_eq!(signed_constant(4, 0x8000_0000), "as_int(0x80000000u)");
        assert_eq!(signed_constant(8, 3), "3l");
        assert_eq!(float_constant(0x3f80_0000), "1.0f");
        assert_eq!(float_constant(0xbf00_0000), "(-0.5f)");
        assert_eq!(float_constant(0x7f80_0000), "as_float(0x7f800000u)");
        assert_eq!(double_constant(0x3ff0_0000_0000_0000), "1.0");
    }
    #[test]
    fn shortens_identifiers() {
        assert_eq!(short_identifier("$a.b%c_9"), "_a_b_c_9");
        assert_eq!(short_identifier(&"x".repeat(4000)), "x".repeat(64));
    }
}
