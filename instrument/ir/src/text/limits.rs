//! Limits of the parser: far above what compilers emit, low enough that hostile text cannot exhaust memory.

/// Registers in a kernel.
pub const MAX_REGISTERS: usize = 1 << 20;
/// Basic blocks in a kernel.
pub const MAX_BLOCKS: usize = 1 << 20;
/// Resume points in a kernel.
pub const MAX_RESUME_POINTS: usize = 1 << 20;
/// Operands, registers or strings in one list.
pub const MAX_LIST: usize = 256;
/// Bytes of a quoted string.
pub const MAX_STRING_BYTES: usize = 1 << 20;
/// Bytes of a module or kernel text.
pub const MAX_TEXT_BYTES: usize = 1 << 30;
