//! LLVM's names for hetIR's types.

use hetckpt_ir::types::{Type, Width};

/// LLVM type of a value of a hetIR type.
pub fn llvm(ty: Type) -> &'static str {
    match ty {
        Type::Pred => "i1",
        Type::B8 | Type::U8 | Type::S8 => "i8",
        Type::B16 | Type::U16 | Type::S16 => "i16",
        Type::B32 | Type::U32 | Type::S32 => "i32",
        Type::B64 | Type::U64 | Type::S64 => "i64",
        Type::F16 => "half",
        Type::F16x2 => "<2 x half>",
        // Not `bfloat`: where that is kept from one basic block to another, LLVM 22 keeps it as `float`, and back to 16
        // bits it goes by an instruction that flushes subnormals.
        Type::Bf16 => "i16",
        Type::Bf16x2 => "<2 x i16>",
        Type::F32 => "float",
        Type::F64 => "double",
    }
}

/// Suffix by which LLVM's overloaded intrinsics name the type.
pub fn suffix(ty: Type) -> &'static str {
    match ty {
        Type::F16 => "f16",
        Type::F16x2 => "v2f16",
        Type::F32 => "f32",
        Type::F64 => "f64",
        other => llvm(other),
    }
}

/// Bits of a value; a predicate has one.
pub fn bits(ty: Type) -> u32 {
    if ty == Type::Pred { 1 } else { ty.size_bytes() * 8 }
}

/// LLVM's integer type of so many bits.
pub fn int_of_bits(bits: u32) -> &'static str {
    match bits {
        1 => "i1",
        8 => "i8",
        16 => "i16",
        32 => "i32",
        64 => "i64",
        _ => "i128",
    }
}

/// LLVM's integer type as wide as `ty`.
pub fn int(ty: Type) -> &'static str {
    int_of_bits(bits(ty))
}

/// Bits of a register.
pub fn width_bits(width: Width) -> u32 {
    match width {
        Width::Pred => 1,
        Width::W16 => 16,
        Width::W32 => 32,
        Width::W64 => 64,
    }
}

/// The type twice as wide, for `mul.wide`.
pub fn widened(ty: Type) -> Option<Type> {
    Some(match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}
